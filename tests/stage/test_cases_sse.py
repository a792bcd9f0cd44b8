"""Cases of streams, one test each, over the socket of a served capsule; bytes are compared as bytes (murmur reference, Streams)."""

from __future__ import annotations

import asyncio
import json
import socket
from functools import partial
from typing import TYPE_CHECKING

import pytest

from sidecar.config import Config
from sidecar.model import Conversation, Lifecycle, Manifest, TaskAcceptance
from sidecar.tasks.said import (
    Artifact,
    Completed,
    Failed,
    Rejected,
    Reply,
    Status,
    Text,
    Thinking,
    Tool,
    Turn,
)
from tests.support.port import (
    ACK,
    CLOSED,
    MESSAGE,
    Port,
    Stream,
    call_bytes,
    message,
    served,
    taking,
    until_open,
)
from tests.support.sessions import frames_in
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.tasks.engine import Engine
    from sidecar.tasks.said import Said
    from tests.support.sessions import Frame
    from tests.support.working import Working

SINGLE = taking(TaskAcceptance.SINGLE)
HEAD = (
    b"HTTP/1.1 200 OK",
    b"content-type: text/event-stream",
    b"cache-control: no-cache",
    b"x-accel-buffering: no",
)


async def streamed(port: Port, *said: Said) -> bytes:
    """Return all bytes of a stream whose worker says this, its ids in short: `T` the task, `C` its context."""
    stream = await port.stream({**MESSAGE, "contextId": "C"})
    working = await port.work()
    for each in said:
        await working.say(each)
    return (await stream.to_eof()).replace(working.id.encode(), b"T")


async def done(port: Port, *pieces: str) -> str:
    """Have a task done, and return its id."""
    task_id = await port.send()
    await (await port.work()).complete(*pieces)
    return task_id


def numbers(frames: list[Frame]) -> list[int | None]:
    """Return the ids."""
    return [frame.number for frame in frames]


def status(number: int, state: str, message: str, *, response: str | None = None) -> bytes:
    """Return the bytes of a status frame."""
    final = b"true" if state in ("completed", "failed", "canceled", "rejected") else b"false"
    more = b"" if response is None else b',"response":' + json.dumps(response).encode()
    return (
        b'id: %d\nevent: status\ndata: {"id":"T","context_id":"C","status":{"state":"%b","message":"%b"%b},"final":%b}\n\n'
        % (number, state.encode(), message.encode(), more, final)
    )


def text(number: int, piece: str, *, final: bool) -> bytes:
    """Return the bytes of a text frame."""
    last = b"true" if final else b"false"
    return b'id: %d\nevent: text\ndata: {"id":"T","text":"%b","final":%b}\n\n' % (
        number,
        piece.encode(),
        last,
    )


async def test_a_simple_task_is_three_frames(tmp_path: Path) -> None:
    """Working, one final text with the whole reply, completed; nothing before, between or behind them."""
    async with served(tmp_path, SINGLE) as port:
        assert await streamed(port, Completed("Hello.")) == (
            status(1, "working", "inference turn 1")
            + text(2, "Hello.", final=True)
            + status(3, "completed", "session ended", response="Hello.")
        )


async def test_a_streaming_worker_ends_with_an_empty_text(tmp_path: Path) -> None:
    """Three pieces, the empty one, completed with the whole."""
    async with served(tmp_path, SINGLE) as port:
        assert await streamed(port, Text("a"), Text("b"), Text("c"), Completed()) == (
            status(1, "working", "inference turn 1")
            + text(2, "a", final=False)
            + text(3, "b", final=False)
            + text(4, "c", final=False)
            + text(5, "", final=True)
            + status(6, "completed", "session ended", response="abc")
        )


async def test_a_turn_with_a_tool_has_an_artifact_with_its_name(tmp_path: Path) -> None:
    """Non-empty, and the last is completed, final."""
    async with served(tmp_path, SINGLE) as port:
        stream = await port.stream()
        working = await port.work()
        await working.say(Tool("grep", "3 lines", "c1"), Turn(), Completed("Three."))
        frames = await stream.frames_to_eof()
        (artifact,) = [frame.data["artifact"] for frame in frames if frame.event == "artifact"]
        assert artifact["tool_name"] == "grep"
        assert (frames[-1].data["status"]["state"], frames[-1].data["final"]) == ("completed", True)


