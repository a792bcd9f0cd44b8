"""Sending a prebuilt answer: one write for most, pieces with patience for big ones."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from aiohttp import hdrs
from aiohttp.http import HttpVersion11
from aiohttp.web_response import StreamResponse

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import StreamWriter

    from sidecar.web.answers import Wire
    from sidecar.web.connection import Connection

AT_ONCE: Final = 64 * 1024
"""Bytes that go out in one write; of a bigger body, one piece."""

CONTINUES: Final = b"\r\n"
CONTINUES_10: Final = b"connection: keep-alive\r\n\r\n"
CLOSES: Final = b"connection: close\r\n\r\n"


@lru_cache(maxsize=2)
def date_line(second: int) -> bytes:
    """Return the `Date` line of a second of Unix time."""
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode()


class Reply(StreamResponse):
    """One answer on one request: keeps the connection where the request may and nothing of it is left unread.

    Answers `HEAD` with the head alone. `close` ends the connection after it.
    """

    def __init__(self, wire: Wire, *, close: bool = False) -> None:
        # the parent's maps of headers and cookies are left out on purpose: all of that is in the bytes already
        self.wire = wire
        self._keep_alive = not close

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send it."""
        connection = cast("Connection", request.protocol)
        wire = self.wire
        if (
            self._keep_alive
            and request.keep_alive
            and request.content.is_eof()
            and not connection.answers_its_last
        ):
            end = CONTINUES if request.version == HttpVersion11 else CONTINUES_10
        else:
            self._keep_alive = False
            end = CLOSES
        body = b"" if request.method == hdrs.METH_HEAD else wire.body
        first = body if len(body) <= AT_ONCE else b""
        writer = cast("StreamWriter", request.writer)
        await writer.write(b"".join((wire.head, date_line(int(time.time())), end, first)), drain=False)
        if first is not body:
            view = memoryview(body)
            for start in range(0, len(body), AT_ONCE):
                await patiently(connection, writer)
                await writer.write(view[start : start + AT_ONCE], drain=False)
        if connection.writing_paused:
            await patiently(connection, writer)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: `prepare` sent all of it."""


class Sent(StreamResponse):
    """What a handler returns that has written its answer itself; `keep` says whether the connection goes on."""

    def __init__(self, *, keep: bool) -> None:
        # as in `Reply`, there is nothing left to build
        self._keep_alive = keep

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Do nothing: it is sent."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: it is sent."""


def status_of(answer: StreamResponse) -> int:
    """Return the status that an answer of ours has."""
    return answer.wire.status if isinstance(answer, Reply) else 200


async def patiently(connection: Connection, writer: AbstractStreamWriter) -> None:
    """Wait until the client has room for more. One that reads nothing at all for the idle time is cut off.

    Raises ConnectionResetError then.
    """
    while connection.writing_paused:
        before = connection.unsent
        try:
            async with asyncio.timeout(connection.patience):
                await writer.drain()
        except TimeoutError:
            if connection.unsent >= before:
                connection.cut()
                raise ConnectionResetError("the client does not read") from None
