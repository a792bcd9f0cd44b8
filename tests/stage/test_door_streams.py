"""Streams of the murmur door, over a real engine and a real database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sidecar.errors import RefusedError
from sidecar.model import TaskAcceptance
from sidecar.tasks.log import PAGE
from tests.support.sessions import MESSAGE, Frame, capsule, frames_in, frames_of, request, rest_of, session

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sessions import Session

ACK = b'event: connection-ack\ndata: {"role":"observer","conversation_mode":"stateless"}\n\n'
CLOSED = b"event: capsule-closed\ndata: {}\n\n"


def numbers(frames: list[Frame]) -> list[int | None]:
    """Return the ids."""
    return [frame.number for frame in frames]


async def watch_live(s: Session, count: int) -> list[Frame]:
    """Return the next frames that a new watcher gets live."""
    stream = await s.stream("stream/watch", None, str(s.engine.feed.head))
    assert await stream.next() == ACK
    waiting = asyncio.ensure_future(frames_of(stream, count))
    await asyncio.sleep(0)
    await s.send_and_cancel(count)
    return await waiting


async def test_a_final_status_does_not_end_a_watch(tmp_path: Path) -> None:
    """It goes on to the next task."""
    async with session(tmp_path) as s:
        assert numbers(await watch_live(s, 3)) == [1, 2, 3]


async def test_a_frame_is_the_same_bytes_for_all_watchers(tmp_path: Path) -> None:
    """Each is written once."""
    async with session(tmp_path) as s:
        streams = [await s.stream("stream/watch") for _ in range(5)]
        for stream in streams:
            await stream.next()
        waiting = [asyncio.ensure_future(stream.next()) for stream in streams]
        await asyncio.sleep(0)
        await s.send_then_cancel()
        chunks = await asyncio.gather(*waiting)
        assert len(set(chunks)) == 1
        assert numbers(frames_in(chunks[0] or b"")) == [1]


@pytest.mark.parametrize("header", [None, "0", "", "abc", "-1", "+1", "1.5", "1e3"])
async def test_a_watcher_without_a_number_gets_everything(tmp_path: Path, header: str | None) -> None:
    """From 0, with no gap, and then what is new."""
    async with session(tmp_path) as s:
        await s.send_and_cancel(3)
        stream = await s.stream("stream/watch", None, header)
        assert await stream.next() == ACK
        assert numbers(await frames_of(stream, 3)) == [1, 2, 3]
        await s.send_then_cancel()
        assert numbers(await frames_of(stream, 1)) == [4]


async def test_a_watcher_comes_back_behind_the_last_frame_it_had(tmp_path: Path) -> None:
    """Exactly the later ones, no gap."""
    async with session(tmp_path) as s:
        ids = await s.send_and_cancel(4)
        stream = await s.stream("stream/watch", None, "2")
        await stream.next()
        frames = await frames_of(stream, 2)
        assert [(f.number, f.data["id"]) for f in frames] == [(3, ids[2]), (4, ids[3])]


async def test_a_watcher_that_had_everything_gets_nothing_again(tmp_path: Path) -> None:
    """Neither a frame nor a gap until there is something new."""
    async with session(tmp_path) as s:
        await s.send_and_cancel(2)
        stream = await s.stream("stream/watch", None, "2")
        await stream.next()
        await s.send_then_cancel()
        assert frames_in(await stream.next() or b"")[0].number == 3


@pytest.mark.parametrize("header", ["3", "4", str(2**64 - 1), str(2**64), "9" * 400])
async def test_a_number_that_never_was_is_a_gap(tmp_path: Path, header: str) -> None:
    """And then comes all that is kept."""
    async with session(tmp_path) as s:
        await s.send_and_cancel(2)
        stream = await s.stream("stream/watch", None, header)
        await stream.next()
        frames = await frames_of(stream, 3)
        assert frames[0] == Frame(None, "gap", {"first_available_id": 1})
        assert numbers(frames) == [None, 1, 2]


async def test_with_nothing_kept_there_is_no_gap(tmp_path: Path) -> None:
    """Whatever number the client has."""
    async with session(tmp_path) as s:
        stream = await s.stream("stream/watch", None, "7")
        await stream.next()
        await s.send_then_cancel()
        assert numbers(await frames_of(stream, 1)) == [1]


async def test_numbers_go_on_over_a_restart(tmp_path: Path) -> None:
    """And the frames of before it are replayed."""
    async with session(tmp_path) as s:
        await s.send_and_cancel(2)
    async with session(tmp_path) as s:
        await s.send_then_cancel()
        stream = await s.stream("stream/watch", None, "1")
        await stream.next()
        assert numbers(await frames_of(stream, 2)) == [2, 3]


async def test_many_frames_are_replayed_in_order_and_none_is_missed_or_repeated(tmp_path: Path) -> None:
    """Over several pages, while others are being made."""
    many = PAGE * 3
    async with session(tmp_path, capsule(queue_depth=many + 1)) as s:
        await asyncio.gather(*(s.send() for _ in range(many)))
        await s.call("session/stop")
        stream = await s.stream("stream/watch")
        found = await frames_of(stream, 1 + PAGE)
        await s.send_and_cancel(3)
        found += await frames_of(stream, many + 4 - len(found))
        await s.send_then_cancel()
        found += await frames_of(stream, 1)
        assert numbers(found[1:]) == list(range(1, many + 5))


@pytest.mark.parametrize("header", [None, "abc", "-1", "1.0"])
async def test_a_stream_without_a_number_replays_nothing(tmp_path: Path, header: str | None) -> None:
    """It begins with its own task."""
    async with session(tmp_path) as s:
        await s.send_and_cancel(2)
        stream = await s.stream("message/stream", MESSAGE, header)
        await s.call("session/stop")
        assert numbers(await rest_of(stream)) == [3]


async def test_a_stream_with_a_number_replays_the_session_and_goes_on(tmp_path: Path) -> None:
    """Final frames of the past end nothing, and of the new only the own task's come."""
    async with session(tmp_path) as s:
        await s.send_and_cancel(3)
        other = await s.send()
        stream = await s.stream("message/stream", MESSAGE, "1")
        await s.call("tasks/cancel", {"id": other})
        await s.call("session/stop")
        assert numbers(await rest_of(stream)) == [2, 3, 5]


