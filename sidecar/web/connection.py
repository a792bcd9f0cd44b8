"""One HTTP connection: what aiohttp's handler does, with our refusals, and without its surprises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

import structlog
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from sidecar.errors import refusal
from sidecar.web.answers import refusal_answer
from sidecar.web.answers import wire as written
from sidecar.web.heads import MOST_PIECES, Seam, is_one_call, read_strange
from sidecar.web.refusals import closing_bytes, parser_refusal
from sidecar.web.reply import Reply
from sidecar.web.secured import Secured

if TYPE_CHECKING:
    from aiohttp import StreamReader, web

    from sidecar.errors import Refusal
    from sidecar.web.guards import Guard
    from sidecar.web.server import HttpServer

LINGERING: Final = 1.0
"""Seconds for which the rest of a refused body is read and thrown away, so that the client sees the refusal."""
LINGERING_AT_END: Final = 0.2
"""The same, once the listener ends."""
HALF_CLOSED_CHECK: Final = 1.0
HALF_CLOSED_PATIENCE: Final = 10.0
"""Seconds for which a half-closed connection waits for the begin of an answer: most of those clients have left."""
MOST_HEAD: Final = 64 * 1024
"""Bytes of a request's head that are taken while it is incomplete."""

log = structlog.get_logger()


