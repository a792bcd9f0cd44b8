"""The engine over a real database: what is committed, what fails, what is trimmed."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import structlog

from sidecar import store as store_module
from sidecar.errors import StoreError
from sidecar.events import TaskState
from sidecar.model import TaskAcceptance
from sidecar.tasks.engines import Engines
from sidecar.tasks.model import Input, Rules
from sidecar.tasks.trim import REPLAYED
from tests.support.gates import Gate, poison
from tests.support.sessions import MESSAGE, SESSION, capsule, frames_of, session
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sessions import Session

EMPTY = Input.of("{}")
QUEUE = Rules(TaskAcceptance.QUEUE, queue_depth=10_000, max_live=10_000)
ROOMY = capsule(queue_depth=10_000)


def rows(path: Path, query: str, *values: object) -> list[tuple[object, ...]]:
    """Return what another connection finds in the file."""
    with closing(sqlite3.connect(path / "sidecar.db")) as other:
        return other.execute(query, values).fetchall()


async def turn() -> None:
    """Let what was queued in this turn of the loop reach the writer's queue."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_read_of_an_uncommitted_task_waits_for_its_commit(tmp_path: Path) -> None:
    """Nobody sees what may yet be lost."""
    async with session(tmp_path) as s:
        gate = Gate(s.store)
        await gate.reached()
        sending = asyncio.ensure_future(s.call("message/send", MESSAGE))
        await turn()
        reading = asyncio.ensure_future(s.call("tasks/get"))
        await turn()
        assert not sending.done()
        assert not reading.done()
        gate.open()
        assert (await reading)["result"] == (await sending)["result"]


async def test_frames_are_published_after_their_commit(tmp_path: Path) -> None:
    """A watcher gets nothing while the writer is held."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        stream = await s.stream("stream/watch")
        await stream.next()
        gate = Gate(s.store)
        await gate.reached()
        canceling = asyncio.ensure_future(s.call("tasks/cancel", {"id": task_id}))
        reading = asyncio.ensure_future(frames_of(stream, 1))
        await turn()
        assert not reading.done()
        assert s.engine.feed.head == 0
        gate.open()
        await canceling
        assert [frame.number for frame in await reading] == [1]


async def test_a_failed_commit_is_told_to_its_caller_and_leaves_no_trace(tmp_path: Path) -> None:
    """-32603 with what is wrong; the next task is taken, and numbers stay dense."""
    async with session(tmp_path, capsule(TaskAcceptance.SINGLE)) as s:
        gate = Gate(s.store)
        await gate.reached()
        sending = asyncio.ensure_future(s.call("message/send", MESSAGE))
        await turn()
        poison(s.store).add_done_callback(lambda done: done.exception())
        gate.open()
        error = (await sending)["error"]
        assert error["code"] == -32603
        assert error["message"].startswith("Internal error: ")
        assert str(tmp_path) not in error["message"]
        assert (await s.call("tasks/get"))["error"]["code"] == -32001
        assert s.engine.counts() == {}
        task_id = await s.send_then_cancel()
        assert s.engine.feed.head == 1
    assert rows(tmp_path, "SELECT id FROM tasks") == [(task_id,)]


async def test_what_was_decided_on_a_failed_change_fails_with_it(tmp_path: Path) -> None:
    """A cancel of a task whose submission never came to be is not committed, not even later."""
    async with session(tmp_path) as s:
        kept = await s.send()
        gate = Gate(s.store)
        await gate.reached()
        first = asyncio.ensure_future(s.call("message/send", MESSAGE))
        await turn()
        failing = poison(s.store)
        canceling = asyncio.ensure_future(s.call("session/stop"))
        await turn()
        reading = asyncio.ensure_future(s.call("tasks/get", {"id": kept}))
        gate.open()
        assert "error" in await first
        assert "error" in await canceling
        assert (await reading)["result"]["status"] == {"state": "submitted"}
        with pytest.raises(StoreError):
            await failing
        assert s.engine.counts() == {"submitted": 1}
        assert (await s.call("session/stop"))["result"]["canceled"] == [kept]
    assert rows(tmp_path, "SELECT task_id, seq, frame FROM events") == [(kept, 1, 1)]
    assert rows(tmp_path, "SELECT count(*) FROM tasks") == [(1,)]


async def test_a_commit_that_seemed_to_fail_and_did_not_is_shown(tmp_path: Path) -> None:
    """As an error of the disk can have it: what the log says in the end counts, for live streams too."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        stream = await s.stream("stream/watch")
        await stream.next()
        reading = asyncio.ensure_future(frames_of(stream, 1))
        data = '{"state": "canceled", "message": "task canceled"}'
        await s.store.write(
            lambda c: c.execute(
                "INSERT INTO events VALUES (?, 1, 1, ?, 'ctx', 'status', ?, 0, 2)",
                (SESSION, task_id, data),
            )
        )
        gate = Gate(s.store)
        await gate.reached()
        canceling = asyncio.ensure_future(s.call("tasks/cancel", {"id": task_id}))
        await turn()
        poison(s.store).add_done_callback(lambda done: done.exception())
        gate.open()
        assert "error" in await canceling
        await s.call("tasks/get")
        assert [(frame.number, frame.data["id"]) for frame in await reading] == [(1, task_id)]
        await s.call("tasks/cancel", {"id": task_id})
        assert [frame.number for frame in await frames_of(stream, 1)] == [2]


