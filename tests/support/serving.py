"""Capsules on real ports: pool, engines, planes and store as the daemon puts them together."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sidecar.daemon.backends import Backends
from sidecar.daemon.fronts import Fronts
from sidecar.doors.everruns_log import EverrunsLog
from sidecar.listeners.pool import Pool
from sidecar.model import Capsule, Manifest, Settings, Wanted
from sidecar.ops.metrics import Metrics
from sidecar.planes.routes import Planes
from sidecar.store import Store
from sidecar.tasks.backends.inbox import Inbox
from sidecar.tasks.engines import Engines
from sidecar.tasks.model import Rules as TaskRules
from sidecar.web.guards import Guards, Rules
from sidecar.web.refusals import RefusalLog
from sidecar.web.server import HttpLimits, Policy
from tests.support.credentials import access_of, ring_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Container
    from pathlib import Path

    from sidecar.auth.access import Access
    from sidecar.auth.keys import KeyRing
    from sidecar.tasks.backend import Backend
    from sidecar.tasks.engine import Engine

_FIRST = 20_000 + os.getpid() % 13 * 300
PORTS = (_FIRST, _FIRST + 299)
"""Below the ephemeral range, apart from the default range of a spawned sidecar, and from other runs of these tests."""


@dataclass
class Facts:
    """What was told about listeners, newest last."""

    ports: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, list[str]] = field(default_factory=dict)
    troubles: dict[str, str | None] = field(default_factory=dict)

    def bound(self, directory: str, port: int) -> None:
        """Take note."""
        self.ports[directory] = port

    def unbound(self, directory: str, reason: str) -> None:
        """Take note."""
        self.ports.pop(directory, None)
        self.reasons.setdefault(directory, []).append(reason)

    def troubled(self, directory: str, reason: str | None) -> None:
        """Take note."""
        self.troubles[directory] = reason


@dataclass
class Bench:
    """A pool with everything below it; `want` makes wishes for capsules below `root`."""

    root: Path
    pool: Pool
    facts: Facts
    metrics: Metrics
    fronts: Fronts
    defaults: dict[str, Any]
    engines: Engines
    ring: KeyRing
    access: Access
    everruns: EverrunsLog
    store: Store
    wished: dict[str, Wanted] = field(default_factory=dict)

    def want(
        self,
        name: str,
        port: int | None = None,
        source: str | None = None,
        *,
        manifest: Manifest | None = None,
        session: str | None = None,
        **settings: Any,
    ) -> Wanted:
        """Make a wish for a capsule called and placed by name."""
        directory = str(self.root / name)
        capsule = Capsule(
            id=name,
            directory=directory,
            session_id=session or f"ses_{name}",
            manifest=manifest or Manifest(name, "1"),
            settings=Settings(**{**self.defaults, **settings}),
            workspace=directory,
            changed_at=1_000_000_000.0,
        )
        return Wanted(capsule, port, source)

    async def engine(self, name: str) -> Engine:
        """Return the engine of a capsule that is served."""
        capsule = next(c for c in self.pool.capsules() if c.id == name)
        return await self.engines.open(capsule.session_id, TaskRules.of(capsule, max_live=100))

    def port(self, name: str) -> int:
        """Return the port that a capsule is bound to."""
        return self.facts.ports[str(self.root / name)]

    def reason(self, name: str) -> str:
        """Return the newest reason why a capsule is unbound."""
        return self.facts.reasons[str(self.root / name)][-1]

    async def serve(self, *wanted: Wanted, reserved: Container[int] = frozenset()) -> None:
        """Want exactly these, all of which are looked at anew."""
        before, self.wished = self.wished, {one.capsule.directory: one for one in wanted}
        await self.pool.follow({**dict.fromkeys(before), **self.wished}, reserved)


@asynccontextmanager
async def bench(
    root: Path,
    *,
    ports: tuple[int, int] = PORTS,
    most: int = 1000,
    heartbeat: float = 15.0,
    streams: int = 100,
    make: Callable[[Settings], Backend] = lambda _: Inbox(),
    **limits: Any,
) -> AsyncIterator[Bench]:
    """Run a bench whose database and capsules are below `root`; `make` makes the backend of a capsule."""
    store = Store.open(str(root / "sidecar.db"))
    planes = Planes()
    everruns = EverrunsLog(store)
    engines = Engines(store, keep_events=10_000, keep_tasks=3600.0, showings=(everruns,))
    metrics = Metrics("test")
    facts = Facts()
    ring = ring_of(store)
    access = access_of(ring)
    backends = Backends(make)
    fronts = Fronts(
        engines=engines,
        metrics=metrics,
        planes=planes,
        backends=backends,
        access=access,
        everruns=everruns,
    )
    policy = Policy(
        Guards(Rules("listen", advertised=("localhost",))),
        HttpLimits(**{"idle": 20.0, **limits}),
        RefusalLog(lines=1000),
    )
    pool = Pool(
        doors=fronts,
        planes=planes,
        facts=facts,
        policy=policy,
        ports=ports,
        most=most,
        budget=5.0,
        first_retry=0.05,
    )
    try:
        yield Bench(
            root,
            pool,
            facts,
            metrics,
            fronts,
            {"heartbeat": heartbeat, "streams": streams},
            engines,
            ring,
            access,
            everruns,
            store,
        )
    finally:
        await pool.aclose()
        await backends.aclose(0.0)
        await access.aclose()
        await engines.aclose()
        await planes.aclose()
        store.close()
