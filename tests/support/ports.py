"""One capsule's real port, without tasks: for tests of what lies under `/resources/`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sidecar.cards.served import Cards
from sidecar.errors import RefusedError, refusal
from sidecar.ops.metrics import Counters
from sidecar.serve.endpoint import Endpoint, Served
from sidecar.web.guards import Guards, Rules
from sidecar.web.server import HttpLimits, HttpServer, Policy
from sidecar.web.sockets import listen
from tests.support.credentials import access_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidecar.model import Capsule
    from sidecar.planes.routes import Planes


class Shut:
    """A door that takes no calls."""

    async def call(self, _body: bytes, _last_event_id: object = None) -> bytes:
        """Refuse."""
        raise RefusedError(refusal("unavailable", "There is no door here."))

    def error(self, _asked: object, _code: int, _message: str) -> bytes:
        """Refuse."""
        raise RefusedError(refusal("unavailable", "There is no door here."))


@asynccontextmanager
async def served_on_a_port(capsule: Capsule, planes: Planes, *, idle: float = 20.0) -> AsyncIterator[int]:
    """Serve a capsule on a free port, and yield that."""
    served = Served(capsule, Cards(capsule), Shut(), Shut, Counters(), lambda: 0, access_of())
    policy = Policy(Guards(Rules("listen")), HttpLimits(idle=idle))
    endpoint = Endpoint(served, planes=planes, policy=policy)
    server = HttpServer(endpoint.handle, name="a", policy=policy)
    sockets = listen(["127.0.0.1"], 0)
    port: int = sockets[0].getsockname()[1]
    await server.start(sockets)
    try:
        yield port
    finally:
        await server.drain(budget=5.0)
