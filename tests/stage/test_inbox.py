"""The inbox over real sockets: handing out, reporting, leases, and who may."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from sidecar.desk.access import Access
from sidecar.events import TaskState
from sidecar.tasks.backends import inbox as inbox_module
from tests.support.gates import poison
from tests.support.rawhttp import request_bytes
from tests.support.waiting import until
from tests.support.workplace import ADMIN, WORKER, document, given, refusal_of, served, workplace

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from tests.support.rawhttp import Answer


DONE = {"type": "completed"}
ASK = {"type": "input-required", "prompt": "Which one?"}
LOST = (409, "lease_lost")


def say(text: str, **more: object) -> dict[str, object]:
    """Return a piece of the reply."""
    return {"type": "text", "text": text, **more}


# handing out


async def test_a_task_is_handed_out_with_its_lease_and_its_message(tmp_path: Path) -> None:
    """The document has everything a worker needs."""
    async with workplace(tmp_path, served(lease=12.5)) as place:
        task_id = await place.send("good day")
        hold = await place.take("")
        task = await place.task(task_id)
        assert hold.document == {
            "lease": hold.document["lease"],
            "lease_seconds": 12.5,
            "attempt": 1,
            "task": {"id": task_id, "contextId": task.context_id},
            "message": {
                "type": "message",
                "text": "good day",
                "messageId": "m1",
                "taskId": task_id,
                "contextId": task.context_id,
                "parts": [{"text": "good day"}],
                "metadata": {"k": 1},
            },
            "input": [],
        }
        assert len(hold.document["lease"]) >= 32
        assert (task.state, task.status) == (TaskState.WORKING, "inference turn 1")


async def test_without_a_task_the_answer_is_empty_at_once_or_after_the_wait(tmp_path: Path) -> None:
    """204, and no body."""
    async with workplace(tmp_path) as place:
        for query in ("", "?wait=0", "?wait=0.05"):
            answer = await place.post(f"/workers/hello/next{query}")
            assert (answer.status, answer.body) == (204, b"")
            assert "content-length" not in answer.headers


async def test_a_worker_that_waits_gets_a_task_as_soon_as_it_comes(tmp_path: Path) -> None:
    """The long poll ends with the task and not with its time."""
    async with workplace(tmp_path) as place:
        taking = asyncio.ensure_future(place.take("?wait=60"))
        await until(lambda: place.inbox.workers == 1)
        task_id = await place.send()
        assert (await taking).id == task_id


async def test_each_task_goes_to_one_of_the_workers_that_race_for_it(tmp_path: Path) -> None:
    """Ten workers and three tasks: three get one, each another one, in the order in which they came."""
    async with workplace(tmp_path, served(concurrency=3)) as place:
        polls = [asyncio.ensure_future(place.post("/workers/hello/next?wait=0.5")) for _ in range(10)]
        await until(lambda: place.inbox.workers == 10)
        ids = [await place.send() for _ in range(3)]
        answers = [await poll for poll in polls]
        got = [document(answer)["task"]["id"] for answer in answers if answer.status == 200]
        assert sorted(got) == sorted(ids)
        assert sorted(answer.status for answer in answers) == [200] * 3 + [204] * 7


async def test_no_more_tasks_are_handed_out_than_may_run(tmp_path: Path) -> None:
    """`concurrency` holds however many workers there are."""
    async with workplace(tmp_path) as place:
        await place.send()
        second = await place.send()
        first = await place.take()
        assert (await place.post("/workers/hello/next?wait=0.05")).status == 204
        await first.say(DONE)
        assert (await place.take()).id == second


async def test_a_worker_that_leaves_while_it_waits_takes_no_task_along(tmp_path: Path) -> None:
    """Neither one that ends its connection orderly nor one that is cut off; the next one gets it, as attempt 1."""
    async with workplace(tmp_path) as place:
        for orderly in (True, False):
            _, writer = await asyncio.open_connection("127.0.0.1", place.port)
            headers = {"Authorization": f"Bearer {WORKER}"}
            writer.write(request_bytes("POST", "/workers/hello/next?wait=60", headers=headers, body=b""))
            await until(lambda: place.inbox.workers == 1)
            if orderly:
                writer.close()
            else:
                writer.transport.abort()
            await until(lambda: place.inbox.workers == 0)
            with suppress(ConnectionError):
                await writer.wait_closed()
        task_id = await place.send()
        hold = await place.take()
        assert (hold.id, hold.document["attempt"]) == (task_id, 1)


async def test_a_worker_that_leaves_while_it_is_handed_a_task_gives_it_back(tmp_path: Path) -> None:
    """The next one gets it at once, and it is no other attempt."""
    async with workplace(tmp_path) as place:
        task_id = await place.send()
        gate = await place.hold_writer()
        taking = asyncio.ensure_future(place.take())
        await until(lambda: place.engine.counts() == {"working": 1})
        taking.cancel()
        await until(lambda: place.inbox.workers == 0)
        gate.open()
        hold = await place.take()
        assert (hold.id, hold.document["attempt"]) == (task_id, 1)


# what workers say


async def test_what_a_worker_says_is_in_the_log_before_the_answer(tmp_path: Path) -> None:
    """Streamed text, an artifact and the end, in order; the answer counts the lines."""
    async with workplace(tmp_path) as place:
        task_id = await place.send()
        hold = await place.take()
        artifact = {"type": "artifact", "name": "a.txt", "parts": [{"text": "x"}]}
        assert await hold.say(say("Hel"), say("lo"), artifact) == {
            "accepted": 3,
            "cancelled": False,
            "input": [],
        }
        assert [kind for kind, _ in place.events(task_id)] == ["status", "text", "text", "artifact"]
        assert (await hold.say(DONE))["accepted"] == 4
        task = await place.task(task_id)
        assert (task.state, task.output) == (TaskState.COMPLETED, "Hello")


@pytest.mark.parametrize(
    ("line", "state", "status"),
    [
        ({"type": "failed", "message": "no luck"}, TaskState.FAILED, "no luck"),
        ({"type": "rejected", "message": "not mine"}, TaskState.REJECTED, "not mine"),
        ({"type": "completed", "response": "all of it"}, TaskState.COMPLETED, "session ended"),
        ({"type": "message", "parts": [{"text": "hi"}]}, TaskState.COMPLETED, "session ended"),
    ],
)
async def test_a_last_line_ends_the_task_and_is_no_cancellation(
    tmp_path: Path, line: dict[str, object], state: TaskState, status: str
) -> None:
    """Its own end is not told to the worker as one from elsewhere, not even when it repeats the line."""
    async with workplace(tmp_path) as place:
        await place.send()
        hold = await place.take()
        for _ in range(2):
            assert await hold.say({**line, "seq": 1}) == {"accepted": 1, "cancelled": False, "input": []}
        task = await place.task(hold.id)
        assert (task.state, task.status) == (state, status)


async def test_a_repeat_with_numbers_changes_nothing(tmp_path: Path) -> None:
    """Lines that were taken in are counted and not said twice; what is new behind them is."""
    async with workplace(tmp_path) as place:
        await place.send()
        hold = await place.take()
        first = [say("a", seq=1), say("b", seq=2)]
        assert (await hold.say(*first))["accepted"] == 2
        assert (await hold.say(*first))["accepted"] == 2
        assert (await hold.say(*first, say("c", seq=3)))["accepted"] == 3
        assert (await hold.say({**DONE, "seq": 4}))["accepted"] == 4
        assert (await place.task(hold.id)).output == "abc"


async def test_two_posts_of_the_same_lines_at_once_are_one(tmp_path: Path) -> None:
    """A repeat that overtakes its first try waits for it."""
    async with workplace(tmp_path) as place:
        await place.send()
        hold = await place.take()
        gate = await place.hold_writer()
        posts = [asyncio.ensure_future(hold.say(say("a", seq=1))) for _ in range(4)]
        await until(lambda: place.reports == 4)
        gate.open()
        assert [(await post)["accepted"] for post in posts] == [1] * 4
        assert [kind for kind, _ in place.events(hold.id)].count("text") == 1


async def test_a_report_is_taken_in_though_its_sender_left(tmp_path: Path) -> None:
    """The connection breaks before the commit; the repeat is harmless."""
    async with workplace(tmp_path) as place:
        await place.send()
        hold = await place.take()
        gate = await place.hold_writer()
        _, writer = await asyncio.open_connection("127.0.0.1", place.port)
        line = json.dumps(say("a", seq=1)).encode()
        headers = {
            "Authorization": f"Bearer {WORKER}",
            "x-sidecar-lease": hold.document["lease"],
            "Content-Type": "application/json",
        }
        target = f"/workers/hello/tasks/{hold.id}/events"
        writer.write(request_bytes("POST", target, headers=headers, body=line))
        await until(lambda: place.reports == 1)
        reset = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        writer.transport.abort()
        await until(lambda: place.connections == 0)
        gate.open()
        await until(lambda: place.reports == 0)
        assert (await hold.say(say("a", seq=1), say("b", seq=2)))["accepted"] == 2
        await hold.say(DONE)
        assert (await place.task(hold.id)).output == "ab"


async def test_a_bad_line_refuses_the_whole_post(tmp_path: Path) -> None:
    """400 with the number of the line, and nothing of the lines before it was taken in."""
    async with workplace(tmp_path) as place:
        await place.send()
        hold = await place.take()
        answer = await hold.post("events", say("good"), {"type": "txt"})
        assert refusal_of(answer) == (400, "bad_request")
        assert json.loads(answer.body)["message"].startswith("Line 2: type must be one of ")
        answer = await hold.post("events", say("good"), say("late", seq=3))
        assert json.loads(answer.body)["message"] == "Line 2: seq is 3, but 2 comes next."
        assert (await hold.say())["accepted"] == 0
        assert [kind for kind, _ in place.events(hold.id)] == ["status"]


async def test_bodies_and_lines_are_limited(tmp_path: Path) -> None:
    """413 for too many bytes or lines, 415 for what is no JSON, 408 for one that never ends."""
    async with workplace(tmp_path, body=1000, body_timeout=0.2) as place:
        await place.send()
        hold = await place.take()
        assert refusal_of(await hold.post("events", say("x" * 1000))) == (413, "body_too_large")
        lease = {"x-sidecar-lease": hold.document["lease"]}
        path = f"/workers/hello/tasks/{hold.id}/events"
        form = {**lease, "Content-Type": "application/x-www-form-urlencoded"}
        assert refusal_of(await place.post(path, say("x"), headers=form)) == (415, "unsupported_media_type")
        longer = {**lease, "Content-Length": "500"}
        assert refusal_of(await place.post(path, say("x"), headers=longer)) == (408, "timeout")
    async with workplace(tmp_path) as place:
        await until(lambda: place.engine.interrupted() == ())
        hold = await place.take()
        assert refusal_of(await hold.post("events", *[{"type": "turn"}] * 1001)) == (413, "body_too_large")


async def test_a_database_that_takes_nothing_is_said_and_the_repeat_is_taken_in(tmp_path: Path) -> None:
    """503 with Retry-After; nothing of it was taken."""
    async with workplace(tmp_path) as place:
        await place.send()
        hold = await place.take()
        gate = await place.hold_writer()
        posting = asyncio.ensure_future(hold.post("events", say("a", seq=1)))
        await until(lambda: place.reports == 1)
        poison(place.store).add_done_callback(lambda done: done.exception())
        gate.open()
        answer = await posting
        assert refusal_of(answer) == (503, "unavailable")
        assert answer.headers["retry-after"] == "1"
        assert (await hold.say(say("a", seq=1)))["accepted"] == 1


# what workers hear


async def test_a_cancellation_reaches_a_worker_that_waits_for_news(tmp_path: Path) -> None:
    """The heartbeat ends with it, and whatever the worker says after that is ignored."""
    async with workplace(tmp_path) as place:
        await place.send()
        hold = await place.take()
        beating = asyncio.ensure_future(hold.beat("?wait=15"))
        await until(lambda: place.waits == 1)
        await place.engine.cancel(hold.id)
        assert (await beating)["cancelled"]
        assert await hold.say(say("late"), DONE) == {"accepted": 2, "cancelled": True, "input": []}
        assert (await place.task(hold.id)).state is TaskState.CANCELED


async def test_input_reaches_the_worker_that_asked(tmp_path: Path) -> None:
    """It comes with whatever it calls next: once, or as often as it says that it has not heard it."""
    async with workplace(tmp_path) as place:
        await place.send()
        hold = await place.take()
        await hold.say(say("Well. "), ASK)
        beating = asyncio.ensure_future(hold.beat("?wait=15"))
        await until(lambda: place.waits == 1)
        assert await place.engine.deliver(given("that one")) is not None
        (heard,) = (await beating)["input"]
        assert (heard["type"], heard["text"], heard["taskId"]) == ("message", "that one", hold.id)
        assert (await hold.beat())["input"] == []
        assert (await hold.beat("?heard=0"))["input"] == [heard]
        assert (await hold.beat("?heard=1"))["input"] == []
        await hold.say(ASK)
        await place.engine.deliver(given("another"))
        assert [line["text"] for line in (await hold.say(say("and")))["input"]] == ["another"]
        assert [line["text"] for line in (await hold.beat("?heard=0"))["input"]] == ["that one", "another"]


# leases


async def test_a_lease_that_runs_out_hands_the_task_to_another_worker(tmp_path: Path) -> None:
    """As the next attempt, in a new turn, and the first worker is told that it lost it."""
    async with workplace(tmp_path, served(lease=0.2)) as place:
        await place.send()
        slow = await place.take()
        await slow.say(say("half"))
        quick = await place.take()
        assert quick.id == slow.id
        assert (quick.document["attempt"], quick.document["lease"] != slow.document["lease"]) == (2, True)
        assert refusal_of(await slow.post("events", DONE)) == LOST
        assert refusal_of(await slow.post("heartbeat")) == LOST
        place.reconfigure(lease=30.0)
        await quick.say(say("whole"), DONE)
        assert (await place.task(quick.id)).output == "whole"
        assert [data.get("message") for kind, data in place.events(quick.id) if kind == "status"] == [
            "inference turn 1",
            "inference turn 2",
            "session ended",
        ]


async def test_a_worker_that_is_lost_too_often_fails_the_task(tmp_path: Path) -> None:
    """`attempts` of them, then `worker lost`."""
    async with workplace(tmp_path, served(lease=0.05, attempts=2)) as place:
        task_id = await place.send()
        assert (await place.take()).document["attempt"] == 1
        assert (await place.take()).document["attempt"] == 2

        async def failed() -> bool:
            return (await place.task(task_id)).state is TaskState.FAILED

        await until(failed)
        assert (await place.task(task_id)).status == "worker lost"
        assert (await place.post("/workers/hello/next")).status == 204


async def test_a_task_that_is_given_back_is_handed_out_at_once_and_that_is_no_attempt(tmp_path: Path) -> None:
    """As often as it takes; what was said before is kept, and the lease is over."""
    async with workplace(tmp_path, served(lease=3600.0, attempts=1)) as place:
        task_id = await place.send()
        for turn in (1, 2, 3):
            hold = await place.take()
            assert (hold.id, hold.document["attempt"]) == (task_id, 1)
            await hold.say({"type": "text", "text": f"{turn} "})
            assert (await place.task(task_id)).turn == turn
            assert (await hold.post("release")).status == 204
            for what in ("heartbeat", "events", "release"):
                answer = await hold.post(what)
                assert (answer.status, json.loads(answer.body)["error"]) == (409, "lease_lost")
        hold = await place.take()
        await hold.say({"type": "completed"})
        assert (await place.task(task_id)).state is TaskState.COMPLETED
        assert (await hold.post("release")).status == 204


async def test_whoever_waits_for_news_of_a_task_that_is_given_back_hears_that(tmp_path: Path) -> None:
    """Its lease is lost; a task that waits for input keeps its place."""
    async with workplace(tmp_path) as place:
        task_id = await place.send()
        hold = await place.take()
        waiting = asyncio.ensure_future(hold.post("heartbeat?wait=10"))
        await hold.say({"type": "input-required", "prompt": "Which?"})
        assert (await hold.post("release")).status == 204
        assert (await waiting).status == 409
        assert (await place.task(task_id)).state is TaskState.INPUT_REQUIRED
        assert (await place.post("/workers/hello/next")).status == 204
        await place.engine.deliver(given("red"))
        assert [line["text"] for line in (await place.take()).document["input"]] == ["red"]


async def test_signs_of_life_keep_a_lease(tmp_path: Path) -> None:
    """A worker that beats or speaks has its task for many times the lease."""
    async with workplace(tmp_path, served(lease=0.4)) as place:
        await place.send()
        hold = await place.take()
        clock = asyncio.get_running_loop().time
        end = clock() + 1.5
        while clock() < end:
            await hold.beat("?wait=5")  # answered within half of the lease
            await hold.say({"type": "thinking", "text": "."})
        assert (await place.task(hold.id)).attempt == 1
        assert (await hold.say(DONE))["cancelled"] is False


async def test_a_task_that_waits_for_input_outlives_its_worker(tmp_path: Path) -> None:
    """It keeps its place; once the input is there another worker gets it with all of it, and that is no attempt."""
    async with workplace(tmp_path, served(lease=30.0, attempts=1)) as place:
        await place.send("first")
        hold = await place.take()
        place.reconfigure(lease=0.1)
        await hold.say(ASK)
        await until(lambda: not place.leases)
        assert (await place.task(hold.id)).state is TaskState.INPUT_REQUIRED
        assert refusal_of(await hold.post("heartbeat")) == LOST
        assert (await place.post("/workers/hello/next")).status == 204
        place.reconfigure(lease=30.0)
        await place.engine.deliver(given("second"))
        again = await place.take()
        assert (again.id, again.document["attempt"]) == (hold.id, 1)
        assert again.document["message"]["text"] == "first"
        assert [line["text"] for line in again.document["input"]] == ["second"]
        assert (await again.beat("?heard=0"))["input"] == []


async def test_input_that_its_worker_did_not_live_to_hear_is_not_lost(tmp_path: Path) -> None:
    """It comes with the next attempt."""
    async with workplace(tmp_path, served(lease=0.3)) as place:
        await place.send("first")
        hold = await place.take()
        await hold.say(ASK)
        await place.engine.deliver(given("second"))
        again = await place.take()
        assert (again.id, again.document["attempt"]) == (hold.id, 2)
        assert [line["text"] for line in again.document["input"]] == ["second"]


async def test_a_lease_that_runs_out_during_a_report_is_kept(tmp_path: Path) -> None:
    """A database that is slow costs no worker its task."""
    async with workplace(tmp_path, served(lease=0.1)) as place:
        await place.send()
        hold = await place.take()
        gate = await place.hold_writer()
        posting = asyncio.ensure_future(hold.say(DONE))
        await until(lambda: place.reports == 1)
        clock = asyncio.get_running_loop().time
        later = clock() + 0.3
        await until(lambda: clock() > later)
        gate.open()
        assert (await posting)["accepted"] == 1
        assert (await place.task(hold.id)).state is TaskState.COMPLETED


async def test_a_lost_worker_is_dealt_with_once_the_database_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is over at once, the failure is written later."""
    monkeypatch.setattr(inbox_module, "RETRY", 0.05)
    with structlog.testing.capture_logs() as logged:
        async with workplace(tmp_path, served(lease=0.1, attempts=1)) as place:
            task_id = await place.send()
            hold = await place.take()
            gate = await place.hold_writer()
            await until(lambda: [line["event"] for line in logged] == ["worker_lost"])
            assert refusal_of(await hold.post("heartbeat")) == LOST
            poison(place.store).add_done_callback(lambda done: done.exception())
            gate.open()
            await until(lambda: not place.leases)
            assert (await place.task(task_id)).status == "worker lost"


