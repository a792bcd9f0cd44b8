"""Everything that can go wrong with the door that tasks are handed on to, over real sockets."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sidecar.model import TaskAcceptance
from sidecar.tasks.model import Rules
from tests.support.forwarding import QUICK, forwarded, forwarding
from tests.support.scripted_door import Call, ScriptedDoor, Work, echo, scripted_door, send
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Fault = Callable[[Call, asyncio.StreamWriter], Awaitable[bool]]

HASTY = replace(QUICK, answer=0.3, silence=0.3, away=0.6)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def on(rpc: str, do: Callable[[asyncio.StreamWriter], object]) -> Fault:
    """Return a fault of every call of one method; `card` is the card."""

    async def fault(call: Call, writer: asyncio.StreamWriter) -> bool:
        hit = call.rpc == rpc or (rpc == "card" and call.method == "GET")
        if hit:
            do(writer)
            await writer.drain()
        return hit

    return fault


def hang(rpc: str) -> Fault:
    """Return the fault of a door that takes a call and says nothing."""

    async def fault(call: Call, writer: asyncio.StreamWriter) -> bool:
        if call.rpc != rpc:
            return False
        while not writer.is_closing():
            await asyncio.sleep(0.01)
            if writer.transport.is_closing():
                break
            writer.write(b"")
        return True

    return fault


def trickle(writer: asyncio.StreamWriter) -> None:
    """Open a stream and send half a frame."""
    writer.write(HEAD + b'id: 1\nevent: status\ndata: {"id":"tsk_x","cont')


DEFINITE = {
    "a redirect": (
        on("message/stream", lambda w: send(w, 307, b"", "text/plain", "location: http://127.0.0.1:1/")),
        "redirect",
    ),
    "a redirect of the card": (
        on("card", lambda w: send(w, 302, b"", "text/plain", "location: http://127.0.0.1:1/")),
        "redirect",
    ),
    "refused credentials": (on("message/stream", lambda w: send(w, 401, b"{}")), "set forward.token"),
    "not found": (on("message/stream", lambda w: send(w, 404, b"{}")), "HTTP status 404"),
    "no stream": (on("message/stream", lambda w: send(w, 200, b"<p>", "text/html")), "text/html instead"),
    "garbage instead of JSON": (on("message/stream", lambda w: send(w, 200, b"{bad")), "is not JSON"),
    "an error": (
        on(
            "message/stream",
            lambda w: send(w, 200, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no\\u001b"}}'),
        ),
        "error -32601: no\\x1b",
    ),
    "a result instead of a stream": (
        on("message/stream", lambda w: send(w, 200, b'{"jsonrpc":"2.0","id":1,"result":{}}')),
        "one result instead of a stream",
    ),
    "garbage in a frame": (
        on("message/stream", lambda w: w.write(HEAD + b"id: 1\nevent: status\ndata: {{{\n\n")),
        "is not JSON",
    ),
    "a frame of another shape": (
        on("message/stream", lambda w: w.write(HEAD + b"id: 1\nevent: status\ndata: [1]\n\n")),
        "is not a JSON object",
    ),
    "a state that there is not": (
        on(
            "message/stream",
            lambda w: w.write(HEAD + b'id: 1\nevent: status\ndata: {"id":"a","status":{"state":"x"}}\n\n'),
        ),
        "a state that there is not",
    ),
    "an error frame": (
        on("message/stream", lambda w: w.write(HEAD + b'event: error\ndata: {"error":"bad message"}\n\n')),
        "does not take the message: bad message",
    ),
    "a card that is none": (on("card", lambda w: send(w, 200, b'{"a":1}')), "neither a murmur capsule's"),
    "a card that is no JSON": (on("card", lambda w: send(w, 200, b"<p>")), "its card is not JSON"),
    "no card": (on("card", lambda w: send(w, 404, b"")), "has no agent card"),
    "an endless card": (on("card", lambda w: send(w, 200, b" " * 2_000_000)), "over 1048576 bytes"),
    "compression": (
        on("card", lambda w: send(w, 200, b"x", "application/json", "content-encoding: gzip")),
        "compresses",
    ),
    "no HTTP": (on("card", lambda w: w.write(b"SSH-2.0-x\r\n\r\n")), "does not speak HTTP"),
}


@pytest.mark.parametrize("name", DEFINITE)
async def test_what_will_not_pass_fails_the_task_at_once(tmp_path: Path, name: str) -> None:
    """The message says what is wrong and where, and nothing is tried again."""
    fault, words = DEFINITE[name]
    async with scripted_door() as door, forwarding(tmp_path, forwarded(door.url)) as here:
        door.fault = fault
        task = await here.over(await here.send())
        assert task.state == "failed"
        assert task.status is not None
        assert words in task.status
        assert door.url in task.status
        assert len(door.asked("message/stream")) <= 1


PASSING = {
    "500": (on("message/stream", lambda w: send(w, 500, b"oops")), "HTTP status 500"),
    "503 of the card": (on("card", lambda w: send(w, 503, b"")), "HTTP status 503"),
    "a closed connection": (on("card", lambda w: w.close()), "closed the connection"),
    "a card that hangs": (hang(""), "did not answer within 0.3 s"),
}


@pytest.mark.parametrize("name", PASSING)
async def test_what_may_pass_is_tried_again_for_a_while(tmp_path: Path, name: str) -> None:
    """With pauses, and then the task fails and says what it waited for."""
    fault, words = PASSING[name]
    async with scripted_door() as door, forwarding(tmp_path, forwarded(door.url), patience=HASTY) as here:
        door.fault = fault
        task = await here.over(await here.send())
        assert task.state == "failed"
        assert task.status is not None
        assert words in task.status


async def test_a_door_that_refuses_connections_is_waited_for(tmp_path: Path) -> None:
    """The task begins once the door is back; that it waits is said once."""
    async with scripted_door() as door, forwarding(tmp_path, forwarded(door.url)) as here:
        await door.stop()
        task_id = await here.send()
        await until(lambda: waits(here.told(task_id)))
        await door.start()
        assert (await here.over(task_id)).output == "hello"
        said = [each for each in await here.told(task_id) if "trying again" in str(each[1])]
        assert said == [("working", f"{door.url} cannot be reached: connection refused; trying again")]


async def waits(told: Awaitable[list[tuple[str, object]]]) -> bool:
    """Whether a task says that its door is tried again."""
    return any("trying again" in str(message) for _, message in await told)


async def test_a_door_that_stays_away_fails_the_task(tmp_path: Path) -> None:
    """After a bounded time it fails with what and where."""
    async with scripted_door() as door:
        url = door.url
    async with forwarding(tmp_path, forwarded(url), patience=HASTY) as here:
        task = await here.over(await here.send())
        assert (task.state, task.status) == (
            "failed",
            f"{url} cannot be reached: connection refused; tried for 0.6 s",
        )
        assert here.backend.workers == 0
        assert here.backend.trouble is not None
        assert here.backend.trouble.message == f"{url} cannot be reached: connection refused"


async def test_a_silent_stream_is_left_and_taken_up_again(tmp_path: Path) -> None:
    """A dead connection shows by its silence; what the task said is asked for again."""
    go = asyncio.Event()

    async def script(work: Work) -> None:
        work.turn()
        work.say("a")
        await go.wait()
        work.say("b")
        work.say("", final=True)
        work.complete("ab")

    patience = replace(QUICK, silence=0.2)
    async with (
        scripted_door(script) as door,
        forwarding(tmp_path, forwarded(door.url), patience=patience) as here,
    ):
        task_id = await here.send()
        await until(lambda: door.asked("stream/watch"))
        go.set()
        assert (await here.over(task_id)).output == "ab"
        assert await here.text(task_id) == "ab"


async def test_half_a_frame_counts_as_nothing(tmp_path: Path) -> None:
    """A connection that breaks within a frame is taken up before it; a start that is not known to be one is not repeated."""

    async def script(work: Work) -> None:
        work.turn()
        work.complete("x")

    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        cut = [True]

        async def fault(call: Call, writer: asyncio.StreamWriter) -> bool:
            if call.rpc != "message/stream" or not cut:
                return False
            cut.clear()
            message = call.params["message"]
            door.take("hello", message["contextId"])
            trickle(writer)
            await writer.drain()
            return True

        door.fault = fault
        assert (await here.over(await here.send())).output == "x"
        assert len(door.tasks) == 1


async def test_a_start_that_the_door_never_heard_of_is_made_again(tmp_path: Path) -> None:
    """Where the door has come to rest and knows of no such task, it is started, once."""
    async with scripted_door() as door, forwarding(tmp_path, forwarded(door.url)) as here:
        cut = [True]

        async def fault(call: Call, writer: asyncio.StreamWriter) -> bool:
            if call.rpc != "message/stream" or not cut:
                return False
            cut.clear()
            writer.transport.abort()
            return True

        door.fault = fault
        assert (await here.over(await here.send())).output == "hello"
        assert len(door.tasks) == 1


async def test_a_start_in_a_shared_context_is_not_made_twice(tmp_path: Path) -> None:
    """Where it cannot be told whether the door has the task, it fails and says so."""
    async with scripted_door() as door, forwarding(tmp_path, forwarded(door.url)) as here:
        door.fault = on("message/stream", lambda w: w.transport.abort())
        task = await here.over(await here.send(context_id="ctx_shared"))
        assert task.status is not None
        assert "it is not started a second time" in task.status


async def test_frames_that_were_left_out_are_asked_for_again(tmp_path: Path) -> None:
    """After `lagged` the stream is taken up from the last frame that came."""
    lagged, caught = asyncio.Event(), asyncio.Event()

    async def script(work: Work) -> None:
        work.turn()
        work.say("a")
        await lagged.wait()
        work.say("b")
        await caught.wait()
        work.say("c")
        work.say("", final=True)
        work.complete("abc")

    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        task_id = await here.send()
        await until(lambda: here.text(task_id))
        door.lag(1)
        lagged.set()
        await until(lambda: door.asked("stream/watch"))
        caught.set()
        assert (await here.over(task_id)).output == "abc"
        assert await here.text(task_id) == "abc"


async def test_a_gap_is_said_and_the_reply_is_whole(tmp_path: Path) -> None:
    """Frames that the door keeps no longer are lost to the stream, not to the result."""
    go = asyncio.Event()

    async def script(work: Work) -> None:
        work.turn()
        work.say("first ")
        await go.wait()
        for number in range(600):
            work.say(f"{number} ")
        work.say("", final=True)
        work.complete("the whole")

    async with scripted_door(script) as door:
        async with forwarding(tmp_path, forwarded(door.url)) as here:
            task_id = await here.send()
            await until(lambda: here.text(task_id))
        go.set()
        await until(lambda: door.head > 600)
        async with forwarding(tmp_path, forwarded(door.url)) as here:
            assert (await here.over(task_id)).output == "the whole"
            assert (await here.text(task_id)).endswith("598 599 ")


async def test_a_final_frame_that_is_lost_is_taken_from_the_task(tmp_path: Path) -> None:
    """Where even the end is kept no longer, the task itself says how it ended."""
    go = asyncio.Event()

    async def script(work: Work) -> None:
        work.turn()
        await go.wait()
        work.complete("done")
        for _ in range(600):
            work.door.emit("thinking", {"id": "tsk_other", "text": "", "final": False})

    async with scripted_door(script) as door:
        async with forwarding(tmp_path, forwarded(door.url)) as here:
            task_id = await here.send()
            await until(lambda: door.head)
            await here.reaches(task_id, "working")
            await until(lambda: noted(here.task(task_id)))
        go.set()
        await until(lambda: door.head > 600)
        async with forwarding(tmp_path, forwarded(door.url)) as here:
            assert (await here.over(task_id)).output == "done"


async def noted(task: Awaitable[object]) -> bool:
    """Whether a task's id elsewhere is known."""
    note = getattr(await task, "note", None)
    return note is not None and json.loads(note)["task"] is not None


