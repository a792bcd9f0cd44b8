"""One engine per session: decides on the loop, commits through the log, and only then answers and publishes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sidecar.events import Task, TaskState
from sidecar.tasks import machine
from sidecar.tasks.work import WorkSide
from sidecar.tracing import current_trace, current_tracer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.tasks.follow import Follower
    from sidecar.tasks.model import Input


class Engine(WorkSide):
    """The tasks of one session: this side is for doors, the one that it inherits for the backend.

    What is sent or delivered within a trace belongs to it.
    """

    __slots__ = ()

    async def send(self, given: Input, *, context_id: str | None, owner: str) -> Task:
        """Take a task, durably, and return it; without room return it `rejected`, and keep nothing of it.

        Without a context it gets one of its own. Raises StoreError.
        """
        await self.load()
        task = self._new(context_id, owner)
        if not machine.has_room(self._state, self._rules):
            return machine.rejected(task)
        await self._submit(task, given)
        return task

    async def send_and_follow(
        self, given: Input, *, context_id: str | None, owner: str, streaming: bool = False
    ) -> tuple[Task, Follower | None]:
        """Do as `send` does, and return with the task who follows it from its first event on; a rejected one nobody.

        `streaming` counts that one among the open streams.
        """
        await self.load()
        task = self._new(context_id, owner)
        if not machine.has_room(self._state, self._rules):
            return machine.rejected(task), None
        follower = self.telling.begin(task.id, streaming=streaming)
        try:
            await self._submit(task, given)
        except BaseException:
            follower.close()
            raise
        return task, follower

    async def _submit(self, task: Task, given: Input) -> None:
        """Commit a task within the trace that it is sent in, as a part of its own where somebody traces."""
        trace, tracer = current_trace(), current_tracer()
        if tracer is not None:
            trace = tracer.begin_task(task.id, self.session_id, trace)
        try:
            await self._ledger.commit(machine.submit(self._state, task, given.within(trace)))
        except BaseException:
            if tracer is not None:
                tracer.end_task(task.id, TaskState.FAILED)
            raise

    def _new(self, context_id: str | None, owner: str) -> Task:
        new = self._log.ids()
        return Task(
            id=f"tsk_{new}",
            context_id=f"ctx_{new}" if context_id is None else context_id,
            owner=owner,
            state=TaskState.SUBMITTED,
            created_at=time.time(),
        )

    async def deliver(
        self,
        given: Input,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        owner: str | None = None,
    ) -> Task | None:
        """Deliver input to the task that has waited for it longest: of all, or of a context, an owner; or to this one.

        Return the task as it goes on, None if it does not wait or none does. Raises StoreError.
        """
        await self.load()
        live, waiting = self._state.live, self._state.waiting
        if not waiting:
            return None
        if task_id is None:
            task_id = next(
                (
                    i
                    for i in waiting
                    if context_id in (None, live[i].context_id) and owner in (None, live[i].owner)
                ),
                None,
            )
        if task_id is None or task_id not in waiting:
            return None
        change = machine.deliver(
            self._state, self._state.live[task_id], given.within(current_trace()), time.time()
        )
        await self._ledger.commit(change)
        return change.updates[0]

    async def live(self, context_id: str, owner: str) -> Sequence[Task]:
        """Return an owner's tasks of a context that are not over, the oldest first: to decide on, not to show.

        Raises StoreError.
        """
        await self.load()
        tasks = self._state.live.values()
        return [task for task in tasks if task.context_id == context_id and task.owner == owner]

    async def list(self, most: int) -> Sequence[Task]:
        """Return the committed tasks, the newest first, at most so many, without output. Raises StoreError."""
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
