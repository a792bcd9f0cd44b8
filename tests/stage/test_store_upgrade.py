"""Databases that an earlier version made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sidecar.events import TaskState
from sidecar.schema import SCHEMA_VERSION
from sidecar.store import Store
from sidecar.tasks.said import Artifact, Completed
from tests.support.sessions import SESSION, capsule, session

FIRST = Path(__file__).parents[1] / "fixtures" / "schema-1.sql"
MESSAGE = '{"messageId":"m","role":"user","parts":[{"text":"old"}]}'


def old_database(path: Path) -> None:
    """Make a database of version 1, with a task that was worked on and one that has ended."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(FIRST.read_text())
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
        rows = database.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
        return {
            name: sql
            if kind == "index"
            else {column[1:] for column in database.execute(f"PRAGMA table_info({name})")}
            for kind, name, sql in rows
        }


def test_a_database_of_the_first_version_becomes_one_of_this(tmp_path: Path) -> None:
    """Nothing tells it from a new one."""
    old_database(tmp_path / "old.db")
    for name in ("old.db", "new.db"):
        Store.open(str(tmp_path / name)).close()
    assert shape(tmp_path / "old.db") == shape(tmp_path / "new.db")
    with closing(sqlite3.connect(tmp_path / "old.db")) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


async def test_tasks_of_the_first_version_go_on(tmp_path: Path) -> None:
    """They are told of as a whole like any other, and listed by what is known of their last status."""
    old_database(tmp_path / "sidecar.db")
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
