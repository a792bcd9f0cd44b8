"""The Everruns view: each capsule is an agent at `/v1/channels/<channel id>`, with its card and its callers' sessions.

Checks come in this order (Everruns view, Card): the channel is known, it is served, the credential, the rate, and only
then what is at the path. Every refusal is told as problem details (RFC 9457).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast
from urllib.parse import quote, unquote, urlsplit

from aiohttp import hdrs

from sidecar.cards.everruns import card_document
from sidecar.cards.views import View
from sidecar.desk.at_hand import MOST, AtHand
from sidecar.desk.channel_asks import CHANNEL, Ask, place_of, problem_of, template_of
from sidecar.dialects import everruns
from sidecar.dialects.everruns import UnreadableError
from sidecar.dialects.problem import Action, ProblemDetails, ProblemError
from sidecar.doors.everruns import session_document
from sidecar.doors.everruns_stream import CREDENTIAL_ENDED
from sidecar.errors import RefusedError, StoreError
from sidecar.model import Answer
from sidecar.web.answers import Wire, json_answer, wire
from sidecar.web.stream import EventStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from sidecar.auth.access import Access
    from sidecar.auth.caller import Caller
    from sidecar.cards.document import CardDocument
    from sidecar.desk.channel_asks import Served
    from sidecar.doors.everruns import Made
    from sidecar.model import Capsule
    from sidecar.web.connection import Connection

    Handled = Wire | web.StreamResponse

PREFIX: Final = "/v1/channels"
SESSIONS: Final = f"{CHANNEL}/sessions"
SESSION: Final = f"{SESSIONS}/{{id}}"
MESSAGES: Final = f"{SESSION}/messages"
EVENTS: Final = f"{SESSION}/events"
STREAM: Final = f"{SESSION}/sse"
CANCEL: Final = f"{SESSION}/cancel"
RUNTIME_AUTH: Final = f"{CHANNEL}/runtime-auth"
A2A_CARD: Final = "/a2a/.well-known/agent-card.json"
UNCACHED: Final = ("cache-control", "no-store")
REPLAYED: Final = ("idempotent-replayed", "true")

_OUTCOMES: Final = {200: "ok", 201: "ok", 304: "not_modified"}
_UNKNOWN_CHANNEL: Final = ProblemDetails(404, "channel_not_found", "There is no agent at this URL.")
_NOT_AVAILABLE: Final = ProblemDetails(403, "agent_not_available", "This agent is not available now.")
_NOTHING: Final = ProblemDetails(404, "not_found", "There is nothing at this path.")
_AGAIN: Final = Action("retry-later", hint="Send the same request again after retry_after_seconds.")


class Directory(Protocol):
    """Where channels lead."""

    def channel(self, channel_id: str) -> Served | None:
        """Return what is served at a channel now."""

    def knows_channel(self, channel_id: str) -> bool:
        """Whether a channel leads to a capsule, served or not."""


class Channels:
    """What is below `/v1/channels`. `base` returns the URL at which clients reach the desk, without a slash at its end.

    `now` returns the capsule that is served under an id.
    """

    def __init__(
        self,
        directory: Directory,
        access: Access,
        *,
        base: Callable[[], str] = str,
        now: Callable[[str], Capsule | None] = lambda _: None,
    ) -> None:
        self._directory = directory
        self._access = access
        self._base = base
        self._at_hand = AtHand(access, now, base)
        self._cards: dict[str, tuple[Capsule, str, CardDocument]] = {}
        self._draining = False
        self._streams: set[EventStream] = set()
        self._routes: dict[str, dict[str, Callable[[Ask], Awaitable[Handled]]]] = {
            CHANNEL: {hdrs.METH_GET: self._card, hdrs.METH_HEAD: self._card},
            SESSIONS: {hdrs.METH_GET: self._listed, hdrs.METH_POST: self._made},
            SESSION: {hdrs.METH_GET: self._session},
            MESSAGES: {hdrs.METH_POST: self._message},
            EVENTS: {hdrs.METH_GET: self._events},
            STREAM: {hdrs.METH_GET: self._stream},
            CANCEL: {hdrs.METH_POST: self._cancel},
            RUNTIME_AUTH: {hdrs.METH_POST: self._runtime_auth},
        }

    def end_streams(self) -> None:
        """Have every stream end with its closing frame, those that are yet to come included."""
        self._draining = True
        for stream in tuple(self._streams):
            stream.end()

    async def answer(self, request: web.BaseRequest, path: str) -> tuple[str, str, Handled]:
        """Answer a request below `PREFIX`, with the template of its path and the outcome, for whoever counts."""
        if (kept := self._at_hand.find(request)) is not None:
            known = kept.answer(request)
            return CHANNEL, _OUTCOMES[known.status], known
        channel_id, slash, rest = path[len(PREFIX) + 1 :].partition("/")
        parts = [unquote(part) for part in rest.split("/")] if slash else []
        template = template_of(parts) if parts else CHANNEL
        try:
            served, caller = await self._admitted(request, unquote(channel_id))
            answer = await self._handled(Ask(request, served, caller, parts, self._confirm), template)
        except (ProblemError, RefusedError, UnreadableError) as error:
            problem = problem_of(error).about(path)
            return template, problem.code, wire(problem.answer())
        if isinstance(answer, Wire):
            return template, _OUTCOMES.get(answer.status, "other"), answer
        return template, "stream", answer

    def views(self, capsule: Capsule) -> tuple[View, ...]:
        """Return the card of a capsule as its callers see it, and where."""
        audience = "clients of Everruns, which show a credential of those that it names"
        return (View("everruns", audience, self.url_of(capsule), self._card_of(capsule).whole.body),)

    def url_of(self, capsule: Capsule) -> str:
        """Return the agent base URL of a capsule."""
        return f"{self._base()}{PREFIX}/{quote(_channel_of(capsule), safe='~')}"

    def _card_of(self, capsule: Capsule) -> CardDocument:
        base = self._base()
        made = self._cards.get(capsule.id)
        if made is None or made[0] is not capsule or made[1] != base:
            document = card_document(
                capsule, sessions=self._sessions_path(capsule), a2a=capsule.base + A2A_CARD
            )
            if len(self._cards) >= MOST:
                del self._cards[next(iter(self._cards))]
            made = self._cards[capsule.id] = (capsule, base, document)
        return made[2]

    async def _admitted(self, request: web.BaseRequest, channel_id: str) -> tuple[Served, Caller]:
        """Return what is served, and who asks; nothing else of the request is looked at before."""
        served = self._directory.channel(channel_id)
        if served is None:
            known = self._directory.knows_channel(channel_id)
            raise ProblemError(_NOT_AVAILABLE if known else _UNKNOWN_CHANNEL)
        capsule = served.capsule
        caller = await self._access.caller(capsule, request.headers)
        if capsule.settings.auth.rate is not None:
            proxies = cast("Connection", request.protocol).server.policy.proxies
            self._access.admit(capsule, caller, proxies.client(request.remote, request.headers))
        return served, caller

    async def _handled(self, ask: Ask, template: str) -> Handled:
        routes = self._routes.get(template)
        if routes is None:
            raise ProblemError(_NOTHING)
        action = routes.get(ask.request.method)
        if action is None:
            allow = ", ".join(routes)
            text = f"This path takes {allow}."
            raise ProblemError(ProblemDetails(405, "method_not_allowed", text, headers=(("allow", allow),)))
        try:
            return await action(ask)
        except StoreError as error:
            failed = ProblemDetails(503, "unavailable", str(error), retry_after=1, actions=(_AGAIN,))
            raise ProblemError(failed) from error

    # Routes

    async def _card(self, ask: Ask) -> Handled:
        card = self._card_of(ask.served.capsule)
        self._at_hand.keep(ask.request, ask.served.capsule, card)
        headers = ask.request.headers
        if hdrs.IF_NONE_MATCH not in headers:
            return card.whole
        return card.answer(", ".join(headers.getall(hdrs.IF_NONE_MATCH)))

    async def _listed(self, ask: Ask) -> Handled:
        query = ask.request.query
        most = everruns.read_limit(query.get("limit"), everruns.SESSIONS)
        after = everruns.read_page_token(query.get("page_token"))
        return _told(await ask.door.list(ask.owner, most, after))

    async def _made(self, ask: Ask) -> Handled:
        key = ask.key()
        title = everruns.read_session(await ask.body(optional=True))
        made = await ask.door.create(ask.owner, title, key)
        return _created(made, ("location", f"{self._sessions_path(ask.served.capsule)}/{made.id}"))

    async def _session(self, ask: Ask) -> Handled:
        found = await ask.door.find(ask.owner, ask.session_id)
        return _told(session_document(found, questions=True))

    async def _message(self, ask: Ask) -> Handled:
        await ask.door.find(ask.owner, ask.session_id)
        key = ask.key()
        texts = everruns.read_message(await ask.body())
        cancel = f"{self._sessions_path(ask.served.capsule)}/{ask.session_id}/cancel"
        return _created(await ask.door.send(ask.owner, ask.session_id, texts, key, cancel=cancel))

    async def _events(self, ask: Ask) -> Handled:
        await ask.door.find(ask.owner, ask.session_id)
        query = ask.request.query
        most = everruns.read_limit(query.get("limit"), everruns.EVENTS)
        after = everruns.read_sequence(query.get("after_sequence")) or 0
        return _told(await ask.door.events(ask.session_id, after, most))

    async def _stream(self, ask: Ask) -> Handled:
        found = await ask.door.find(ask.owner, ask.session_id)
        after = place_of(ask.request, ask.session_id)
        if self._draining:
            text = "The sidecar is stopping."
            raise ProblemError(ProblemDetails(503, "unavailable", text, retry_after=1, actions=(_AGAIN,)))
        frames = ask.door.stream(ask.session_id, found.sequence if after is None else after)
        stream = EventStream(frames)
        capsule = ask.served.capsule
        hold = self._access.streams.hold(
            partial(self._now, capsule), ask.caller, partial(frames.end, CREDENTIAL_ENDED, at_once=True)
        )
        self._streams.add(stream)
        try:
            with hold:
                return await stream.send(ask.request)
        finally:
            self._streams.discard(stream)

    def _confirm(self, capsule: Capsule, caller: Caller) -> None:
        self._access.confirm(self._now(capsule), caller)

    def _now(self, capsule: Capsule) -> Capsule:
        """Return a capsule as it is served now, or as it was."""
        served = self._directory.channel(_channel_of(capsule))
        return capsule if served is None else served.capsule

    async def _cancel(self, ask: Ask) -> Handled:
        await ask.door.find(ask.owner, ask.session_id)
        await ask.door.cancel(ask.owner, ask.session_id)
        return await self._session(ask)

    async def _runtime_auth(self, ask: Ask) -> Handled:
        issued = self._access.issue(ask.served.capsule, ask.caller)
        return _told(
            {
                "access_token": issued.access_token,
                "token_type": "Bearer",
                "expires_in": issued.expires_in,
                "virtual_user_id": issued.virtual_user_id,
            }
        )

    def _sessions_path(self, capsule: Capsule) -> str:
        """Return where the sessions of a capsule are, root-relative, behind the path of the desk's public URL."""
        return f"{urlsplit(self._base()).path.rstrip('/')}{PREFIX}/{quote(_channel_of(capsule), safe='~')}/sessions"


def _channel_of(capsule: Capsule) -> str:
    return capsule.settings.channel_id or capsule.id


def _told(document: object) -> Wire:
    return wire(json_answer(document, UNCACHED))


def _created(made: Made, *headers: tuple[str, str]) -> Wire:
    replayed = (REPLAYED,) if made.replayed else ()
    return wire(Answer(201, (("content-type", "application/json"), UNCACHED, *headers, *replayed), made.body))
