"""What a courier asks of the protocol that is spoken elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sidecar.tasks.forwarding.trouble import GoneError, WrongError, shown

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from sidecar.dialects.jsonrpc import RpcError
    from sidecar.events import Task
    from sidecar.tasks.forwarding.caller import Patience
    from sidecar.tasks.forwarding.track import Batch, Track
    from sidecar.tasks.forwarding.wake import Wake
    from sidecar.tasks.forwarding.where import Door
    from sidecar.tasks.model import Input


@dataclass(slots=True)
class Errand:
    """One task that is handed on. `waiting` says whether it waits for input here."""

    task: Task
    wake: Wake
    patience: Patience
    waiting: bool = False

    @property
    def alone(self) -> bool:
        """Whether its context was made for it, so that no other task is in it."""
        return self.task.context_id.removeprefix("ctx_") == self.task.id.removeprefix("tsk_")

    def message_id(self, number: int) -> str:
        """Return an id for its message of this number, from 1: the same one whenever it is sent."""
        return f"msg_{self.task.id}_{self.task.attempt}_{number}"


class Way(Protocol):
    """One protocol, for one task."""

    def follow(self, door: Door, track: Track, inputs: Sequence[Input]) -> AsyncGenerator[Batch]:
        """Go on from there: start the task, hand on the next input, or take up its stream again.

        `inputs` are all messages of the task so far. What is given must be kept before the next is asked for. It
        ends once a final thing was said. Raises AwayError, WrongError, GoneError.
        """

    async def cancel(self, door: Door, track: Track) -> str | None:
        """Cancel the task there; return what still runs of it, if anything. Raises AwayError, WrongError."""


def refused(door: Door, method: str, error: RpcError) -> WrongError:
    """Return what an error in a server's answer means for a task."""
    return WrongError(f"{door.where} answers {method} with error {error.code}: {shown(error.message)}")


def forgotten(door: Door) -> GoneError:
    """Return what it means that a task is not known there any more."""
    return GoneError(
        f"{door.where} does not know the task any more: it was restarted, or has forgotten it; what came of the task "
        "cannot be told"
    )


def untold(door: Door) -> GoneError:
    """Return what it means that nobody knows whether a task was started there."""
    return GoneError(
        f"the connection to {door.where} broke before it said that it has the task: it may run there, so it is not "
        "started a second time"
    )
