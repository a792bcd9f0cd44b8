"""What changes on disk is served, whatever the file events do. Reports are named by their public number."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.support.spawned import replace_capsule, running, write_capsule
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from tests.support.spawned import Spawned

TICK_AND_SETTLE = 2.04


def version_file(root: Path, version: str) -> Path:
    """Write a new manifest outside of the root and return it."""
    return write_capsule(root.parent / f"new-{version}", name="a", version=version) / "murmur.yaml"


def refuses(port: int) -> bool:
    """Tell whether connecting is refused."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/", timeout=5):
            return False
    except URLError as error:
        return isinstance(error.reason, ConnectionRefusedError)
    except ConnectionResetError:
        return False  # it was let in just as the listener closed


def test_a_manifest_replaced_during_an_event_overflow_is_served(sidecar: Spawned, root: Path) -> None:
    """B01 samuelcolvin/watchfiles#348: the queue overflows while the process is stopped; the tick finds the change."""
    sidecar.port("a")
    sidecar.signal(signal.SIGSTOP)
    for i in range(20_000):
        (root / "a" / f"f{i}").touch()
    version_file(root, "2").rename(root / "a" / "murmur.yaml")
    sidecar.signal(signal.SIGCONT)
    sidecar.until_version("a", "2", within=3 * TICK_AND_SETTLE + 5)


def test_a_manifest_replaced_twice_is_served_each_time(sidecar: Spawned, root: Path) -> None:
    """B02 beancount/fava#1778: a file that was replaced once is still watched."""
    for version in ("2", "3"):
        version_file(root, version).rename(root / "a" / "murmur.yaml")
        sidecar.until_version("a", version)


def test_a_deleted_and_recreated_manifest_leaves_no_gap(sidecar: Spawned, root: Path) -> None:
    """B03 thanos-io/thanos#8127: delete and recreate is served at once, and the port answers all the while."""
    port = sidecar.port("a")
    new = version_file(root, "2")
    seen, ended = [], threading.Event()

    def ask() -> None:
        while not ended.is_set():
            seen.append(version_at(port))

    asking = threading.Thread(target=ask, name="asks for the card")
    asking.start()
    try:
        (root / "a" / "murmur.yaml").unlink()
        shutil.copy(new, root / "a" / "murmur.yaml")
        sidecar.until_version("a", "2")
        until_sync(lambda: "2" in seen)
    finally:
        ended.set()
        asking.join()
    assert [version for version, _ in itertools.groupby(seen)] in (["1", "2"], ["2"])
    assert sidecar.port("a") == port
    assert not sidecar.events("capsule_removed")


def version_at(port: int) -> str:
    """Return the version that the card at a port shows, or why there is none."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/.well-known/agent-card.json", timeout=10) as answer:
            return str(json.load(answer)["version"])
    except OSError as error:
        return repr(error)


def test_a_deleted_and_recreated_directory_is_served(sidecar: Spawned, root: Path) -> None:
    """B04 tirth8205/code-review-graph#890: the new directory is watched as well as the old one was."""
    other = write_capsule(root.parent / "b", name="a", version="2")
    port = sidecar.port("a")
    shutil.rmtree(root / "a")
    shutil.copytree(other, root / "a")
    sidecar.until_version("a", "2")
    replace_capsule(root / "a", version="3")
    sidecar.until_version("a", "3")
    assert sidecar.port("a") == port


def test_a_configmap_swap_is_served(sidecar: Spawned, root: Path) -> None:
    """B05 jimmidyson/configmap-reload#190: the link `..data` moves, the manifest's own name does not."""
    mount = root / "mounted"
    for version in ("1", "2", "3"):
        write_capsule(mount / f"..{version}", name="mounted", version=version)
    (mount / "..data").symlink_to("..1")
    (mount / "murmur.yaml").symlink_to("..data/murmur.yaml")
    sidecar.until_version("mounted", "1")
    for version in ("2", "3"):
        (mount / "..data_tmp").symlink_to(f"..{version}")
        (mount / "..data_tmp").rename(mount / "..data")
        sidecar.until_version("mounted", version)


@pytest.mark.machine
def test_a_full_watch_table_is_said_once_and_the_tick_serves(root: Path, tmp_path: Path) -> None:
    """B08 watchexec/watchexec#93: with five watches for a user, one warning names the sysctl."""
    script = 'echo 5 > /proc/sys/user/max_inotify_watches && exec "$@"'
    for i in range(20):
        write_capsule(root / f"c{i}")
    prefix = ["unshare", "-Ur", "sh", "-c", script, "sh"]
    with running(["--root", str(root)], state=tmp_path / "state", prefix=prefix) as sidecar:
        replace_capsule(root / "a", version="2")
        sidecar.until_version("a", "2", within=3 * TICK_AND_SETTLE + 5)
        assert len([line for line in sidecar.raw if "max_user_watches" in line]) == 1


