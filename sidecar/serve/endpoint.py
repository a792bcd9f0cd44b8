"""One capsule's port: what is at which path, for the capsule as it is served now."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast
from urllib.parse import parse_qs

from aiohttp import hdrs

from sidecar.cards.served import View
from sidecar.dialects.a2a import CONTENT_TYPE_NOT_SUPPORTED
from sidecar.doors.a2a_asked import Asked
from sidecar.doors.a2a_streams import WaitingSend
from sidecar.errors import RefusedError, refusal
from sidecar.web.answers import Streamed, json_wire, wire
from sidecar.web.body import read_json_body
from sidecar.web.late import LateAnswer
from sidecar.web.pouring import pour
from sidecar.web.stream import EventStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp import web

    from sidecar.auth.access import Access
    from sidecar.auth.caller import Caller
    from sidecar.auth.holds import Hold
    from sidecar.cards.served import Cards
    from sidecar.model import Answer, Capsule
    from sidecar.ops.metrics import Counters
    from sidecar.web.answers import Wire
    from sidecar.web.connection import Connection
    from sidecar.web.server import Policy
    from sidecar.web.stream import Frames

CARDS: Final[Mapping[str, View]] = {
    "/.well-known/agent-card.json": View.REFERENCE,
    "/.well-known/agent.json": View.A2A_03,
    "/a2a/.well-known/agent-card.json": View.A2A_10,
    "/a2a/v0.3/.well-known/agent-card.json": View.A2A_03,
}
CARDS_AT_ROOT: Final = frozenset({"/.well-known/agent-card.json", "/.well-known/agent.json"})
DOOR: Final = "/"
_VERSIONS: Final[Mapping[str, str | None]] = {"/a2a": None, "/a2a/v1": "1.0", "/a2a/v0.3": "0.3"}
A2A: Final[Mapping[str, str | None]] = {
    path + end: version for path, version in _VERSIONS.items() for end in ("", "/")
}
"""The paths that speak A2A, and the one version that each takes; None: any. Some clients put a `/` behind them."""
VERSION: Final = "A2A-Version"
EVENTS: Final = "text/event-stream"
RESOURCES: Final = "/resources/"
PEER: Final = "/resources/peer"
FILES: Final = "/resources/files"

_OUTCOMES: Final = {200: "ok", 304: "not_modified"}
_UNKNOWN: Final = refusal("not_found", "There is nothing at this path.")
_READ_ONLY: Final = refusal(
    "method_not_allowed", "The card is read: use GET or HEAD.", ("allow", "GET, HEAD")
)
_CALLS: Final = refusal("method_not_allowed", "The door takes JSON-RPC calls: use POST.", ("allow", "POST"))


class Door(Protocol):
    """What answers the calls of a capsule's port."""

    async def call(self, body: bytes, last_event_id: str | None = None) -> bytes | Frames:
        """Return the JSON answer, or a stream; raises RefusedError."""


class A2aDoor(Protocol):
    """What answers the A2A calls of a capsule's port."""

    async def call(self, body: bytes, asked: Asked) -> bytes | Frames | WaitingSend:
        """Return the JSON answer, a stream, or an answer that takes its time; raises RefusedError."""

    def error(self, asked: Asked, code: int, message: str) -> bytes:
        """Return the answer to what is no call at all."""


class Planes(Protocol):
    """What answers under `/resources/`."""

    async def answer(
        self,
        capsule: Capsule,
        method: str,
        raw_target: str,
        header: Callable[[str], str | None],
        generation: int,
    ) -> Answer | Streamed:
        """Return the answer; raises RefusedError."""


@dataclass(frozen=True, slots=True)
class Served:
    """All that a capsule's port shows at one moment; a reload makes another one.

    `a2a` makes the A2A door, for one request: most capsules never need it. `generation` counts the session's ended
    tasks; `access` says who may have what.
    """

    capsule: Capsule
    cards: Cards
    door: Door
    a2a: Callable[[], A2aDoor]
    counters: Counters
    generation: Callable[[], int]
    access: Access


