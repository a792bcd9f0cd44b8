"""HTTP to one place elsewhere: bounded in bytes and time, without redirects, proxies, cookies or reused connections."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp import hdrs
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from sidecar.dialects import jsonrpc
from sidecar.dialects.reading import UnreadableError
from sidecar.tasks.forwarding.stream import Stream
from sidecar.tasks.forwarding.trouble import AwayError, WrongError, reason_of
from sidecar.tracing import HEADER, current_trace, current_tracer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from sidecar.model import Secret

MOST_CARD: Final = 1024 * 1024
MOST_ANSWER: Final = 48 * 1024 * 1024
"""Bytes of an answer: more than any reply that is taken, written in JSON several times over."""
MOST_REFUSAL: Final = 64 * 1024

_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_UNREAD: Final = frozenset({429, 503})
_AGENT: Final = "sidecar"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the other side is waited for, in seconds.

    `connect` until a connection is open, `answer` until an answer is whole, `silence` between two bytes of a
    stream. A task waits `away` for a door that is away, with pauses from `first` doubling up to `longest`. `poll` is
    between two looks where there is no stream, `probe` between two looks at the card. A replay is over once a stream has been `quiet` for so long.
    """

    connect: float = 5.0
    answer: float = 30.0
    silence: float = 60.0
    away: float = 60.0
    first: float = 0.25
    longest: float = 10.0
    poll: float = 1.0
    probe: float = 15.0
    quiet: float = 2.0


def client_session(patience: Patience, *, loopback: bool) -> aiohttp.ClientSession:
    """Return a session that keeps nothing between two calls.

    With `loopback`, names of hosts are this machine and nothing else, whatever a resolver says.
    """
    # A connection for each call: one that was kept may be dead, and then nobody knows whether the call was read.
    connector = aiohttp.TCPConnector(
        limit=0,
        force_close=True,
        resolver=Loopback() if loopback else aiohttp.ThreadedResolver(),
        use_dns_cache=False,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(sock_connect=patience.connect, connect=patience.connect * 2),
        auto_decompress=False,
        trust_env=False,
        skip_auto_headers=(hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT),
    )