@pytest.mark.parametrize("header", ["9", str(2**64), "9" * 400])
async def test_a_stream_with_a_number_that_never_was_is_told_of_the_gap(tmp_path: Path, header: str) -> None:
    """And gets all that is kept."""
    async with session(tmp_path) as s:
        await s.send_and_cancel(2)
        stream = await s.stream("message/stream", MESSAGE, header)
        assert numbers(await frames_of(stream, 3)) == [None, 1, 2]
        await s.call("session/stop")
        assert numbers(await rest_of(stream)) == [3]


@pytest.mark.parametrize("params", [{}, MESSAGE])
async def test_a_stream_that_starts_nothing_replays_first(tmp_path: Path, params: object) -> None:
    """With a bad message and without room alike."""
    async with session(tmp_path, capsule(TaskAcceptance.SINGLE)) as s:
        await s.send_and_cancel(2)
        await s.send()
        stream = await s.stream("message/stream", params, "0")
        assert numbers(await rest_of(stream)) == [1, 2, None]


async def test_a_client_that_leaves_does_not_cancel_its_task(tmp_path: Path) -> None:
    """Only its stream is gone."""
    async with session(tmp_path) as s:
        stream = await s.stream("message/stream", MESSAGE)
        stream.close()
        stream.close()
        assert await stream.next() is None
        assert s.engine.open_streams == 0
        assert s.engine.counts() == {"submitted": 1}


async def test_closing_a_stream_ends_the_wait_on_it(tmp_path: Path) -> None:
    """Whoever pulls it gets the end."""
    async with session(tmp_path) as s:
        stream = await s.stream("stream/watch")
        await stream.next()
        waiting = asyncio.ensure_future(stream.next())
        await asyncio.sleep(0)
        stream.close()
        assert await waiting is None


async def test_a_heartbeat_never_takes_the_place_of_the_acknowledgement(tmp_path: Path) -> None:
    """Also when the client is slow to read its first bytes."""
    async with session(tmp_path, heartbeat=0.01) as s:
        stream = await s.stream("stream/watch")
        await asyncio.sleep(0.05)
        assert await stream.next() == ACK + b":heartbeat\n\n"