async def test_the_first_frame_of_a_session_is_the_first_tasks_start(tmp_path: Path) -> None:
    """Id 1; that a task was submitted makes no frame."""
    async with served(tmp_path, SINGLE) as port:
        watcher = await port.watch()
        task_id = await port.send()
        await port.work()
        (first,) = await watcher.frames(1)
        assert (first.number, first.event, first.data["id"]) == (1, "status", task_id)
        assert first.data["status"] == {"state": "working", "message": "inference turn 1"}


async def test_a_replay_of_two_tasks_from_0_is_one_row_of_numbers(tmp_path: Path) -> None:
    """1 to n, no gap, and all of the second task's above the first's."""
    async with served(tmp_path, taking(queue_depth=2)) as port:
        ids = [await done(port, "a", "b"), await done(port, "c", "d")]
        frames = await (await port.watch("0")).frames(10)
        assert numbers(frames) == list(range(1, 11))
        assert [frame.data["id"] for frame in frames] == [ids[0]] * 5 + [ids[1]] * 5


async def test_a_watch_from_a_final_gets_exactly_what_came_later(tmp_path: Path) -> None:
    """None of the first task, no gap."""
    async with served(tmp_path, taking(queue_depth=2)) as port:
        first, second = await done(port, "a"), await done(port, "b")
        whole = await (await port.watch("0")).frames(8)
        final = next(
            frame
            for frame in whole
            if frame.data["id"] == first and frame.data["final"] and frame.event == "status"
        )
        later = await (await port.watch(str(final.number))).frames(4)
        assert later == whole[4:]
        assert {frame.data["id"] for frame in later} == {second}


async def test_many_that_speak_at_once_make_one_row_of_numbers(tmp_path: Path) -> None:
    """The order of delivery is that of the ids, 1 to n, live and in the replay, on each connection."""
    async with served(tmp_path, taking(queue_depth=9), settings={"concurrency": 4}) as port:
        watchers = [await port.watch() for _ in range(2)]
        streams = [await port.stream() for _ in range(4)]
        workings = [await port.work() for _ in range(4)]

        async def talk(working: Working, number: int) -> None:
            for piece in range(20):
                await working.say(Text(f"{number}.{piece} "))
            await working.say(Completed())

        readings = [asyncio.ensure_future(stream.frames_to_eof()) for stream in streams]
        live = [asyncio.ensure_future(watcher.frames(4 * 23)) for watcher in watchers]
        await asyncio.gather(*(talk(working, number) for number, working in enumerate(workings)))
        whole = await live[0]
        assert numbers(whole) == list(range(1, 4 * 23 + 1))
        assert await live[1] == whole
        assert await (await port.watch("0")).frames(4 * 23) == whole
        for reading in readings:
            mine = await reading
            assert mine == [frame for frame in whole if frame.data["id"] == mine[0].data["id"]]
            texts = "".join(frame.data["text"] for frame in mine if frame.event == "text")
            assert mine[-1].data["status"]["response"] == texts


def _reached(engine: Engine, frame: int) -> bool:
    return engine.feed.head >= frame


async def test_no_frame_comes_twice_however_replay_and_live_meet(tmp_path: Path) -> None:
    """Whoever comes while there is much to say gets each id once and in order; comments move no cursor."""
    async with served(tmp_path, SINGLE, heartbeat=0.02) as port:
        await port.send()
        working = await port.work()

        async def talk() -> None:
            for number in range(150):
                await working.say(Text(f"{number} "))
            await working.say(Completed())

        talking = asyncio.ensure_future(talk())
        watchers = []
        engine = await port.engine()
        for after in (0, 5, 40, 80):
            await until(partial(_reached, engine, after))
            watchers.append((after, await port.watch(str(after))))
        await talking
        for after, watcher in watchers:
            seen: list[int] = []
            while not seen or seen[-1] < 153:
                frame = frames_in(await watcher.frame())[0]
                assert frame.event in ("comment", "status", "text")
                seen += [] if frame.number is None else [frame.number]
            assert seen == list(range(after + 1, 154))


