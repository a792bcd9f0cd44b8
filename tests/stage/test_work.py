"""Tasks that are worked on, over a real database: claims, reports, orders, hands."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from sidecar.doors.murmur import MurmurDoor
from sidecar.errors import StoreError
from sidecar.events import TaskState
from sidecar.model import TaskAcceptance
from sidecar.tasks.model import Input, Rules
from sidecar.tasks.said import Completed, Failed, InputRequired, Rejected, Status, Text
from tests.support.gates import Gate, poison
from tests.support.sessions import MESSAGE, SESSION, capsule, session
from tests.support.waiting import until
from tests.support.working import Working, work

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sessions import Session

ANSWER = {"messageId": "m2", "role": "user", "parts": [{"text": "the red one"}]}


async def settle() -> None:
    """Let everybody who could go on go on."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_claim_gives_the_oldest_task_with_its_message(tmp_path: Path) -> None:
    """It is working then, in its first turn, and that is committed."""
    async with session(tmp_path) as s:
        first, _ = await s.send(), await s.send()
        working = await work(s.engine)
        assert working.id == first
        assert (working.claim.task.state, working.claim.attempt) == (TaskState.WORKING, 1)
        assert [json.loads(given.json) for given in working.claim.inputs] == [MESSAGE]
        assert working.texts() == ["hello"]
        assert s.engine.counts() == {"working": 1, "submitted": 1}
        assert (await s.call("tasks/get"))["result"]["status"] == {"state": "working"}


async def test_tasks_of_a_queue_run_one_after_another(tmp_path: Path) -> None:
    """In order; nothing is handed out while the slot is taken."""
    async with session(tmp_path, capsule(queue_depth=2)) as s:
        first, second = await s.send(), await s.send()
        working = await work(s.engine)
        assert await s.engine.claim() is None
        await working.complete("one")
        assert working.id == first
        working = await work(s.engine)
        await working.complete("two")
        assert working.id == second
        for task_id, reply in ((first, "one"), (second, "two")):
            shown = (await s.call("tasks/get", {"id": task_id}))["result"]
            assert shown["status"]["state"] == "completed"
            assert shown["artifacts"] == [{"name": "response", "parts": [{"text": reply}]}]
        assert s.engine.generation == 2


async def test_as_many_run_as_may(tmp_path: Path) -> None:
    """More slots, or fewer, count from the next claim on."""
    async with session(tmp_path, capsule(queue_depth=9, concurrency=2)) as s:
        ids = [await s.send() for _ in range(4)]
        assert [(await work(s.engine)).id, (await work(s.engine)).id] == ids[:2]
        assert await s.engine.claim() is None
        waiting = asyncio.ensure_future(s.engine.claimable())
        await settle()
        assert not waiting.done()
        s.engine.reconfigure(Rules(TaskAcceptance.QUEUE, queue_depth=9, concurrency=3))
        assert await waiting
        assert (await work(s.engine)).id == ids[2]
        assert await s.engine.claim() is None


async def test_whoever_waits_for_work_hears_of_it(tmp_path: Path) -> None:
    """Of a task that comes, of a slot that becomes free by any end, and of a question that leaves its slot."""
    async with session(tmp_path, capsule(queue_depth=9)) as s:

        async def heard() -> asyncio.Future[bool]:
            waiting = asyncio.ensure_future(s.engine.claimable())
            await settle()
            assert not waiting.done()
            return waiting

        waiting = await heard()
        await s.send()
        assert await waiting
        for each in (Completed(), Failed("x"), Rejected("y"), InputRequired("?")):
            working = await work(s.engine)
            await s.send()
            waiting = await heard()
            await working.say(each)
            assert await waiting
        working = await work(s.engine)
        await s.engine.send(Input.of("{}"), context_id=None, owner="operator")
        waiting = await heard()
        await s.call("tasks/cancel", {"id": working.id})
        assert await waiting


async def test_many_that_claim_at_once_get_one_task_each(tmp_path: Path) -> None:
    """And no more than there are."""
    async with session(tmp_path, capsule(queue_depth=9, concurrency=5)) as s:
        ids = [await s.send() for _ in range(3)]
        claims = await asyncio.gather(*(s.engine.claim() for _ in range(10)))
        assert sorted(claim.task.id for claim in claims if claim is not None) == ids