async def test_leases_end_with_a_restart_and_the_tasks_wait_again(tmp_path: Path) -> None:
    """The old lease is worth nothing; no worker was lost, so it is no attempt; what waited for input still does."""
    async with workplace(tmp_path, served(concurrency=2)) as place:
        running, waiting = await place.send("a"), await place.send("b")
        first, second = await place.take(), await place.take()
        assert [first.id, second.id] == [running, waiting]
        await second.say(ASK)
    async with workplace(tmp_path, served(concurrency=2)) as place:
        first.place = place
        again = await place.take()
        assert (again.id, again.document["attempt"]) == (running, 1)
        assert refusal_of(await first.post("events", DONE)) == LOST
        assert (await place.task(waiting)).state is TaskState.INPUT_REQUIRED
        await place.engine.deliver(given("c"))
        assert (await place.take()).id == waiting


async def test_a_task_that_is_over_is_forgotten_with_its_lease(tmp_path: Path) -> None:
    """Nothing grows with the number of tasks that were done."""
    async with workplace(tmp_path, served(lease=0.05)) as place:
        for _ in range(5):
            await place.send()
            await (await place.take()).say(DONE)
        await until(lambda: not place.leases)


async def test_another_length_of_leases_holds_from_the_next_sign_of_life(tmp_path: Path) -> None:
    """A reload ends no lease."""
    async with workplace(tmp_path, served(lease=30)) as place:
        await place.send()
        hold = await place.take()
        place.reconfigure(lease=0.1)
        await hold.beat()
        assert (await place.take()).document["attempt"] == 2


