"""One open listener: a capsule's endpoint on its sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.serve.endpoint import Endpoint
from sidecar.web.server import HttpServer

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from sidecar.model import Capsule, Wanted
    from sidecar.serve.endpoint import Planes, Served
    from sidecar.web.server import Policy


class Listener:
    """What is open for one directory: `wanted` is what it serves now, `port` what it is bound to.

    `second` is the other port of the same capsule, where it has one.
    """

    __slots__ = ("endpoint", "port", "second", "server", "sockets", "wanted")

    def __init__(self, wanted: Wanted, served: Served, port: int, *, planes: Planes, policy: Policy) -> None:
        self.wanted = wanted
        self.port = port
        self.sockets = 0
        self.second: Second | None = None
        self.endpoint = Endpoint(served, planes=planes, policy=policy)
        self.server = HttpServer(self.endpoint.handle, name=served.capsule.id, policy=policy)

    @property
    def servers(self) -> tuple[HttpServer, ...]:
        """The servers of both ports."""
        return (self.server,) if self.second is None else (self.server, self.second.server)

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept on listening sockets, which belong to it from here on."""
        self.sockets = len(sockets)
        await self.server.start(sockets)

    def swap(self, wanted: Wanted, served: Served) -> None:
        """Serve this from now on, on the same sockets."""
        self.wanted = wanted
        for server in self.servers:
            server.name = served.capsule.id
        self.endpoint.serve(served)


class Second:
    """The second port of a listener, which serves A2A at its root: where it is bound, and on how many sockets."""

    __slots__ = ("hosts", "port", "server", "sockets")

    def __init__(
        self, listener: Listener, capsule: Capsule, port: int, sockets: int, *, policy: Policy
    ) -> None:
        self.port = port
        self.hosts = capsule.settings.hosts
        self.sockets = sockets
        self.server = HttpServer(listener.endpoint.handle_at_root, name=capsule.id, policy=policy)
