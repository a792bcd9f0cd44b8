"""What a capsule's port shows, put together from card, engine, door and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.cards.reference import card_document
from sidecar.doors.murmur import MurmurDoor
from sidecar.serve.endpoint import Served
from sidecar.tasks.engine import Rules

if TYPE_CHECKING:
    from sidecar.model import Capsule
    from sidecar.ops.metrics import Metrics
    from sidecar.planes.routes import Planes
    from sidecar.tasks.engine import Engine, Engines


class CapsuleDoors:
    """Opens capsules over engines, planes and metrics that are the daemon's.

    `heartbeat` is in seconds, `streams` and `tasks` are limits per capsule. They may be set anew; what is open takes
    them over with `Pool.refresh`.
    """

    def __init__(
        self,
        *,
        engines: Engines,
        planes: Planes,
        metrics: Metrics,
        heartbeat: float,
        streams: int,
        tasks: int,
    ) -> None:
        self._engines = engines
        self._planes = planes
        self._metrics = metrics
        self.heartbeat = heartbeat
        self.streams = streams
        self.tasks = tasks

    def rules(self, capsule: Capsule) -> Rules:
        """Return the rules by which a capsule takes tasks."""
        return Rules.of(capsule, max_live=self.tasks)

    async def open(self, capsule: Capsule) -> Served:
        """Return what a capsule's port shows; its engine is the session's, new or already open."""
        engine: Engine = await self._engines.open(capsule.session_id, self.rules(capsule))
        counters = self._metrics.capsule(capsule.id)
        return Served(
            capsule=capsule,
            card=card_document(capsule),
            door=MurmurDoor(
                engine, capsule, heartbeat=self.heartbeat, streams=self.streams, count=counters.request
            ),
            counters=counters,
            generation=lambda: engine.generation,
        )

    async def close(self, session_id: str) -> None:
        """Let go of a session's engine, and of the handles that it gave out; its tasks stay in the log."""
        await self._engines.close(session_id)
        self._planes.session_closed(session_id)
