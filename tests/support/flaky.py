"""A proxy between a client and a server that swallows answers: the server has done its part, the client hears nothing."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)


class Flaky:
    """Listens on `port`. `swallow` is asked with the path of each request; `swallowed` counts what it took."""

    def __init__(self, upstream: int, swallow: Callable[[str], bool]) -> None:
        self.port = 0
        self.swallowed = 0
        self._upstream = upstream
        self._swallow = swallow
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass requests on until one side ends."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        there, out = await asyncio.open_connection("127.0.0.1", self._upstream)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    request = await _message(reader)
                    out.write(request)
                    answer = await _message(there)
                    if self._swallow(request.split(b" ")[1].decode()):
                        self.swallowed += 1
                        writer.transport.abort()
                        return
                    writer.write(answer)
        finally:
            out.close()
            writer.close()
            self._open.discard(task)

    async def aclose(self) -> None:
        """End all connections."""
        for task in tuple(self._open):
            task.cancel()
            await asyncio.wait((task,))


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = LENGTH.search(head)
    return head + (await reader.readexactly(int(length[1])) if length else b"")


@asynccontextmanager
async def flaky(upstream: int, swallow: Callable[[str], bool]) -> AsyncIterator[Flaky]:
    """Run such a proxy."""
    proxy = Flaky(upstream, swallow)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.aclose()
        await server.wait_closed()
