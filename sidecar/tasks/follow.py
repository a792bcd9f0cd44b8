"""Following one task: all its events in order, each once, from a place on, however slowly they are taken.

What was published waits in a queue, which all followers of a task share the events of. Who takes them too slowly reads
the log from where it stands until it has caught up: nothing is dropped, and no more than a queue is held.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from sidecar.events import EventKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sidecar.events import Event
    from sidecar.tasks.records import Records

QUEUED: Final = 128
QUEUED_BYTES: Final = 4 * 1024 * 1024
"""Events that wait for one follower, and their bytes, before it has to read them from the log."""
TAKEN: Final = 64 * 1024
"""Bytes of events that are taken at once, or one event: in the queue all followers share them, behind it none do."""
_SMALL: Final = 256


class GapError(Exception):
    """Events that a follower has not seen are kept no longer."""


class Told:
    """One event as followers get it. `begun` says whether text of the reply came before it in the same turn.

    `written` is for dialects, which keep in it what they make of the event: followers of a task share it. `size` is
    about its bytes.
    """

    __slots__ = ("begun", "event", "size", "written")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.begun = False
        self.size = _size(event)
        self.written: dict[str, Sequence[bytes]] = {}


class Followers:
    """Those of one session's tasks. `head` gives the number of the last event that was published."""

    __slots__ = ("_by_task", "_head", "_records", "ended", "streams")

    def __init__(self, records: Records, head: Callable[[], int]) -> None:
        self._records = records
        self._head = head
        self._by_task: dict[str, set[Follower]] = {}
        self.ended = False
        self.streams = 0

    def __len__(self) -> int:
        """How many there are."""
        return sum(len(followers) for followers in self._by_task.values())

    def follow(self, task_id: str, after: int, *, begun: bool = False, streaming: bool = False) -> Follower:
        """Follow a task behind an event, of its own or not. `begun` is as in `Told`. Close it in the end.

        `streaming` counts it among the open streams.
        """
        follower = Follower(self, task_id, after, begun=begun, streaming=streaming)
        self.streams += streaming
        self._by_task.setdefault(task_id, set()).add(follower)
        return follower

    def publish(self, events: Iterable[Event]) -> None:
        """Give committed events to those that follow their tasks."""
        for event in events:
            followers = self._by_task.get(event.task_id)
            if followers:
                told = Told(event)
                for follower in followers:
                    follower.push(told)

    def look_again(self) -> None:
        """Have everybody read the log: something may have been committed and not published."""
        for followers in self._by_task.values():
            for follower in followers:
                follower.fall_behind()

    def end(self) -> None:
        """Tell everybody that the session is served no longer, those that are yet to come included."""
        self.ended = True
        for followers in self._by_task.values():
            for follower in followers:
                follower.end()

    def leave(self, follower: Follower) -> None:
        """Forget a follower; a second call does nothing."""
        followers = self._by_task.get(follower.task_id, set())
        if follower in followers:
            followers.discard(follower)
            self.streams -= follower.streaming
        if not followers:
            self._by_task.pop(follower.task_id, None)

    async def past(self, task_id: str, after: int) -> tuple[Sequence[Event], int]:
        """Return the next events of a task, and the number up to which they are all. Raises StoreError, GapError."""
        head = self._head()
        past = await self._records.past(task_id, after, head)
        if past.gap:
            raise GapError
        return past.events, max(after, head) if past.whole else past.events[-1].seq

    @property
    def head(self) -> int:
        """The number of the last event that was published."""
        return self._head()


class Follower:
    """One place in the events of a task."""

    __slots__ = (
        "_begun",
        "_behind",
        "_cursor",
        "_followers",
        "_queue",
        "_size",
        "_waiter",
        "ending",
        "streaming",
        "task_id",
    )

    def __init__(
        self, followers: Followers, task_id: str, after: int, *, begun: bool, streaming: bool
    ) -> None:
        self.task_id = task_id
        self.ending = followers.ended
        self.streaming = streaming
        self._followers = followers
        self._cursor = after
        self._begun = begun
        self._behind = False
        self._queue: deque[Told] = deque()
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing comes any more, and nothing waits."""
        return self.ending and not self._queue

    async def next(self, within: float) -> list[Told]:
        """Return the next events as soon as there are any, none after so many seconds, `wake` or the end.

        Raises StoreError where they cannot be read now, GapError where they are kept no longer.
        """
        while self._behind and not self.ending:
            if caught := await self._catch_up():
                return caught
        if not (self._queue or self.ending):
            await self._wait(within)
        taken: list[Told] = []
        size = 0
        while self._queue and size < TAKEN:
            taken.append(self._queue.popleft())
            size += taken[-1].size
        self._size -= size
        return self._seen(taken)

    async def _catch_up(self) -> list[Told]:
        self._empty()
        events, upto = await self._followers.past(self.task_id, self._cursor)
        self._cursor = max(self._cursor, upto)
        # there is no wait between this and the next look at the queue
        self._behind = self._cursor < self._followers.head
        return self._seen([Told(event) for event in events])

    def _seen(self, taken: list[Told]) -> list[Told]:
        for told in taken:
            event = told.event
            if event.kind is EventKind.STATUS and "turn" in event.data:
                self._begun = False
            told.begun = self._begun
            if event.kind is EventKind.TEXT:
                self._begun = True
            self._cursor = max(self._cursor, event.seq)
        return taken

    def push(self, told: Told) -> None:
        """Queue an event that was published, unless it was seen or there is no room."""
        if self._behind or told.event.seq <= self._cursor:
            return
        if len(self._queue) >= QUEUED or self._size >= QUEUED_BYTES:
            self.fall_behind()
            return
        self._queue.append(told)
        self._size += told.size
        self.wake()

    def fall_behind(self) -> None:
        """Have what comes next read from the log."""
        self._empty()
        self._behind = True
        self.wake()

    def end(self) -> None:
        """End it once what waits is taken."""
        self.ending = True
        self.wake()

    def close(self) -> None:
        """Leave; may be called twice."""
        self.ending = True
        self._empty()
        self._followers.leave(self)
        self.wake()

    def wake(self) -> None:
        """End the wait, if there is one."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _empty(self) -> None:
        self._queue.clear()
        self._size = 0

    async def _wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self.wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None


def _size(event: Event) -> int:
    data = event.data
    match event.kind:
        case EventKind.TEXT | EventKind.THINKING:
            return _SMALL + len(data["text"])
        case EventKind.ARTIFACT | EventKind.REPLY:
            return sum(
                _SMALL + len(part.get("raw") or part.get("text") or str(part)) for part in data["parts"]
            )
        case EventKind.TOOL:
            return _SMALL + len(data["content"])
    return _SMALL
