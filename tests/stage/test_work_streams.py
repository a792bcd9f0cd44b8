"""What streams show of tasks that are worked on: the bytes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

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
from tests.support.sessions import MESSAGE, Frame, capsule, frames_in, frames_of, rest_of, session
from tests.support.working import work

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.doors.murmur import FrameStream
    from sidecar.tasks.said import Said
    from tests.support.sessions import Session


async def all_of(stream: FrameStream) -> bytes:
    """Read a stream to its end."""
    found = b""
    while (chunk := await stream.next()) is not None:
        found += chunk
    return found


async def streamed(s: Session, *said: Said) -> bytes:
    """Return all bytes of a stream whose worker says this, its ids in short: `T` the task, `C` its context."""
    stream = await s.stream("message/stream", {**MESSAGE, "contextId": "C"})
    working = await work(s.engine)
    for each in said:
        await working.say(each)
    return (await all_of(stream)).replace(working.id.encode(), b"T")


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
    """Working, one final text with the whole reply, completed."""
    async with session(tmp_path) as s:
        assert await streamed(s, Completed("Hello.")) == (
            status(1, "working", "inference turn 1")
            + text(2, "Hello.", final=True)
            + status(3, "completed", "session ended", response="Hello.")
        )


async def test_a_streaming_worker_ends_with_an_empty_text(tmp_path: Path) -> None:
    """Three pieces, the empty one, completed with the whole."""
    async with session(tmp_path) as s:
        assert await streamed(s, Text("a"), Text("b"), Text("c"), Completed()) == (
            status(1, "working", "inference turn 1")
            + text(2, "a", final=False)
            + text(3, "b", final=False)
            + text(4, "c", final=False)
            + text(5, "", final=True)
            + status(6, "completed", "session ended", response="abc")
        )


async def test_every_kind_of_frame_is_as_in_the_table(tmp_path: Path) -> None:
    """Keys in order, all of an artifact's present, null where they do not apply."""
    async with session(tmp_path) as s:
        shown = await streamed(
            s,
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
    async with session(tmp_path) as s:
        assert await streamed(s, last) == status(1, "working", "inference turn 1") + ending


async def test_the_stream_of_a_canceled_task_ends_with_it(tmp_path: Path) -> None:
    """Last status canceled, final, then the end; a late outcome is on no stream."""
    async with session(tmp_path) as s:
        stream = await s.stream("message/stream", MESSAGE)
        watcher = await s.stream("stream/watch")
        working = await work(s.engine)
        await s.call("tasks/cancel", {"id": working.id})
        assert (await rest_of(stream))[-1].data["status"] == {"state": "canceled", "message": "task canceled"}
        await working.complete("late")
        await s.send_then_cancel()
        frames = await frames_of(watcher, 4)
        assert [frame.data["status"]["state"] for frame in frames[1:]] == ["working", "canceled", "canceled"]


async def test_the_first_frame_of_a_session_is_the_first_tasks_start(tmp_path: Path) -> None:
    """Id 1; of two tasks all ids are 1 to n, and all of the second's above the first's."""
    async with session(tmp_path, capsule(queue_depth=9)) as s:
        ids = [await s.send() for _ in range(2)]
        for _ in ids:
            await (await work(s.engine)).complete("a", "b")
        frames = (await frames_of(await s.stream("stream/watch", None, "0"), 11))[1:]
        assert [frame.number for frame in frames] == list(range(1, 11))
        assert [frame.data["id"] for frame in frames] == [ids[0]] * 5 + [ids[1]] * 5
        assert frames[0].data["status"] == {"state": "working", "message": "inference turn 1"}
        final = frames[4]
        assert (final.event, final.data["final"]) == ("status", True)
        later = await frames_of(await s.stream("stream/watch", None, str(final.number)), 6)
        assert later[1:] == frames[5:]


async def test_what_is_replayed_is_what_was_live(tmp_path: Path) -> None:
    """Byte for byte, over a restart too."""
    said = (Text("a"), Thinking("b"), Tool("t", "c"), Artifact("n", None, ({"text": "ü\n"},)), Completed())
    async with session(tmp_path) as s:
        watcher = await s.stream("stream/watch")
        await s.send()
        working = await work(s.engine)
        reading = asyncio.ensure_future(frames_of(watcher, 8))
        await asyncio.sleep(0)
        for each in said:
            await working.say(each)
        live = await reading
        replayed = await frames_of(await s.stream("stream/watch"), 8)
        assert replayed == live
    async with session(tmp_path) as s:
        assert await frames_of(await s.stream("stream/watch"), 8) == live


async def test_two_workers_at_once_make_one_row_of_numbers(tmp_path: Path) -> None:
    """The order on a stream is the order of the ids, whoever speaks."""
    async with session(tmp_path, capsule(queue_depth=9, concurrency=4)) as s:
        watcher = await s.stream("stream/watch")
        streams = [await s.stream("message/stream", MESSAGE) for _ in range(4)]
        workings = [await work(s.engine) for _ in range(4)]

        async def talk(number: int) -> None:
            for piece in range(20):
                await workings[number].say(Text(f"{number}.{piece} "))
            await workings[number].say(Completed())

        readings = [asyncio.ensure_future(rest_of(stream)) for stream in streams]
        watching = asyncio.ensure_future(frames_of(watcher, 1 + 4 * 23))
        await asyncio.gather(*(talk(number) for number in range(4)))
        frames = (await watching)[1:]
        assert [frame.number for frame in frames] == list(range(1, 4 * 23 + 1))
        for working, reading in zip(workings, readings, strict=True):
            mine = await reading
            assert mine == [frame for frame in frames if frame.data["id"] == working.id]
            assert mine[-1].data["status"]["response"] == "".join(
                frame.data["text"] for frame in mine if frame.event == "text"
            )


async def test_a_text_that_is_final_does_not_end_a_stream(tmp_path: Path) -> None:
    """Only a final status does."""
    async with session(tmp_path) as s:
        stream = await s.stream("message/stream", MESSAGE)
        await (await work(s.engine)).say(Completed("all"))
        frames = await rest_of(stream)
        assert [(frame.event, frame.data["final"]) for frame in frames] == [
            ("status", False),
            ("text", True),
            ("status", True),
        ]


async def test_a_final_status_of_the_past_ends_nothing(tmp_path: Path) -> None:
    """A stream that is opened with an old id goes on to its own task's end."""
    async with session(tmp_path) as s:
        await s.send()
        await (await work(s.engine)).complete("one")
        stream = await s.stream("message/stream", MESSAGE, "0")
        await (await work(s.engine)).complete("two")
        frames = await rest_of(stream)
        assert [frame.number for frame in frames] == list(range(1, 9))
        assert [frame.data["final"] for frame in frames if frame.event == "status"] == [False, True] * 2


async def test_nothing_is_shown_before_it_is_committed(tmp_path: Path) -> None:
    """A report that fails is on no stream; the numbers go on without a gap."""
    async with session(tmp_path) as s:
        watcher = await s.stream("stream/watch")
        await s.send()
        working = await work(s.engine)
        await s.store.write(lambda c: c.execute("ALTER TABLE events RENAME TO hidden"))
        with pytest.raises(Exception, match="no such table"):
            await working.say(Text("lost"))
        await s.store.write(lambda c: c.execute("ALTER TABLE hidden RENAME TO events"))
        await working.say(Text("kept"))
        frames = await frames_of(watcher, 3)
        assert frames[2] == Frame(2, "text", {"id": working.id, "text": "kept", "final": False})


async def test_control_characters_and_line_breaks_stay_in_one_line(tmp_path: Path) -> None:
    """A frame's data is one line of JSON, whatever a worker says."""
    nasty = "a\nb\r\n\u2028\x00\x1b[31m\x85\n\nevent: status\n"
    async with session(tmp_path) as s:
        shown = await streamed(s, Text(nasty), Status(nasty), Failed(nasty))
        frames = frames_in(shown)
        assert [frame.event for frame in frames] == ["status", "text", "status", "status"]
        assert frames[1].data["text"] == frames[2].data["status"]["message"] == nasty
        assert shown.count(b"\n") == 4 * 4
        assert b"\r" not in shown
