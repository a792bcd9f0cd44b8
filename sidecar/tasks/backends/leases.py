"""One worker's hold on one task, and what it is told."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.events import TaskState
from sidecar.tasks import said
from sidecar.tasks.model import input_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.events import Task
    from sidecar.tasks.backends.lines import Line
    from sidecar.tasks.orders import Claim, Orders


@dataclass(frozen=True, slots=True)
class News:
    """What a worker is told of its task: how many of its lines were taken in, whether it is over, and further input.

    `canceled` is set whoever ended the task, unless it was the worker's own last line.
    """

    accepted: int
    canceled: bool
    inputs: tuple[dict[str, Any], ...]


class Lease:
    """A task in the hands of one worker, until the deadline (time of the loop) that each sign of life moves.

    `message` is the input line that started the task, `earlier` are those that came before this worker got it.
    `lost` is set once it ran out. A report holds the `lock`, so that no line is taken in twice.
    """

    __slots__ = (
        "_inputs",
        "_own_end",
        "_told",
        "accepted",
        "attempt",
        "deadline",
        "earlier",
        "lock",
        "lost",
        "message",
        "orders",
        "task",
        "token",
        "worker",
    )

    def __init__(self, claim: Claim, orders: Orders, *, worker: str, deadline: float) -> None:
        self.token = secrets.token_urlsafe(24)
        self.task = claim.task
        self.attempt = claim.attempt
        self.message, *self.earlier = (input_line(claim.task, given) for given in claim.inputs)
        self.orders = orders
        self.worker = worker
        self.deadline = deadline
        self.accepted = 0
        self.lost = False
        self.lock = asyncio.Lock()
        self._inputs: list[dict[str, Any]] = []
        self._told = 0
        self._own_end = False

    @property
    def live(self) -> bool:
        """Whether a worker is at it."""
        return not (self.lost or self.orders.canceled)

    def opened_by(self, token: str) -> bool:
        """Whether this is its token; compared in constant time."""
        return hmac.compare_digest(self.token.encode(), token.encode("utf-8", "surrogateescape"))

    def took_in(self, lines: Sequence[Line], task: Task) -> None:
        """Take note that these lines were taken in, and how the task stands now."""
        self.accepted += len(lines)
        for line in lines:
            if line.said.final:
                self._own_end = task.state is _ending(line.said)
                return

    def has_news(self, heard: int | None) -> bool:
        """Whether there is something to tell one that has heard so many inputs, None: all that it was told."""
        self._hear()
        return self.orders.canceled or len(self._inputs) > (self._told if heard is None else heard)

    def news(self, heard: int | None) -> News:
        """Return what to tell it; inputs that it was told come again only if it has not heard them."""
        self._hear()
        inputs = tuple(self._inputs[self._told if heard is None else heard :])
        self._told = len(self._inputs)
        return News(self.accepted, self.orders.canceled and not self._own_end, inputs)

    def _hear(self) -> None:
        self._inputs += (input_line(self.task, given) for given in self.orders.take())


def _ending(last: said.Said) -> TaskState:
    if isinstance(last, said.Failed):
        return TaskState.FAILED
    return TaskState.REJECTED if isinstance(last, said.Rejected) else TaskState.COMPLETED