class Connection(RequestHandler):
    """A connection of a listener, on the local `address` that it came in on.

    `body` is that of the request being answered, `streaming` is set while a stream is sent, `reading` while a body
    is waited for: it is the deadline of that. `given_up` says that no body is waited for any more.
    """

    __slots__ = (
        "_broken",
        "_cutter",
        "_half_closed",
        "_half_closed_until",
        "_head",
        "_held",
        "_last",
        "_refused",
        "_seam",
        "address",
        "body",
        "given_up",
        "reading",
        "server",
        "streaming",
        "wire",
    )

    def __init__(self, server: HttpServer, address: str) -> None:
        limits = server.policy.limits
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.idle,
            lingering_time=LINGERING,
            access_log=None,  # type: ignore[arg-type]  # how the log is turned off, by the library's own documentation
            auto_decompress=False,
        )
        self.server = server
        self.address = address
        self.streaming = False
        self.body: StreamReader | None = None
        self.reading: asyncio.Timeout | None = None
        self.given_up = False
        self.wire: asyncio.Transport | None = None
        self._half_closed = False
        self._half_closed_until = 0.0
        self._last = False
        self._head = 0
        self._seam = Seam()
        self._held = b""
        self._refused = False
        self._broken = False
        self._cutter: asyncio.TimerHandle | None = None

    @property
    def guard(self) -> Guard:
        """The check of its requests, by the newest configuration."""
        return self.server.policy.guards.of(self.address)

    @property
    def secure(self) -> bool:
        """Whether it speaks TLS."""
        return isinstance(self.wire, Secured)

    @property
    def patience(self) -> float:
        """Seconds that a client may take nothing, by the newest configuration."""
        return self.server.policy.limits.idle

    @property
    def unsent(self) -> int:
        """Bytes that the client has not taken yet, beyond what the kernel holds."""
        return self.wire.get_write_buffer_size() if self.wire is not None else 0

    @property
    def answers_its_last(self) -> bool:
        """Whether nothing comes after the request being answered: the client or the listener is finishing."""
        return self._close or self._last or self._broken or (self._half_closed and not self._messages)

    @property
    def _idle(self) -> bool:
        return self._waiter is not None and not self._messages

    @property
    def _receiving(self) -> bool:
        """Whether the body of the newest request is still to come."""
        newest = self._messages[-1][1] if self._messages else self.body
        return newest is not None and not newest.is_eof()

    def finish(self) -> None:
        """End the connection once what it asked is answered; an idle one now.

        The body of a request under way may still come, until it is given up.
        """
        self._last = True
        if self._idle:
            self.force_close()
        elif self.reading is None:
            self.close()
            if self._current_request is None and self.body is not None and not self._messages:
                self.body.feed_eof()  # it is answered; what is left of it need not be thrown away

    def give_up(self) -> None:
        """Wait for no body any more: who does is refused, and so is who comes to it later."""
        self.given_up = True
        self._lingering_time = LINGERING_AT_END
        if self.reading is not None and not self.reading.expired():
            self.reading.reschedule(self._loop.time())

    def begin_stream(self, unsent: int) -> None:
        """Take note that a stream is sent: it waits for its reader once so many bytes are unsent."""
        self.streaming = True
        if self.wire is not None:
            self.wire.set_write_buffer_limits(unsent)

    def end_stream(self) -> None:
        """Take note that plain answers follow."""
        self.streaming = False
        if self.wire is not None:
            self.wire.set_write_buffer_limits()

    def cut(self) -> None:
        """End the connection now, whatever is unsent."""
        if self.wire is not None:
            self.wire.abort()

    def body_is_broken(self, request: web.BaseRequest) -> bool:
        """Tell whether the parser gave up within this request's body, which therefore never ends."""
        if self._messages and not request.content.is_eof():
            # nothing but the parser's refusal can be queued behind an unfinished body; one answer is enough
            self._messages.clear()
            self._broken = True
            request.content.feed_eof()
        return self._broken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new connection; not one of many accepted at once when those before it have taken all places."""
        if self.server.is_full():
            self.server.turn_away(transport)
            return
        self.wire = cast("asyncio.Transport", transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go of a connection that ended."""
        if self._cutter is not None:
            self._cutter.cancel()
        super().connection_lost(exc)
        self.wire = None

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, one request's head at a time: what cannot be parsed takes nothing with it before it.

        A head that never ends is refused. Without data, what was left is parsed.
        """
        if self._held:
            data, self._held = self._held + data, b""
        elif not data:
            super().data_received(data)
        elif self._idle and not (self._refused or self._head or self._receiving) and is_one_call(data):
            # nothing comes behind it that could take it along
            super().data_received(data)
            self._refused = any(not isinstance(message, RawRequestMessage) for message, _ in self._messages)
            return
        place = pieces = 0
        while place < len(data) and not self._refused:
            if len(self._messages) >= self._max_msg_queue_size:
                self._held = data[place:]  # the library asks for more once the queue is shorter
                return
            pieces += 1
            end = self._seam.end_of_head(data, place) if pieces <= MOST_PIECES else len(data)
            self._take(data[place:end] if end - place < len(data) else data)
            place = end

    def _take(self, piece: bytes) -> None:
        between = not self._head and not self._receiving
        known = len(self._messages)
        super().data_received(piece)
        if len(self._messages) > known:
            self._head = 0
            if not isinstance(self._messages[-1][0], RawRequestMessage):
                self._refused = not (between and self._read_strange(piece))
            if (request := self._current_request) is not None:
                self.body_is_broken(request)
        elif self._receiving:
            self._head = 0
        else:
            self._head += len(piece)
            if self._head > MOST_HEAD:
                self._refuse_head()
        self._seam.left = (self._seam.left + piece)[-3:] if self._head else b""

    def _read_strange(self, piece: bytes) -> bool:
        """Put a request whose method the parser does not know in the place of the parser's refusal."""
        found = read_strange(piece, self)
        if found is None:
            return False
        self._parser, message = found
        self._messages[-1] = message
        return True

    def _refuse_head(self) -> None:
        if not self._idle:
            self.close()  # after the answer that is under way
        elif self.wire is not None and not self._force_close:
            self._refuse_now(
                refusal("header_too_large", f"The request's head is longer than {MOST_HEAD} bytes.")
            )

    def _refuse_now(self, refused: Refusal) -> None:
        """Refuse what is no request yet, and end the connection."""
        if self.wire is not None:
            self.server.note_refusal(self, refused)
            self.wire.write(closing_bytes(written(refusal_answer(refused))))
        self.force_close()

    def _process_keepalive(self) -> None:
        """End an idle connection when its time is over; a head that began, and did not end, is refused."""
        over = self._loop.time() >= self._next_keepalive_close_time
        if self._head and over and self._idle and not self._force_close:
            text = f"The request's head did not arrive within {self._keepalive_timeout:g} seconds."
            self._refuse_now(refusal("timeout", text))
        super()._process_keepalive()

    def eof_received(self) -> bool:  # type: ignore[override]  # the library's handler returns None; asyncio takes both
        """Keep a half-closed connection only for whole requests that wait for a plain answer, and not for ever.

        A client that leaves looks the same, so a stream ends here, and soon the work that nobody waits for.
        """
        if self.streaming or self._force_close or not self._request_count:
            return False
        bodies = (self.body, *(payload for _, payload in self._messages))
        if self._idle or not all(body is None or body.is_eof() for body in bodies):
            return False
        self._half_closed = True
        self._half_closed_until = self._loop.time() + min(HALF_CLOSED_PATIENCE, self.patience)
        self._close_if_idle()
        return True

    def _close_if_idle(self) -> None:
        if self.wire is None:
            return
        request = self._current_request
        unanswered = request is not None and request.writer.output_size == 0
        if self._idle or (unanswered and self._loop.time() >= self._half_closed_until):
            self.force_close()
        else:
            self._cutter = self._loop.call_later(HALF_CLOSED_CHECK, self._close_if_idle)

    async def start(self) -> None:
        """Answer requests until the connection is to end; then the client has the idle time to take the rest."""
        await super().start()
        self._cut_later()

    def force_close(self) -> None:
        """Close; what is unsent then may be taken for the idle time."""
        super().force_close()
        self._cut_later()

    def _cut_later(self) -> None:
        if self.unsent:
            if self._cutter is not None:
                self._cutter.cancel()
            self._cutter = self._loop.call_later(self.patience, self.cut)

    def handle_error(
        self,
        request: web.BaseRequest,
        _status: int = 500,
        exc: BaseException | None = None,
        _message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what the parser refused, in our shape, with a line in the log now and then."""
        if isinstance(exc, ConnectionError):
            raise exc  # the client left within a handler: the connection just ends
        refused = parser_refusal(exc)
        self.server.note_refusal(self, refused)
        if request.writer.output_size > 0:
            raise ConnectionResetError("an answer was under way")
        return Reply(written(refusal_answer(refused)), close=True)

    def log_exception(self, *_args: Any, **kw: Any) -> None:
        """Log a fault of the connection's own machinery in one line."""
        log.error("connection_failed", listener=self.server.name, exc_info=kw.get("exc_info", True))