async def test_a_reader_that_is_too_slow_is_told_how_much_it_missed(tmp_path: Path) -> None:
    """`event: lagged`, byte for byte, before the next kept frame, with no id; it stays, and the others miss nothing."""
    async with served(tmp_path, SINGLE, idle=60.0) as port:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port.number))
        slow = Stream(*await asyncio.open_connection(sock=sock))  # reads nothing more once its buffer is full
        port.streams.append(slow)
        slow.writer.write(call_bytes("stream/watch"))
        quick = await port.watch()
        await until_open(port, 2)
        await port.send()
        working = await port.work()
        piece = "x" * 60_000
        seen = [frames_in(await quick.frame())[0].number]
        for _ in range(400):
            await working.say(Thinking(piece))
            seen.append(frames_in(await quick.frame())[0].number)
        assert seen == list(range(1, 402))
        await slow.reader.readuntil(b"\r\n\r\n")
        await slow.ack()
        last, lagged, times = 0, b"", 0
        while last < 401:
            frame = await slow.frame()
            if frame.startswith(b"id: "):
                number = int(frame[4 : frame.index(b"\n")])
                if lagged:
                    assert lagged == b'event: lagged\ndata: {"missed":%d}\n\n' % (number - last - 1)
                    lagged, times = b"", times + 1
                else:
                    assert number == last + 1
                last = number
            else:
                assert not lagged
                lagged = frame
        assert last == 401
        assert times
        await working.say(Completed())
        assert [frame.number for frame in await slow.frames(2)] == [402, 403]


async def test_a_numbered_frame_is_id_event_and_data(tmp_path: Path) -> None:
    """In that order, one line each, and a blank line."""
    async with served(tmp_path, SINGLE) as port:
        watcher = await port.watch()
        await port.send()
        working = await port.work()
        await working.say(Text("a"), Status("b"))
        for _ in range(2):
            await watcher.frame()
        data = b'{"id":"%b","context_id":"%b","status":{"state":"working","message":"b"},"final":false}' % (
            working.id.encode(),
            working.claim.task.context_id.encode(),
        )
        assert await watcher.frame() == b"id: 3\nevent: status\ndata: " + data + b"\n\n"


async def test_a_status_of_no_room_has_no_id(tmp_path: Path) -> None:
    """It is on that connection only, final, and the end of it; HTTP says 200 first."""
    async with served(tmp_path, SINGLE) as port:
        await port.send()
        watcher = await port.watch()
        stream = await port.stream({**MESSAGE, "contextId": "C"})
        assert stream.head.startswith(b"HTTP/1.1 200 OK\r\n")
        rejected = await stream.to_eof()
        task_id = json.loads(rejected.partition(b"data: ")[2])["id"]
        assert rejected == (
            b'event: status\ndata: {"id":"%b","context_id":"C","status":{"state":"rejected",'
            b'"message":"task rejected: capsule is busy"},"final":true}\n\n' % task_id.encode()
        )
        await port.work()
        assert numbers(await watcher.frames(1)) == [1]
        assert port.bench.metrics.capsule("a").requests[("message/stream", "rejected")] == 1


async def test_a_stream_has_no_room_while_a_single_task_waits_for_input(tmp_path: Path) -> None:
    """It never delivers input."""
    async with served(tmp_path, SINGLE) as port:
        task_id = await port.send()
        working = await port.work()
        await working.ask("Which?")
        (frame,) = await (await port.stream(message("red"))).frames_to_eof()
        assert (frame.number, frame.data["status"]["state"]) == (None, "rejected")
        assert working.orders.take() == ()
        assert await port.state(task_id) == "input-required"