async def test_a_report_is_one_change(tmp_path: Path) -> None:
    """All of it is committed, or nothing."""
    async with session(tmp_path) as s:
        await s.send()
        working = await work(s.engine)
        gate = Gate(s.store)
        await gate.reached()
        reporting = asyncio.ensure_future(working.complete("a", "b"))
        await settle()
        poison(s.store).add_done_callback(lambda done: done.exception())
        gate.open()
        with pytest.raises(StoreError):
            await reporting
        assert (await s.call("tasks/get"))["result"]["status"] == {"state": "working"}
        assert s.engine.feed.head == 1
        task = await working.complete("a", "b")
        assert (task.state, task.output) == (TaskState.COMPLETED, "ab")
        assert s.engine.feed.head == 5


async def test_what_comes_after_the_end_is_ignored(tmp_path: Path) -> None:
    """Whoever ended it; the worker gets the task as it is."""
    async with session(tmp_path) as s:
        await s.send()
        working = await work(s.engine)
        done = await working.complete("yes")
        assert await working.say(Text("more"), Failed("no")) == done
        await s.send()
        working = await work(s.engine)
        await s.call("tasks/cancel", {"id": working.id})
        assert (await working.complete("late")).state is TaskState.CANCELED
        assert (await s.call("tasks/get", {"id": working.id}))["result"]["status"]["state"] == "canceled"
        assert s.engine.feed.head == 6


async def test_what_nobody_claimed_takes_no_report(tmp_path: Path) -> None:
    """Neither a queued task nor one that there never was."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        assert (await s.engine.report(task_id, [Completed("x")])).state is TaskState.SUBMITTED
        assert (await s.engine.report("tsk_0", [Completed("x")])).state is TaskState.CANCELED
        assert s.engine.feed.head == 0


async def test_a_task_that_is_given_back_is_handed_out_again(tmp_path: Path) -> None:
    """Before any queued one, as the next attempt, in a new turn, with all its input."""
    async with session(tmp_path, capsule(queue_depth=9)) as s:
        first, second = await s.send(), await s.send()
        working = await work(s.engine)
        await working.say(Text("lost"))
        old = working.orders
        await s.engine.release(first)
        assert await old.wait()
        assert (await s.call("tasks/get"))["result"]["status"] == {"state": "working"}
        working = await work(s.engine)
        assert (working.id, working.claim.attempt, working.texts()) == (first, 2, ["hello"])
        assert working.claim.task.turn == 2
        assert await s.engine.claim() is None
        await working.complete("found")
        shown = (await s.call("tasks/get", {"id": first}))["result"]
        assert shown["artifacts"][0]["parts"] == [{"text": "found"}]
        assert (await work(s.engine)).id == second


async def test_a_task_may_fail_with_its_worker(tmp_path: Path) -> None:
    """With what its backend says."""
    async with session(tmp_path) as s:
        await s.send()
        working = await work(s.engine)
        await s.engine.release(working.id, failed="worker lost")
        task = await s.engine.get(working.id)
        assert task is not None
        assert (task.state, task.status) == (TaskState.FAILED, "worker lost")
        await s.engine.release(working.id, failed="again")
        await s.engine.release(working.id)
        await s.engine.release("tsk_0", failed="unknown")
        assert await s.engine.get(working.id) == task
        assert await s.engine.claim() is None


async def test_a_worker_hears_of_input_and_of_the_end(tmp_path: Path) -> None:
    """Input once and in order; the end whoever made it."""
    async with session(tmp_path) as s:
        await s.send()
        working = await work(s.engine)
        orders = working.orders
        assert (orders.canceled, orders.take(), await orders.wait(0)) == (False, (), False)
        waiting = asyncio.ensure_future(orders.wait())
        await working.ask("Which?")
        await settle()
        assert not waiting.done()
        await s.call("message/send", ANSWER)
        assert await waiting
        (given,) = orders.take()
        assert (given.text, json.loads(given.json)) == ("the red one", ANSWER)
        assert orders.take() == ()
        waiting = asyncio.ensure_future(orders.wait())
        await s.call("session/stop")
        assert await waiting
        assert orders.canceled
        assert working.orders.canceled


async def test_orders_of_what_is_over_or_unknown_say_so(tmp_path: Path) -> None:
    """There is nothing to wait for."""
    async with session(tmp_path) as s:
        for task_id in ("tsk_0", await s.send_then_cancel()):
            assert s.engine.orders(task_id).canceled
            assert await s.engine.orders(task_id).wait()


async def test_a_claim_that_is_abandoned_gives_the_task_back(tmp_path: Path) -> None:
    """As when the worker's connection broke while it was being answered."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        gate = Gate(s.store)
        await gate.reached()
        claiming = asyncio.ensure_future(s.engine.claim())
        await settle()
        claiming.cancel()
        await asyncio.wait((claiming,))
        gate.open()
        working = await work(s.engine)
        assert (working.id, working.claim.attempt) == (task_id, 1)


