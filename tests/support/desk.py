"""A desk on a real socket, with a registry that a test sets."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecar.desk.access import Access
from sidecar.desk.api import ReloadResult
from sidecar.desk.endpoint import Desk, Parts
from sidecar.desk.handles import Handles
from sidecar.desk.looks import Looks
from sidecar.desk.tasks import Tasks
from sidecar.desk.workers import Workers
from sidecar.ops.metrics import Gauges, Metrics
from sidecar.planes.routes import Planes
from sidecar.web.guards import Guards, Rules
from sidecar.web.refusals import RefusalLog
from sidecar.web.server import HttpLimits, HttpServer, Policy
from sidecar.web.sockets import listen
from tests.support.credentials import access_of, no_keys
from tests.support.rawhttp import Answer, get
from tests.support.view import NoAgents, NoChannels, Shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidecar.desk.moi_callers import Directory

TOKEN = {"Authorization": "Bearer s3cret"}


@dataclass
class Running:
    """A desk that listens: its registry, its metrics, and what its reload will say."""

    desk: Desk = field(init=False)
    view: Shown = field(default_factory=Shown)
    metrics: Metrics = field(default_factory=lambda: Metrics("0.1"))
    port: int = 0
    result: ReloadResult = field(default_factory=ReloadResult)
    reloads: int = 0
    finish: asyncio.Event = field(default_factory=asyncio.Event)

    async def get(self, target: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> Answer:
        """Ask without credentials."""
        return await get(self.port, target, method=method, headers=headers)

    async def ask(self, target: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> Answer:
        """Ask with the admin token."""
        return await get(self.port, target, method=method, headers=TOKEN | (headers or {}))

    async def reload(self) -> ReloadResult:
        """Play the daemon's reload."""
        self.reloads += 1
        await self.finish.wait()
        return self.result


@asynccontextmanager
async def running_desk(
    *, token: str | None = "s3cret", agents: Directory | None = None
) -> AsyncIterator[Running]:
    """Run a desk that asks for a token, unless there is None, and shows its metrics to all; `agents` are those of MOI."""
    stage = Running()
    parts = Parts(
        view=stage.view,
        channels=NoChannels(),
        agents=NoAgents() if agents is None else agents,
        access=access_of(),
        metrics=stage.metrics,
        gauges=lambda: Gauges(open_streams=7),
        reload=stage.reload,
        handles=Handles(Planes().sharing, lambda _: None, stage.metrics),
        keys=no_keys(),
        looks=Looks(lambda _: None, Planes()),
        tasks=Tasks(lambda _: None, "operator"),
        workers=Workers(lambda _: None),
    )
    stage.desk = Desk(
        parts,
        access=Access(token),
        worker_access=Access(token, worker="w0rker"),
        open_metrics=True,
        url=lambda: f"http://localhost:{stage.port}",
    )
    stage.finish.set()
    policy = Policy(guards=Guards(Rules("desk")), limits=HttpLimits(), refusals=RefusalLog())
    server = HttpServer(stage.desk.handle, name="desk", policy=policy)
    sockets = listen(["127.0.0.1"], 0)
    stage.port = sockets[0].getsockname()[1]
    await server.start(sockets)
    try:
        yield stage
    finally:
        stage.desk.end_streams()
        await server.drain(budget=5)
        stage.desk.close()


def refusal_of(answer: Answer) -> tuple[int, str]:
    """Return status and code of a refusal, whose shape must be the one of all."""
    body = json.loads(answer.body)
    assert list(body)[:2] == ["error", "message"]
    assert answer.headers["content-type"] == "application/json"
    return answer.status, body["error"]
