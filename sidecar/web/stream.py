"""Sending an event stream: chunk by chunk, as fast as the client reads and no faster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol, cast

from aiohttp.http import HttpVersion11

from sidecar.model import Answer
from sidecar.web.answers import wire
from sidecar.web.reply import CLOSES, Sent, date_line, patiently

if TYPE_CHECKING:
    from aiohttp import web
    from aiohttp.http import StreamWriter

    from sidecar.web.connection import Connection

HEADERS: Final = (
    ("content-type", "text/event-stream"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
)
HEAD: Final = wire(Answer(200, HEADERS)).head.replace(b"content-length: 0\r\n", b"")
CHUNKED: Final = b"transfer-encoding: chunked\r\n\r\n"
UNSENT: Final = 32 * 1024
"""Bytes that may wait for a slow reader beyond what the kernel holds; what comes then waits in the stream's queue."""


class Frames(Protocol):
    """Where a stream's bytes come from: whole frames and comments, until there is no more."""

    async def next(self) -> bytes | None:
        """Return what comes next, None at the end."""

    def end(self) -> None:
        """Have the closing frame follow what waits, and then the end."""

    def close(self) -> None:
        """Let go of it; may be called twice."""


class EventStream:
    """One stream of server-sent events on one connection (murmur reference, streams)."""

    __slots__ = ("_frames", "_head")

    def __init__(self, frames: Frames, *headers: tuple[str, str]) -> None:
        """Take over frames; `headers` go out beside those of every stream."""
        self._frames = frames
        more = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self._head = HEAD + more.encode() if more else HEAD

    async def send(self, request: web.BaseRequest) -> web.StreamResponse:
        """Send frames until they end or the client leaves; it raises ConnectionError or is cancelled then.

        A client that takes nothing for the idle time is cut off. HTTP/1.0 clients see the end of the connection
        as the end of the stream.
        """
        connection = cast("Connection", request.protocol)
        writer = cast("StreamWriter", request.writer)
        chunked = request.version == HttpVersion11
        connection.begin_stream(UNSENT)
        try:
            start = (self._head, date_line(int(time.time())), CHUNKED if chunked else CLOSES)
            await writer.write(b"".join(start), drain=False)
            while (frames := await self._frames.next()) is not None:
                chunk = b"%x\r\n%b\r\n" % (len(frames), frames) if chunked else frames
                await writer.write(chunk, drain=False)
                frames = chunk = b""  # a stream that waits holds nothing of what it has sent
                if connection.writing_paused:
                    await patiently(connection, writer)
            if chunked:
                await writer.write(b"0\r\n\r\n", drain=False)
        finally:
            self._frames.close()
            connection.end_stream()
        return Sent(keep=chunked and request.keep_alive and not connection.answers_its_last)

    def end(self) -> None:
        """Have it end with its closing frame."""
        self._frames.end()
