"""One request of a caller of the Everruns view: what it is about, and how what is refused is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast

from aiohttp import hdrs

from sidecar.dialects import everruns, problem
from sidecar.dialects.everruns import UnreadableError
from sidecar.dialects.problem import ProblemDetails, ProblemError
from sidecar.errors import RefusedError
from sidecar.web.body import read_json_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from sidecar.auth.caller import Caller
    from sidecar.doors.everruns import EverrunsDoor
    from sidecar.model import Capsule
    from sidecar.web.connection import Connection

CHANNEL: Final = "/v1/channels/{channel_id}"


class Served(Protocol):
    """What the view needs of a capsule that is served."""

    @property
    def capsule(self) -> Capsule:
        """The capsule, with the kinds of credentials that it takes."""

    @property
    def sessions(self) -> EverrunsDoor:
        """The door to its sessions."""


class Ask:
    """One request of a caller who was let in: what it is about, and the parts of its path."""

    __slots__ = ("_confirm", "caller", "parts", "request", "served")

    def __init__(
        self,
        request: web.BaseRequest,
        served: Served,
        caller: Caller,
        parts: list[str],
        confirm: Callable[[Capsule, Caller], None],
    ) -> None:
        self.request = request
        self.served = served
        self.caller = caller
        self.parts = parts
        self._confirm = confirm

    @property
    def door(self) -> EverrunsDoor:
        """The door to the capsule's sessions."""
        return self.served.sessions

    @property
    def owner(self) -> str:
        """Whose sessions the caller sees."""
        return self.caller.owner

    @property
    def session_id(self) -> str:
        """The session that the path names."""
        return self.parts[1]

    def key(self) -> str | None:
        """Return the `Idempotency-Key`. Raises UnreadableError."""
        return everruns.read_key(list(self.request.headers.getall("Idempotency-Key", ())))

    async def body(self, *, optional: bool = False) -> bytes:
        """Return the body. Raises RefusedError, too where the caller's credential ended before it was there."""
        request = self.request
        if optional and request.content_length in (None, 0) and request.content.is_eof():
            return b""
        limits = cast("Connection", request.protocol).server.policy.limits
        return await read_json_body(
            request,
            limit=limits.body,
            within=limits.body_timeout,
            late=lambda: self._confirm(self.served.capsule, self.caller),
        )


def template_of(parts: list[str]) -> str:
    """Return a path with what varies in braces; `parts` are those behind the channel."""
    shown = parts if len(parts) < 2 or parts[0] != "sessions" else [parts[0], "{id}", *parts[2:]]  # noqa: PLR2004 - sessions and an id
    return "/".join((CHANNEL, *shown))


def place_of(request: web.BaseRequest, session_id: str) -> int | None:
    """Return behind which event a stream begins, None: at what comes next. Raises UnreadableError.

    What the client saw last counts more than where it began; a `Last-Event-ID` that is none of this session's is one
    of a stream before, and counts as absent.
    """
    last = request.headers.get(hdrs.LAST_EVENT_ID)
    seen = None if last is None else everruns.sequence_of(session_id, last.strip())
    if seen is not None:
        return seen
    since = request.query.get("since_id")
    if since:
        seen = everruns.sequence_of(session_id, since)
        if seen is None:
            raise UnreadableError("since_id must be the id of an event of this session.")
        return seen
    return everruns.read_sequence(request.query.get("after_sequence"))


def problem_of(error: ProblemError | RefusedError | UnreadableError) -> ProblemDetails:
    """Return what is told of a request that is refused, in the one shape of this view."""
    if isinstance(error, ProblemError):
        return error.problem
    if isinstance(error, RefusedError):
        return problem.of_refusal(error.refusal)
    return ProblemDetails(400, "bad_request", str(error))
