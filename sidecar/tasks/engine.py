"""One engine per session: decides on the loop, commits through the log, and only then answers and publishes."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from sidecar.errors import StoreError
from sidecar.model import Task, TaskState
from sidecar.ops.uuid7 import Uuid7
from sidecar.tasks import model, trim
from sidecar.tasks.feed import Feed
from sidecar.tasks.log import Log, sessions
from sidecar.tasks.model import Rules, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.store import Store
    from sidecar.tasks.model import Change

    Waiters = list[asyncio.Future[None]]

__all__ = ["Engine", "Engines", "Rules"]

TRIM_PERIOD: Final = 60.0
"""Seconds between two looks for what the log keeps no longer."""
REMEMBERED: Final = 32
"""Ended tasks of a session that are answered without asking the database."""
REMEMBERED_OUTPUT: Final = 4096
"""Characters of output beyond which an ended task is not remembered."""


class Engine:
    """The tasks of one session.

    What it decides is applied to its state at once and committed in order; callers and streams hear of it after the
    commit. When a commit fails, the state is worth nothing: it is read anew from the log before the next decision.
    """

    def __init__(self, session_id: str, log: Log, rules: Rules, state: State | None) -> None:
        """Make the engine of a session; `state` None means that it is in the log and is read at first use."""
        self.session_id = session_id
        self.feed = Feed(partial(log.page, session_id))
        self._log = log
        self._rules = rules
        self._state = State() if state is None else state
        self._stale = state is None
        self._closed = False
        self._loading = asyncio.Lock()
        self._uncommitted: dict[str, tuple[Task, Waiters]] = {}
        self._ended: OrderedDict[str, Task] = OrderedDict()
        self._ids = Uuid7()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def generation(self) -> int:
        """Tasks that ran and reached a final state since the session began."""
        return self._state.generation

    @property
    def open_streams(self) -> int:
        """Streams that are open now."""
        return len(self.feed)

    def counts(self) -> dict[str, int]:
        """Return the number of live tasks by state."""
        return {state.value: count for state, count in self._state.counts.items() if count}

    def reconfigure(self, rules: Rules) -> None:
        """Take other rules for the tasks to come; those that were taken stay."""
        self._rules = rules

    async def load(self) -> None:
        """Read the state from the log if it is not the committed one. Raises StoreError."""
        if self._closed:
            raise StoreError("this capsule is being closed")
        while self._stale:
            async with self._loading:
                if self._stale:
                    await self._settled()
                    self._state = await self._log.load(self.session_id)
                    await self._show_up_to(self._state.frame)
                    self._stale = False

    async def send(self, request: str, *, context_id: str | None, owner: str) -> Task:
        """Take a task, durably, and return it; without room return it `rejected`, and keep nothing of it.

        `request` is the message as JSON. Without a context it gets one of its own. Raises StoreError.
        """
        await self.load()
        new = self._ids()
        task = Task(
            id=f"tsk_{new}",
            context_id=f"ctx_{new}" if context_id is None else context_id,
            owner=owner,
            state=TaskState.SUBMITTED,
            created_at=time.time(),
        )
        if not model.has_room(self._state, self._rules):
            return model.rejected(task)
        await self._commit(model.submit(self._state, task, request))
        return task

    async def get(self, task_id: str | None = None) -> Task | None:
        """Return a task as it is committed; without an id the active or else the last one. Raises StoreError."""
        await self.load()
        if task_id is None and (task_id := self._state.current()) is None:
            return None
        while (uncommitted := self._uncommitted.get(task_id)) is not None:
            task, waiters = uncommitted
            try:
                await _landing(waiters)
            except StoreError:
                await self.load()
            else:
                return task
        known = self._state.live.get(task_id) or self._ended.get(task_id)
        return known or await self._log.find(self.session_id, task_id)

    async def cancel(self, task_id: str) -> Task | None:
        """Cancel a task if it lives and return it as it is then; None if there is none. Raises StoreError."""
        await self.load()
        task = self._state.live.get(task_id)
        if task is None:
            return await self.get(task_id)
        (canceled,) = await self._cancel((task,))
        return canceled

    async def stop(self) -> tuple[Task, ...]:
        """Cancel every live task, all of them or none, and return those. Raises StoreError."""
        await self.load()
        return await self._cancel(tuple(self._state.live.values()))

    async def close(self) -> None:
        """Decide nothing more, end the streams with their closing frame, and wait for what is under way."""
        self._closed = True
        self.feed.end()
        await self._settled()

    async def _show_up_to(self, frame: int) -> None:
        """Publish what is in the log though its commit seemed to fail; a new engine has nobody to show it to."""
        while len(self.feed) and self.feed.head < frame:
            self.feed.publish((await self._log.page(self.session_id, self.feed.head, frame)).events)
        self.feed.head = frame

    async def _settled(self) -> None:
        """Wait until no change of this session is under way."""
        while self._uncommitted:
            _, waiters = next(iter(self._uncommitted.values()))
            with suppress(StoreError):
                await _landing(waiters)

    async def _cancel(self, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        if not tasks:
            return ()
        change = model.cancel(self._state, tasks, time.time())
        await self._commit(change)
        return change.updates

    async def _commit(self, change: Change) -> None:
        """Apply a change, and return once it is committed and published. Raises StoreError.

        The commit goes on when the caller is cancelled.
        """
        waiters: Waiters = []
        self._log.append(self.session_id, change, partial(self._land, change, waiters))
        self._state.apply(change)
        self._uncommitted.update((task.id, (task, waiters)) for task in change.tasks)
        await _landing(waiters)

    def _land(self, change: Change, waiters: Waiters, error: StoreError | None) -> None:
        for task in change.tasks:
            if self._uncommitted[task.id][1] is waiters:
                del self._uncommitted[task.id]
        if error is None:
            self._remember(change.updates)
            self.feed.publish(change.events)
        else:
            self._stale = True
        for waiter in waiters:
            if waiter.done():  # its caller left
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)

    def _remember(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if task.state.terminal and len(task.output or "") <= REMEMBERED_OUTPUT:
                self._ended[task.id] = task
        while len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)


async def _landing(waiters: Waiters) -> None:
    """Wait for a commit, beside others who do. Raises StoreError."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters.append(waiter)
    await waiter