async def test_ids_that_go_back_are_not_told_twice(tmp_path: Path) -> None:
    """A frame that was read already is dropped, whenever it comes."""

    async def script(work: Work) -> None:
        work.turn()
        work.say("a")
        again = work.door.frames[-1][1]
        work.say("b")
        for queue in work.door.streams:
            queue.put_nowait(again)
        work.say("", final=True)
        work.complete("ab")

    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        task = await here.over(await here.send())
        assert await here.text(task.id) == "ab"


async def test_other_tasks_on_the_stream_are_not_ours(tmp_path: Path) -> None:
    """A door tells of its whole session: what another caller's task says does not come here."""
    first = asyncio.Event()

    async def script(work: Work) -> None:
        work.turn()
        if work.text == "theirs":
            await first.wait()
        work.say(work.text)
        work.say("", final=True)
        work.complete(work.text)

    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        door.take("theirs", "ctx_theirs")
        task_id = await here.send("ours")
        await until(lambda: door.asked("message/stream"))
        first.set()
        assert (await here.over(task_id)).output == "ours"
        assert await here.text(task_id) == "ours"


async def test_a_door_without_room_is_asked_again(tmp_path: Path) -> None:
    """Its `rejected` for lack of room is no end: the task waits for its turn, and is rejected only after that."""
    async with scripted_door() as door, forwarding(tmp_path, forwarded(door.url)) as here:
        door.depth = 0
        task_id = await here.send()
        await until(lambda: len(door.asked("message/stream")) > 1)
        door.depth = 8
        assert (await here.over(task_id)).output == "hello"

        door.depth = 0
        task = await here.over(await here.send())
        assert (task.state, task.status) == ("rejected", f"{door.url} has no room for the task")


