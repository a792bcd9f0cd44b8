"""Databases that an earlier version made, and one of a later version."""

from __future__ import annotations

import resource
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sidecar.errors import StoreError
from sidecar.events import TaskState
from sidecar.schema import SCHEMA_VERSION, UPGRADES
from sidecar.store import Store
from sidecar.tasks.said import Artifact, Completed
from tests.support.earlier import earlier_database, fixture, rows, version_of
from tests.support.sessions import SESSION, capsule, session

if TYPE_CHECKING:
    from pathlib import Path

MESSAGE = '{"messageId":"m","role":"user","parts":[{"text":"old"}]}'
VERSIONS = range(1, SCHEMA_VERSION + 1)


def first_database(path: Path) -> None:
    """Make a database of version 1, with a task that is worked on and one that has ended besides its own."""
    earlier_database(1, path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO sessions VALUES (?, 1)", (SESSION,))
        for number, (state, ended_at) in enumerate((("working", None), ("completed", 5.0)), 1):
            database.execute(
                "INSERT INTO tasks (id, session_id, context_id, owner, state, status, output, request, created_at,"
                " ended_at, turn, attempt, began) VALUES (?, ?, 'ctx', 'operator', ?, 's', ?, ?, 1.0, ?, 1, 1, 1)",
                (f"tsk_{number}", SESSION, state, "reply" if ended_at else None, MESSAGE, ended_at),
            )
        event = '{"state":"working","message":"inference turn 1"}'
        database.execute(
            "INSERT INTO events VALUES (?, 1, 1, 'tsk_1', 'ctx', 'status', ?, 2.0)", (SESSION, event)
        )
        made = '{"name":"a","artifact_id":null,"parts":[{"text":"x"}],"append":false,"last":false}'
        database.execute(
            "INSERT INTO events VALUES (?, 2, 2, 'tsk_1', 'ctx', 'artifact', ?, 3.0)", (SESSION, made)
        )
        database.commit()


def shape(path: Path) -> dict[str, object]:
    """Return the columns of each table, and the indexes."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
        return {
            name: sql
            if kind == "index"
            else {column[1:] for column in database.execute(f"PRAGMA table_info({name})")}
            for kind, name, sql in found
        }


def test_there_is_a_database_of_each_version() -> None:
    """Whoever changes the schema gives it a number, a step that leads there, and a database as it was left behind."""
    assert list(UPGRADES) == list(range(1, SCHEMA_VERSION))
    assert [version for version in VERSIONS if not fixture(version).exists()] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_database_of_any_version_becomes_one_of_this(version: int, tmp_path: Path) -> None:
    """Nothing tells its shape from a new one, and no row is lost. For this version itself: its shape has not moved."""
    old = tmp_path / "old.db"
    earlier_database(version, old)
    before = rows(old)
    for name in ("old.db", "new.db"):
        Store.open(str(tmp_path / name)).close()
    assert shape(old) == shape(tmp_path / "new.db")
    assert version_of(old) == SCHEMA_VERSION
    after = rows(old)
    assert {name: len(found) for name, found in before.items()} == {name: len(after[name]) for name in before}


@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_a_copy_of_an_older_database_is_kept_beside_it(version: int, tmp_path: Path) -> None:
    """Whole, for its owner alone, and with all that was only in the write-ahead log; nothing else is left there."""
    old = tmp_path / "sidecar.db"
    earlier_database(version, old)
    with closing(sqlite3.connect(old)) as other:  # keeps the log from being written back
        other.execute("INSERT INTO sessions VALUES ('ses_late', 7)")
        other.commit()
        before = rows(old)
        Store.open(str(old)).close()
    kept = tmp_path / f"sidecar.db.schema-{version}"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert version_of(kept) == version
    assert rows(kept) == before
    assert {path.name for path in tmp_path.iterdir()} - {"sidecar.db-wal", "sidecar.db-shm"} == {
        old.name,
        kept.name,
    }


def test_a_copy_that_is_put_back_is_upgraded_again(tmp_path: Path) -> None:
    """Whoever went back to the older version and comes again keeps the newer copy."""
    old, kept = tmp_path / "sidecar.db", tmp_path / "sidecar.db.schema-1"
    earlier_database(1, old)
    Store.open(str(old)).close()
    kept.rename(old)
    with closing(sqlite3.connect(old)) as database:
        database.execute("INSERT INTO sessions VALUES ('ses_late', 7)")
        database.commit()
    (tmp_path / "sidecar.db.schema-1.new").write_bytes(b"of an upgrade that was cut short")
    Store.open(str(old)).close()
    assert ("ses_late", 7) in rows(kept)["sessions"]
    assert ("ses_late", 7) in rows(old)["sessions"]
    assert not (tmp_path / "sidecar.db.schema-1.new").exists()


def test_a_database_of_this_version_is_not_copied(tmp_path: Path) -> None:
    """Nor is a new one."""
    earlier_database(SCHEMA_VERSION, tmp_path / "sidecar.db")
    for name in ("sidecar.db", "new.db"):
        Store.open(str(tmp_path / name)).close()
    assert list(tmp_path.glob("*.schema-*")) == []


def test_without_room_for_a_copy_nothing_is_changed(tmp_path: Path) -> None:
    """The error names the file, the copy and the room that it takes."""
    old = tmp_path / "sidecar.db"
    earlier_database(1, old)
    before = rows(old)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
    try:
        with pytest.raises(StoreError, match=r"sidecar\.db\.schema-1: .*; make room for 0\.\d MiB") as caught:
            Store.open(str(old))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(old) in str(caught.value)
    assert version_of(old) == 1
    assert rows(old) == before
    assert list(tmp_path.glob("*.schema-*")) == []


def test_a_step_that_fails_takes_all_steps_back(tmp_path: Path) -> None:
    """The database stays as it was, and its copy is kept."""
    old = tmp_path / "sidecar.db"
    earlier_database(1, old)
    with closing(sqlite3.connect(old)) as database:
        database.execute("CREATE TABLE everruns_replies (x)")  # in the way of the second step
    before = rows(old)
    with pytest.raises(StoreError, match="already exists"):
        Store.open(str(old))
    assert version_of(old) == 1
    assert rows(old) == before
    assert version_of(tmp_path / "sidecar.db.schema-1") == 1


def test_a_database_of_a_later_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    """The error says which file, which versions, what to do, and where the copy of this version is, if there is one."""
    path = tmp_path / "sidecar.db"
    earlier_database(SCHEMA_VERSION, path)
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version={SCHEMA_VERSION + 3}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="newer sidecar") as caught:
        Store.open(str(path))
    assert f"{path} was written" in str(caught.value)
    assert f"schema {SCHEMA_VERSION + 3}, this one knows {SCHEMA_VERSION})" in str(caught.value)
    (tmp_path / f"sidecar.db.schema-{SCHEMA_VERSION}").touch()
    with pytest.raises(StoreError, match=rf"sidecar\.db\.schema-{SCHEMA_VERSION} is what"):
        Store.open(str(path))
    assert path.read_bytes() == before


async def test_tasks_of_the_first_version_go_on(tmp_path: Path) -> None:
    """They are told of as a whole like any other, and listed by what is known of their last status."""
    first_database(tmp_path / "sidecar.db")
    async with session(tmp_path, capsule()) as s:
        over = await s.engine.telling.record("tsk_2")
        assert over is not None
        assert over.record is not None
        assert [part["text"] for part in over.record.artifacts[0].parts] == ["reply"]
        claim = await s.engine.resume("tsk_1")
        assert claim is not None
        found = await s.engine.telling.record("tsk_1")
        assert found is not None
        assert found.record is not None
        assert [(a.name, list(a.parts)) for a in found.record.artifacts] == [("a", [{"text": "x"}])]
        task = await s.engine.report("tsk_1", (Artifact("b", None, ({"text": "y"},)), Completed("done")))
        assert task.state is TaskState.COMPLETED
        found = await s.engine.telling.record("tsk_1")
        assert found is not None
        assert found.record is not None
        assert [a.name for a in found.record.artifacts] == ["response", "a", "b"]
