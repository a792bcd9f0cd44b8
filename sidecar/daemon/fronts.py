"""What a capsule's port shows, put together from the stages that make its parts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sidecar.cards.reference import card_document
from sidecar.doors.murmur import MurmurDoor
from sidecar.serve.endpoint import Served
from sidecar.tasks.model import Rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.model import Capsule
    from sidecar.ops.metrics import Metrics
    from sidecar.planes.routes import Planes
    from sidecar.tasks.engine import Engine
    from sidecar.tasks.engines import Engines


class Fronts:
    """Opens and closes what listeners show: the `Doors` of the pool. One event loop."""

    def __init__(self, *, engines: Engines, metrics: Metrics, planes: Planes) -> None:
        self._engines = engines
        self._metrics = metrics
        self._planes = planes
        self._open: dict[str, tuple[str, Engine]] = {}

    async def open(self, capsule: Capsule) -> Served:
        """Return what a capsule's port shows; its port must be known."""
        settings = capsule.settings
        engine = await self._engines.open(capsule.session_id, Rules.of(capsule, max_live=settings.tasks))
        self._open[capsule.session_id] = (capsule.id, engine)
        counters = self._metrics.capsule(capsule.id)
        door = MurmurDoor(
            engine,
            capsule,
            heartbeat=settings.heartbeat,
            streams=settings.streams,
            count=counters.request,
        )
        return Served(capsule, card_document(capsule), door, counters, partial(_generation, engine))

    async def close(self, session_id: str) -> None:
        """Let go of a session that is served no longer; its tasks stay in the log."""
        known = self._open.pop(session_id, None)
        await self._engines.close(session_id)
        self._planes.session_closed(session_id)
        if known is not None and known[0] not in {capsule_id for capsule_id, _ in self._open.values()}:
            self._metrics.forget(known[0])

    def counts(self, session_id: str) -> Mapping[str, int]:
        """Return the numbers of live tasks of a session by state."""
        known = self._open.get(session_id)
        return known[1].counts() if known is not None else {}


def _generation(engine: Engine) -> int:
    return engine.generation