class Endpoint:
    """The handler of one capsule's port. `serve` swaps what it shows; requests under way keep what they began with."""

    __slots__ = ("_ending", "_lasting", "_planes", "_policy", "_served")

    def __init__(self, served: Served, *, planes: Planes, policy: Policy) -> None:
        self._served = served
        self._planes = planes
        self._policy = policy
        self._lasting: set[EventStream | LateAnswer] | None = None
        self._ending = False

    @property
    def capsule(self) -> Capsule:
        """The capsule that is served now."""
        return self._served.capsule

    @property
    def open_streams(self) -> int:
        """Streams that are open now."""
        return sum(isinstance(each, EventStream) for each in self._lasting or ())

    def serve(self, served: Served) -> None:
        """Show this from now on. Streams go on; those of another session than before are to be ended."""
        before, self._served = self._served.capsule.session_id, served
        if before != served.capsule.session_id:
            self._end_streams()
        served.access.streams.recheck(served.capsule.directory)

    def _capsule_now(self) -> Capsule:
        return self._served.capsule

    def end_streams(self) -> None:
        """Have every stream end with its closing frame, and every send that waits, those yet to come included."""
        self._ending = True
        self._end_streams()

    def _end_streams(self) -> None:
        for each in self._lasting or ():
            each.end()

    async def handle(self, request: web.BaseRequest) -> Wire | web.StreamResponse:
        """Answer one request that the guard let through; raises RefusedError for a refusal.

        Cards are public, a peer's handle is a credential itself, and A2A is for whoever may call the capsule.
        Everything else is the operator's, what is at no path included: where the door is closed a stranger learns
        nothing of what is there.
        """
        path = request.raw_path.partition("?")[0]
        served = self._served
        view = CARDS.get(path)
        if view is not None:
            return self._card(request, served, view)
        if _is_peers(path):
            return await self._plane(request, served, path)
        if path in A2A:
            return await self._a2a(request, served, A2A[path])
        caller = await self._caller(request, served)
        if path == DOOR:
            return await self._door(request, served, caller)
        if path.startswith(RESOURCES):
            return await self._plane(request, served, path, caller)
        served.counters.request("other", "not_found")
        raise RefusedError(_UNKNOWN)

    async def handle_at_root(self, request: web.BaseRequest) -> Wire | web.StreamResponse:
        """Answer one request on the second port, which serves A2A at its root; raises RefusedError for a refusal."""
        path = request.raw_path.partition("?")[0]
        served = self._served
        if path in CARDS_AT_ROOT:
            return self._card(request, served, View.ROOT)
        if path == DOOR:
            return await self._a2a(request, served, None)
        await self._caller(request, served, door=False)
        served.counters.request("other", "not_found")
        raise RefusedError(_UNKNOWN)

    def _card(self, request: web.BaseRequest, served: Served, view: View) -> Wire:
        """Answer a request for a card; raises RefusedError for any other method than reading."""
        headers = request.headers
        if request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            served.counters.request("card", _READ_ONLY.code)
            raise RefusedError(_READ_ONLY)
        proxies = self._policy.proxies
        card = served.cards.of(view, proxies.base(request.remote, headers) if proxies else None)
        if hdrs.IF_NONE_MATCH not in headers and hdrs.IF_MODIFIED_SINCE not in headers:
            served.counters.request("card", "ok")
            return card.whole
        header = _header(request)
        answer = card.answer(header("if-none-match"), header("if-modified-since"))
        served.counters.request("card", _OUTCOMES[answer.status])
        return answer

    async def _caller(self, request: web.BaseRequest, served: Served, *, door: bool = True) -> Caller:
        """Return who asks, before the path or the body is looked at; raises RefusedError.

        `door`: for the murmur door and the files plane, which are the operator's; else for any good credential.
        """
        access = served.access
        try:
            who = access.operator if door else access.caller
            caller = await who(served.capsule, request.headers)
            if served.capsule.settings.auth.rate is not None:
                peer = self._policy.proxies.client(request.remote, request.headers)
                access.admit(served.capsule, caller, peer)
        except RefusedError as error:
            served.counters.request("other", error.refusal.code)
            raise
        return caller

    def _held(self, request: web.BaseRequest, served: Served, caller: Caller, *, door: bool = True) -> Hold:
        """End the connection under what lasts, once the caller's credential is not good any more."""
        cut = cast("Connection", request.protocol).cut
        return served.access.streams.hold(self._capsule_now, caller, cut, door=door)

    async def _door(
        self, request: web.BaseRequest, served: Served, caller: Caller
    ) -> Wire | web.StreamResponse:
        _check_post(request, served)
        limits = self._policy.limits
        try:
            body = await read_json_body(
                request,
                limit=limits.body,
                within=limits.body_timeout,
                late=lambda: served.access.confirm(self._served.capsule, caller, door=True),
            )
        except RefusedError as error:
            served.counters.request("other", error.refusal.code)
            raise
        answer = await served.door.call(body, request.headers.get(hdrs.LAST_EVENT_ID))
        if isinstance(answer, bytes):
            return json_wire(answer)
        with self._held(request, served, caller):
            return await self._last(request, served, EventStream(answer))

    async def _a2a(
        self, request: web.BaseRequest, served: Served, only: str | None
    ) -> Wire | web.StreamResponse:
        caller = await self._caller(request, served, door=False)
        _check_post(request, served)
        asked = _asked(request, caller.owner, only)
        door = served.a2a()
        limits = self._policy.limits
        try:
            body = await read_json_body(
                request,
                limit=limits.body,
                within=limits.body_timeout,
                late=lambda: served.access.confirm(self._served.capsule, caller),
            )
        except RefusedError as error:
            if error.refusal.code == "unsupported_media_type":
                return json_wire(door.error(asked, CONTENT_TYPE_NOT_SUPPORTED, error.refusal.message))
            served.counters.request("other", error.refusal.code)
            raise
        answer = await door.call(body, asked)
        if isinstance(answer, bytes):
            return json_wire(answer)
        lasting = LateAnswer(answer) if isinstance(answer, WaitingSend) else EventStream(answer)
        with self._held(request, served, caller, door=False):
            return await self._last(request, served, lasting)

    async def _last(
        self, request: web.BaseRequest, served: Served, lasting: EventStream | LateAnswer
    ) -> Wire | web.StreamResponse:
        """Send what takes time; it ends early where the listener ends, or shows another session."""
        if self._lasting is None:
            self._lasting = set()
        self._lasting.add(lasting)
        if self._ending or self._served.capsule.session_id != served.capsule.session_id:
            lasting.end()
        try:
            return await lasting.send(request)
        finally:
            self._lasting.discard(lasting)

    async def _plane(
        self, request: web.BaseRequest, served: Served, path: str, caller: Caller | None = None
    ) -> Wire | web.StreamResponse:
        plane = _plane_of(path)
        try:
            answer = await self._planes.answer(
                served.capsule, request.method, request.raw_path, _header(request), served.generation()
            )
        except RefusedError as error:
            served.counters.plane(plane, error.refusal.code)
            raise
        except asyncio.CancelledError:
            served.counters.plane(plane, "cut")
            raise
        served.counters.plane(plane, _OUTCOMES.get(answer.status, "other"))
        if not isinstance(answer, Streamed):
            return wire(answer)
        if caller is None:
            return await pour(request, answer)
        with self._held(request, served, caller):
            return await pour(request, answer)


def _check_post(request: web.BaseRequest, served: Served) -> None:
    if request.method != hdrs.METH_POST:
        served.counters.request("other", _CALLS.code)
        raise RefusedError(_CALLS)


def _asked(request: web.BaseRequest, owner: str, only: str | None) -> Asked:
    version = request.headers.get(VERSION)
    if version is None and "?" in request.raw_path:
        version = parse_qs(request.raw_path.partition("?")[2]).get(VERSION, [None])[0]
    return Asked(owner, version, only, EVENTS in request.headers.get(hdrs.ACCEPT, ""))


def _header(request: web.BaseRequest) -> Callable[[str], str | None]:
    headers = request.headers
    # a field that comes twice is one list (RFC 9110 section 5.3)
    return lambda name: ", ".join(headers.getall(name)) if name in headers else None


def _is_peers(path: str) -> bool:
    return path.startswith(PEER) and path[len(PEER) : len(PEER) + 1] in ("", "/")


def _plane_of(path: str) -> str:
    if _is_peers(path):
        return "peer_files"
    return "files" if path == FILES or path.startswith(FILES + "/") else "other"