async def test_sessions_that_were_not_concerned_go_on_after_a_failure(tmp_path: Path) -> None:
    """A failed change of one session costs the others at most a refusal."""
    async with session(tmp_path) as s:
        other = await s.engines.open("ses_other", QUEUE)
        mine = await s.send()
        gate = Gate(s.store)
        await gate.reached()
        failing = [asyncio.ensure_future(s.call("tasks/cancel", {"id": mine}))]
        await turn()
        poison(s.store).add_done_callback(lambda done: done.exception())
        gate.open()
        assert "error" in (await asyncio.gather(*failing))[0]
        task = await other.send(EMPTY, context_id=None, owner="someone")
        assert await other.get(task.id) == task
        assert (await s.call("tasks/get", {"id": mine}))["result"]["status"] == {"state": "submitted"}


async def test_a_locked_file_refuses_work_and_serves_what_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live tasks, ended ones and replay are still there; when the lock ends, work goes on by itself."""
    monkeypatch.setattr(store_module, "BUSY_TIMEOUT", 0.05)
    async with session(tmp_path) as s:
        ended, live = await s.send_then_cancel(), await s.send()
        with closing(sqlite3.connect(tmp_path / "sidecar.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert (await s.call("message/send", MESSAGE))["error"]["code"] == -32603
            assert (await s.call("tasks/cancel", {"id": live}))["error"]["code"] == -32603
            stream = await s.stream("message/stream", MESSAGE)
            assert [frame.event for frame in await frames_of(stream, 1)] == ["error"]
            assert await stream.next() is None
            assert (await s.call("tasks/get", {"id": ended}))["result"]["status"]["state"] == "canceled"
            assert (await s.call("tasks/get", {"id": live}))["result"]["status"]["state"] == "submitted"
            watcher = await s.stream("stream/watch")
            assert [frame.number for frame in await frames_of(watcher, 2)] == [None, 1]
            other.execute("COMMIT")
        await s.send()
        await s.call("tasks/cancel", {"id": live})
        assert [frame.number for frame in await frames_of(watcher, 1)] == [2]


async def test_an_outage_is_logged_once_and_so_is_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tasks are refused in between."""
    monkeypatch.setattr(store_module, "BUSY_TIMEOUT", 0.02)
    async with session(tmp_path, capsule(queue_depth=9)) as s:
        with structlog.testing.capture_logs() as lines:
            await s.send()
            with closing(sqlite3.connect(tmp_path / "sidecar.db", isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                for _ in range(3):
                    assert "error" in await s.call("message/send", MESSAGE)
                other.execute("COMMIT")
            await s.send()
            await s.send()
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("tasks_not_saved", "warning"),
        ("tasks_saved", "info"),
    ]
    assert "locked" in lines[0]["problem"]


async def test_a_database_that_cannot_be_read_is_told_and_the_door_recovers(tmp_path: Path) -> None:
    """An engine that could not be loaded at the start loads when it can."""
    async with session(tmp_path) as s:
        task_id = await s.send()
    async with session(tmp_path) as s:
        await s.engines.close(SESSION)
        await s.store.write(lambda c: c.execute("ALTER TABLE tasks RENAME TO hidden"))
        engine = await s.engines.open(SESSION, QUEUE)
        with pytest.raises(StoreError):
            await engine.get(task_id)
        await s.store.write(lambda c: c.execute("ALTER TABLE hidden RENAME TO tasks"))
        task = await engine.get(task_id)
        assert task is not None
        assert engine.counts() == {"submitted": 1}


async def test_a_caller_that_leaves_does_not_undo_its_task(tmp_path: Path) -> None:
    """The commit goes on without it."""
    async with session(tmp_path) as s:
        gate = Gate(s.store)
        await gate.reached()
        sending = asyncio.ensure_future(s.call("message/send", MESSAGE))
        await turn()
        sending.cancel()
        await asyncio.wait((sending,))
        gate.open()
        assert "result" in await s.call("tasks/get")
    assert rows(tmp_path, "SELECT state FROM tasks") == [("submitted",)]


async def test_a_session_has_one_engine_as_long_as_it_is_open(tmp_path: Path) -> None:
    """Opening it again changes its rules and nothing else."""
    async with session(tmp_path, capsule(TaskAcceptance.SINGLE)) as s:
        await s.send()
        assert await s.engines.open(SESSION, QUEUE) is s.engine
        await s.send()
        await s.engines.close(SESSION)
        await s.engines.close(SESSION)
        again = await s.engines.open(SESSION, QUEUE)
        assert again is not s.engine
        assert again.counts() == {"submitted": 2}


async def test_a_closed_engine_decides_nothing_more(tmp_path: Path) -> None:
    """Requests that still hold it are refused, so that the session's next engine is alone."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        await s.engines.close(SESSION)
        for method, params in (
            ("message/send", MESSAGE),
            ("tasks/cancel", {"id": task_id}),
            ("session/stop", {}),
        ):
            assert (await s.call(method, params))["error"]["code"] == -32603
        assert (await s.call("tasks/get", {"id": task_id}))["error"]["code"] == -32603


async def test_closing_waits_for_what_is_under_way(tmp_path: Path) -> None:
    """The engine that follows finds all of it in the log."""
    async with session(tmp_path) as s:
        gate = Gate(s.store)
        await gate.reached()
        sending = asyncio.ensure_future(s.call("message/send", MESSAGE))
        await turn()
        closing_it = asyncio.ensure_future(s.engines.close(SESSION))
        opening = asyncio.ensure_future(s.engines.open(SESSION, QUEUE))
        await turn()
        assert not closing_it.done()
        assert not opening.done()
        gate.open()
        await closing_it
        engine = await opening
        sent = (await sending)["result"]["id"]
        assert engine is not s.engine
        assert (await engine.get(sent)) is not None
        assert engine.counts() == {"submitted": 1}


async def test_owners_and_times_are_kept(tmp_path: Path) -> None:
    """A task belongs to whom it was taken for."""
    async with session(tmp_path) as s:
        before = time.time()
        task = await s.engine.send(EMPTY, context_id="ctx", owner="someone")
        await s.engines.close(SESSION)
        again = await s.engines.open(SESSION, QUEUE)
        assert await again.get(task.id) == task
        assert (task.owner, task.context_id, task.state) == ("someone", "ctx", TaskState.SUBMITTED)
        assert before <= task.created_at <= time.time()


async def test_a_task_that_had_started_counts_for_the_generation_when_it_ends(tmp_path: Path) -> None:
    """One that never started does not; the count outlives a restart."""
    async with session(tmp_path) as s:
        ran, waited, queued = [await s.send() for _ in range(3)]
    with closing(sqlite3.connect(tmp_path / "sidecar.db")) as other:
        other.execute("UPDATE tasks SET state = 'working' WHERE id = ?", (ran,))
        other.execute("UPDATE tasks SET state = 'input-required', output = 'Which?' WHERE id = ?", (waited,))
        other.commit()
    async with session(tmp_path) as s:
        assert s.engine.counts() == {"working": 1, "input-required": 1, "submitted": 1}
        assert (await s.call("tasks/get"))["result"]["id"] == ran
        waiting = (await s.call("tasks/get", {"id": waited}))["result"]
        assert waiting["artifacts"] == [{"name": "prompt", "parts": [{"text": "Which?"}]}]
        assert s.engine.generation == 0
        assert (await s.call("session/stop"))["result"]["canceled"] == sorted([ran, waited, queued])
        assert s.engine.generation == 2
        shown = [(await s.call("tasks/get", {"id": each}))["result"] for each in (ran, waited, queued)]
        texts = [each["status"]["message"]["parts"][0]["text"] for each in shown]
        assert texts == ["task canceled", "task canceled", "task canceled before it started"]
        assert all("artifacts" not in each for each in shown)
    async with session(tmp_path) as s:
        assert s.engine.generation == 2
        await s.send_then_cancel()
        assert s.engine.generation == 2


async def make_frames(s: Session, count: int) -> None:
    """Make so many numbered frames at once."""
    await asyncio.gather(*(s.engine.send(EMPTY, context_id=None, owner="operator") for _ in range(count)))
    assert len(await s.engine.stop()) == count


async def test_old_events_are_trimmed_to_what_is_configured(tmp_path: Path) -> None:
    """The newest stay; a watcher from 0 is told of the gap."""
    async with session(tmp_path, ROOMY, keep_events=600, max_live=10_000) as s:
        await make_frames(s, 1500)
        await s.engines.trim()
        assert await s.store.read(
            lambda c: c.execute("SELECT min(frame), max(frame), count(*) FROM events").fetchone()
        ) == (901, 1500, 600)
        stream = await s.stream("stream/watch", None, "899")
        frames = await frames_of(stream, 602)
        assert frames[1].event == "gap"
        assert frames[1].data == {"first_available_id": 901}
        assert [frame.number for frame in frames[2:]] == list(range(901, 1501))
        stream = await s.stream("stream/watch", None, "900")
        assert [frame.number for frame in (await frames_of(stream, 2))[1:2]] == [901]
        await s.send_then_cancel()
        assert s.engine.feed.head == 1501


async def test_the_last_512_frames_are_never_trimmed(tmp_path: Path) -> None:
    """Whatever is configured."""
    async with session(tmp_path, ROOMY, keep_events=1, max_live=10_000) as s:
        await make_frames(s, 700)
        await s.engines.trim()
        await s.engines.trim()
        assert await s.store.read(
            lambda c: c.execute("SELECT min(frame), count(*) FROM events").fetchone()
        ) == (
            700 - REPLAYED + 1,
            REPLAYED,
        )


async def test_numbers_go_on_after_trimming_and_a_restart(tmp_path: Path) -> None:
    """The newest frame is always kept, so the counter is never lost."""
    async with session(tmp_path, ROOMY, keep_events=1, max_live=10_000) as s:
        await make_frames(s, 600)
        await s.engines.trim()
    async with session(tmp_path, ROOMY) as s:
        await s.send_then_cancel()
        assert s.engine.feed.head == 601


async def test_ended_tasks_are_deleted_by_age_and_live_ones_never(tmp_path: Path) -> None:
    """The session and its events stay."""
    async with session(tmp_path) as s:
        ended, live = await s.send_then_cancel(), await s.send()
        await s.engines.trim()
        assert rows(tmp_path, "SELECT count(*) FROM tasks") == [(2,)]
        await s.store.write(
            lambda c: c.execute("UPDATE tasks SET created_at = 1, ended_at = ended_at - 3601")
        )
        await s.engines.trim()
        assert rows(tmp_path, "SELECT id FROM tasks") == [(live,)]
        assert rows(tmp_path, "SELECT count(*) FROM events WHERE frame > 0") == [(1,)]
    async with session(tmp_path) as s:
        assert (await s.call("tasks/get", {"id": ended}))["error"]["code"] == -32001


async def test_other_amounts_count_from_the_next_trimming_on(tmp_path: Path) -> None:
    """As after a reload of the configuration."""
    async with session(tmp_path, ROOMY, max_live=10_000) as s:
        await make_frames(s, 700)
        s.engines.reconfigure(keep_events=650, keep_tasks=-60.0)
        await s.engines.trim()
        assert rows(tmp_path, "SELECT count(*) FROM events") == [(650,)]
        assert rows(tmp_path, "SELECT count(*) FROM tasks") == [(0,)]


async def test_what_belongs_to_no_capsule_any_more_is_deleted(tmp_path: Path) -> None:
    """Unless it is open; the sessions of capsules that only went away stay."""
    async with session(tmp_path, ROOMY) as s:
        for session_id in ("ses_forgotten", "ses_away", SESSION):
            engine = await s.engines.open(session_id, QUEUE)
            await engine.send(EMPTY, context_id=None, owner="operator")
            await engine.stop()
        await s.store.write(
            lambda c: c.execute("INSERT INTO capsules VALUES ('away', x'2f63', 'away', 'ses_away', 1, 2)")
        )
        await s.engines.close("ses_away")
        await s.engines.trim()
        assert rows(tmp_path, "SELECT count(*) FROM sessions") == [(3,)]
        await s.engines.close("ses_forgotten")
        await s.engines.trim()
    for query in (
        "SELECT id FROM sessions",
        "SELECT session_id FROM tasks",
        "SELECT DISTINCT session_id FROM events",
    ):
        assert sorted(rows(tmp_path, query)) == sorted([("ses_away",), (SESSION,)])


async def test_trimming_goes_on_by_itself(tmp_path: Path) -> None:
    """Every period, also after the database refused it once; it ends with its owner."""
    async with session(tmp_path, ROOMY, max_live=10_000) as s:
        await make_frames(s, 600)
        await s.store.write(lambda c: c.execute("ALTER TABLE events RENAME TO hidden"))
        engines = Engines(s.store, keep_events=1, keep_tasks=3600.0, period=0.01)
        await engines.open("ses_other", QUEUE)
        await asyncio.sleep(0.05)
        await s.store.write(lambda c: c.execute("ALTER TABLE hidden RENAME TO events"))
        await until(lambda: rows(tmp_path, "SELECT count(*) FROM events") == [(REPLAYED,)])
        await engines.aclose()