def test_a_name_that_is_not_utf8_does_not_end_the_watching(sidecar: Spawned, root: Path) -> None:
    """B09 openai/codex#39987: a file name that cannot be decoded kills the watcher, not the service."""
    Path(os.fsdecode(os.fsencode(root / "a") + b"/\xff")).touch()
    version_file(root, "2").rename(root / "a" / "murmur.yaml")
    sidecar.until_version("a", "2", within=3 * TICK_AND_SETTLE + 5)


def test_files_that_vanish_between_event_and_look_are_no_errors(sidecar: Spawned, root: Path) -> None:
    """B10 samuelcolvin/watchfiles#282: a file made and removed in a loop costs bounded CPU and no error lines."""
    sidecar.port("a")
    ended = threading.Event()
    rounds = 0

    def flap() -> None:
        nonlocal rounds
        while not ended.is_set():
            (root / "a" / "t").touch()
            (root / "a" / "t").unlink()
            rounds += 1

    thread = threading.Thread(target=flap, name="flapping file")
    thread.start()
    try:
        until_sync(lambda: rounds > 20_000, within=60)
        replace_capsule(root / "a", version="2")
        sidecar.until_version("a", "2")
    finally:
        ended.set()
        thread.join()
    assert not [r for r in sidecar.log if r.get("level") in ("error", "warning", "critical")]


def test_an_emptied_manifest_keeps_the_last_good_one(sidecar: Spawned, root: Path) -> None:
    """B12 prometheus/prometheus#8202: emptied is an error, not an absence; the last good one is served."""
    sidecar.port("a")
    (root / "a" / "murmur.yaml").write_bytes(b"")
    row = until_sync(lambda: (r := sidecar.capsules()["a"]) and r["last_error"] and r, what="a last error")
    assert row["state"] == "serving"
    assert "E-MAN-" in row["last_error"]["message"]
    assert sidecar.card("a")["version"] == "1"


def test_a_removed_capsule_is_no_longer_served(sidecar: Spawned, root: Path) -> None:
    """B12 prometheus/prometheus#12858: once gone for the grace, its listener closes."""
    port = sidecar.port("a")
    shutil.rmtree(root / "a")
    until_sync(lambda: refuses(port), within=20, what="connection refused")
    assert "a" not in sidecar.capsules()


def test_a_returning_capsule_has_its_id_session_and_port(sidecar: Spawned, root: Path) -> None:
    """What was removed and comes back within `tasks.forget` goes on as it was."""
    before = sidecar.card("a")
    shutil.rmtree(root / "a")
    until_sync(lambda: "a" not in sidecar.capsules(), within=20)
    write_capsule(root / "a", version="2")
    sidecar.until_version("a", "2")
    after = sidecar.card("a")
    assert (after["session_id"], after["url"]) == (before["session_id"], before["url"])


def test_a_slow_writer_is_never_seen_half_way(root: Path, tmp_path: Path) -> None:
    """A writer that pauses less than the settle window is taken when it is done, and its halves are no errors."""
    text = (root / "a" / "murmur.yaml").read_text().replace('"1"', '"2"')
    with running(
        ["--root", str(root)], state=tmp_path / "state", env={"SIDECAR_WATCH__SETTLE": "400ms"}
    ) as sidecar:
        sidecar.port("a")
        with (root / "a" / "murmur.yaml").open("w") as out:
            for character in text:
                out.write(character)
                out.flush()
                time.sleep(0.01)  # the writer's own pace, well within the settle window
        sidecar.until_version("a", "2")
        assert not sidecar.events("manifest_refused")


def test_with_force_tick_a_change_is_served(root: Path, tmp_path: Path) -> None:
    """Without any file events the tick alone finds a change, a new capsule and a removed one."""
    env = {"SIDECAR_WATCH__FORCE_TICK": "true", "SIDECAR_WATCH__TICK": "200ms"}
    with running(["--root", str(root)], state=tmp_path / "state", env=env) as sidecar:
        replace_capsule(root / "a", version="2")
        sidecar.until_version("a", "2")
        write_capsule(root / "b")
        port = sidecar.port("b")
        shutil.rmtree(root / "b")
        until_sync(lambda: refuses(port), within=20)


def test_the_sidecar_runs_where_python_shows_warnings_as_errors() -> None:
    """The spawned processes of these tests turn warnings into errors, so the version command must be clean too."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "sidecar", "version"], check=True, capture_output=True
    )
    assert done.stderr == b""
