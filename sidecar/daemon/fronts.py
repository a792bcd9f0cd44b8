"""What a capsule's port shows, put together from the stages that make its parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sidecar.cards.served import Cards
from sidecar.cards.views import views
from sidecar.daemon.exposed import Exposed
from sidecar.doors.a2a import A2aDoor
from sidecar.doors.everruns import EverrunsDoor
from sidecar.doors.everruns_stream import UNAVAILABLE
from sidecar.doors.moi import MoiDoor
from sidecar.doors.murmur import MurmurDoor
from sidecar.model import TaskAcceptance, Work
from sidecar.serve.endpoint import Served
from sidecar.tasks.model import Rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecar.auth.access import Access
    from sidecar.cards.views import View
    from sidecar.daemon.backends import Backends
    from sidecar.doors.everruns_log import EverrunsLog
    from sidecar.doors.murmur import FrameStream
    from sidecar.model import Capsule
    from sidecar.ops.metrics import Counters, Metrics
    from sidecar.planes.routes import Planes
    from sidecar.tasks.backend import Backend
    from sidecar.tasks.engine import Engine
    from sidecar.tasks.engines import Engines


@dataclass(frozen=True, slots=True)
class Front:
    """What is served of one session: the capsule, its engine and its doors."""

    capsule: Capsule
    engine: Engine
    door: MurmurDoor
    log: EverrunsLog
    counters: Counters

    @property
    def sessions(self) -> EverrunsDoor:
        """The Everruns door, made for one request: most capsules never need it."""
        return EverrunsDoor(self.log, self.engine, self.capsule)

    def moi(self) -> MoiDoor:
        """Make the MOI door, for one request."""
        return MoiDoor(self.engine, self.capsule, self.counters.request)

    def a2a(self) -> A2aDoor:
        """Make the A2A door, for one request."""
        return A2aDoor(self.engine, self.capsule, self.counters.request)

    def ended(self) -> int:
        """Return how many of the session's tasks have ended."""
        return self.engine.generation

    @property
    def accepts(self) -> bool:
        """Whether it takes tasks at all."""
        return self.capsule.manifest.lifecycle.task_acceptance is not TaskAcceptance.NONE

    @property
    def generation(self) -> int:
        """How many of the session's tasks have ended."""
        return self.engine.generation

    def views(self) -> Sequence[View]:
        """Return every card that is served of it."""
        return views(self.capsule)

    async def watch(self, after: int, task_id: str | None) -> FrameStream:
        """Open a stream of the session's frames after that one, or of one task's alone. Raises RefusedError."""
        return await self.door.watch(after, task_id)


class Fronts:
    """Opens and closes what listeners show: the `Doors` of the pool. One event loop."""

    def __init__(
        self,
        *,
        engines: Engines,
        metrics: Metrics,
        planes: Planes,
        backends: Backends,
        access: Access,
        everruns: EverrunsLog,
    ) -> None:
        self._access = access
        self._exposed = Exposed(access)
        self._everruns = everruns
        self._engines = engines
        self._metrics = metrics
        self._planes = planes
        self._backends = backends
        self._open: dict[str, Front] = {}
        self._by_capsule: dict[str, Front] = {}

    async def open(self, capsule: Capsule) -> Served:
        """Return what a capsule's port shows; its port must be known."""
        settings = capsule.settings
        if (kinds := self._access.kinds(capsule)) != capsule.credentials:
            capsule = replace(capsule, credentials=kinds)
        self._access.expiries.watch(capsule)
        self._exposed.note(capsule)
        engine = await self._engines.open(capsule.session_id, Rules.of(capsule, max_live=settings.tasks))
        await self._backends.open(engine, capsule)
        counters = self._metrics.capsule(capsule.id)
        door = MurmurDoor(
            engine,
            capsule,
            heartbeat=settings.heartbeat,
            streams=settings.streams,
            count=counters.request,
        )
        front = Front(capsule, engine, door, self._everruns, counters)
        self._open[capsule.session_id] = self._by_capsule[capsule.id] = front
        return Served(capsule, Cards(capsule), door, front.a2a, counters, front.ended, self._access)

    async def close(self, session_id: str) -> None:
        """Let go of a session that is served no longer; its tasks stay in the log."""
        front = self._open.pop(session_id, None)
        self._exposed.forget(session_id)
        self._everruns.end_streams(session_id, UNAVAILABLE)
        if front is not None:
            await self._backends.remove(session_id, grace=front.capsule.settings.stop_grace)
        await self._engines.close(session_id)
        self._planes.session_closed(session_id)
        if front is not None and self._by_capsule.get(front.capsule.id) is front:
            del self._by_capsule[front.capsule.id]
            self._metrics.forget(front.capsule.id)

    def of(self, capsule_id: str) -> Front | None:
        """Return what is served now under an id."""
        return self._by_capsule.get(capsule_id)

    def capsules(self) -> Sequence[Capsule]:
        """Return the capsules that are served now, sorted by id."""
        return [self._by_capsule[capsule_id].capsule for capsule_id in sorted(self._by_capsule)]

    def backend(self, capsule_id: str) -> Backend | None:
        """Return what does the work of the capsule that is served now under an id."""
        front = self._by_capsule.get(capsule_id)
        return self._backends.of(front.capsule.session_id) if front is not None else None

    def counts(self, session_id: str) -> Mapping[str, int]:
        """Return the numbers of live tasks of a session by state."""
        front = self._open.get(session_id)
        return front.engine.counts() if front is not None else {}

    def work(self, session_id: str) -> Work:
        """Return how the tasks of a session are worked on."""
        backend = self._backends.of(session_id)
        return Work(backend.workers, backend.trouble) if backend is not None else Work()
