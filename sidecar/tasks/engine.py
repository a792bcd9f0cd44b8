"""One engine per session: decides on the loop, commits through the log, and only then answers and publishes."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sidecar.errors import StoreError
from sidecar.events import Task, TaskState
from sidecar.ops.uuid7 import Uuid7
from sidecar.tasks import machine
from sidecar.tasks.ledger import Ledger
from sidecar.tasks.orders import Claim, Hands, Orders
from sidecar.tasks.timeouts import RETRY, Timeouts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecar.tasks.feed import Feed
    from sidecar.tasks.log import Log
    from sidecar.tasks.model import Change, Input, Rules, State
    from sidecar.tasks.said import Said

REMEMBERED: Final = 32
"""Ended tasks of a session that are answered without asking the database."""
REMEMBERED_OUTPUT: Final = 4096
"""Characters of output beyond which an ended task is not remembered."""


class Engine:
    """The tasks of one session: one side for doors, one for the backend that does the work."""

    __slots__ = (
        "_ended",
        "_hands",
        "_ids",
        "_ledger",
        "_log",
        "_on_end",
        "_residue",
        "_rest_until",
        "_rules",
        "_timeouts",
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
        """Make the engine of a session; `state` None means that it is in the log and is read at first use.

        `on_end` is called with the final state of each task that ends.
        """
        self.session_id = session_id
        self._log = log
        self._rules = rules
        self._on_end = on_end
        self._ledger = Ledger(session_id, log, state, self._landed)
        self._hands = Hands()
        self._residue: dict[str, str] = {}
        self._ended: OrderedDict[str, Task] = OrderedDict()
        self._ids = Uuid7()
        self._rest_until = 0.0
        self._timeouts = Timeouts(self._ledger, rules.input_timeout)

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
    def open_streams(self) -> int:
        """Streams that are open now."""
        return len(self.feed)

    def counts(self) -> dict[str, int]:
        """Return the number of live tasks by state."""
        return {state.value: count for state, count in self._ledger.state.counts.items() if count}

    def reconfigure(self, rules: Rules) -> None:
        """Take other rules for the tasks to come, and another time limit for input; tasks that were taken stay."""
        self._rules = rules
        self._timeouts.reconfigure(rules.input_timeout)
        self._hands.bell.ring()

    async def load(self) -> None:
        """Read the state from the log if it is not the committed one. Raises StoreError."""
        if self._ledger.stale or self.closed:
            await self._ledger.load()
            self._timeouts.mind()

    # for doors

    async def send(self, given: Input, *, context_id: str | None, owner: str) -> Task:
        """Take a task, durably, and return it; without room return it `rejected`, and keep nothing of it.

        Without a context it gets one of its own. Raises StoreError.
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
        if not machine.has_room(self._state, self._rules):
            return machine.rejected(task)
        await self._ledger.commit(machine.submit(self._state, task, given))
        return task

    async def deliver(self, given: Input, *, task_id: str | None = None) -> Task | None:
        """Deliver input to a task that waits for it, without an id to the one that has waited longest.

        Return the task as it goes on, None if it does not wait or none does. Raises StoreError.
        """
        await self.load()
        waiting = self._state.waiting
        if task_id is None:
            task_id = next(iter(waiting), None)
        if task_id is None or task_id not in waiting:
            return None
        change = machine.deliver(self._state, self._state.live[task_id], given, time.time())
        await self._ledger.commit(change)
        return change.updates[0]

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

    async def list(self, most: int) -> Sequence[Task]:
        """Return the committed tasks, the newest first, at most so many. Raises StoreError."""
        await self.load()
        return await self._log.newest(self.session_id, most)

    async def cancel(self, task_id: str) -> Task | None:
        """Cancel a task if it lives and return it as it is then; None if there is none. Raises StoreError."""
        await self.load()
        task = self._state.live.get(task_id)
        if task is None:
            return await self.get(task_id)
        change = machine.cancel(self._state, (task,), time.time())
        await self._ledger.commit(change)
        return change.updates[0]

    async def stop(self) -> tuple[Task, ...]:
        """Cancel every live task, all of them or none, and return those. Raises StoreError."""
        await self.load()
        change = machine.cancel(self._state, self._state.live.values(), time.time())
        if change.updates:
            await self._ledger.commit(change)
        return change.updates

    def residue(self, task_id: str | None = None) -> tuple[str, ...]:
        """Return what still runs of an ended task, without an id of any."""
        if task_id is None:
            return tuple(self._residue.values())
        return (self._residue[task_id],) if task_id in self._residue else ()

    # for backends

    async def ready(self) -> bool:
        """Return True once the log could be read, however long that takes; False once the engine is closed."""
        while not self.closed:
            with suppress(StoreError):
                await self.load()
                return True
            await self._hands.bell.wait(RETRY)
        return False

    def interrupted(self) -> tuple[Task, ...]:
        """Return the tasks that started, live, and are in nobody's hands: after `ready`, those of before a restart.

        A backend decides at its start what becomes of each: `release` hands it out again or fails it, `resume` takes
        it up as it stands. One that waits for input may be left: it is handed out again when that comes.
        """
        live = self._state.live
        return tuple(live[task_id] for task_id in self._state.turns if task_id not in self._hands)

    async def claimable(self) -> bool:
        """Return True as soon as `claim` may give something; False once the engine is closed."""
        while await self.ready():
            rest = self._rest_until - time.monotonic()
            if rest <= 0 and self._next() is not None:
                return True
            await self._hands.bell.wait(rest if rest > 0 else None)
        return False

    async def claim(self) -> Claim | None:
        """Hand out the oldest task that was given back or, while a slot is free, that was submitted.

        It is `working` and in a new turn then, which is committed. None when there is nothing to hand out, or the
        database refuses it; `claimable` rests for a while after that. Each claim ends with the task, or in `release`.
        """
        task_id = None
        try:
            await self.load()
            if (task := self._next()) is None:
                return None
            task_id = task.id
            attempt = self._hands.take(task_id)
            change = machine.hand_out(self._state, task, time.time(), attempt=attempt)
            await self._ledger.commit(change)
            inputs = await self._inputs(task_id)
        except StoreError:
            self._rest_until = time.monotonic() + RETRY
            if task_id is not None:
                self._hands.give_back(task_id, attempt=False)
            return None
        except asyncio.CancelledError:
            if task_id is not None:
                self._hands.give_back(task_id, attempt=False)
            raise
        return Claim(change.updates[0], inputs, change.updates[0].attempt)

    async def resume(self, task_id: str) -> Claim | None:
        """Take up a task that started, in the turn it is in: its worker lives on elsewhere. Raises StoreError.

        None if it is over, or has not started.
        """
        await self.load()
        if task_id not in self._state.turns:
            return None
        self._hands.orders(task_id)
        try:
            inputs = await self._inputs(task_id)
        except BaseException:
            self._hands.drop(task_id)
            raise
        task = await self.get(task_id)
        return None if task is None or task.state.terminal else Claim(task, inputs, task.attempt)

    async def report(self, task_id: str, said: Sequence[Said], *, note: str | None = None) -> Task:
        """Take in what a worker said of its task, as one change, and return the task as it is then.

        What follows a final line, or comes for a task that is over, is ignored; so is what is said of a task that
        has not started. `note` is kept with the task until it ends: for the backend to find after a restart
        (`Task.note`). A task that is kept no longer comes back `canceled`. Raises StoreError: nothing of it was
        taken, and it may be said again; NotSaidError for what no JSON can hold.
        """
        await self.load()
        task = self._state.live.get(task_id)
        if task is None or task_id not in self._state.turns:
            found = await self.get(task_id)
            return found or Task(task_id, "", "", TaskState.CANCELED, 0.0)
        change = machine.report(self._state, task, said, time.time(), rules=self._rules, note=note)
        if change.updates or change.events:
            await self._ledger.commit(change)
        return change.updates[-1] if change.updates else task

    def orders(self, task_id: str) -> Orders:
        """Return what the worker of a claimed or resumed task must hear; that of any other one is over."""
        return self._hands.held(task_id) or _orders_of_none(over=not self.closed)

    async def release(self, task_id: str, *, failed: str | None = None) -> None:
        """Say that a task's worker is gone: it is handed out again or, with `failed`, fails with that message.

        A task that waits for input keeps its place, and is handed out again when that comes. Raises StoreError where
        it could not fail; it may be tried again.
        """
        if failed is not None:
            await self.load()
            if (task := self._state.live.get(task_id)) is not None:
                change = machine.end(self._state, (task,), TaskState.FAILED, failed, time.time())
                await self._ledger.commit(change)
            return
        task = self._state.live.get(task_id)
        if task is None or task.state is TaskState.INPUT_REQUIRED:
            self._hands.drop(task_id)
        else:
            self._hands.give_back(task_id, attempt=True)

    def leave(self, task_id: str, what: str | None) -> None:
        """Say what still runs of an ended task, for people; None when it is gone."""
        if what is None:
            self._residue.pop(task_id, None)
        else:
            self._residue[task_id] = what

    def let_go(self) -> None:
        """Say that the backend is gone, with every worker: what it held is `interrupted` for the next one."""
        self._hands.let_go()

    async def close(self) -> None:
        """Decide nothing more, end the streams with their closing frame, and wait for what is under way."""
        self._ledger.closed = True
        self.feed.end()
        self._hands.let_go()
        await self._timeouts.aclose()
        await self._ledger.settled()

    @property
    def _state(self) -> State:
        return self._ledger.state

    def _next(self) -> Task | None:
        """Return the task that is to be handed out next."""
        for task_id in self._hands.given_back():
            task = self._state.live.get(task_id)
            if task is not None and task.state is TaskState.WORKING:
                return task
            self._hands.drop(task_id)
        return machine.next_queued(self._state, self._rules)

    async def _inputs(self, task_id: str) -> tuple[Input, ...]:
        """Return all input of a task, of which its worker need not hear again. Raises StoreError."""
        found = await self._log.inputs(task_id)
        if found and (orders := self._hands.held(task_id)) is not None:
            orders.heard(found[-1][0])
        return tuple(given for _, given in found)

    def _landed(self, change: Change) -> None:
        """Tell those concerned of a change that is committed."""
        for task in change.updates:
            if task.state.terminal:
                self._hands.end(task.id)
                self._remember(task)
                self._on_end(task.state.value)
            elif task.state is TaskState.INPUT_REQUIRED:
                self._timeouts.mind()
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
            self._ended.popitem(last=False)


def _orders_of_none(*, over: bool) -> Orders:
    orders = Orders()
    if over:
        orders.end()
    orders.let_go()
    return orders
