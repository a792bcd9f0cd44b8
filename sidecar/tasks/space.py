"""The task space of one session: what both sides of an engine, that of doors and that of backends, stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.errors import StoreError
from sidecar.events import TaskState
from sidecar.tasks.ledger import Ledger
from sidecar.tasks.orders import Hands
from sidecar.tasks.telling import Telling
from sidecar.tasks.timeouts import Timeouts
from sidecar.tracing import current_tracer

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.events import Task
    from sidecar.tasks.feed import Feed
    from sidecar.tasks.log import Log
    from sidecar.tasks.model import Change, Rules, State

REMEMBERED: Final = 32
"""Ended tasks of a session that are answered without asking the database."""
REMEMBERED_OUTPUT: Final = 4096
"""Characters of output beyond which an ended task is not remembered."""


class TaskSpace:
    """The tasks of one session as they stand, and who is to hear when that changes."""

    __slots__ = (
        "_ended",
        "_hands_made",
        "_ledger",
        "_log",
        "_on_end",
        "_rules",
        "_timeouts_made",
        "session_id",
    )

    def __init__(
        self,
        session_id: str,
        log: Log,
        rules: Rules,
        state: State | None,
        on_end: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Take up the tasks of a session; `state` None means that it is in the log and is read at first use.

        `on_end` is called with the final state of each task that ends.
        """
        self.session_id = session_id
        self._log = log
        self._rules = rules
        self._on_end = on_end
        self._ledger = Ledger(session_id, log, state, self._landed)
        self._hands_made: Hands | None = None
        self._ended: dict[str, Task] = {}
        self._timeouts_made: Timeouts | None = None

    @property
    def feed(self) -> Feed:
        """The streams of the session."""
        return self._ledger.feed

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._ledger.closed

    @property
    def generation(self) -> int:
        """Tasks that ran and reached a final state since the session began."""
        return self._ledger.state.generation

    @property
    def telling(self) -> Telling:
        """What tells of tasks as a whole; made at first use, so that a session that nobody asks so has none."""
        if self._ledger.telling is None:
            self._ledger.telling = Telling(self._log.store, self.session_id, self._ledger, self.get)
            if self.closed:
                self._ledger.telling.followers.end()
        return self._ledger.telling

    @property
    def open_streams(self) -> int:
        """Streams that are open now."""
        telling = self._ledger.telling
        return len(self.feed) + (0 if telling is None else telling.followers.streams)

    def counts(self) -> dict[str, int]:
        """Return the number of live tasks by state."""
        return {state.value: count for state, count in self._ledger.state.counts.items() if count}

    def reconfigure(self, rules: Rules) -> None:
        """Take other rules for the tasks to come, and another time limit for input; tasks that were taken stay."""
        self._rules = rules
        if self._timeouts_made is not None:
            self._timeouts_made.reconfigure(rules.input_timeout)
        else:
            self._mind()
        if self._hands_made is not None:
            self._hands_made.bell.ring()

    async def load(self) -> None:
        """Read the state from the log if it is not the committed one. Raises StoreError."""
        if self._ledger.stale or self.closed:
            await self._ledger.load()
            self._mind()

    async def get(self, task_id: str | None = None) -> Task | None:
        """Return a task as it is committed; without an id the active or else the last one. Raises StoreError."""
        await self.load()
        if task_id is None and (task_id := self._state.current()) is None:
            return None
        try:
            task = await self._ledger.uncommitted(task_id)
        except StoreError:
            return await self.get(task_id)
        known = task or self._state.live.get(task_id) or self._ended.get(task_id)
        return known or await self._log.find(self.session_id, task_id)

    async def close(self) -> None:
        """Decide nothing more, end the streams with their closing frame, and wait for what is under way."""
        self._ledger.closed = True
        self.feed.end()
        if self._ledger.telling is not None:
            self._ledger.telling.followers.end()
        if self._hands_made is not None:
            self._hands_made.let_go()
        if self._timeouts_made is not None:
            await self._timeouts_made.aclose()
        await self._ledger.settled()

    @property
    def _hands(self) -> Hands:
        """Who works on what; made at first use, so that a session that nobody works for has none."""
        if self._hands_made is None:
            self._hands_made = Hands()
        return self._hands_made

    def _mind(self) -> None:
        """Begin to watch the clock if something waits for input."""
        if self._timeouts_made is None and self._rules.input_timeout is not None and self._state.waiting:
            self._timeouts_made = Timeouts(self._ledger, self._rules.input_timeout)
        if self._timeouts_made is not None:
            self._timeouts_made.mind()

    @property
    def _state(self) -> State:
        return self._ledger.state

    def _landed(self, change: Change) -> None:
        """Tell those concerned of a change that is committed."""
        for task in change.updates:
            if task.state.terminal:
                self._hands.end(task.id)
                self._remember(task)
                self._on_end(task.state.value)
                if (tracer := current_tracer()) is not None:
                    tracer.end_task(task.id, task.state.value)
            elif task.state is TaskState.INPUT_REQUIRED:
                self._mind()
                self._hands.bell.ring()
        if (delivery := change.delivery) is not None:
            if (orders := self._hands.held(delivery.task_id)) is not None:
                orders.give(delivery)
            else:
                self._hands.give_back(delivery.task_id, attempt=False)
        if change.submission is not None:
            self._hands.bell.ring()

    def _remember(self, task: Task) -> None:
        if len(task.output or "") <= REMEMBERED_OUTPUT:
            self._ended[task.id] = task
        while len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]
