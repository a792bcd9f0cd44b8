"""A sidecar on the state that an earlier or a later one left behind."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from sidecar.schema import SCHEMA_VERSION
from tests.support.earlier import CAPSULES, earlier_database, rows, version_of
from tests.support.spawned import replace_capsule, running, sidecar, write_capsule

if TYPE_CHECKING:
    from pathlib import Path


def free_ports() -> int:
    """Return the first of some ports in a row that were free a moment ago."""
    for first in range(21_000, 23_000, 10):
        try:
            for port in range(first, first + len(CAPSULES)):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
    raise AssertionError("no ports are free")


def test_the_state_of_the_first_version_is_taken_up(tmp_path: Path) -> None:
    """Ids, sessions, ports and tasks are as they were, waiting work is still there, and a copy is kept and told of."""
    root, database = tmp_path / "capsules", tmp_path / "state" / "sidecar.db"
    for name in CAPSULES:
        write_capsule(root / name)
    first = free_ports()
    earlier_database(1, database, root=root, first_port=first)
    before = rows(database)
    ports = {"SIDECAR_LISTEN__PORTS": "21000-22999"}
    with running(["--root", str(root)], state=tmp_path / "state", env=ports) as spawned:
        told = spawned.event("state_upgraded")
        for place, name in enumerate(CAPSULES):
            assert spawned.port(name) == first + place
        sessions = {str(row[0]): str(row[3]) for row in before["capsules"]}
        assert {name: row["session_id"] for name, row in spawned.capsules().items()} == sessions
        kept = [task for name in CAPSULES for task in spawned.api(f"/api/capsules/{name}/tasks")["tasks"]]
        assert {task["id"] for task in kept} == {row[1] for row in before["tasks"]}
        waiting = spawned.api("/api/capsules/waiter/tasks")["tasks"]
        assert [task["state"] for task in waiting] == ["submitted"]
        replace_capsule(root / "greeter", version="2")
        spawned.until_version("greeter", "2")
    assert (told["before"], told["now"]) == (1, SCHEMA_VERSION)
    assert told["kept"] == f"{database}.schema-1"
    assert rows(tmp_path / "state" / "sidecar.db.schema-1") == before
    with running(["--root", str(root)], state=tmp_path / "state") as spawned:
        assert not spawned.events("state_upgraded")


def test_the_state_of_a_later_version_is_refused(tmp_path: Path) -> None:
    """Exit status 1, one line that names the file and says what to do; the state is as it was."""
    database = tmp_path / "state" / "sidecar.db"
    earlier_database(SCHEMA_VERSION, database)
    with closing(sqlite3.connect(database)) as later:
        later.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    write_capsule(tmp_path / "capsules" / "a")
    for more in ((), ("--new-state",)):  # which is for a corrupt one
        done = sidecar("run", "--root", str(tmp_path / "capsules"), "--state", str(tmp_path / "state"), *more)
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1
        assert f"{database} was written by a newer sidecar" in done.stderr
        assert "run that version, or another state directory" in done.stderr
    assert version_of(database) == SCHEMA_VERSION + 1