async def test_a_claim_that_cannot_be_committed_gives_nothing(tmp_path: Path) -> None:
    """The task is there for the next one."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        gate = Gate(s.store)
        await gate.reached()
        claiming = asyncio.ensure_future(s.engine.claim())
        await settle()
        poison(s.store).add_done_callback(lambda done: done.exception())
        gate.open()
        assert await claiming is None
        working = await work(s.engine)
        assert (working.id, working.claim.attempt, working.claim.task.turn) == (task_id, 1, 1)


async def test_a_claim_whose_input_cannot_be_read_gives_the_task_back(tmp_path: Path) -> None:
    """It was started; the next one is in a new turn, and no further attempt."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        await s.store.write(lambda c: c.execute("ALTER TABLE inputs RENAME TO hidden"))
        assert await s.engine.claim() is None
        await s.store.write(lambda c: c.execute("ALTER TABLE hidden RENAME TO inputs"))
        working = await work(s.engine)
        assert (working.id, working.claim.attempt, working.claim.task.turn) == (task_id, 1, 2)


async def test_an_engine_that_closes_lets_everybody_go(tmp_path: Path) -> None:
    """Who waits for work hears that there will be none, who waits for orders that there are none."""
    async with session(tmp_path) as s:
        await s.send()
        working = await work(s.engine)
        orders = working.orders
        waiting = asyncio.ensure_future(s.engine.claimable())
        hearing = asyncio.ensure_future(orders.wait())
        await settle()
        await s.engines.close(SESSION)
        assert await waiting is False
        assert await hearing is False
        assert not orders.canceled
        assert not s.engine.orders(working.id).canceled
        assert await s.engine.claimable() is False
        assert await s.engine.claim() is None
        with pytest.raises(StoreError):
            await working.say(Text("late"))


async def restarted(s: Session) -> None:
    """Open the session anew, as a restart does."""
    await s.engines.close(SESSION)
    s.engine = await s.engines.open(SESSION, Rules(TaskAcceptance.QUEUE, queue_depth=9))
    s.door = MurmurDoor(s.engine, capsule(), heartbeat=60.0, streams=9)


async def test_tasks_that_ran_are_interrupted_by_a_restart(tmp_path: Path) -> None:
    """They stay as they are until their backend decides; those that were queued wait again."""
    async with session(tmp_path, capsule(queue_depth=9, concurrency=3)) as s:
        ids = [await s.send() for _ in range(4)]
        workings = [await work(s.engine) for _ in range(3)]
        await workings[0].ask("Which?")
        await workings[1].say(Text("half"), note="pid 7")
        assert s.engine.interrupted() == ()
    async with session(tmp_path, capsule(queue_depth=9, concurrency=3)) as s:
        assert await s.engine.ready()
        waiting, half, other = s.engine.interrupted()
        assert [waiting.id, half.id, other.id] == ids[:3]
        assert (waiting.state, waiting.output) == (TaskState.INPUT_REQUIRED, "Which?")
        assert (half.state, half.note, half.attempt) == (TaskState.WORKING, "pid 7", 1)
        await s.engine.release(half.id)
        await s.engine.release(other.id, failed="the sidecar was restarted")
        assert [task.id for task in s.engine.interrupted()] == [waiting.id]
        working = await work(s.engine)
        assert (working.id, working.claim.attempt) == (half.id, 2)
        assert (await work(s.engine)).id == ids[3]
        assert await s.engine.claim() is None
        await s.call("message/send", ANSWER)
        working = await work(s.engine)
        assert (working.id, working.claim.attempt) == (waiting.id, 1)
        assert working.texts() == ["hello", "the red one"]