async def test_input_that_nobody_waits_for_leaves_no_task_behind(tmp_path: Path) -> None:
    """Where the door made a new task of it, that one is canceled again, and ours goes on."""

    async def script(work: Work) -> None:
        work.turn()
        if work.text != "hello":
            await asyncio.sleep(3600)
        await work.ask("who?")

    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        task_id = await here.send()
        await here.reaches(task_id, "input-required")
        work = next(iter(door.tasks.values()))
        work.state = "working"  # it waits no longer, and no frame says so
        await here.give("Ada")
        await until(lambda: len(door.tasks) == 2)
        stray = list(door.tasks.values())[1]
        await until(lambda: stray.state == "canceled")
        work.complete("done")
        assert (await here.over(task_id)).output == "done"


async def test_a_door_that_refuses_to_cancel_is_residue(tmp_path: Path) -> None:
    """The task is canceled here, and what still runs there is said."""

    async def script(work: Work) -> None:
        work.turn()
        await asyncio.sleep(3600)

    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        door.refuses_cancel = True
        task_id = await here.send()
        await until(lambda: noted(here.task(task_id)))
        assert (await here.engine.cancel(task_id)) is not None
        (residue,) = await until(lambda: here.engine.residue(task_id))
        assert "it does not want to" in residue
        assert (await here.task(task_id)).state == "canceled"