async def test_a_heartbeat_waits_for_nobody_and_is_never_queued_twice(tmp_path: Path) -> None:
    """A reader that was away finds one of them."""
    async with session(tmp_path, heartbeat=0.01) as s:
        stream = await s.stream("stream/watch", None, "0")
        await stream.next()
        await asyncio.sleep(0.1)
        await s.send_then_cancel()
        frames = await frames_of(stream, 2)
        assert [f.event for f in frames if f.event == "status"] == ["status"]
        assert len([f for f in frames if f.event == "comment"]) <= 2


async def test_a_slow_watcher_is_told_how_much_it_missed_and_the_others_miss_nothing(tmp_path: Path) -> None:
    """The oldest of its queue are dropped, the count goes before the next kept one, the connection stays."""
    many = 200
    async with session(tmp_path, capsule(queue_depth=many)) as s:
        slow, quick = [await s.stream("stream/watch") for _ in range(2)]
        for stream in (slow, quick):
            await stream.next()
        waiting = [asyncio.ensure_future(stream.next()) for stream in (slow, quick)]
        await asyncio.sleep(0)
        await s.send_then_cancel()
        assert numbers(frames_in((await waiting[0]) or b"")) == [1]
        reading = asyncio.ensure_future(frames_of(quick, many))
        for _ in range(2):
            expected = s.engine.feed.head + many // 2
            for _ in range(many // 2):
                await s.send()
            await s.call("session/stop")
            assert s.engine.feed.head == expected
        assert numbers(frames_in((await waiting[1]) or b"") + await reading) == list(range(1, many + 2))
        frames = await frames_of(slow, 129)
        assert frames[0] == Frame(None, "lagged", {"missed": many - 128})
        assert numbers(frames[1:]) == list(range(many + 2 - 128, many + 2))
        await s.send_then_cancel()
        assert numbers(await frames_of(slow, 1)) == [many + 2]


async def test_what_waits_goes_out_before_the_closing_frame(tmp_path: Path) -> None:
    """Nothing that was published is lost by a stop."""
    async with session(tmp_path) as s:
        watcher = await s.stream("stream/watch")
        await watcher.next()
        waiting = asyncio.ensure_future(watcher.next())
        await asyncio.sleep(0)
        await s.send_then_cancel()
        await waiting
        await s.send_then_cancel()
        watcher.end()
        assert [(f.number, f.event) for f in await rest_of(watcher)] == [
            (2, "status"),
            (None, "capsule-closed"),
        ]


async def test_one_stream_can_be_ended_alone(tmp_path: Path) -> None:
    """The others go on."""
    async with session(tmp_path) as s:
        one, other = [await s.stream("stream/watch") for _ in range(2)]
        for stream in (one, other):
            await stream.next()
        one.end()
        assert [await one.next(), await one.next()] == [CLOSED, None]
        await s.send_then_cancel()
        assert numbers(await frames_of(other, 1)) == [1]


async def test_a_stream_whose_task_ended_has_no_closing_frame(tmp_path: Path) -> None:
    """Its final status is the last."""
    async with session(tmp_path) as s:
        stream = await s.stream("message/stream", MESSAGE)
        await s.call("session/stop")
        await s.engines.close(s.engine.session_id)
        assert [f.event for f in await rest_of(stream)] == ["status"]


async def test_too_many_streams_are_refused_before_any_byte(tmp_path: Path) -> None:
    """503 `unavailable` with `Retry-After`, and no task is started; one that closes makes room."""
    async with session(tmp_path, streams=2) as s:
        streams = [await s.stream("stream/watch") for _ in range(2)]
        for method in ("stream/watch", "message/stream"):
            with pytest.raises(RefusedError) as caught:
                await s.door.call(request(method, MESSAGE))
            assert (caught.value.refusal.status, caught.value.refusal.code) == (503, "unavailable")
            assert ("Retry-After", "1") in caught.value.refusal.headers
            assert s.counted[-1] == (method, "unavailable")
        assert s.engine.counts() == {}
        assert s.engine.open_streams == 2
        streams[0].close()
        await s.stream("stream/watch")
