"""Disks on a hostile day: one that reports no changes, one that does not answer, a state that cannot be written."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.support.fuse import mounted
from tests.support.hostile import descriptors, troubles, undisturbed, until_back
from tests.support.spawned import replace_capsule, running, start, write_capsule
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fuse import FileSystem
    from tests.support.spawned import Spawned

pytestmark = pytest.mark.machine
TICK_AND_SETTLE = 2.04
FILES = "exports:\n  files:\n    root: out/\n    mode: read-only\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with the neighbour."""
    write_capsule(tmp_path / "capsules" / "calm")
    return tmp_path / "capsules"


def test_a_root_on_a_file_system_without_inotify_is_followed_by_the_tick(root: Path, tmp_path: Path) -> None:
    """FUSE, as with a network file system: changes come without an event, and are live within a tick."""
    behind = tmp_path / "behind"
    write_capsule(behind / "far")
    with (
        mounted(behind, tmp_path / "shown"),
        running(
            ["--root", str(root), "--root", str(tmp_path / "shown")], state=tmp_path / "state"
        ) as sidecar,
        undisturbed(sidecar),
    ):
        write_capsule(behind / "far", version="2")
        sidecar.until_version("far", "2", within=3 * TICK_AND_SETTLE + 5)
        write_capsule(behind / "further")
        assert sidecar.port("further")
        (behind / "far" / "murmur.yaml").unlink()
        until_sync(lambda: "far" not in sidecar.capsules(), within=20)
        assert not troubles(sidecar)


def get(url: str) -> int:
    """Return the status of an answer, whenever it comes."""
    try:
        with urlopen(url, timeout=60) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


@contextlib.contextmanager
def hanging(fuse: FileSystem) -> Iterator[None]:
    """Let no request come back while the block runs; then all do, or the process could not end."""
    fuse.order("hang")
    try:
        yield
    finally:
        fuse.order("go on")


def test_a_disk_that_hangs_under_one_workspace_stops_nobody_else(root: Path, tmp_path: Path) -> None:
    """Its reads are refused with 503 in time and its error says why; cards and changes of all others go on, and it comes back."""
    disk = tmp_path / "disk"
    (disk / "w" / "out").mkdir(parents=True)
    (disk / "w" / "out" / "a").write_text("a")
    write_capsule(root / "struck", more=FILES)
    config = tmp_path / "config.yaml"
    settings = {"workspace": str(tmp_path / "shown" / "w")}
    config.write_text(json.dumps({"roots": [{"path": str(root)}], "capsules": {"struck": settings}}))
    with (
        mounted(disk, tmp_path / "shown") as fuse,
        running(["--config", str(config)], state=tmp_path / "state") as sidecar,
        undisturbed(sidecar),
    ):
        url = f"http://127.0.0.1:{sidecar.port('struck')}/resources/files/a"
        assert get(url) == 200
        before = descriptors(sidecar.process.pid)
        answers: list[int] = []
        asking = [threading.Thread(target=lambda: answers.append(get(url)), name="asks") for _ in range(20)]
        with hanging(fuse):
            for one in asking:
                one.start()
            assert sidecar.card("struck")["version"] == "1"
            write_capsule(root / "calm", version="2")
            sidecar.until_version("calm", "2")
            write_capsule(root / "struck", version="2", more=FILES)
            until_sync(lambda: "does not answer" in error_of(sidecar, "struck"), within=30)
            assert sidecar.card("struck")["version"] == "1"
            write_capsule(root / "calm", version="3")
            sidecar.until_version("calm", "3")
            write_capsule(root / "new", more=FILES)
            assert sidecar.port("new")
            until_sync(lambda: 503 in answers, within=60)
        for one in asking:
            one.join(60)
        assert set(answers) <= {200, 503}
        assert get(url) == 200
        sidecar.until_version("struck", "2", within=30)
        until_sync(lambda: error_of(sidecar, "struck") == "")
        assert len(sidecar.events("manifest_refused")) == 1
        until_back(sidecar.process.pid, before + 1)  # the new capsule's listener
        assert not troubles(sidecar)