async def test_a_heartbeat_comes_by_the_clock_whatever_the_task_does(tmp_path: Path) -> None:
    """The comment `:heartbeat`, every 15 s unless configured, also while frames come faster than that."""
    assert Config().heartbeat.murmur == 15.0
    async with served(tmp_path, SINGLE, heartbeat=0.1) as port:
        stream, watcher = await port.stream(), await port.watch()
        assert await watcher.frame() == b":heartbeat\n\n"  # nothing happens
        working = await port.work()
        comments = 0
        number = 0
        while comments < 2:
            number += 1
            await working.say(Text(f"{number} "))
            while not (frame := await stream.frame()).endswith(b'"text":"%d ","final":false}\n\n' % number):
                if frame.startswith(b":"):
                    assert frame == b":heartbeat\n\n"
                    comments += 1


async def test_only_a_status_ends_a_stream(tmp_path: Path) -> None:
    """A text with `final: true` does not."""
    async with served(tmp_path, SINGLE) as port:
        stream = await port.stream()
        await (await port.work()).say(Completed("all"))
        frames = await stream.frames_to_eof()
        assert [(frame.event, frame.data["final"]) for frame in frames] == [
            ("status", False),
            ("text", True),
            ("status", True),
        ]


async def test_every_kind_of_frame_is_as_in_the_table(tmp_path: Path) -> None:
    """Keys in order, all of an artifact's present, null where they do not apply."""
    async with served(tmp_path, SINGLE) as port:
        shown = await streamed(
            port,
            Thinking("hm"),
            Tool("sh", "ok", "c1", duration_ms=12, exit_code=0),
            Tool("sh", "no", "", is_error=True, truncated=True),
            Tool(None, "of a hook"),
            Turn(),
            Artifact("out", "a1", ({"text": "x"}, {"url": "u"}, {"text": "y"}), append=True, last=True),
            Artifact(None, None, ()),
            Status("writing"),
            Completed("ü"),
        )
    artifact = (
        'id: {}\nevent: artifact\ndata: {{"id":"T","artifact":{{"tool_name":{},"content":{},"fence_source":null,'
        '"tool_call_id":{},"is_error":{},"duration_ms":{},"exit_code":{},"truncated":{}}}}}\n\n'
    )
    assert shown.decode() == (
        status(1, "working", "inference turn 1").decode()
        + 'id: 2\nevent: thinking\ndata: {"id":"T","text":"hm","final":false}\n\n'
        + artifact.format(3, '"sh"', '"ok"', '"c1"', "false", "12", "0", "false")
        + artifact.format(4, '"sh"', '"no"', "null", "true", "null", "null", "true")
        + artifact.format(5, "null", '"of a hook"', "null", "false", "null", "null", "false")
        + status(6, "working", "inference turn 2").decode()
        + artifact.format(7, '"out"', '"x\\ny"', "null", "false", "null", "null", "false")
        + artifact.format(8, "null", '""', "null", "false", "null", "null", "false")
        + status(9, "working", "writing").decode()
        + text(10, "ü", final=True).decode()
        + status(11, "completed", "session ended").decode().replace('ended"}', 'ended","response":"ü"}')
    )


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        (Failed("no idea"), status(2, "failed", "no idea")),
        (Rejected("not mine"), status(2, "rejected", "not mine")),
        (
            Reply(({"text": "hi"},)),
            text(2, "hi", final=True) + status(3, "completed", "session ended", response="hi"),
        ),
    ],
)
async def test_every_end_is_one_final_status(tmp_path: Path, last: Said, ending: bytes) -> None:
    """Numbered, the last; a message of an A2A agent shows as its text."""
    async with served(tmp_path, SINGLE) as port:
        assert await streamed(port, last) == status(1, "working", "inference turn 1") + ending


async def test_a_stream_with_bad_params_is_an_error_frame_and_the_end(tmp_path: Path) -> None:
    """HTTP 200 and the type of a stream all the same; the data is JSON, whatever the text quotes."""
    async with served(tmp_path, SINGLE) as port:
        stream = await port.stream({})
        assert stream.head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert (
            await stream.to_eof()
            == b'event: error\ndata: {"error":"Invalid params: messageId is missing"}\n\n'
        )
        odd = await (await port.stream({**MESSAGE, "role": {'"\n': "\x00"}})).to_eof()
        assert odd.count(b"\n") == 3
        assert list(json.loads(odd.removeprefix(b"event: error\ndata: "))) == ["error"]
        assert port.bench.metrics.capsule("a").requests == {("message/stream", "-32602"): 2}
        assert (await port.error("tasks/get", {}))["code"] == -32001


