"""A small listener for the HTTP server's tests, and raw bytes to send to it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from sidecar.model import Answer
from sidecar.web.answers import Wire, wire
from sidecar.web.body import read_json_body
from sidecar.web.guards import Guards, Rules
from sidecar.web.refusals import RefusalLog
from sidecar.web.server import HttpLimits, HttpServer, Policy
from sidecar.web.sockets import listen

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from aiohttp import web

BODY_LIMIT = 1000
BIG = 30_000_000


class Site:
    """A listener with a few paths: `/` says hello, `POST /` echoes, others misbehave."""

    def __init__(self, limits: HttpLimits, context: ssl.SSLContext | None) -> None:
        self.policy = Policy(Guards(Rules("listen")), limits, RefusalLog(lines=1000), context=context)
        self.server = HttpServer(self.handle, name="site", policy=self.policy)
        self.port = 0
        self.release = asyncio.Event()
        self.cancelled = 0
        self.entered = 0

    async def handle(self, request: web.BaseRequest) -> Wire:
        """Answer."""
        self.entered += 1
        path = request.raw_path
        if path == "/fails":
            raise KeyError("secret detail")
        if path == "/leaves":
            raise ConnectionResetError("the client left while it was written to")
        if path == "/waits":
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if path == "/big":
            return wire(Answer(200, (), b"x" * BIG))
        if request.method == "POST":
            limits = self.policy.limits
            body = await read_json_body(request, limit=limits.body, within=limits.body_timeout)
            return wire(Answer(200, (), body))
        return wire(
            Answer(200, (("content-type", "text/plain"), ("x-method", request.method)), path.encode())
        )


@asynccontextmanager
async def site(context: ssl.SSLContext | None = None, **limits: Any) -> AsyncIterator[Site]:
    """Run a site; with a context it speaks TLS."""
    made = Site(HttpLimits(**{"idle": 20.0, "body": BODY_LIMIT, "body_timeout": 20.0, **limits}), context)
    sockets = listen(["127.0.0.1"], 0)
    made.port = sockets[0].getsockname()[1]
    await made.server.start(sockets)
    try:
        yield made
    finally:
        made.release.set()
        await made.server.drain(budget=3.0)


async def raw(port: int, data: bytes, *, half_close: bool = False, within: float = 10.0) -> bytes:
    """Send bytes, and return all that comes until the server ends the connection."""
    async with asyncio.timeout(within):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(data)
            if half_close:
                writer.write_eof()
            return await reader.read()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
