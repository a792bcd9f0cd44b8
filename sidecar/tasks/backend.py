"""What the daemon asks of whoever does a capsule's work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sidecar.model import Capsule, LastError
    from sidecar.tasks.engine import Engine


class Backend(Protocol):
    """Does the work of one capsule: takes tasks from its engine and reports what comes of them.

    It owns every task and process that it starts, and waits for nothing but `Engine.claimable`.
    """

    name: str
    """As the configuration has it: inbox, command or forward."""

    @property
    def workers(self) -> int:
        """How many workers are attached, for people to see."""

    @property
    def trouble(self) -> LastError | None:
        """Why nothing can be worked on now, and since when; None where it can, or where only a try would tell."""

    def start(self, engine: Engine, capsule: Capsule) -> None:
        """Begin to serve an engine; what it finds `interrupted` there is its to decide."""

    def reconfigure(self, capsule: Capsule) -> None:
        """Take other settings for the tasks to come."""

    async def aclose(self, grace: float) -> None:
        """Stop: workers are told to end and have so many seconds for it. Their tasks stay as they are."""