async def test_a_replayed_final_does_not_end_a_stream(tmp_path: Path) -> None:
    """Opened with an old id it goes on to the end of its own task, and shows of the new that task alone."""
    async with served(tmp_path, taking(queue_depth=5)) as port:
        await done(port, "one")
        other = await port.send()
        stream = await port.stream(MESSAGE, "0")
        assert (await port.work()).id == other
        await port.cancel(other)
        mine = await port.work()
        await mine.complete("two")
        frames = await stream.frames_to_eof()
        assert numbers(frames) == [1, 2, 3, 4, 7, 8, 9, 10]
        assert [frame.data["final"] for frame in frames if frame.event == "status"] == [False, True] * 2


async def test_streams_have_exactly_their_headers(tmp_path: Path) -> None:
    """200 and `text/event-stream` without parameters, of both kinds."""
    async with served(tmp_path, SINGLE) as port:
        for stream in (await port.stream(), await port.watch()):
            lines = stream.head.lower().removesuffix(b"\r\n\r\n").split(b"\r\n")
            assert lines[0].upper() == HEAD[0]
            assert set(HEAD[1:]) <= set(lines)
            assert len([line for line in lines if line.startswith(b"content-type:")]) == 1


@pytest.mark.parametrize("mode", list(Conversation))
async def test_a_watch_begins_with_its_acknowledgement(tmp_path: Path, mode: Conversation) -> None:
    """With the conversation mode of the manifest, byte for byte; whatever the params."""
    manifest = Manifest("a", "1", lifecycle=Lifecycle(conversation=mode))
    async with served(tmp_path, manifest) as port:
        await port.send()
        for params in (None, {"id": "tsk_0"}, [1]):
            stream = await Stream.open(port.number, call_bytes("stream/watch", params))
            port.streams.append(stream)
            assert await stream.frame() == ACK.replace(b"stateless", mode.encode())


async def test_open_streams_end_with_their_closing_frame_when_the_capsule_goes(tmp_path: Path) -> None:
    """Behind what already waits, then the end of the connection; the task lives on in the log."""
    async with served(tmp_path, taking(queue_depth=2)) as port:
        stream, watcher = await port.stream(), await port.watch()
        working = await port.work()
        await working.say(Text("half"))
        both = [asyncio.ensure_future(each.to_eof()) for each in (stream, watcher)]
        await port.bench.serve()
        for rest in await asyncio.gather(*both):
            assert rest.endswith(b'"text":"half","final":false}\n\n' + CLOSED)


async def test_what_is_replayed_is_what_was_live(tmp_path: Path) -> None:
    """Byte for byte, over a restart too."""
    said = (Text("a"), Thinking("b"), Tool("t", "c"), Artifact("n", None, ({"text": "ü\n"},)), Completed())
    async with served(tmp_path, SINGLE) as port:
        watcher = await port.watch()
        await port.send()
        working = await port.work()
        for each in said:
            await working.say(each)
        live = [await watcher.frame() for _ in range(7)]
        replaying = await port.watch("0")
        assert [await replaying.frame() for _ in range(7)] == live
    async with served(tmp_path, SINGLE) as port:
        replaying = await port.watch()
        assert [await replaying.frame() for _ in range(7)] == live


async def test_control_characters_and_line_breaks_stay_in_one_line(tmp_path: Path) -> None:
    """A frame's data is one line of JSON, whatever a worker says."""
    nasty = "a\nb\r\n\u2028\x00\x1b[31m\x85\n\nevent: status\n"
    async with served(tmp_path, SINGLE) as port:
        shown = await streamed(port, Text(nasty), Status(nasty), Failed(nasty))
        frames = frames_in(shown)
        assert [frame.event for frame in frames] == ["status", "text", "status", "status"]
        assert frames[1].data["text"] == frames[2].data["status"]["message"] == nasty
        assert shown.count(b"\n") == 4 * 4
        assert b"\r" not in shown
