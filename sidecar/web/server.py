"""A listener's HTTP server: sockets that we bound, one handler, one shape for whatever goes wrong."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from sys import intern
from typing import TYPE_CHECKING, Final, cast

import structlog
from aiohttp.web_request import BaseRequest
from aiohttp.web_server import Server

from sidecar.errors import Refusal, RefusedError, refusal
from sidecar.tracing import HEADER, current_tracer, read_trace, within_trace
from sidecar.web.answers import Wire, refusal_answer, wire
from sidecar.web.connection import Connection
from sidecar.web.forwarded import Proxies
from sidecar.web.identity import REQUEST_ID, name_of, named_in
from sidecar.web.refusals import RefusalLog, target_refusal
from sidecar.web.reply import Reply
from sidecar.web.secured import HANDSHAKE, Secured
from sidecar.web.sockets import BACKLOG, listen_no_more
from sidecar.web.spans import spanned
from sidecar.web.turned_away import MOST_TURNED_AWAY, TooLate, TurnedAway

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Awaitable, Callable, Sequence

    from aiohttp import StreamReader, web
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http import RawRequestMessage

    from sidecar.web.guards import Guards

    Handler = Callable[[web.BaseRequest], Awaitable[Wire | web.StreamResponse]]
    """Answers one request that the guard let through; may raise `RefusedError`."""

CUT: Final = 0.3
"""Seconds that a client which does not read is given when its listener ends."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits of a listener: seconds, bytes, and how many connections at once (design, `limits`)."""

    idle: float = 75.0
    body: int = 1024 * 1024
    body_timeout: float = 15.0
    connections: int = 2048


@dataclass(slots=True)
class Policy:
    """What the listeners of one owner have in common; the owner may set its fields anew, for requests to come.

    Only the time that a connection may be idle stays what it was when the connection came.

    `proxies` are believed in what they say of requests that they pass on.
    `most` is how many connections they may have together, so that descriptors are left for everything else;
    `connections` counts them, `handshakes` those that are yet to become connections.
    `context` is for connections to come, which speak TLS by it; None, they speak plain HTTP.
    """

    guards: Guards
    limits: HttpLimits = field(default_factory=HttpLimits)
    refusals: RefusalLog = field(default_factory=RefusalLog)
    proxies: Proxies = field(default_factory=Proxies)
    most: int = 1 << 20
    context: ssl.SSLContext | None = None
    connections: int = 0
    handshakes: int = 0
    turned_away: int = 0


