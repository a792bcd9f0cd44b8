"""Many frames at once, and big ones: who reads misses nothing of them, and what waits is taken in pieces."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sidecar.dialects.murmur import CAPSULE_CLOSED
from sidecar.tasks.feed import QUEUED, TAKEN
from sidecar.tasks.said import Text
from tests.support.sessions import frames_in, frames_of, session
from tests.support.working import work

if TYPE_CHECKING:
    from pathlib import Path

MANY = 5 * QUEUED


async def test_a_reader_misses_nothing_of_a_burst_that_is_longer_than_the_queue(tmp_path: Path) -> None:
    """One report of many lines is one commit: whoever waits for it gets all of it, who does not is told what is gone."""
    async with session(tmp_path) as s:
        await s.send()
        watched = await s.stream("stream/watch")
        idle = await s.stream("stream/watch")
        for stream in (watched, idle):
            await frames_of(stream, 1)  # connection-ack
        reading = asyncio.create_task(frames_of(watched, MANY + 1), name="reader")
        working = await work(s.engine)
        await working.say(*(Text(str(n)) for n in range(MANY)))
        assert [frame.number for frame in await reading] == list(range(1, MANY + 2))
        found = await frames_of(idle, QUEUED + 1)
        assert (found[0].event, found[0].data) == ("lagged", {"missed": MANY + 1 - QUEUED})
        assert [frame.number for frame in found[1:]] == list(range(MANY + 2 - QUEUED, MANY + 2))


async def test_big_frames_leave_the_queue_one_by_one_and_the_closing_frame_is_last(tmp_path: Path) -> None:
    """A chunk is no bigger than it must be, also when the session ends while frames wait."""
    text = "x" * TAKEN
    async with session(tmp_path) as s:
        await s.send()
        stream = await s.stream("stream/watch")
        await frames_of(stream, 1)
        working = await work(s.engine)
        for _ in range(3):
            await working.say(Text(text))
        s.engine.feed.end()
        chunks = []
        while (chunk := await stream.next()) is not None:
            chunks.append(chunk)
        assert all(len(chunk) < 2 * TAKEN for chunk in chunks)
        frames = [frame for chunk in chunks for frame in frames_in(chunk)]
        assert [frame.number for frame in frames] == [1, 2, 3, 4, None]
        assert b"".join(chunks).endswith(CAPSULE_CLOSED)
        assert b"".join(chunks).count(CAPSULE_CLOSED) == 1