async def test_a_task_can_be_taken_up_as_it_stands(tmp_path: Path) -> None:
    """In the turn it was in, with the text of that turn, all its input and its note."""
    async with session(tmp_path) as s:
        await s.send()
        working = await work(s.engine)
        await working.say(Text("old"))
        await working.ask("Which?")
        await s.call("message/send", ANSWER)
        await working.say(Text("so "), Text("far, "), note="frame 7")
        await restarted(s)
        claim = await s.engine.resume(working.id)
        assert claim is not None
        again = Working(s.engine, claim)
        assert (claim.task.turn, claim.attempt, claim.task.note) == (1, 1, "frame 7")
        assert again.texts() == ["hello", "the red one"]
        assert s.engine.interrupted() == ()
        assert again.orders.take() == ()
        await again.ask("And then?")
        await s.call("message/send", ANSWER)
        assert [given.text for given in again.orders.take()] == ["the red one"]
        task = await again.complete("so good")
        assert task.output == "oldso far, so good"
        assert await s.engine.resume(working.id) is None
        assert await s.engine.resume(await s.send()) is None


async def test_input_that_comes_while_a_task_is_taken_up_comes_once(tmp_path: Path) -> None:
    """In the claim or in the orders, never in both, never in neither."""
    async with session(tmp_path) as s:
        await s.send()
        await (await work(s.engine)).ask("Which?")
        await restarted(s)
        (task,) = s.engine.interrupted()
        for turns in range(12):
            resuming = asyncio.ensure_future(s.engine.resume(task.id))
            for _ in range(turns):
                await asyncio.sleep(0)
            text = f"answer {turns}"
            given = Input(text, json.dumps({**ANSWER, "parts": [{"text": text}]}))
            assert await s.engine.deliver(given) is not None
            claim = await resuming
            assert claim is not None
            heard = [*claim.inputs, *s.engine.orders(task.id).take()]
            assert [each.text for each in heard] == ["hello", *(f"answer {n}" for n in range(turns + 1))]
            await s.engine.report(task.id, [InputRequired("And?")])
            s.engine.let_go()


async def test_a_backend_that_goes_leaves_its_tasks_to_the_next(tmp_path: Path) -> None:
    """As after a reload that changed it."""
    async with session(tmp_path) as s:
        await s.send()
        working = await work(s.engine)
        orders = working.orders
        s.engine.let_go()
        assert await orders.wait() is False
        assert [task.id for task in s.engine.interrupted()] == [working.id]
        await s.engine.release(working.id)
        assert (await work(s.engine)).claim.attempt == 2


async def test_an_engine_that_cannot_be_read_yet_is_ready_later(tmp_path: Path) -> None:
    """Whoever waits for it need not ask again."""
    async with session(tmp_path) as s:
        await s.send()
        working = await work(s.engine)
        await s.engines.close(SESSION)
        await s.store.write(lambda c: c.execute("ALTER TABLE tasks RENAME TO hidden"))
        engine = await s.engines.open(SESSION, Rules(TaskAcceptance.QUEUE, queue_depth=9))
        waiting = asyncio.ensure_future(engine.ready())
        await settle()
        assert not waiting.done()
        assert engine.interrupted() == ()
        await s.store.write(lambda c: c.execute("ALTER TABLE hidden RENAME TO tasks"))
        assert await waiting
        assert [task.id for task in engine.interrupted()] == [working.id]


async def test_a_status_is_what_the_task_says_of_itself(tmp_path: Path) -> None:
    """Over a restart too."""
    async with session(tmp_path) as s:
        await s.send()
        working = await work(s.engine)
        await working.say(Status("reading"))
        await restarted(s)
        (task,) = s.engine.interrupted()
        assert task.status == "reading"


async def test_a_longer_text_than_may_be_ends_the_task_and_its_worker_hears_of_it(tmp_path: Path) -> None:
    """It failed, with the reason."""
    async with session(tmp_path) as s:
        s.engine.reconfigure(Rules(TaskAcceptance.QUEUE, queue_depth=2, output=10))
        await s.send()
        working = await work(s.engine)
        orders = working.orders
        task = await working.say(Text("0123456789"), Text("0"))
        assert (task.state, task.status) == (TaskState.FAILED, "the reply is over the limit of 10 bytes")
        await until(lambda: orders.canceled)
