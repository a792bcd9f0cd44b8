"""Fan-out: committed events to every stream that listens, each event written once per dialect.

A stream first reads what it asked for from the log, page by page, at its own pace; the moment it has caught up it
joins the live ones. So it misses nothing in between, sees nothing twice, and holds no more than a queue of frames.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from sidecar.events import Event
    from sidecar.tasks.log import Page

    Encode = Callable[[Event], bytes]
    ReadPage = Callable[[int, int], Awaitable[Page]]

QUEUED: Final = 128
"""Frames that wait for one connection before the oldest are dropped (murmur reference, Streams)."""
TAKEN: Final = 64 * 1024
"""Bytes that leave the queue at once, or one frame: in the queue all connections share them, behind it none do."""


@dataclass(frozen=True, slots=True)
class Frame:
    """An event in the bytes of one dialect, shared by all connections; `final` ends its task."""

    number: int
    task_id: str
    final: bool
    data: bytes


class Feed:
    """The streams of one session. `head` is the number of the last frame that is committed and published."""

    __slots__ = ("_live", "_streams", "ended", "head", "read_page")

    def __init__(self, read_page: ReadPage) -> None:
        self.head = 0
        self.ended = False
        self.read_page = read_page
        self._streams: dict[Subscription, None] = {}
        self._live: dict[Encode, set[Subscription]] = {}

    def __len__(self) -> int:
        """Streams that are open, caught up or not."""
        return len(self._streams)

    def subscribe(self, encode: Encode, after: int | None = None) -> Subscription:
        """Open a stream behind frame `after`, or behind the newest one. Close it in the end."""
        stream = Subscription(self, encode, self.head if after is None else after)
        self._streams[stream] = None
        return stream

    def publish(self, events: Iterable[Event]) -> None:
        """Give committed events, in order, to the live streams: those that are numbered."""
        for event in events:
            if event.frame is None:
                continue
            self.head = event.frame
            for encode, streams in self._live.items():
                frame = encoded(event, encode)
                for stream in streams:
                    stream.push(frame)

    def end(self) -> None:
        """Tell every stream that the session is served no longer, and those that are yet to come."""
        self.ended = True
        for stream in self._streams:
            stream.end()

    def join(self, stream: Subscription) -> None:
        """Count a stream among the live ones: it has everything up to `head`."""
        self._live.setdefault(stream.encode, set()).add(stream)

    def leave(self, stream: Subscription) -> None:
        """Forget a stream."""
        self._streams.pop(stream, None)
        live = self._live.get(stream.encode, set())
        live.discard(stream)
        if not live:
            self._live.pop(stream.encode, None)


class Subscription:
    """One stream's place in the feed: `cursor` is the last frame it has seen."""

    __slots__ = (
        "_feed",
        "_missed",
        "_queue",
        "_waiter",
        "_whole_until",
        "cursor",
        "encode",
        "ending",
        "task_id",
    )

    def __init__(self, feed: Feed, encode: Encode, after: int) -> None:
        self.encode = encode
        # a number that never was: behind nothing that is kept, so that reading finds a gap where anything is
        self.cursor = after if after <= feed.head else -1 if feed.head else 0
        self.task_id: str | None = None
        self.ending = feed.ended
        self._feed = feed
        self._whole_until = feed.head
        self._queue: list[Frame] = []  # most streams wait, and an empty deque has room for 64
        self._missed = 0
        self._waiter: asyncio.Future[None] | None = None

    def follow(self, task_id: str) -> None:
        """Of what came since the stream was opened want this task's frames alone."""
        self.task_id = task_id
        self._queue = [frame for frame in self._queue if self._wants(frame.number, frame.task_id)]

    def narrow(self, task_id: str) -> None:
        """Want this task's frames alone, of the past too; to be called before anything is read."""
        self._whole_until = 0
        self.follow(task_id)

    @property
    def behind(self) -> bool:
        """Whether there are committed frames that it has to read from the log."""
        return self.cursor != self._feed.head

    async def read(self) -> tuple[int | None, list[Frame]]:
        """Return the next frames of the log, and the oldest kept one where there is a gap. Raises StoreError."""
        head = self._feed.head
        page = await self._feed.read_page(self.cursor, head)
        self.cursor = (page.events[-1].frame if page.events else None) or head
        return page.gap, [
            encoded(event, self.encode)
            for event in page.events
            if self._wants(event.frame or 0, event.task_id)
        ]

    def go_live(self) -> None:
        """From now on get frames as they are published. There must be no wait between this and `behind`."""
        self._feed.join(self)

    def take(self) -> tuple[int, list[Frame]]:
        """Return how many frames were dropped since the last call, and the next that wait behind them."""
        missed, self._missed = self._missed, 0
        count = size = 0
        while count < len(self._queue) and size < TAKEN:
            size += len(self._queue[count].data)
            count += 1
        frames = self._queue[:count]
        del self._queue[:count]
        if frames:
            self.cursor = frames[-1].number
        return missed, frames

    @property
    def ended(self) -> bool:
        """Whether it is to end, and nothing waits any more."""
        return self.ending and not self._queue

    def push(self, frame: Frame) -> None:
        """Queue a frame that was published; the oldest makes room, unless the reader is here and takes all at once."""
        if frame.number <= self.cursor or not self._wants(frame.number, frame.task_id):
            return
        while len(self._queue) >= QUEUED and self._waiter is None:
            del self._queue[0]
            self._missed += 1
        self._queue.append(frame)
        self.wake()

    def end(self) -> None:
        """End the stream once what waits is taken."""
        self.ending = True
        self.wake()

    def wake(self) -> None:
        """End the wait, if there is one."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Return at the next frame, end or `wake`, at once when a frame waits."""
        if self._queue or self.ending:
            return
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def close(self) -> None:
        """Leave the feed."""
        self._feed.leave(self)

    def _wants(self, number: int, task_id: str) -> bool:
        return self.task_id is None or task_id == self.task_id or number <= self._whole_until


def encoded(event: Event, encode: Encode) -> Frame:
    """Return a numbered event as a frame of a dialect."""
    return Frame(event.frame or 0, event.task_id, event.final, encode(event))
