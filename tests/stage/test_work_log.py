"""What the log keeps of tasks that are worked on: trimming, recovery, outages."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sidecar import store as store_module
from sidecar.errors import StoreError
from sidecar.events import TaskState
from sidecar.tasks import work as work_module
from sidecar.tasks.said import Completed, InputRequired, Text, Turn
from sidecar.tasks.trim import REPLAYED
from tests.support.sessions import MESSAGE, SESSION, capsule, frames_of, session
from tests.support.working import work

if TYPE_CHECKING:
    from pathlib import Path


def rows(path: Path, query: str, *values: object) -> list[tuple[object, ...]]:
    """Return what another connection finds in the file."""
    with closing(sqlite3.connect(path / "sidecar.db")) as other:
        return other.execute(query, values).fetchall()


async def test_the_text_of_a_turn_outlives_its_events(tmp_path: Path) -> None:
    """Trimmed while the task runs, restarted, trimmed again: the reply is whole, and of the last turn."""
    async with session(tmp_path) as s:
        await s.send()
        working = await work(s.engine)
        await working.say(Text("of another turn"), Turn())
        await working.say(*(Text(f"{n} ") for n in range(700)))
    for begin in (700, 1400):
        async with session(tmp_path, keep_events=1) as s:
            await s.engines.trim()
            assert rows(tmp_path, "SELECT count(*) FROM events") == [(REPLAYED,)]
            assert await s.engine.resume(working.id) is not None
            await s.engine.report(working.id, [Text(f"{n} ") for n in range(begin, begin + 700)])
            await s.engines.trim()
    async with session(tmp_path) as s:
        await s.engine.resume(working.id)
        task = await s.engine.report(working.id, [Completed()])
        assert task.output == "".join(f"{n} " for n in range(2100))
        assert rows(tmp_path, "SELECT spoken FROM tasks") == [(None,)]


async def test_the_text_of_a_turn_that_is_over_is_not_kept(tmp_path: Path) -> None:
    """What was put aside for it goes when the next one begins."""
    async with session(tmp_path, keep_events=1) as s:
        await s.send()
        working = await work(s.engine)
        await working.say(*(Text(f"{n} ") for n in range(700)))
        await s.engines.trim()
        assert rows(tmp_path, "SELECT length(spoken) > 0 FROM tasks") == [(1,)]
        await working.say(Turn(), Text("new"))
        assert rows(tmp_path, "SELECT spoken FROM tasks") == [(None,)]
    async with session(tmp_path) as s:
        await s.engine.resume(working.id)
        assert (await s.engine.report(working.id, [Completed()])).output == "new"


async def test_inputs_go_with_their_task(tmp_path: Path) -> None:
    """Those of a live task stay, however old; so does what it takes to go on with it."""
    async with session(tmp_path, capsule(queue_depth=9, concurrency=2)) as s:
        for _ in range(2):
            await s.send()
        done, waiting = await work(s.engine), await work(s.engine)
        for working in (done, waiting, waiting):
            await working.ask("Which?")
            await s.call("message/send", MESSAGE)
        await done.complete("done")
        await waiting.ask("And?")
        await s.store.write(
            lambda c: c.execute("UPDATE tasks SET created_at = 1, ended_at = ended_at - 3601")
        )
        assert rows(tmp_path, "SELECT count(*) FROM inputs") == [(3,)]
        await s.engines.trim()
        assert rows(tmp_path, "SELECT id FROM tasks") == [(waiting.id,)]
        assert rows(tmp_path, "SELECT DISTINCT task_id FROM inputs") == [(waiting.id,)]
        await s.engines.close(SESSION)
        await s.engines.trim()
    for table in ("sessions", "tasks", "inputs", "events"):
        assert rows(tmp_path, f"SELECT count(*) FROM {table}") == [(0,)]


async def test_the_file_does_not_grow_with_the_tasks_that_pass_through(tmp_path: Path) -> None:
    """Round after round of the same work, trimmed, in the same space."""
    sizes = []
    async with session(tmp_path, capsule(queue_depth=99), keep_events=REPLAYED) as s:
        s.engines.reconfigure(keep_events=REPLAYED, keep_tasks=-1.0)
        for _ in range(5):
            for _ in range(80):
                await s.send()
                working = await work(s.engine)
                await working.ask("Which?")
                await s.call("message/send", MESSAGE)
                await working.complete("x" * 500, "y" * 500)
            await s.engines.trim()
            pages = await s.store.read(lambda c: c.execute("PRAGMA page_count").fetchone())
            sizes.append(pages[0])
    assert max(sizes[2:]) <= sizes[1] * 1.1


async def test_a_locked_file_refuses_reports_which_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of a refused report is taken; when the lock ends, work goes on by itself."""
    monkeypatch.setattr(store_module, "BUSY_TIMEOUT", 0.02)
    monkeypatch.setattr(work_module, "RETRY", 0.05)
    async with session(tmp_path, capsule(queue_depth=9)) as s:
        first, second = await s.send(), await s.send()
        working = await work(s.engine)
        await working.say(Text("a"))
        with closing(sqlite3.connect(tmp_path / "sidecar.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            for _ in range(3):
                with pytest.raises(StoreError, match="locked"):
                    await working.say(Text("b"), Completed())
            with pytest.raises(StoreError):
                await s.engine.release(working.id, failed="worker lost")
            assert not working.orders.canceled
            assert (await s.call("message/send", MESSAGE))["error"]["code"] == -32603
            assert (await s.call("tasks/get", {"id": first}))["result"]["status"]["state"] == "working"
            other.execute("COMMIT")
        task = await working.say(Text("b"), Completed())
        assert (task.state, task.output) == (TaskState.COMPLETED, "ab")
        with closing(sqlite3.connect(tmp_path / "sidecar.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            claiming = asyncio.ensure_future(work(s.engine))
            await asyncio.wait((claiming,), timeout=0.2)
            assert not claiming.done()
            other.execute("COMMIT")
        assert (await claiming).id == second
        stream = await s.stream("stream/watch", None, "0")
        frames = await frames_of(stream, 7)
        assert [frame.data.get("text") for frame in frames if frame.event == "text"] == ["a", "b", ""]


async def test_a_full_disk_refuses_work_until_there_is_room(tmp_path: Path) -> None:
    """As SQLite has it when it may have no more pages; reads go on."""
    async with session(tmp_path, capsule(queue_depth=9)) as s:
        await s.send()
        working = await work(s.engine)
        pages = await s.store.write(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
        await s.store.write(lambda c: c.execute(f"PRAGMA max_page_count = {pages}"))
        big = Text("x" * 100_000)
        with pytest.raises(StoreError, match="disk is full"):
            await working.say(big)
        refused = (await s.call("message/send", {**MESSAGE, "metadata": {"x": "y" * 100_000}}))["error"]
        assert refused["code"] == -32603
        assert "the disk is full" in refused["message"]
        assert (await s.call("tasks/get"))["result"]["status"] == {"state": "working"}
        await s.store.write(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 1000}"))
        await working.say(big)
        assert (await working.say(Completed())).output == big.text


async def test_texts_are_kept_apart_by_task_at_a_restart(tmp_path: Path) -> None:
    """Each task has its own turn, and a queued one none."""
    async with session(tmp_path, capsule(queue_depth=9, concurrency=3)) as s:
        for _ in range(4):
            await s.send()
        workings = [await work(s.engine) for _ in range(3)]
        for piece in range(10):
            for number, working in enumerate(workings):
                await working.say(Text(f"{number}.{piece} "))
        await workings[1].say(Turn(), Text("new"))
        await workings[2].say(InputRequired("?"))
    async with session(tmp_path, capsule(queue_depth=9, concurrency=3)) as s:
        outputs = []
        for working in workings:
            await s.engine.resume(working.id)
            outputs.append((await s.engine.report(working.id, [Completed()])).output)
        assert outputs == [
            "".join(f"0.{piece} " for piece in range(10)),
            "new",
            "".join(f"2.{piece} " for piece in range(10)),
        ]


async def test_a_worker_that_had_just_begun_may_say_turn_after_a_restart(tmp_path: Path) -> None:
    """Before any other line it changes nothing then either."""
    async with session(tmp_path) as s:
        await s.send()
        working = await work(s.engine)
    async with session(tmp_path) as s:
        await s.engine.resume(working.id)
        await s.engine.report(working.id, [Turn()])
        assert s.engine.feed.head == 1
        await s.engine.report(working.id, [Text("a"), Turn()])
        assert s.engine.feed.head == 3


async def test_ended_tasks_stay_readable_as_long_as_configured(tmp_path: Path) -> None:
    """With their reply, over a restart, until they are trimmed."""
    async with session(tmp_path) as s:
        await s.send()
        working = await work(s.engine)
        await working.complete("x" * 10_000)
    async with session(tmp_path) as s:
        shown = (await s.call("tasks/get", {"id": working.id}))["result"]
        assert shown["artifacts"][0]["parts"] == [{"text": "x" * 10_000}]
        s.engines.reconfigure(keep_events=1, keep_tasks=0.0)
        await s.engines.trim()
        assert (await s.call("tasks/get", {"id": working.id}))["error"]["code"] == -32001


async def test_tasks_are_listed_the_newest_first_without_their_output(tmp_path: Path) -> None:
    """Those of the session alone, and no more than were asked for."""
    async with session(tmp_path, capsule(queue_depth=9)) as s:
        ids = [await s.send() for _ in range(4)]
        await (await work(s.engine)).complete("x")
        assert [task.id for task in await s.engine.list(3)] == ids[:0:-1]
        *_, oldest = await s.engine.list(9)
        assert (oldest.id, oldest.state, oldest.output) == (ids[0], TaskState.COMPLETED, None)
    async with session(tmp_path, capsule(session_id="ses_other")) as s:
        assert await s.engine.list(9) == ()