# who is there, and who may


async def ended(asking: Coroutine[Any, Any, Answer]) -> Answer | None:
    """Return an answer, None where the connection ended without one."""
    try:
        return await asking
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def test_a_token_of_workers_that_is_another_by_now_gets_no_more_tasks(tmp_path: Path) -> None:
    """A request that waits with it is cut off; one with the admin token goes on, and has the task that comes."""
    async with workplace(tmp_path) as place, asyncio.TaskGroup() as group:
        old = group.create_task(ended(place.post("/workers/hello/next?wait=30")))
        kept = group.create_task(place.post("/workers/hello/next?wait=30", token=ADMIN))
        await until(lambda: place.waits == 2, what="both wait")
        renewed = Access(ADMIN, worker="another")
        place.desk.reconfigure(access=Access(ADMIN), worker_access=renewed, open_metrics=True)
        assert await old is None
        await until(lambda: place.waits == 1, what="one waits")
        task_id = await place.send()
        assert document(await kept)["task"]["id"] == task_id


async def test_attached_workers_are_counted_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait and those that hold a task; the same name is the same worker, and stays for a moment."""
    monkeypatch.setattr(inbox_module, "LINGERS", 0.3)
    async with workplace(tmp_path, served(concurrency=2)) as place:
        assert place.inbox.workers == 0
        named = {"x-sidecar-worker": "w1"}
        await place.send()
        hold = await place.take("?wait=5", **named)
        polls = [
            asyncio.ensure_future(place.post("/workers/hello/next?wait=0.2", headers=headers))
            for headers in (named, named, {}, {})
        ]
        await until(lambda: place.waits == 4)
        assert place.inbox.workers == 3
        for poll in polls:
            await poll
        await hold.say(DONE)
        assert place.inbox.workers == 1
        await until(lambda: place.inbox.workers == 0)


@pytest.mark.parametrize("path", ["", "/", "/hello/next", "/nobody/next", "/hello/tasks/t/events", "/x"])
async def test_a_stranger_learns_nothing_of_what_workers_have(tmp_path: Path, path: str) -> None:
    """401 with a challenge comes before everything else; the admin token and the workers' own are let in."""
    async with workplace(tmp_path) as place:
        for token in (None, "wrong", ADMIN + "x"):
            answer = await place.post(f"/workers{path}", token=token)
            assert refusal_of(answer) == (401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer ")
        for token in (ADMIN, WORKER):
            assert (await place.post(f"/workers{path}", token=token)).status != 401


async def test_the_workers_token_opens_nothing_else(tmp_path: Path) -> None:
    """What is the operator's stays the operator's."""
    async with workplace(tmp_path) as place:
        assert refusal_of(await place.post("/api/reload", token=WORKER)) == (401, "unauthorized")


async def test_a_desk_without_credentials_is_open_to_workers_too(tmp_path: Path) -> None:
    """`desk.auth: none`."""
    async with workplace(tmp_path, open_to_all=True) as place:
        assert (await place.post("/workers/hello/next", token=None)).status == 204


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/workers/nobody/next", {}, (404, "not_found")),
        ("/workers/hello", {}, (404, "not_found")),
        ("/workers/hello/tasks/t", {}, (404, "not_found")),
        ("/workers/hello/tasks/t/heartbeat", {}, (400, "bad_request")),
        ("/workers/hello/tasks/t/heartbeat", {"x-sidecar-lease": "\xff"}, LOST),
        ("/workers/hello/tasks/t/events", {"x-sidecar-lease": "x"}, LOST),
        ("/workers/hello/tasks/t/heartbeat?heard=-1", {"x-sidecar-lease": "x"}, (400, "bad_request")),
        ("/workers/hello/next?wait=soon", {}, (400, "bad_request")),
        ("/workers/hello/next?wait=-1", {}, (400, "bad_request")),
        ("/workers/hello/next?wait=nan", {}, (400, "bad_request")),
        ("/workers/hello/next", {"x-sidecar-worker": "a b"}, (400, "bad_request")),
    ],
)
async def test_what_makes_no_sense_is_refused_in_the_one_shape(
    tmp_path: Path, path: str, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    """With the code that says what is wrong."""
    async with workplace(tmp_path) as place:
        assert refusal_of(await place.post(path, headers=headers)) == expected


async def test_the_lease_of_one_task_is_none_of_another(tmp_path: Path) -> None:
    """A worker that mixes up its tasks is told so."""
    async with workplace(tmp_path, served(concurrency=2)) as place:
        await place.send()
        await place.send()
        one, other = await place.take(), await place.take()
        assert refusal_of(await one.post("events", DONE, lease=other.document["lease"])) == LOST
        assert (await place.task(one.id)).state is TaskState.WORKING


# the end


async def test_a_stop_ends_every_wait_at_once(tmp_path: Path) -> None:
    """Workers that wait for a task get 204, those that wait for news an answer, and then 503."""
    async with workplace(tmp_path) as place:
        await place.send()
        hold = await place.take()
        waits = [
            asyncio.ensure_future(place.post("/workers/hello/next?wait=60")),
            asyncio.ensure_future(hold.post("heartbeat?wait=15")),
        ]
        await until(lambda: place.waits == 2)
        await place.inbox.aclose(1.0)
        assert [(await wait).status for wait in waits] == [204, 200]
        assert refusal_of(await place.post("/workers/hello/next")) == (503, "unavailable")
        place.desk.end_streams()
        answer = await hold.post("events", DONE)
        assert refusal_of(answer) == (503, "unavailable")
        assert answer.headers["retry-after"] == "1"
        assert (await place.task(hold.id)).state is TaskState.WORKING


async def test_a_report_that_is_under_way_at_the_stop_is_still_committed(tmp_path: Path) -> None:
    """The stop waits for it, within its grace."""
    async with workplace(tmp_path) as place:
        await place.send()
        hold = await place.take()
        gate = await place.hold_writer()
        posting = asyncio.ensure_future(hold.say(DONE))
        await until(lambda: place.reports == 1)
        closing = asyncio.ensure_future(place.inbox.aclose(5.0))
        await asyncio.sleep(0)
        gate.open()
        await closing
        assert (await posting)["accepted"] == 1
