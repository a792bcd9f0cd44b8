"""How one session's state changes: applied at once, committed in order, and read anew when a commit fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from sidecar.errors import StoreError
from sidecar.tasks.feed import Feed
from sidecar.tasks.model import State

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sidecar.events import Task
    from sidecar.tasks.log import Log, Page
    from sidecar.tasks.model import Change
    from sidecar.tasks.telling import Telling

    Waiters = list[asyncio.Future[None]]


class Ledger:
    """The state of one session, and its feed.

    Callers and streams hear of a change after its commit. When a commit fails, the state is worth nothing: it is
    read anew from the log before the next decision. `landed` is called with each change that was committed.
    `published` is the number of the last event that streams could hear of, `telling` hears of all of them.
    """

    __slots__ = (
        "_landed",
        "_loading",
        "_log",
        "_session_id",
        "_uncommitted",
        "_under_way",
        "closed",
        "feed",
        "published",
        "stale",
        "state",
        "telling",
    )

    def __init__(
        self, session_id: str, log: Log, state: State | None, landed: Callable[[Change], None]
    ) -> None:
        """Begin; `state` None means that it is in the log and is read at first use."""
        self.feed = Feed(self._page)
        self.state = State() if state is None else state
        self.stale = state is None
        self.closed = False
        self.published = self.state.seq
        self.telling: Telling | None = None
        self._session_id = session_id
        self._log = log
        self._landed = landed
        self._loading: asyncio.Lock | None = None
        self._under_way: dict[int, Waiters] = {}
        self._uncommitted: dict[str, tuple[Task, Waiters]] = {}

    async def load(self) -> None:
        """Read the state from the log if it is not the committed one. Raises StoreError."""
        if self.closed:
            raise StoreError("this capsule is being closed")
        while self.stale:
            if self._loading is None:
                self._loading = asyncio.Lock()
            async with self._loading:
                if self.stale:
                    await self.settled()
                    self.state = await self._log.load(self._session_id)
                    await self._show_up_to(self.state.frame)
                    self.published = self.state.seq
                    if self.telling is not None:
                        self.telling.look_again()
                    self.stale = False

    async def commit(self, change: Change) -> None:
        """Apply a change, and return once it is committed and published. Raises StoreError.

        The commit goes on when the caller is cancelled. Between the decision and this call there must be no wait.
        """
        waiters: Waiters = []
        self._log.append(self._session_id, change, partial(self._land, change, waiters))
        self.state.apply(change)
        self._under_way[id(waiters)] = waiters
        for task in change.tasks:
            self._uncommitted[task.id] = task, waiters
        await _landing(waiters)

    async def uncommitted(self, task_id: str) -> Task | None:
        """Return the task as it is once its change that is under way is committed, or None when none is. Raises StoreError."""
        found = self._uncommitted.get(task_id)
        if found is None:
            return None
        task, waiters = found
        await _landing(waiters)
        return task

    async def landed(self) -> None:
        """Wait for every change that is under way now. Raises StoreError where the last of them failed."""
        if self._under_way:
            await _landing(next(reversed(self._under_way.values())))

    async def settled(self) -> None:
        """Wait until no change of this session is under way."""
        while self._under_way:
            with suppress(StoreError):
                await _landing(next(reversed(self._under_way.values())))

    def _land(self, change: Change, waiters: Waiters, error: StoreError | None) -> None:
        del self._under_way[id(waiters)]
        for task in change.tasks:
            if self._uncommitted[task.id][1] is waiters:
                del self._uncommitted[task.id]
        if error is None:
            self._landed(change)
            self.feed.publish(change.events)
            if change.events:
                self.published = change.events[-1].seq
                if self.telling is not None:
                    self.telling.publish(change.events)
        else:
            self.stale = True
        for waiter in waiters:
            if waiter.done():  # its caller left
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _page(self, after: int, upto: int) -> Awaitable[Page]:
        return self._log.page(self._session_id, after, upto)

    async def _show_up_to(self, frame: int) -> None:
        """Publish what is in the log though its commit seemed to fail; a new ledger has nobody to show it to."""
        while len(self.feed) and self.feed.head < frame:
            self.feed.publish((await self._log.page(self._session_id, self.feed.head, frame)).events)
        self.feed.head = frame


async def _landing(waiters: Waiters) -> None:
    """Wait for a commit, beside others who do. Raises StoreError."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters.append(waiter)
    await waiter
