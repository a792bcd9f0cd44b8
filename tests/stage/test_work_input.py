"""Tasks that wait for input, through the door."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from sidecar.model import TaskAcceptance
from sidecar.tasks.model import Rules
from sidecar.tasks.said import Completed, InputRequired
from tests.support.sessions import MESSAGE, SESSION, capsule, frames_in, frames_of, session
from tests.support.waiting import until
from tests.support.working import work

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.model import Capsule
    from tests.support.sessions import Session

QUEUE = Rules(TaskAcceptance.QUEUE, queue_depth=9)


def answer(text: str) -> dict[str, Any]:
    """Return a message that answers."""
    return {"messageId": f"m-{text}", "role": "user", "parts": [{"text": text}]}


def impatient(seconds: int, acceptance: TaskAcceptance = TaskAcceptance.QUEUE) -> Capsule:
    """Return a capsule that waits no longer than this for input."""
    served = capsule(acceptance)
    lifecycle = replace(served.manifest.lifecycle, input_timeout_secs=seconds)
    return replace(served, manifest=replace(served.manifest, lifecycle=lifecycle))


async def shown(s: Session, task_id: str) -> dict[str, Any]:
    """Return a task as the door shows it."""
    result: dict[str, Any] = (await s.call("tasks/get", {"id": task_id}))["result"]
    return result


async def test_a_bad_message_answers_nothing(tmp_path: Path) -> None:
    """The task still waits."""
    async with session(tmp_path) as s:
        await s.send()
        await (await work(s.engine)).ask("Which one?")
        assert (await s.call("message/send", {}))["error"]["code"] == -32602
        assert s.engine.counts() == {"input-required": 1}


async def test_with_several_the_one_that_has_waited_longest_is_answered(tmp_path: Path) -> None:
    """Not the one that came first, over a restart too; the next message goes to the next."""
    async with session(tmp_path, capsule(queue_depth=9, concurrency=3)) as s:
        for _ in range(3):
            await s.send()
        workings = [await work(s.engine) for _ in range(3)]
        order = [workings[n] for n in (1, 2, 0)]
        for working in order:
            await working.ask("Which?")
        assert (await s.call("message/send", answer("a")))["result"]["id"] == order[0].id
        assert [given.text for given in order[0].orders.take()] == ["a"]
        assert order[1].orders.take() == ()
        await order[0].ask("And?")
    async with session(tmp_path, capsule(queue_depth=9, concurrency=3)) as s:
        for working in (order[1], order[2], order[0]):
            assert (await s.call("message/send", answer("b")))["result"]["id"] == working.id


async def test_answers_at_the_same_moment_go_to_different_tasks(tmp_path: Path) -> None:
    """Each is answered once; what is left over is a new task."""
    async with session(tmp_path, capsule(queue_depth=9, concurrency=2)) as s:
        for _ in range(2):
            await s.send()
        for _ in range(2):
            await (await work(s.engine)).ask("Which?")
        answers = await asyncio.gather(*(s.call("message/send", answer(str(n))) for n in range(3)))
        states = [each["result"]["status"]["state"] for each in answers]
        assert states == ["working", "working", "submitted"]
        assert len({each["result"]["id"] for each in answers}) == 3


async def test_a_waiting_task_leaves_its_slot_to_the_next(tmp_path: Path) -> None:
    """Input is worked on at once, though all slots run; no queued task starts until fewer do."""
    async with session(tmp_path, capsule(queue_depth=9)) as s:
        first, second, third = [await s.send() for _ in range(3)]
        asking = await work(s.engine)
        await asking.ask("Which?")
        running = await work(s.engine)
        assert (asking.id, running.id) == (first, second)
        await s.call("message/send", answer("red"))
        assert s.engine.counts() == {"working": 2, "submitted": 1}
        await running.complete("done")
        assert await s.engine.claim() is None
        await asking.complete("done")
        assert (await work(s.engine)).id == third


async def test_a_task_without_a_worker_keeps_its_place_and_its_input(tmp_path: Path) -> None:
    """When the input comes it is handed out again, before queued ones, and that is no attempt."""
    async with session(tmp_path, capsule(queue_depth=9)) as s:
        first, second = await s.send(), await s.send()
        asking = await work(s.engine)
        await asking.ask("Which?")
        await s.engine.release(first)
        assert asking.orders.canceled
        assert (await shown(s, first))["status"]["state"] == "input-required"
        assert (await work(s.engine)).id == second
        assert await s.engine.claim() is None
        assert (await s.call("message/send", answer("red")))["result"]["status"]["state"] == "working"
        again = await work(s.engine)
        assert (again.id, again.claim.attempt, again.texts()) == (first, 1, ["hello", "red"])
        await s.engine.release(first)
        again = await work(s.engine)
        assert (again.claim.attempt, again.texts()) == (2, ["hello", "red"])


async def test_input_in_time_stops_the_clock(tmp_path: Path) -> None:
    """Another question starts it anew."""
    async with session(tmp_path) as s:
        s.engine.reconfigure(replace(QUEUE, input_timeout=0.2))
        await s.send()
        working = await work(s.engine)
        await working.ask("Which?")
        await s.call("message/send", answer("red"))
        assert len(working.orders.take()) == 1
        await s.store.write(lambda _: time.sleep(0.6))
        assert (await shown(s, working.id))["status"]["state"] == "working"
        await working.ask("When?")
        assert (await shown(s, working.id))["status"]["state"] == "input-required"
        await working.orders.wait()
        assert (await shown(s, working.id))["status"]["state"] == "failed"


async def test_the_clock_runs_on_over_a_restart(tmp_path: Path) -> None:
    """It counts from when the question was asked; what is overdue fails at once."""
    async with session(tmp_path, impatient(3600)) as s:
        task_id = await s.send()
        await (await work(s.engine)).ask("Which?")
    with closing(sqlite3.connect(tmp_path / "sidecar.db")) as file:
        file.execute("UPDATE tasks SET waiting_since = waiting_since - 3601")
        file.commit()
    async with session(tmp_path, impatient(3600)) as s:
        await until(lambda: s.engine.counts() == {})
        assert (await shown(s, task_id))["status"]["state"] == "failed"


async def test_another_limit_counts_for_what_waits_already(tmp_path: Path) -> None:
    """None at all, too."""
    async with session(tmp_path) as s:
        s.engine.reconfigure(replace(QUEUE, input_timeout=0.2))
        await s.send()
        working = await work(s.engine)
        await working.ask("Which?")
        s.engine.reconfigure(QUEUE)
        await s.store.write(lambda _: time.sleep(0.6))
        assert s.engine.counts() == {"input-required": 1}
        s.engine.reconfigure(replace(QUEUE, input_timeout=3600))
        assert s.engine.counts() == {"input-required": 1}
        s.engine.reconfigure(replace(QUEUE, input_timeout=0.05))
        await until(lambda: s.engine.counts() == {})


async def test_each_of_many_that_wait_fails_in_its_time(tmp_path: Path) -> None:
    """In the order in which they asked, each with its one final frame."""
    async with session(tmp_path, capsule(queue_depth=9, concurrency=5)) as s:
        s.engine.reconfigure(replace(QUEUE, concurrency=5, input_timeout=0.1))
        for _ in range(5):
            await s.send()
        workings = [await work(s.engine) for _ in range(5)]
        await asyncio.gather(*(working.ask("Which?") for working in workings))
        await until(lambda: s.engine.counts() == {})
        stream = await s.stream("stream/watch", None, "10")
        frames = await frames_of(stream, 6)
        assert [frame.data["id"] for frame in frames[1:]] == [working.id for working in workings]


async def test_a_locked_file_makes_the_clock_late_and_no_more(tmp_path: Path) -> None:
    """The task fails once it can be said."""
    async with session(tmp_path, capsule()) as s:
        await s.send()
        working = await work(s.engine)
        await working.ask("Which?")
        orders = working.orders
        await s.store.write(lambda c: c.execute("ALTER TABLE events RENAME TO hidden"))
        with structlog.testing.capture_logs() as lines:
            s.engine.reconfigure(replace(QUEUE, input_timeout=0.01))
            await until(lambda: any(line["event"] == "tasks_not_saved" for line in lines))
        assert not orders.canceled
        await s.store.write(lambda c: c.execute("ALTER TABLE hidden RENAME TO events"))
        assert await orders.wait()
        assert (await shown(s, working.id))["status"]["state"] == "failed"


async def test_every_answer_is_seen_on_the_stream(tmp_path: Path) -> None:
    """The question, then `resumed`, then what comes of it; byte for byte."""
    async with session(tmp_path) as s:
        stream = await s.stream("message/stream", MESSAGE)
        working = await work(s.engine)
        await working.say(InputRequired('Which "one"?'))
        await s.call("message/send", answer("red"))
        await working.say(Completed("Red."))
        chunks = b""
        while (chunk := await stream.next()) is not None:
            chunks += chunk
        head = b'{"id":"%b","context_id":"%b","status":{"state":' % (
            working.id.encode(),
            working.claim.task.context_id.encode(),
        )
        assert chunks == (
            b'id: 1\nevent: status\ndata: %b"working","message":"inference turn 1"},"final":false}\n\n'
            b'id: 2\nevent: status\ndata: %b"input-required","message":"Which \\"one\\"?"},"final":false}\n\n'
            b'id: 3\nevent: status\ndata: %b"working","message":"resumed"},"final":false}\n\n'
            b'id: 4\nevent: text\ndata: {"id":"%b","text":"Red.","final":true}\n\n'
            b'id: 5\nevent: status\ndata: %b"completed","message":"session ended","response":"Red."},"final":true}\n\n'
            % (head, head, head, working.id.encode(), head)
        )
        assert len(frames_in(chunks)) == 5


async def test_an_answer_that_cannot_be_committed_is_refused_and_reaches_nobody(tmp_path: Path) -> None:
    """The task waits on; the same answer may be sent again."""
    async with session(tmp_path) as s:
        await s.send()
        working = await work(s.engine)
        await working.ask("Which?")
        await s.store.write(lambda c: c.execute("ALTER TABLE inputs RENAME TO hidden"))
        assert (await s.call("message/send", answer("red")))["error"]["code"] == -32603
        assert working.orders.take() == ()
        await s.store.write(lambda c: c.execute("ALTER TABLE hidden RENAME TO inputs"))
        assert (await shown(s, working.id))["status"]["state"] == "input-required"
        assert (await s.call("message/send", answer("red")))["result"]["status"]["state"] == "working"
        assert [given.text for given in working.orders.take()] == ["red"]


async def test_the_session_that_closes_lets_the_clock_go(tmp_path: Path) -> None:
    """Nothing of it is left over."""
    async with session(tmp_path, impatient(3600)) as s:
        await s.send()
        await (await work(s.engine)).ask("Which?")
        await s.engines.close(SESSION)
