"""Streams of the A2A door over real sockets: what they show, when they begin, and when they end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from sidecar.tasks.said import (
    Artifact,
    Completed,
    Failed,
    InputRequired,
    Reply,
    Status,
    Text,
    Thinking,
    Tool,
    Turn,
)
from tests.support.a2a_port import V03, V10, Caller, results_in, state_of, told
from tests.support.port import served, taking, until_open
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.port import Port, Stream

pytestmark = pytest.mark.parametrize("version", [V03, V10])
COMMENT = b":heartbeat\n\n"
SETTINGS: dict[str, Any] = {"concurrency": 5, "heartbeat_a2a": 20.0}


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[Port]:
    """A capsule with a queue."""
    async with served(tmp_path, taking(queue_depth=20), settings=SETTINGS) as made:
        yield made


@pytest.fixture
def caller(port: Port, version: str) -> Caller:
    """A client of that capsule."""
    return Caller(port, version)


async def shown(stream: Stream) -> list[tuple[Any, ...]]:
    """Return all that a stream shows until it ends."""
    return told(results_in(await stream.rest()))


async def next_told(stream: Stream) -> tuple[Any, ...]:
    """Return what the next frame shows."""
    (found,) = told(results_in(await stream.frame()))
    return found


async def test_a_stream_shows_a_task_whole(caller: Caller) -> None:
    """It begins with the task; text is one artifact, begun anew with each turn; tools and reasoning are not shown."""
    stream = await caller.stream()
    worker = await caller.port.work()
    await worker.say(Status("reading"), Thinking("hm"), Tool("sh", "ok"), Text("one "), Text("two"))
    await worker.say(
        Artifact("report", "r", ({"text": "a"},)),
        Artifact("report", "r", ({"text": "b"},), append=True, last=True),
        Turn(),
        Text("three"),
        Completed(),
    )
    assert await shown(stream) == [
        ("task", "submitted"),
        ("status", "working", None),
        ("status", "working", "reading"),
        ("artifact", "response", "one ", False, False),
        ("artifact", "response", "two", True, False),
        ("artifact", "report", "a", False, False),
        ("artifact", "report", "b", True, True),
        ("artifact", "response", "three", False, False),
        ("artifact", "response", "", True, True),
        ("status", "completed", None),
    ]
    await caller.port.idle()


async def test_frames_are_bytes_of_one_form(caller: Caller) -> None:
    """One `data` line with an answer to the request, and a blank line."""
    stream = await caller.stream()
    assert b"content-type: text/event-stream\r\n" in stream.head
    worker = await caller.port.work()
    await worker.say(Failed("no"))
    frames = (await stream.rest()).split(b"\n\n")
    assert frames.pop() == b""
    for frame in frames:
        assert frame.startswith(b'data: {"jsonrpc":"2.0","id":1,"result":{')
        assert b"\n" not in frame
    last = json.loads(frames[-1][6:])["result"]
    at = last["status"]["timestamp"] if caller.version == V03 else last["statusUpdate"]["status"]["timestamp"]
    assert len(at) == len("2026-01-31T12:00:00.000Z")
    if caller.version == V03:
        assert (last["kind"], last["final"], last["taskId"]) == ("status-update", True, worker.id)
    else:
        assert list(last) == ["statusUpdate"]


async def test_a_reply_that_is_other_than_what_was_streamed_takes_its_place(caller: Caller) -> None:
    """As one whole artifact; the task that is finished has the same."""
    stream = await caller.stream()
    worker = await caller.port.work()
    await worker.say(Text("draft"), Completed("final"))
    assert (await shown(stream))[2:] == [
        ("artifact", "response", "draft", False, False),
        ("artifact", "response", "final", False, True),
        ("status", "completed", None),
    ]
    (artifact,) = (await caller.get(worker.id))["artifacts"]
    assert artifact["parts"][0]["text"] == "final"


async def test_a_message_that_is_the_first_word_is_all_that_a_stream_shows(caller: Caller) -> None:
    """To any other reader it is a completed task."""
    stream = await caller.stream()
    worker = await caller.port.work()
    await worker.say(Reply(({"text": "hi"},)))
    assert await shown(stream) == [("message", "hi")]
    found = await caller.get(worker.id)
    assert state_of(found) == "completed"
    assert found["artifacts"][0]["parts"][0]["text"] == "hi"


async def test_a_message_that_comes_later_is_the_end_of_a_task(caller: Caller) -> None:
    """Its text is the reply."""
    stream = await caller.stream()
    worker = await caller.port.work()
    await worker.say(Status("thinking"), Reply(({"text": "hi"},)))
    assert (await shown(stream))[2:] == [
        ("status", "working", "thinking"),
        ("artifact", "response", "hi", False, True),
        ("status", "completed", None),
    ]


async def test_a_stream_waits_a_moment_for_the_first_word(tmp_path: Path, version: str) -> None:
    """With comments meanwhile; then it begins with the task, whether or not somebody has begun with it."""
    settings = {"heartbeat_a2a": 0.1}
    async with served(tmp_path, taking(queue_depth=5), settings=settings) as port:
        stream = await Caller(port, version).stream()
        comments = 0
        while (frame := await stream.frame()) == COMMENT:
            comments += 1
        assert comments >= 1
        assert told(results_in(frame)) == [("task", "submitted")]
        assert await stream.frame() == COMMENT
        worker = await port.work()
        while (frame := await stream.frame()) == COMMENT:
            pass
        assert told(results_in(frame)) == [("status", "working", None)]
        await worker.complete("late")


@pytest.mark.parametrize("way", ["cancel", "fail", "fail together"])
async def test_a_task_that_is_not_completed_has_what_was_streamed_of_its_reply(
    caller: Caller, way: str
) -> None:
    """However it is got, it does not lose what it showed; only a task that is completed says which piece was the last."""
    stream = await caller.stream()
    worker = await caller.port.work()
    if way == "fail together":
        await worker.say(Text("ha"), Text("lf"), Failed("no"))
    else:
        await worker.say(Text("ha"), Text("lf"))
        before = await caller.get(worker.id)
        await (worker.say(Failed("no")) if way == "fail" else caller.result("cancel", {"id": worker.id}))
        assert (await caller.get(worker.id))["artifacts"] == before["artifacts"]
    (reply,) = (await caller.get(worker.id))["artifacts"]
    assert (reply["name"], [part["text"] for part in reply["parts"]]) == ("response", ["half"])
    pieces = [found for found in await shown(stream) if found[0] == "artifact"]
    assert pieces == [
        ("artifact", "response", "ha", False, False),
        ("artifact", "response", "lf", True, False),
    ]
    listed = await Caller(caller.port, V10).result("list", {"includeArtifacts": True})
    assert [made["name"] for made in listed["tasks"][0]["artifacts"]] == ["response"]


async def test_a_question_ends_the_older_streams(caller: Caller) -> None:
    """1.0 stays open there; a stream of the answer begins with the task as it goes on."""
    stream = await caller.stream()
    worker = await caller.port.work()
    await worker.say(InputRequired("Which?"))
    found = [("task", "submitted"), ("status", "working", None), ("status", "input-required", "Which?")]
    if caller.version == V03:
        rest = results_in(await stream.rest())
        assert told(rest) == found
        assert [result.get("final") for result in rest] == [None, False, True]
    else:
        assert [await next_told(stream) for _ in range(3)] == found
    answer = await caller.stream(caller.params("that", taskId=worker.id))
    assert await next_told(answer) == ("task", "working")
    await worker.say(Text("done"), Completed())
    ending = [
        ("artifact", "response", "done", False, False),
        ("artifact", "response", "", True, True),
        ("status", "completed", None),
    ]
    assert await shown(answer) == ending
    if caller.version == V10:
        assert await shown(stream) == [("status", "working", None), *ending]


async def test_what_an_agent_says_has_one_id_wherever_it_is_told(caller: Caller) -> None:
    """A status in a stream and with its task, a question in the history too; the same words again are another message."""
    task = await caller.send()
    stream = await caller.subscribe(task["id"])
    await stream.frame()
    worker = await caller.port.work()
    assert await next_told(stream) == ("status", "working", None)

    async def said() -> str:
        """Return the id of the next status in the stream, which is that with the task."""
        (result,) = results_in(await stream.frame())
        shown = result if caller.version == V03 else result["statusUpdate"]
        whole = await caller.get(task["id"])
        assert shown["status"] == whole["status"]
        identity: str = whole["status"]["message"]["messageId"]
        return identity

    await worker.say(Status("reading"))
    ids = [await said()]
    for _ in range(2):
        await worker.say(InputRequired("Which?"))
        ids.append(await said())
        await caller.send("that", taskId=task["id"])
        if caller.version == V03:
            await stream.rest()
            stream = await caller.subscribe(task["id"])
            await stream.frame()
        else:
            assert await next_told(stream) == ("status", "working", None)
    await worker.say(Failed("Which?"))
    ids.append(await said())
    assert len(set(ids)) == len(ids)
    history = (await caller.get(task["id"]))["history"]
    assert [each["messageId"] for each in history if each["role"] not in ("user", "ROLE_USER")] == ids[1:3]


async def test_who_subscribes_gets_the_task_and_what_follows(caller: Caller) -> None:
    """Nothing twice and nothing missing; several streams show the same."""
    task = await caller.send()
    worker = await caller.port.work()
    await worker.say(Text("one "), Artifact("a", "a", ({"text": "x"},)))
    streams = [await caller.subscribe(task["id"]) for _ in range(3)]
    begins = [results_in(await stream.frame())[0] for stream in streams]
    assert begins[0] == begins[1] == begins[2]
    whole = caller.task(begins[0])
    assert [each["parts"][0]["text"] for each in whole["artifacts"]] == ["one ", "x"]
    await worker.say(Text("two"), Artifact("a", "a", ({"text": "y"},), append=True), Completed())
    rests = [await stream.rest() for stream in streams]
    assert rests[0] == rests[1] == rests[2]
    assert told(results_in(rests[0])) == [
        ("artifact", "response", "two", True, False),
        ("artifact", "a", "y", True, False),
        ("artifact", "response", "", True, True),
        ("status", "completed", None),
    ]
    assert await caller.code("subscribe", {"id": task["id"]}) == -32004


async def test_both_versions_see_the_same_events(caller: Caller) -> None:
    """In the same order; a cancel by one is seen by the other."""
    other = Caller(caller.port, V10 if caller.version == V03 else V03)
    task = await caller.send()
    mine, theirs = await caller.subscribe(task["id"]), await other.subscribe(task["id"])
    worker = await caller.port.work()
    await worker.say(Status("at it"), Text("x"))
    await other.result("cancel", {"id": task["id"]})
    assert await shown(mine) == await shown(theirs)


async def test_a_waiting_task_ends_an_older_subscription(caller: Caller) -> None:
    """With its status as the event that is final; 1.0 waits for the answer."""
    task = await caller.send()
    worker = await caller.port.work()
    await worker.ask("Which?")
    stream = await caller.subscribe(task["id"])
    if caller.version == V03:
        assert await shown(stream) == [
            ("task", "input-required"),
            ("status", "input-required", "Which?"),
        ]
    else:
        assert await next_told(stream) == ("task", "input-required")
        await caller.send("this", taskId=task["id"])
        assert await next_told(stream) == ("status", "working", None)


async def test_a_stream_of_a_task_without_room_shows_that(tmp_path: Path, version: str) -> None:
    """And ends."""
    async with served(tmp_path, taking(queue_depth=0)) as port:
        stream = await Caller(port, version).stream()
        found = await shown(stream)
        assert found[0] == ("task", "rejected")
        assert len(found) == (2 if version == V03 else 1)


async def test_an_error_is_a_frame_for_an_older_client_that_takes_streams(caller: Caller) -> None:
    """All others get plain JSON: each can tell the code."""
    for call, params, code in (("subscribe", {"id": "none"}, -32001), ("stream", {}, -32602)):
        assert await caller.code(call, params) == code
        if caller.version == V10:
            assert await caller.code(call, params, Accept="text/event-stream") == code
            continue
        stream = await caller.open(call, params, Accept="text/event-stream")
        frame = await stream.rest()
        assert json.loads(frame.removeprefix(b"data: "))["error"]["code"] == code


async def test_streams_are_limited_together(tmp_path: Path, version: str) -> None:
    """Those of every door count; one that is too many is refused before a byte of it, and its message is not taken."""
    async with served(tmp_path, taking(queue_depth=5), streams=2) as port:
        caller = Caller(port, version)
        watch = await port.watch()
        task = await caller.send()
        first = await caller.subscribe(task["id"])
        for call, params in (("subscribe", {"id": task["id"]}), ("stream", caller.params())):
            refused = await caller.open(call, params)
            assert refused.head.startswith(b"HTTP/1.1 503 ")
        assert "message/stream" not in (await port.get("/")).headers
        await first.close()
        await until(lambda: port.bench.pool.open_streams == 1)
        again = await caller.subscribe(task["id"])
        assert again.head.startswith(b"HTTP/1.1 200 ")
        await watch.close()


async def test_a_client_that_leaves_closes_its_stream_and_not_its_task(caller: Caller) -> None:
    """Nothing of it is an error; the task goes on, and can be streamed again."""
    with capture_logs() as lines:
        stream = await caller.stream()
        worker = await caller.port.work()
        await worker.say(Text("one"))
        await stream.frame()
        await until_open(caller.port, 1)
        stream.writer.transport.abort()
        await until_open(caller.port, 0)
        engine = await caller.port.engine()
        assert len(engine.telling.followers) == 0
        assert await caller.state(worker.id) == "working"
        again = await caller.subscribe(worker.id)
        assert await next_told(again) == ("task", "working")
        await worker.complete(" two")
        assert (await shown(again))[-1] == ("status", "completed", None)
    assert lines == []


async def test_streams_end_when_their_listener_does(caller: Caller) -> None:
    """Without a frame that says so: A2A has none. The task goes on."""
    task = await caller.send()
    stream = await caller.subscribe(task["id"])
    assert await next_told(stream) == ("task", "submitted")
    await caller.port.bench.serve()
    assert await stream.rest() == b""


async def test_a_slow_reader_misses_nothing(caller: Caller) -> None:
    """However much comes while it reads nothing."""
    stream = await caller.stream()
    worker = await caller.port.work()
    piece = "x" * 2000
    count = 1500
    for _ in range(count // 10):
        await worker.say(*(Text(piece) for _ in range(10)))
    await worker.say(Completed())
    found = await shown(stream)
    texts = [each[2] for each in found if each[0] == "artifact"]
    assert "".join(texts) == piece * count
    assert found[-1] == ("status", "completed", None)
