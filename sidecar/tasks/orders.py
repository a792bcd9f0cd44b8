"""Between the engine and a backend: what a worker is given, what it must hear, and which tasks lack a worker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecar.events import Task
    from sidecar.tasks.model import Delivery, Input


@dataclass(frozen=True, slots=True)
class Claim:
    """A task that a worker begins with: every message so far, in order, and which attempt it is, from 1."""

    task: Task
    inputs: tuple[Input, ...]
    attempt: int


class Bell:
    """Wakes everybody who waits at it."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: tuple[asyncio.Future[None], ...] = ()

    def ring(self) -> None:
        """Wake them."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - how long is the caller's to say
        """Wait for the next ring, but no longer than so many seconds."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters = (*self._waiters, waiter)
        try:
            if timeout is None:
                await waiter
            else:
                await asyncio.wait((waiter,), timeout=timeout)
        finally:
            self._waiters = tuple(one for one in self._waiters if one is not waiter)


class Orders:
    """What the worker of one task must hear. `canceled` says that the task is over for it, whoever ended it."""

    def __init__(self) -> None:
        self.canceled = False
        self._let_go = False
        self._heard = 0
        self._inputs: list[Delivery] = []
        self._bell = Bell()

    def take(self) -> tuple[Input, ...]:
        """Return the input that came since the claim or the last take, in order."""
        taken = tuple(delivery.given for delivery in self._inputs)
        self._inputs.clear()
        return taken

    async def wait(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - how long is the caller's to say
        """Wait until there is something to hear, at most so many seconds; whether there is.

        It returns at once, and may say False, when the engine is closed.
        """
        if not (self.canceled or self._inputs or self._let_go):
            await self._bell.wait(timeout)
        return self.canceled or bool(self._inputs)

    def give(self, delivery: Delivery) -> None:
        """Have the worker hear of input, unless it has it already."""
        if delivery.seq > self._heard:
            self._inputs.append(delivery)
            self._bell.ring()

    def heard(self, seq: int) -> None:
        """Note that the worker was given all input up to this number."""
        self._heard = seq
        self._inputs = [delivery for delivery in self._inputs if delivery.seq > seq]

    def end(self) -> None:
        """Have it hear that the task is over."""
        self.canceled = True
        self._bell.ring()

    def let_go(self) -> None:
        """End every wait, also those to come."""
        self._let_go = True
        self._bell.ring()


class Hands:
    """Which of the tasks that started are in whose hands, in memory alone: after a restart, in nobody's.

    `bell` rings when there may be something to claim; until `rest_until` (monotonic seconds) nothing is handed out.
    `residue` is what still runs of tasks that are over, in words.
    """

    __slots__ = ("_given_back", "_held", "bell", "residue", "rest_until")

    def __init__(self) -> None:
        self.bell = Bell()
        self.rest_until = 0.0
        self.residue: dict[str, str] = {}
        self._held: dict[str, Orders] = {}
        self._given_back: dict[str, bool] = {}

    def __contains__(self, task_id: str) -> bool:
        """Whether it has a worker, or waits for one."""
        return task_id in self._held or task_id in self._given_back

    def orders(self, task_id: str) -> Orders:
        """Return what the worker of a task must hear; somebody has it then."""
        self._given_back.pop(task_id, None)
        return self._held.setdefault(task_id, Orders())

    def held(self, task_id: str) -> Orders | None:
        """Return what the worker of a task must hear, if it has one."""
        return self._held.get(task_id)

    def given_back(self) -> tuple[str, ...]:
        """Return the tasks that wait for another worker, in the order in which they came back."""
        return tuple(self._given_back)

    def give_back(self, task_id: str, *, attempt: bool) -> None:
        """Have a task wait for another worker; `attempt` counts the next one as an attempt."""
        if (orders := self._held.pop(task_id, None)) is not None:
            orders.end()
        self._given_back[task_id] = attempt
        self.bell.ring()

    def take(self, task_id: str) -> bool:
        """Put a task into the hands of a worker; whether that is to be counted as an attempt."""
        attempt = self._given_back.pop(task_id, True)
        self._held[task_id] = Orders()
        return attempt

    def end(self, task_id: str) -> None:
        """Forget a task that is over, once its worker has heard of it."""
        self.drop(task_id)
        self.bell.ring()

    def drop(self, task_id: str) -> None:
        """Have a task in nobody's hands, and waiting for none."""
        self._given_back.pop(task_id, None)
        if (orders := self._held.pop(task_id, None)) is not None:
            orders.end()

    def let_go(self) -> None:
        """End every wait: nobody is there any more."""
        for orders in self._held.values():
            orders.let_go()
        self._held.clear()
        self._given_back.clear()
        self.bell.ring()