def error_of(sidecar: Spawned, capsule_id: str) -> str:
    """Return what the API says is wrong with a capsule."""
    error = sidecar.capsules()[capsule_id]["last_error"]
    return "" if error is None else str(error["message"])


def test_a_disk_that_hangs_under_a_root_is_named_and_no_card_is_lost(root: Path, tmp_path: Path) -> None:
    """One line and the root's error say where the looking stands still; all that is served goes on, and so does it later."""
    disk = tmp_path / "disk"
    write_capsule(disk / "far")
    shown = tmp_path / "shown"
    with (
        mounted(disk, shown) as fuse,
        running(["--root", str(root), "--root", str(shown)], state=tmp_path / "state") as sidecar,
        undisturbed(sidecar),
    ):
        port = sidecar.port("far")
        with hanging(fuse):
            told = sidecar.event("scan_stuck", within=30)
            assert told["path"].startswith(str(shown))
            until_sync(lambda: any("does not answer" in str(r["last_error"]) for r in roots(sidecar)))
            assert get(f"http://127.0.0.1:{port}/.well-known/agent-card.json") == 200
            assert sidecar.api("/healthz")
        sidecar.event("scan_goes_on", within=30)
        until_sync(lambda: all(r["last_error"] is None for r in roots(sidecar)))
        write_capsule(disk / "far", version="2")
        sidecar.until_version("far", "2", within=3 * TICK_AND_SETTLE + 5)
        write_capsule(root / "calm", version="2")
        sidecar.until_version("calm", "2")
        assert len(sidecar.events("scan_stuck")) == 1
        assert not troubles(sidecar)


def roots(sidecar: Spawned) -> list[dict[str, object]]:
    """Return what the API says of the roots."""
    found: list[dict[str, object]] = sidecar.api("/api/capsules")["roots"]
    return found


SMALL = 'mount -t tmpfs -o size=3m state "$1" && shift && exec "$@"'


def send(sidecar: Spawned) -> int:
    """Hand the neighbour a task over the desk and return the status of the answer."""
    try:
        sidecar.api("/api/capsules/calm/messages", body={"text": "go"})
    except HTTPError as error:
        with error:
            return error.code
    return 200


def test_a_full_state_directory_refuses_work_and_the_rest_is_served(root: Path, tmp_path: Path) -> None:
    """Tasks are refused with a clear error and one line; cards, streams and new manifests go on; later all is taken again."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    prefix = ["unshare", "--mount", "sh", "-c", SMALL, "sh", str(state)]
    spawned = start(["--root", str(root)], state=state, prefix=prefix)
    spawned.state = Path(f"/proc/{spawned.process.pid}/root{state}")
    try:
        spawned.event("ready")
        with undisturbed(spawned):
            assert send(spawned) == 200
            ballast = spawned.state / "ballast"
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1024))
            until_sync(lambda: send(spawned) != 200, within=30)  # what the database's log has room for
            assert send(spawned) == 503
            spawned.event("tasks_not_saved")
            replace_capsule(root / "calm", version="2")
            spawned.until_version("calm", "2")
            ballast.unlink()
            until_sync(lambda: send(spawned) == 200, within=30)
            spawned.event("tasks_saved")
            assert len(spawned.events("tasks_not_saved")) == 1
            assert not troubles(spawned)
    finally:
        assert spawned.stop() == 0


def test_a_start_on_a_state_that_cannot_be_written_says_so(root: Path, tmp_path: Path) -> None:
    """Exit status 1 and one line that names the file."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    script = 'mount -t tmpfs -o ro state "$1" && shift && exec "$@"'
    spawned = start(
        ["--root", str(root)],
        state=state,
        prefix=["unshare", "--mount", "sh", "-c", script, "sh", str(state)],
    )
    assert spawned.wait() == 1
    assert len(spawned.raw) == 1
    assert str(state) in spawned.raw[0]