@dataclass(frozen=True, slots=True)
class Fetched:
    """A whole answer to a GET."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Caller:
    """Calls one place. `where` is how messages name it: scheme, host and port, never a path or a credential."""

    def __init__(
        self, base: str, session: aiohttp.ClientSession, token: Secret | None, patience: Patience
    ) -> None:
        url = URL(base)
        self.base = url.with_query(None).with_fragment(None)
        self.where = str(url.origin())
        self._session = session
        self._token = token
        self._patience = patience
        self._ids = 0

    def at(self, path: str) -> URL:
        """Return the address of a path, as it stands, at the same origin."""
        return URL(f"{self.where}{path}", encoded=True)

    async def get(self, url: URL, most: int = MOST_CARD) -> Fetched:
        """Read a resource whole, whatever its status. Raises AwayError, WrongError."""
        async with (
            self._within(),
            self._asked(hdrs.METH_GET, url, {hdrs.ACCEPT: "application/json"}) as response,
        ):
            return Fetched(response.status, response.headers, await self._whole(response, most))
        raise AssertionError

    async def call(self, url: URL, method: str, params: object, headers: Mapping[str, str]) -> Any:
        """Call a method and return its result.

        Raises AwayError, WrongError, and RpcError where the server answers with an error.
        """
        body, sent = self._request(method, params, headers, "application/json")
        async with self._within(), self._asked(hdrs.METH_POST, url, sent, body) as response:
            self._check(response)
            return self._result(await self._whole(response, MOST_ANSWER))
        raise AssertionError

    @asynccontextmanager
    async def stream(
        self, url: URL, method: str, params: object, headers: Mapping[str, str]
    ) -> AsyncIterator[Stream]:
        """Call a method that streams, and hand out the stream once it is open.

        Raises AwayError, WrongError, and RpcError where the server answers with an error instead.
        """
        body, sent = self._request(method, params, headers, "text/event-stream")
        async with self._asked(hdrs.METH_POST, url, sent, body) as response:
            self._check(response)
            if response.content_type == "text/event-stream":
                yield Stream(response, self.where, self._patience.silence)
                return
            if response.content_type != "application/json":
                kind = response.content_type
                raise WrongError(f"{self.where} answers {method} with {kind} instead of a stream")
            async with self._within():
                self._result(await self._whole(response, MOST_ANSWER))
            raise WrongError(f"{self.where} answers {method} with one result instead of a stream")

    def _request(
        self, method: str, params: object, headers: Mapping[str, str], accept: str
    ) -> tuple[bytes, dict[str, str]]:
        self._ids += 1
        sent = {hdrs.CONTENT_TYPE: "application/json", hdrs.ACCEPT: accept, **headers}
        return jsonrpc.call(self._ids, method, params), sent

    def _result(self, body: bytes) -> object:
        try:
            return jsonrpc.result_in(body, "its answer")
        except UnreadableError as error:
            raise WrongError(f"{self.where} is not understood: {error}") from None

    @asynccontextmanager
    async def _within(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._patience.answer):
                yield
        except TimeoutError:
            raise AwayError(f"{self.where} did not answer within {self._patience.answer:g} s") from None

    @asynccontextmanager
    async def _asked(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        response = await self.ask(method, url, headers, body)
        try:
            yield response
        finally:
            response.close()

    async def ask(
        self, method: str, url: URL, headers: Mapping[str, str], body: bytes | None = None
    ) -> aiohttp.ClientResponse:
        """Return an answer with its body still to be read; whoever has it must close it.

        Raises AwayError, WrongError.
        """
        sent = {hdrs.USER_AGENT: _AGENT, hdrs.ACCEPT_ENCODING: "identity", **headers}
        if self._token is not None:
            sent[hdrs.AUTHORIZATION] = f"Bearer {self._token.reveal()}"
        trace, tracer = current_trace(), current_tracer()
        if tracer is None:
            return await self._answer(method, url, sent | ({} if trace is None else {HEADER: trace}), body)
        facts = {"http.request.method": method, "server.address": self.where}
        span = tracer.begin(method, "client", trace, facts)
        fault: str | None = "no answer"
        try:
            response = await self._answer(method, url, sent | {HEADER: span.trace}, body)
            span.note("http.response.status_code", response.status)
            fault = f"status {response.status}" if response.status >= HTTPStatus.BAD_REQUEST else None
            return response
        finally:
            span.end(fault)

    async def _answer(
        self, method: str, url: URL, sent: Mapping[str, str], body: bytes | None
    ) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(self._patience.answer):
                return await self._session.request(
                    method, url, headers=sent, data=body, allow_redirects=False
                )
        except TimeoutError as error:
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            after = self._patience.connect if connecting else self._patience.answer
            did = "could not be connected to" if connecting else "did not answer"
            raise AwayError(f"{self.where} {did} within {after:g} s", sent=not connecting) from None
        except aiohttp.ClientConnectorCertificateError:
            raise WrongError(f"the certificate of {self.where} is not one that is trusted here") from None
        except aiohttp.ClientConnectorError as error:
            raise AwayError(f"{self.where} cannot be reached: {reason_of(error)}", sent=False) from None
        except aiohttp.ServerDisconnectedError:
            raise AwayError(f"{self.where} closed the connection without an answer") from None
        except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError):
            raise WrongError(f"{self.where} does not speak HTTP as it should") from None
        except (aiohttp.ClientError, OSError) as error:
            raise AwayError(f"the connection to {self.where} broke: {reason_of(error)}") from None

    async def _whole(self, response: aiohttp.ClientResponse, most: int) -> bytes:
        if response.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
            raise WrongError(f"{self.where} compresses its answer although it was asked not to")
        body = bytearray()
        try:
            while chunk := await response.content.readany():
                body += chunk
                if len(body) > most:
                    raise WrongError(f"an answer of {self.where} is over {most} bytes")
        except (aiohttp.ClientError, OSError) as error:
            raise AwayError(f"the connection to {self.where} broke: {reason_of(error)}") from None
        return bytes(body)

    def _check(self, response: aiohttp.ClientResponse) -> None:
        """Raise what a status other than 200 says."""
        if response.status == HTTPStatus.OK:
            return
        raise status_trouble(response.status, self.where)


class Loopback(AbstractResolver):
    """Every name is this machine."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return both loopback addresses."""
        return [
            ResolveResult(
                hostname=host, host=address, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST
            )
            for kind, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
            if family in (socket.AF_UNSPEC, kind)
        ]

    async def close(self) -> None:
        """Do nothing: there is nothing to let go of."""


def status_trouble(status: int, where: str) -> AwayError | WrongError:
    """Return what an HTTP status other than 200 means for a task."""
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return WrongError(
            f"{where} answers with a redirect ({status}), and those are not followed: set forward.url to where it leads"
        )
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return WrongError(f"{where} refuses the credentials ({status}): set forward.token")
    if status in _PASSING:
        return AwayError(f"{where} answers with HTTP status {status}", sent=status not in _UNREAD)
    return WrongError(f"{where} answers with HTTP status {status}")