async def test_a_cancel_while_the_door_is_away_is_tried_and_then_residue(tmp_path: Path) -> None:
    """Nobody can tell that the task ended there: that is said."""

    async def script(work: Work) -> None:
        work.turn()
        await asyncio.sleep(3600)

    async with (
        scripted_door(script) as door,
        forwarding(tmp_path, forwarded(door.url), patience=HASTY) as here,
    ):
        task_id = await here.send()
        await until(lambda: noted(here.task(task_id)))
        await door.stop()
        await here.engine.cancel(task_id)
        (residue,) = await until(lambda: here.engine.residue(task_id))
        assert "may still run there" in residue


@pytest.mark.parametrize("asked", [False, True])
async def test_a_cancel_that_was_not_delivered_is_delivered_after_a_restart(
    tmp_path: Path, *, asked: bool
) -> None:
    """Also where the task ended because its input did not come; once that is done it is not done again."""

    async def script(work: Work) -> None:
        work.turn()
        await (work.ask("Which?") if asked else asyncio.sleep(3600))

    async with scripted_door(script) as door:
        served = forwarded(door.url)
        async with forwarding(tmp_path, served) as here:
            task_id = await here.send()
            await (
                here.reaches(task_id, "input-required") if asked else until(lambda: noted(here.task(task_id)))
            )
            await door.stop()
            if asked:
                here.engine.reconfigure(replace(Rules.of(served, max_live=100), input_timeout=0.05))
                await here.over(task_id)
            else:
                await here.engine.cancel(task_id)
        ended = "failed" if asked else "canceled"
        assert [work.state for work in door.tasks.values()] == ["input-required" if asked else "working"]
        await door.start()
        async with forwarding(tmp_path, served) as here:
            await until(lambda: [work.state for work in door.tasks.values()] == ["canceled"])
            assert (await here.task(task_id)).state == ended
            await until(lambda: here.backend.busy == 0)
            assert (await here.task(task_id)).note is None
        async with forwarding(tmp_path, served) as here:
            assert await here.engine.unheard() == ()
        assert len(door.asked("tasks/cancel")) == 1