class HttpServer(Server):
    """The server of one listener, on one or more sockets. `name` is what the log calls it."""

    def __init__(self, handle: Handler, *, name: str, policy: Policy) -> None:
        super().__init__(self._answer, request_factory=self._request, handler_cancellation=True)
        self.name = name
        self.policy = policy
        self.turned_away: dict[TurnedAway, None] = {}
        self._handshakes: dict[Secured, None] = {}
        self._handle = handle
        self._listening: tuple[asyncio.Server, ...] | None = ()
        self._gone: asyncio.Event | None = None
        self._address = ""

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections on bound sockets, which are the server's from here on."""
        loop = asyncio.get_running_loop()
        for sock in sockets:
            self._address = address = intern(sock.getsockname()[0])
            accept = self._accept if len(sockets) == 1 else partial(self._accept, address)
            accepting = await loop.create_server(accept, sock=sock, backlog=BACKLOG)
            self._listening = (*(self._listening or ()), accepting)

    @property
    def busy(self) -> bool:
        """Whether it has connections."""
        return bool(self._connections or self.turned_away or self._handshakes)

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections go on, but those that have yet to be made of an acceptance."""
        for listening in self._listening or ():
            listen_no_more(listening)
        self._listening = None

    def finish(self) -> None:
        """Take nobody new; end idle connections and handshakes now, and busy connections with their answer."""
        self.stop_accepting()
        for secured in tuple(self._handshakes):
            secured.abort()
        for connection in self._open():
            connection.finish()

    async def drain(self, *, budget: float, cut: float = CUT) -> None:
        """End all connections within `budget` seconds, and cut off those that do not read after `cut`.

        Idle ones end at once, busy ones with their answer; bodies that are not there after `cut` are not waited for.
        Close streams first: they end only by themselves.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + budget
        unsent = {connection: connection.unsent for connection in self._open()}
        self.finish()
        if not await self._empty_by(min(deadline, loop.time() + cut)):
            for connection in self._open():
                connection.give_up()
                if connection.unsent and connection.unsent >= unsent.get(connection, 0):
                    connection.cut()
            for turned_away in tuple(self.turned_away):
                turned_away.cut()
            await self._empty_by(deadline)
        self.cut()
        await self._empty_by(loop.time() + cut)

    def cut(self) -> None:
        """End all connections now."""
        for end in (*(c.cut for c in self._open()), *(t.cut for t in self.turned_away)):
            end()

    def _open(self) -> Sequence[Connection]:
        return cast("Sequence[Connection]", self.connections)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Take a new connection, and cut it off where nobody listens any more: no drain has seen it."""
        super().connection_made(handler, transport)
        self.policy.connections += 1
        if self._listening is None:
            transport.abort()

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Let go of a connection, once its task has ended."""
        task = handler._task_handler  # noqa: SLF001 - the parent forgets the connection when this ends
        super().connection_lost(handler, exc)
        self.policy.connections -= 1
        if self._gone is not None:
            if task is None:
                self.left()
            else:
                task.add_done_callback(lambda _: self.left())

    async def _empty_by(self, deadline: float) -> bool:
        self._gone = asyncio.Event()
        try:
            async with asyncio.timeout_at(deadline):
                while self.busy:
                    self._gone.clear()
                    await self._gone.wait()
        except TimeoutError:
            return False
        return True

    def left(self) -> None:
        """Note that a connection ended."""
        if self._gone is not None:
            self._gone.set()

    def _accept(self, address: str | None = None) -> asyncio.Protocol:
        policy = self.policy
        if self._listening is None:
            return TooLate()
        if policy.context is None:
            return self._admit(address)
        within = min(HANDSHAKE, policy.limits.idle)
        return Secured(policy.context, partial(self._admit, address), self, within=within)

    def _admit(self, address: str | None) -> asyncio.Protocol:
        return TurnedAway(self) if self.is_full() else Connection(self, address or self._address)

    def is_full(self) -> bool:
        """Whether there are as many connections as may be, here or on all listeners together."""
        policy = self.policy
        return len(self._connections) >= policy.limits.connections or policy.connections >= policy.most

    def turn_away(self, transport: asyncio.BaseTransport) -> None:
        """Have a connection that was let in, and has no place now, answered and closed."""
        away = TurnedAway(self)
        transport.set_protocol(away)
        away.connection_made(transport)

    def handshake_began(self, secured: Secured) -> bool:
        """Take note of a handshake, and tell whether there is room for it: for a few that are then turned away, too."""
        policy = self.policy
        here, all_of_them = (
            len(self._connections) + len(self._handshakes),
            policy.connections + policy.handshakes,
        )
        most_here, most = policy.limits.connections + MOST_TURNED_AWAY, policy.most + MOST_TURNED_AWAY
        if self._listening is None or here >= most_here or all_of_them >= most:
            return False
        self._handshakes[secured] = None
        policy.handshakes += 1
        return True

    def handshake_over(self, secured: Secured, fault: str | None = None) -> None:
        """Take note that a handshake is over, and of what was wrong with it."""
        self._handshakes.pop(secured, None)
        self.policy.handshakes -= 1
        self.left()
        if fault is not None:
            self._note(_NO_TLS, fault, secured.peername)

    def note_refusal(
        self, connection: Connection, refused: Refusal, request: web.BaseRequest | None = None
    ) -> None:
        """Have a refusal that its sender may not see logged, rarely enough; `request`, if one was understood."""
        name = named_in(request.headers) if request is not None else None
        self._note(refused.code, refused.message, connection.peername, **({"request": name} if name else {}))

    def _note(self, code: str, reason: str, peer: object, **more: str) -> None:
        address = peer[0] if isinstance(peer, tuple) else None
        self.policy.refusals.note(listener=self.name, code=code, reason=reason, peer=address, **more)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        cast("Connection", protocol).body = payload
        return BaseRequest(message, payload, protocol, writer, task, self._loop)

    def _answer(self, request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        tracer = current_tracer()
        if tracer is not None:
            return spanned(request, tracer, self.name, self._answered)
        return self._answered(request) if HEADER not in request.headers else self._traced(request)

    async def _traced(self, request: web.BaseRequest) -> web.StreamResponse:
        with within_trace(read_trace(request.headers[HEADER])):
            return await self._answered(request)

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        try:
            refused = connection.guard.check(request.headers, secure=connection.secure)
            if refused is not None:
                self.note_refusal(connection, refused, request)
                return Reply(wire(refusal_answer(refused)))
            refused = target_refusal(request)
            if refused is not None:
                return Reply(wire(refusal_answer(refused)), close=True)
            answer = await self._handle(request)
        except RefusedError as error:
            return Reply(wire(refusal_answer(error.refusal)))
        except ConnectionError:
            raise  # the client left: nobody to answer, nothing to log
        except Exception:
            # the boundary of a request: whatever a handler did not expect is answered, logged once, and ends there
            name = name_of(request.headers)
            log.exception("request_failed", listener=self.name, method=request.method, request=name)
            if request.writer.output_size > 0:
                connection.cut()
                raise ConnectionResetError("an answer was under way") from None
            return Reply(wire(refusal_answer(replace(_FAILED, headers=((REQUEST_ID, name),)))), close=True)
        return Reply(answer) if isinstance(answer, Wire) else answer


_NO_TLS: Final = "no_tls"
"""What the log calls a handshake that failed; nobody is answered so."""
_FAILED: Final = refusal("internal_error", "Something went wrong here; the log of the sidecar says what.")
