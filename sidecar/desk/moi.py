"""The MOI view: one card endpoint and one A2A door for all agents, which are chosen by id or code (MOI, Agent Card).

Checks come in this order: the credential, the selectors, the workspace, that the agent is to be seen, that it is
served, the rate. Every refusal is told as `{"code", "msg", "request_id"}`.
"""

from __future__ import annotations

import secrets
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, cast

import orjson
import structlog
from aiohttp import hdrs
from multidict import istr

from sidecar.cards.moi import card_document
from sidecar.cards.views import View
from sidecar.desk.at_hand import MOST, AtHand
from sidecar.desk.moi_callers import admitted, sees, visitor_of
from sidecar.dialects import jsonrpc, moi
from sidecar.dialects.moi import MOI, REQUEST_ID
from sidecar.doors.a2a_asked import Asked
from sidecar.errors import RefusedError, refusal
from sidecar.web.answers import Wire, json_wire, wire
from sidecar.web.body import read_json_body
from sidecar.web.stream import EventStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from sidecar.auth.access import Access
    from sidecar.cards.document import CardDocument
    from sidecar.desk.moi_callers import Admitted, Directory, Served, Visitor
    from sidecar.model import Capsule
    from sidecar.web.connection import Connection
    from sidecar.web.stream import Frames

    Handled = Wire | web.StreamResponse

PREFIX: Final = "/newmoi"
CARD: Final = "/newmoi/agents/card"
DOOR: Final = "/newmoi/agents/a2a"
VERSION: Final = "A2A-Version"
EVENTS: Final = "text/event-stream"
ONLY: Final = "0.3"

_REQUEST_ID: Final = istr(REQUEST_ID)
_OUTCOMES: Final = {200: "ok", 304: "not_modified"}
_NOTHING: Final = refusal("not_found", "There is nothing at this path.")
_READ: Final = refusal("method_not_allowed", "The card is read: use GET or HEAD.", ("allow", "GET, HEAD"))
_CALLED: Final = refusal("method_not_allowed", "The door takes JSON-RPC calls: use POST.", ("allow", "POST"))
_FAILED: Final = refusal("internal_error", "Something went wrong here; the log of the sidecar says what.")

log = structlog.get_logger()


