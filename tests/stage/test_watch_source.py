"""The watch at work on real directories: the watcher alone, with a tick that never comes, and the tick alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from sidecar.watch.source import Source
from tests.support.waiting import until, until_sync
from tests.support.watching import (
    TICK_ALONE,
    WATCH_ALONE,
    Content,
    RootAt,
    Times,
    remove,
    replace,
    watching,
    write,
)

if TYPE_CHECKING:
    from pathlib import Path

both_ways = pytest.mark.parametrize("times", [WATCH_ALONE, TICK_ALONE], ids=["watch", "tick"])


@both_ways
async def test_a_manifest_replaced_by_renames_is_served_each_time(tmp_path: Path, times: Times) -> None:
    """B02 (beancount/fava#1778): the second replacement is seen like the first."""
    capsule = tmp_path / "a"
    write(capsule, "v1")
    async with watching(tmp_path, times=times) as work:
        for version in ("v2", "v3", "v4"):
            replace(capsule, version)
            await work.shows(capsule, version)


@both_ways
async def test_a_manifest_removed_and_written_again_is_served_at_once(tmp_path: Path, times: Times) -> None:
    """B03 (thanos-io/thanos#8127): delete and recreate does not wait for a later interval."""
    capsule = tmp_path / "a"
    manifest = write(capsule, "v1")
    async with watching(tmp_path, times=times) as work:
        manifest.unlink()
        await work.shows(capsule, None)
        shutil.copy(write(tmp_path.parent / f"{tmp_path.name}-aside", "v2"), manifest)
        await work.shows(capsule, "v2")


@both_ways
async def test_a_directory_removed_and_made_again_is_watched_again(tmp_path: Path, times: Times) -> None:
    """B04 (tirth8205/code-review-graph#890): also when the new one has the inode of the old one."""
    capsule = tmp_path / "a"
    write(capsule, "v0")
    async with watching(tmp_path, times=times) as work:
        for version in ("v1", "v2", "v3"):
            source = tmp_path.parent / f"{tmp_path.name}-{version}"
            write(source, version)
            remove(capsule)
            shutil.copytree(source, capsule)
            await work.shows(capsule, version)
        if not times.force_tick:
            await work.armed()
        replace(capsule, "v4")
        await work.shows(capsule, "v4")


@both_ways
async def test_both_swaps_of_a_kubernetes_volume_are_seen(tmp_path: Path, times: Times) -> None:
    """B05 (jimmidyson/configmap-reload#190): `..data` is swapped by a rename; the manifest's own path never changes."""

    def swap(version: str) -> None:
        inside = tmp_path / f"..{version}"
        inside.mkdir()
        (inside / "murmur.yaml").write_text(version)
        (tmp_path / "..data_tmp").symlink_to(inside.name)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    swap("v1")
    (tmp_path / "murmur.yaml").symlink_to("..data/murmur.yaml")
    async with watching(tmp_path, times=times) as work:
        for version in ("v2", "v3"):
            swap(version)
            await work.shows(tmp_path, version)


async def test_a_capsule_below_a_swapped_link_is_seen_by_the_watch(tmp_path: Path) -> None:
    """A volume that maps a directory: the watcher is moved to where the link leads now."""
    for version in ("v1", "v2"):
        write(tmp_path / f"..{version}" / "a", version)
    (tmp_path / "..data").symlink_to("..v1")
    (tmp_path / "a").symlink_to("..data/a")
    async with watching(tmp_path) as work:
        (tmp_path / "..data_tmp").symlink_to("..v2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        await work.shows(tmp_path / "a", "v2")
        await work.armed()
        write(tmp_path / "a", "v3")
        await work.shows(tmp_path / "a", "v3")


@both_ways
async def test_a_manifest_written_in_pieces_is_never_seen_half_way(tmp_path: Path, times: Times) -> None:
    """A writer that pauses less than the settle window is seen only when it is done."""
    capsule = tmp_path / "a"
    manifest = write(capsule, "old")
    slow = Times(tick=times.tick, settle=1.0, force_tick=times.force_tick)
    async with watching(tmp_path, times=slow) as work:
        with manifest.open("w") as file:
            for _ in range(40):
                file.write("x")
                file.flush()
                await asyncio.sleep(0.01)
        await work.shows(capsule, "x" * 40)
        assert work.seen[str(capsule)] == ["old", "x" * 40]


@both_ways
async def test_capsules_come_and_go(tmp_path: Path, times: Times) -> None:
    """A new directory, a manifest in a directory that was there before, and a removed one."""
    (tmp_path / "later").mkdir()
    async with watching(tmp_path, times=times) as work:
        write(tmp_path / "new", "1")
        write(tmp_path / "later", "2")
        await work.shows(tmp_path / "new", "1")
        await work.shows(tmp_path / "later", "2")
        if not times.force_tick:
            await work.armed()
        remove(tmp_path / "new")
        (tmp_path / "later").rename(tmp_path / "moved")
        await work.fits(lambda s: s.found.keys() == {str(tmp_path / "moved")})


async def test_a_hundred_capsules_made_at_once_are_all_found(tmp_path: Path) -> None:
    """The watcher names every directory but only some of the files in them (H2)."""
    async with watching(tmp_path) as work:
        for n in range(100):
            write(tmp_path / f"c{n}", str(n))
        await work.fits(lambda s: len(s.found) == 100)


@both_ways
async def test_a_root_that_appears_vanishes_and_is_replaced_is_followed(tmp_path: Path, times: Times) -> None:
    """The directories above a root are watched for it, however far up they have to be."""
    root = tmp_path / "x" / "y" / "root"
    async with watching(root, times=times) as work:
        await work.fits(lambda s: s.roots[0].last_error)
        for version in ("v1", "v2"):
            write(root / "a", version)
            await work.shows(root / "a", version)
            assert work.newest is not None
            assert work.newest.roots[0].last_error is None
            if not times.force_tick:
                await work.armed()
            remove(tmp_path / "x")
            await work.fits(lambda s: not s.found and s.roots[0].last_error)
            if not times.force_tick:
                await work.armed()


@both_ways
async def test_a_root_that_is_a_link_may_be_pointed_elsewhere(tmp_path: Path, times: Times) -> None:
    """And the place it leads to then is watched."""
    write(tmp_path / "v1" / "a", "v1")
    write(tmp_path / "v2" / "a", "v2")
    root = tmp_path / "root"
    root.symlink_to("v1")
    async with watching(root, times=times) as work:
        (tmp_path / "new").symlink_to("v2")
        (tmp_path / "new").rename(root)
        await work.shows(root / "a", "v2")
        if not times.force_tick:
            await work.armed()
        replace(root / "a", "v3")
        await work.shows(root / "a", "v3")


async def test_a_root_that_cannot_be_read_is_said_once_and_its_capsules_go_on(tmp_path: Path) -> None:
    """One line when it begins, one when it ends, none per tick."""
    write(tmp_path / "real" / "a", "1")
    root = tmp_path / "root"
    root.symlink_to("real")
    with capture_logs() as logs:
        async with watching(root, times=Times(tick=0.02, settle=0.01, force_tick=True)) as work:
            root.unlink()
            root.symlink_to("root")
            await work.fits(lambda s: s.unreadable == {str(root)})
            assert work.text(root / "a") == "1"
            await asyncio.sleep(0.2)
            root.unlink()
            root.symlink_to("real")
            await work.fits(lambda s: not s.unreadable)
    said = [(line["event"], line["log_level"]) for line in logs]
    # Between unlink and symlink the root may have been seen missing: that is another thing to say.
    assert said.count(("root_unreadable", "warning")) == 1
    assert {event for event, _ in said} <= {"root_missing", "root_unreadable", "root_readable"}
    assert said[-1] == ("root_readable", "info")
    assert {line["root"] for line in logs} == {str(root)}
    assert not any(str(root) in line.get("reason", "") for line in logs)


async def test_nothing_is_said_of_a_root_that_is_configured_no_longer(tmp_path: Path) -> None:
    """That it is no trouble any more does not mean that it can be read."""
    write(tmp_path / "good" / "a", "1")
    (tmp_path / "loop").symlink_to("loop")
    roots = [RootAt(str(tmp_path / name)) for name in ("good", "loop", "missing")]
    with capture_logs() as logs:
        async with watching(*(tmp_path / name for name in ("good", "loop", "missing"))) as work:
            await work.fits(lambda s: len([r for r in s.roots if r.last_error]) == 2)
            work.source.reconfigure(roots[:1], files=())
            await work.fits(lambda s: len(s.roots) == 1)
    said = [(line["event"], line["root"]) for line in logs if "root" in line]
    assert sorted(said) == [
        ("root_missing", str(tmp_path / "missing")),
        ("root_unreadable", str(tmp_path / "loop")),
    ]
    assert not [line for line in logs if line["event"].endswith("_readable")]


async def test_a_name_that_is_not_utf8_does_not_stop_the_watch(tmp_path: Path) -> None:
    """B09 (rust-lang/rust-analyzer#1416): it ends the watcher, which is started again; one line says so."""
    capsule = tmp_path / "a"
    write(capsule, "v1")
    write(tmp_path / "b", "v1")
    with capture_logs() as logs:
        async with watching(tmp_path) as work:
            (capsule / os.fsdecode(b"\xff")).touch()
            replace(capsule, "v2")
            await work.shows(capsule, "v2")
            await work.armed()
            replace(capsule, "v3")
            await work.shows(capsule, "v3")
            for version in ("v4", "v5"):
                (capsule / os.fsdecode(b"\xff")).write_text(version)
                replace(tmp_path / "b", version)
                await work.shows(tmp_path / "b", version)
                await work.armed()
            assert work.source.last_error is None
    lost = [line for line in logs if line["event"] == "watch_lost"]
    assert len(lost) == 1
    assert str(capsule) in lost[0]["reason"]
    assert len([line for line in logs if line["event"] == "watch_restored"]) == 1


async def test_capsules_in_directories_whose_names_are_not_utf8_are_found_by_the_tick(tmp_path: Path) -> None:
    """The watcher cannot be told of them; that must not keep it from the others."""
    capsule = tmp_path / os.fsdecode(b"caf\xe9")
    write(capsule, "v1")
    write(tmp_path / "b", "w1")
    async with watching(tmp_path, times=Times(tick=0.2)) as work:
        replace(capsule, "v2")
        replace(tmp_path / "b", "w2")
        await work.shows(capsule, "v2")
        await work.shows(tmp_path / "b", "w2")


async def test_a_file_that_flaps_is_neither_an_error_nor_much_work(tmp_path: Path) -> None:
    """B10 (samuelcolvin/watchfiles#282): what vanishes between event and look is no news."""
    capsule = tmp_path / "a"
    write(capsule, "v1")
    with capture_logs() as logs:
        async with watching(tmp_path) as work:
            for _ in range(2000):
                (capsule / "t").touch()
                (capsule / "t").unlink()
                await asyncio.sleep(0)
            replace(capsule, "v2")
            await work.shows(capsule, "v2")
            assert work.count == 2
    assert logs == []


async def test_nothing_is_handed_on_where_nothing_changed(tmp_path: Path) -> None:
    """Touches, equal bytes and other files give no snapshot."""
    capsule = tmp_path / "a"
    manifest = write(capsule, "1")
    async with watching(tmp_path, times=Times(tick=0.05)) as work:
        os.utime(manifest, (1, 1))
        replace(capsule, "1")
        (capsule / "other").write_text("x")
        work.source.poke()
        write(tmp_path / "last", "2")
        await work.shows(tmp_path / "last", "2")
        assert work.count == 2


async def test_a_slow_reader_gets_the_latest_snapshot_only(tmp_path: Path) -> None:
    """Between the watch and its reader is one slot."""
    write(tmp_path / "a", "0")
    times = Times(tick=0.02, settle=0.0, force_tick=True)
    async with Source([RootAt(str(tmp_path))], load=Content, watch=times, max_bytes=99) as source:
        snapshots = source.snapshots()
        await anext(snapshots)
        for n in range(1, 4):
            replace(tmp_path / "a", str(n))
            await asyncio.sleep(0.1)
        newest = await anext(snapshots)
        content = newest.found[str(tmp_path / "a")].content
        assert content is not None
        assert content.data == b"3"
        await snapshots.aclose()


@both_ways
async def test_a_further_file_is_watched_by_its_directory(tmp_path: Path, times: Times) -> None:
    """The configuration file may be replaced, removed and written again."""
    conf = tmp_path / "conf"
    conf.mkdir()
    file = conf / "config.yaml"
    async with watching(tmp_path / "root", times=times, files=(str(file),)) as work:
        await work.fits(lambda s: s.files == {str(file): None})
        file.write_text("1")
        await work.fits(lambda s: s.files[str(file)] is not None)
        (conf / "new").write_text("22")
        (conf / "new").rename(file)
        await work.fits(lambda s: (i := s.files[str(file)]) is not None and i.size == 2)
        file.unlink()
        await work.fits(lambda s: s.files[str(file)] is None)


async def test_other_roots_and_another_way_of_watching_are_taken_up_at_once(tmp_path: Path) -> None:
    """From watch to tick and back, between roots, without loading anything twice."""
    write(tmp_path / "x" / "a", "1")
    write(tmp_path / "y" / "b", "2")
    x, y = RootAt(str(tmp_path / "x")), RootAt(str(tmp_path / "y"))
    async with watching(x) as work:
        first = work.newest
        work.source.reconfigure([y, x], watch=TICK_ALONE, files=())
        await work.shows(tmp_path / "y" / "b", "2")
        assert first is not None
        assert work.newest is not None
        assert [root.path for root in work.newest.roots] == [y.path, x.path]
        assert work.newest.found[f"{x.path}/a"] is first.found[f"{x.path}/a"]
        assert not work.source.watching
        replace(tmp_path / "y" / "b", "3")
        await work.shows(tmp_path / "y" / "b", "3")
        work.source.reconfigure([y], watch=WATCH_ALONE, files=())
        await work.fits(lambda s: s.found.keys() == {f"{y.path}/b"})
        await work.armed()
        replace(tmp_path / "y" / "b", "4")
        await work.shows(tmp_path / "y" / "b", "4")


async def test_a_loader_that_hangs_does_not_hang_the_end(tmp_path: Path) -> None:
    """What is stuck in a system call is left behind, and said; the event loop never waits for it."""
    write(tmp_path / "a", "1")
    hanging, go_on = threading.Event(), threading.Event()

    def load(data: bytes, path: str) -> Content:
        hanging.set()
        go_on.wait(30)
        return Content(data, path)

    with capture_logs() as logs:
        source = Source([RootAt(str(tmp_path))], load=load, watch=Times(settle=0), max_bytes=9)
        reader = asyncio.ensure_future(anext(source.snapshots()))
        await until(hanging.is_set)
        await asyncio.wait_for(source.aclose(), 5)
        with pytest.raises(StopAsyncIteration):
            await reader
        go_on.set()
    assert [line["event"] for line in logs] == ["scan_abandoned"]


async def test_a_source_that_was_never_read_closes_and_gives_nothing(tmp_path: Path) -> None:
    """Closing twice is harmless too."""
    source = Source([RootAt(str(tmp_path))], load=Content, watch=WATCH_ALONE, max_bytes=9)
    await source.aclose()
    await source.aclose()
    assert [snapshot async for snapshot in source.snapshots()] == []


OUTSIDE = """
import asyncio, sys
sys.path[:0] = {path!r}
import structlog
from sidecar.ops import log
from sidecar.watch.source import Source
from tests.support.watching import Content, RootAt, Times, shown

async def main():
    log.configure(level="info", form="json")
    async with Source([RootAt(sys.argv[1])], load=Content, watch=Times(tick=1.0), max_bytes=999) as source:
        async for snapshot in source.snapshots():
            print(sorted(shown(snapshot).values()), flush=True)
            while not source.watching and not source.last_error:
                await asyncio.sleep(0.01)
            print("watching" if source.watching else "by tick", flush=True)

asyncio.run(main())
"""


def outside(root: Path, *before: str) -> subprocess.Popen[str]:
    """Watch a root in a process of its own, which prints every snapshot, and whether there is a watcher."""
    script = textwrap.dedent(OUTSIDE.format(path=sys.path))
    return subprocess.Popen(
        [*before, sys.executable, "-c", script, str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def printed(process: subprocess.Popen[str], line: str) -> None:
    """Wait for a line of the process."""
    assert process.stdout is not None
    for got in process.stdout:
        if got.strip() == line:
            return
    assert process.stderr is not None
    pytest.fail(f"ended without {line!r}: {process.stderr.read()}")


def end(process: subprocess.Popen[str]) -> str:
    """End the process and return what it logged."""
    os.killpg(process.pid, signal.SIGKILL)
    _, logged = process.communicate(timeout=10)
    return logged


def test_an_overflow_of_the_event_queue_loses_nothing(tmp_path: Path) -> None:
    """B01 (samuelcolvin/watchfiles#348): 20,000 files come while the process is stopped; then its manifest changes."""
    capsule = tmp_path / "a"
    write(capsule, "v1")
    process = outside(tmp_path)
    try:
        printed(process, "['v1']")
        printed(process, "watching")
        os.kill(process.pid, signal.SIGSTOP)
        for n in range(20_000):
            (capsule / f"f{n}").touch()
        replace(capsule, "v2")
        os.kill(process.pid, signal.SIGCONT)
        printed(process, "['v2']")
    finally:
        end(process)


@pytest.mark.machine
@pytest.mark.parametrize(
    ("limit", "value", "named"),
    [
        ("max_inotify_watches", 3, "fs.inotify.max_user_watches"),
        ("max_inotify_instances", 0, "fs.inotify.max_user_instances"),
    ],
)
def test_without_room_for_a_watcher_the_tick_does_its_work(
    tmp_path: Path, limit: str, value: int, named: str
) -> None:
    """B08 (watchexec/watchexec#93): one warning names the sysctl, and changes are found."""
    for n in range(5):
        write(tmp_path / f"c{n}", "v1")
    room = f'echo {value} > /proc/sys/user/{limit} && exec "$@"'
    process = outside(tmp_path, "unshare", "-Ur", "sh", "-c", room, "sh")
    try:
        printed(process, "['v1', 'v1', 'v1', 'v1', 'v1']")
        printed(process, "by tick")
        replace(tmp_path / "c4", "v2")
        printed(process, "['v1', 'v1', 'v1', 'v1', 'v2']")
        replace(tmp_path / "c4", "v3")
        printed(process, "['v1', 'v1', 'v1', 'v1', 'v3']")
    finally:
        logged = end(process)
    assert logged.count("\n") == 1
    assert named in logged
    assert '"watch_lost"' in logged
    until_sync(lambda: process.returncode is not None)
