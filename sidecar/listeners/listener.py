"""One open listener: a capsule's endpoint on its sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.serve.endpoint import Endpoint
from sidecar.web.server import HttpServer

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from sidecar.model import Wanted
    from sidecar.serve.endpoint import Planes, Served
    from sidecar.web.server import Policy


class Listener:
    """What is open for one directory: `wanted` is what it serves now, `port` what it is bound to."""

    __slots__ = ("endpoint", "port", "server", "sockets", "wanted")

    def __init__(self, wanted: Wanted, served: Served, port: int, *, planes: Planes, policy: Policy) -> None:
        self.wanted = wanted
        self.port = port
        self.sockets = 0
        self.endpoint = Endpoint(served, planes=planes, policy=policy)
        self.server = HttpServer(self.endpoint.handle, name=served.capsule.id, policy=policy)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept on listening sockets, which belong to it from here on."""
        self.sockets = len(sockets)
        await self.server.start(sockets)

    def swap(self, wanted: Wanted, served: Served) -> None:
        """Serve this from now on, on the same sockets."""
        self.wanted = wanted
        self.server.name = served.capsule.id
        self.endpoint.serve(served)
