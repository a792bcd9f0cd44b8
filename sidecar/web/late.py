"""A JSON answer that takes its time: a space now and then keeps its client, and means nothing (RFC 8259 section 2)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol, cast

from aiohttp.http import HttpVersion11

from sidecar.model import Answer
from sidecar.web.answers import JSON, json_wire, wire
from sidecar.web.reply import CLOSES, Sent, date_line, patiently
from sidecar.web.stream import CHUNKED

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.http import StreamWriter

    from sidecar.web.answers import Wire
    from sidecar.web.connection import Connection

SPACE: Final = b" "
_HEAD: Final = wire(Answer(200, (JSON,))).head.replace(b"content-length: 0\r\n", b"")


class Later(Protocol):
    """Where a late answer comes from."""

    async def next(self) -> bytes | None:
        """Return the whole answer once it is there; None where it is time to show that it is still to come."""

    def end(self) -> None:
        """Have it answer with what there is."""

    def close(self) -> None:
        """Let go of it; may be called twice."""


class LateAnswer:
    """One such answer on one connection: a plain one where it comes soon, else spaces and then the answer."""

    __slots__ = ("_later",)

    def __init__(self, later: Later) -> None:
        self._later = later

    async def send(self, request: web.BaseRequest) -> Wire | web.StreamResponse:
        """Wait for the answer and send it; it raises ConnectionError, or is cancelled, when the client leaves.

        HTTP/1.0 clients see the end of the connection as the end of the answer.
        """
        try:
            answer = await self._later.next()
            if answer is not None:
                return json_wire(answer)
            return await self._send_slowly(request)
        finally:
            self._later.close()

    async def _send_slowly(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        writer = cast("StreamWriter", request.writer)
        chunked = request.version == HttpVersion11
        piece = b"".join((_HEAD, date_line(int(time.time())), CHUNKED if chunked else CLOSES))
        answer = None
        while answer is None:
            await writer.write(piece + _chunk(SPACE, chunked=chunked), drain=False)
            piece = b""
            answer = await self._later.next()
        end = b"0\r\n\r\n" if chunked else b""
        await writer.write(_chunk(answer, chunked=chunked) + end, drain=False)
        if connection.writing_paused:
            await patiently(connection, writer)
        return Sent(keep=chunked and request.keep_alive and not connection.answers_its_last)

    def end(self) -> None:
        """Have it answer with what there is."""
        self._later.end()


def _chunk(piece: bytes, *, chunked: bool) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