async def test_a_cancel_before_the_door_has_begun_follows_the_task(tmp_path: Path) -> None:
    """A task that waits in the door's queue has no id here yet: it is canceled as soon as it has one."""
    first = asyncio.Event()

    async def script(work: Work) -> None:
        work.turn()
        await (first.wait() if work.text == "theirs" else asyncio.sleep(3600))
        work.complete("")

    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        door.take("theirs", "ctx_theirs")
        task_id = await here.send("ours")
        await until(lambda: len(door.tasks) == 2)
        await here.engine.cancel(task_id)
        await until(lambda: here.engine.residue(task_id))
        first.set()
        await until(lambda: list(door.tasks.values())[1].state == "canceled")
        await until(lambda: not here.engine.residue(task_id))


async def test_a_task_that_is_canceled_there_fails_here(tmp_path: Path) -> None:
    """Nobody here canceled it, so it is not said to be canceled."""

    async def script(work: Work) -> None:
        work.turn()
        work.status("canceled", "task canceled")

    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        task = await here.over(await here.send())
        assert (task.state, task.status) == ("failed", f"{door.url} canceled the task")


async def test_the_token_is_sent_and_nothing_else_of_a_caller(tmp_path: Path) -> None:
    """Every call bears the configured token, and names neither the task nor the context's owner."""
    async with scripted_door() as door, forwarding(tmp_path, forwarded(door.url, token="s3cret")) as here:
        await here.over(await here.send())
        assert {call.headers.get("authorization") for call in door.calls} == {"Bearer s3cret"}
        assert {name for call in door.calls for name in call.headers} <= {
            "host",
            "authorization",
            "accept",
            "accept-encoding",
            "user-agent",
            "content-type",
            "content-length",
            "connection",
        }


async def test_tasks_side_by_side_in_one_context_keep_apart(tmp_path: Path) -> None:
    """Two that are started at once in the same context each get their own reply."""
    served = forwarded("", concurrency=3, queue_depth=5)

    async def script(work: Work) -> None:
        work.turn()
        await asyncio.sleep(0)
        work.say(work.text)
        work.say("", final=True)
        work.complete(work.text)

    async with scripted_door(script) as door:
        url = door.url
        settings = served.settings
        assert settings.forward is not None
        served = replace(served, settings=replace(settings, forward=replace(settings.forward, url=url)))
        async with forwarding(tmp_path, served) as here:
            ids = [await here.send(f"task {n}", context_id="ctx_shared") for n in range(5)]
            for number, task_id in enumerate(ids):
                assert (await here.over(task_id)).output == f"task {number}"
                assert await here.text(task_id) == f"task {number}"


async def test_a_door_is_found_again_and_seen_by_people(tmp_path: Path) -> None:
    """Whether it is there shows as attached workers."""
    async with scripted_door() as door, forwarding(tmp_path, forwarded(door.url)) as here:
        await until(lambda: here.backend.workers == 1)
        await door.stop()
        await until(lambda: here.backend.workers == 0)
        await door.start()
        await until(lambda: here.backend.workers == 1)


async def test_another_url_is_for_the_tasks_to_come(tmp_path: Path) -> None:
    """A task that was begun stays where it is; the next one goes to the new place."""
    go = asyncio.Event()

    async def script(work: Work) -> None:
        work.turn()
        await go.wait()
        work.complete("from the first")

    async with scripted_door(script) as first, scripted_door(echo) as second:
        served = forwarded(first.url, acceptance=TaskAcceptance.QUEUE, concurrency=2)
        async with forwarding(tmp_path, served) as here:
            one = await here.send()
            await until(lambda: noted(here.task(one)))
            here.backend.reconfigure(forwarded(second.url, concurrency=2))
            assert (await here.over(await here.send())).output == "hello"
            go.set()
            assert (await here.over(one)).output == "from the first"


def test_a_scripted_door_has_the_six_keys() -> None:
    """The door of these tests is one of the reference, so that it is told apart by `serves`."""
    card = ScriptedDoor().card()
    assert list(card) == ["name", "version", "url", "session_id", "capabilities", "serves"]
