"""The side of an engine that backends use: claims, reports, orders."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from sidecar.errors import StoreError
from sidecar.events import Task, TaskState
from sidecar.tasks import machine
from sidecar.tasks.orders import Claim, Orders
from sidecar.tasks.space import TaskSpace
from sidecar.tasks.timeouts import RETRY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.tasks.model import Input
    from sidecar.tasks.said import Said


class WorkSide(TaskSpace):
    """Hands tasks out, and takes in what comes of them."""

    __slots__ = ()

    async def ready(self) -> bool:
        """Return True once the log could be read, however long that takes; False once the engine is closed."""
        while not self.closed:
            with suppress(StoreError):
                await self.load()
                return True
            await self._hands.bell.wait(RETRY)
        return False

    @property
    def may_hold_interrupted(self) -> bool:
        """Whether there may be something `interrupted` after `ready`: not where the log says that none has started."""
        return self._ledger.stale or bool(self._state.turns)

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
            rest = self._hands.rest_until - time.monotonic()
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
            self._hands.rest_until = time.monotonic() + RETRY
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
        has not started. `note` is kept with the task until its worker ends it: for the backend to find after a
        restart (`Task.note`). A task that is kept no longer comes back `canceled`. Raises StoreError: nothing of it was
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

    async def release(self, task_id: str, *, failed: str | None = None, attempt: bool = True) -> None:
        """Say that a task's worker is gone: it is handed out again or, with `failed`, fails with that message.

        That counts as another attempt, unless `attempt` says otherwise. A task that waits for input keeps its place, and is handed out again when that comes. Raises StoreError where
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
            self._hands.give_back(task_id, attempt=attempt)

    async def unheard(self) -> tuple[Claim, ...]:
        """Return the tasks that others ended and that still have a note: whoever worked on them may not know yet.

        Raises StoreError.
        """
        return tuple(
            [
                Claim(task, await self._inputs(task.id), task.attempt)
                for task in await self._log.noted(self.session_id)
            ]
        )

    async def forget_note(self, task_id: str) -> None:
        """Let go of the note of an ended task: there is nobody any more who must hear of the end. Raises StoreError."""
        await self._log.forget_note(task_id)

    def leave(self, task_id: str, what: str | None) -> None:
        """Say what still runs of an ended task, for people; None when it is gone."""
        if what is None:
            self._hands.residue.pop(task_id, None)
        else:
            self._hands.residue[task_id] = what

    def residue(self, task_id: str | None = None) -> tuple[str, ...]:
        """Return what still runs of an ended task, without an id of any."""
        if task_id is None:
            return tuple(self._hands.residue.values())
        return (self._hands.residue[task_id],) if task_id in self._hands.residue else ()

    def let_go(self) -> None:
        """Say that the backend is gone, with every worker: what it held is `interrupted` for the next one."""
        if self._hands_made is not None:
            self._hands_made.let_go()

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


def _orders_of_none(*, over: bool) -> Orders:
    orders = Orders()
    if over:
        orders.end()
    orders.let_go()
    return orders