class Engines:
    """The engines of one daemon, one per session, and the owner of the task that trims their log.

    `keep_events` is per session, `keep_tasks` in seconds since a task ended. Raises StoreError when the database
    cannot be read.
    """

    def __init__(
        self, store: Store, *, keep_events: int, keep_tasks: float, period: float = TRIM_PERIOD
    ) -> None:
        self._store = store
        self._log = Log(store)
        self._logged = store.read_now(sessions)
        self._engines: dict[str, Engine] = {}
        self._keep_events, self._keep_tasks = keep_events, keep_tasks
        self._period = period
        self._trimmer: asyncio.Task[None] | None = None

    def reconfigure(self, *, keep_events: int, keep_tasks: float) -> None:
        """Keep other amounts from the next trimming on."""
        self._keep_events, self._keep_tasks = keep_events, keep_tasks

    async def open(self, session_id: str, rules: Rules) -> Engine:
        """Return the session's engine under these rules: the one that is open, else a new one.

        While the log cannot be read, the engine is returned nevertheless and tries again whenever it is used.
        """
        if self._trimmer is None:
            self._trimmer = asyncio.create_task(self._trim_for_ever(), name="trim-log")
        while (engine := self._engines.get(session_id)) is not None and engine.closed:
            await self.close(session_id)
        if engine is not None:
            engine.reconfigure(rules)
            return engine
        state = None if session_id in self._logged else State()
        self._logged.add(session_id)
        engine = self._engines[session_id] = Engine(session_id, self._log, rules, state)
        with suppress(StoreError):
            await engine.load()
        return engine

    async def close(self, session_id: str) -> None:
        """End a session's streams and let go of its engine; its tasks stay in the log."""
        if (engine := self._engines.get(session_id)) is None:
            return
        await engine.close()
        if self._engines.get(session_id) is engine:
            del self._engines[session_id]

    async def trim(self) -> None:
        """Delete what the log keeps no longer. Raises StoreError."""
        await trim.trim(
            self._store,
            keep_events=self._keep_events,
            ended_before=time.time() - self._keep_tasks,
            open_sessions=self._engines.keys(),
        )

    async def aclose(self) -> None:
        """Close every engine and end the trimming. The store stays open."""
        if self._trimmer is not None:
            self._trimmer.cancel()
            await asyncio.wait((self._trimmer,))
        for session_id in tuple(self._engines):
            await self.close(session_id)

    async def _trim_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._period)
            with suppress(StoreError):  # whoever writes or reads next hears of it, and the next look comes
                await self.trim()