class Moi:
    """What is below `/newmoi`. `base` returns the URL at which clients reach the desk, without a slash at its end."""

    def __init__(self, directory: Directory, access: Access, *, base: Callable[[], str] = str) -> None:
        self._directory = directory
        self._access = access
        self._base = base
        self._at_hand = AtHand(access, directory.now, base)
        self._cards: dict[str, tuple[Capsule, str, CardDocument]] = {}
        self._streams: set[EventStream] = set()
        self._draining = False
        self._name = f"req_{secrets.token_hex(8)}"
        self._count = count(1)

    @property
    def door(self) -> str:
        """Where the door is that all agents share."""
        return self._base() + DOOR

    def end_streams(self) -> None:
        """Have every stream end, those that are yet to come included."""
        self._draining = True
        for stream in tuple(self._streams):
            stream.end()

    def views(self, capsule: Capsule) -> tuple[View, ...]:
        """Return the card of a capsule as its callers see it, and where."""
        url = f"{self._base()}{CARD}?agent_id={capsule.id}"
        audience = "clients of MOI, which show a key of its workspace or a credential of the capsule"
        return (View("moi", audience, url, self._card_of(capsule).whole.body),)

    async def answer(self, request: web.BaseRequest, path: str) -> tuple[str, str, Handled]:
        """Answer a request below `PREFIX`, with the template of its path and the outcome, for whoever counts."""
        given = request.headers.get(_REQUEST_ID)
        request_id = (given and moi.request_id_in(given)) or f"{self._name}{next(self._count):x}"
        if (known := self._known(request)) is not None:
            return CARD, _OUTCOMES[known.status], _named(known, request_id)
        try:
            answer = await self._answer(request, path, request_id)
        except RefusedError as error:
            return path, error.refusal.code, _named(wire(moi.refused(error.refusal, request_id)), request_id)
        except ConnectionError:
            raise
        except Exception:
            # the boundary of a request, as that of the server, which has another shape for it
            log.exception("request_failed", listener="desk", method=request.method)
            if request.writer.output_size > 0:
                cast("Connection", request.protocol).cut()
                raise ConnectionResetError("an answer was under way") from None
            return path, _FAILED.code, _named(wire(moi.refused(_FAILED, request_id)), request_id)
        if isinstance(answer, Wire):
            return path, _OUTCOMES[answer.status], _named(answer, request_id)
        return path, "stream", answer

    def _known(self, request: web.BaseRequest) -> Wire | None:
        """Return the card that was asked for before, where nothing more is to be found out."""
        kept = self._at_hand.find(request, closed=True)
        if kept is None:
            return None
        seen = sees(self._access, request.headers, kept.capsule)
        if seen is None:
            seen = not self._access.wants(kept.capsule)
        return kept.answer(request) if seen else None

    async def _answer(self, request: web.BaseRequest, path: str, request_id: str) -> Handled:
        if path == CARD:
            return await self._card(request)
        if path == DOOR:
            return await self._call(request, request_id)
        raise RefusedError(_NOTHING)

    async def _card(self, request: web.BaseRequest) -> Wire:
        if request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            raise RefusedError(_READ)
        visitor = await visitor_of(self._access, self._directory, request.headers)
        selection = moi.selection_in_query(request.raw_path.partition("?")[2])
        found = await self._admitted(request, visitor, selection)
        card = self._card_of(found.served.capsule)
        headers = request.headers
        if selection.workspace is None:
            self._at_hand.keep(request, found.served.capsule, card)
        if hdrs.IF_NONE_MATCH not in headers:
            return card.whole
        return card.answer(", ".join(headers.getall(hdrs.IF_NONE_MATCH)))

    async def _call(self, request: web.BaseRequest, request_id: str) -> Handled:
        visitor = await visitor_of(self._access, self._directory, request.headers)
        if request.method != hdrs.METH_POST:
            raise RefusedError(_CALLED)
        limits = cast("Connection", request.protocol).server.policy.limits
        waits = not request.content.is_eof()
        body = await read_json_body(request, limit=limits.body, within=limits.body_timeout)
        if waits:  # what was shown may have ended meanwhile
            visitor = await visitor_of(self._access, self._directory, request.headers)
        try:
            envelope = orjson.loads(body)
        except orjson.JSONDecodeError:
            envelope = None
        if type(envelope) is not dict:
            return json_wire(_no_call(body))
        found = await self._admitted(request, visitor, moi.selection_in_body(envelope))
        asked = Asked(
            found.caller.owner,
            request.headers.get(VERSION),
            ONLY,
            EVENTS in request.headers.get(hdrs.ACCEPT, ""),
        )
        answer = await found.served.moi().call(body, asked)
        if isinstance(answer, bytes):
            return json_wire(answer)
        return await self._last(request, found, cast("Frames", answer), request_id)

    async def _admitted(
        self, request: web.BaseRequest, visitor: Visitor, selection: moi.Selection
    ) -> Admitted:
        found = await admitted(self._access, self._directory, request.headers, visitor, selection)
        proxies = cast("Connection", request.protocol).server.policy.proxies
        peer = proxies.client(request.remote, request.headers)
        self._access.admit(found.served.capsule, found.caller, peer)
        return found

    async def _last(
        self, request: web.BaseRequest, found: Admitted, frames: Frames, request_id: str
    ) -> web.StreamResponse:
        """Send a stream, which ends with its caller's credential."""
        stream = EventStream(frames, (REQUEST_ID.lower(), request_id))
        hold = self._access.streams.hold(
            partial(self._now, found.served), found.caller, cast("Connection", request.protocol).cut
        )
        self._streams.add(stream)
        if self._draining:
            stream.end()
        try:
            with hold:
                return await stream.send(request)
        finally:
            self._streams.discard(stream)

    def _now(self, served: Served) -> Capsule:
        """Return a capsule as it is served now, or as it was."""
        agent = self._directory.agent(served.capsule.id)
        return served.capsule if agent is None or agent.served is None else agent.served.capsule

    def _card_of(self, capsule: Capsule) -> CardDocument:
        base = self._base()
        made = self._cards.get(capsule.id)
        if made is None or made[0] is not capsule or made[1] != base:
            if len(self._cards) >= MOST:
                del self._cards[next(iter(self._cards))]
            made = self._cards[capsule.id] = (capsule, base, card_document(capsule, url=self.door))
        return made[2]


def _named(answer: Wire, request_id: str) -> Wire:
    """Return an answer with the id of its request."""
    return Wire(answer.status, b"%bx-request-id: %b\r\n" % (answer.head, request_id.encode()), answer.body)


def _no_call(body: bytes) -> bytes:
    """Return the answer to what is no JSON object, and so about no agent."""
    try:
        jsonrpc.parse(body, nameless=True)
    except jsonrpc.RequestError as error:
        return MOI.error(error.id, error.code, error.message)
    raise RefusedError(_FAILED)
