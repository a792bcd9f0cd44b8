"""Problem details (RFC 9457), with the members that Everruns adds, and the one that its published client reads. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.model import Answer

if TYPE_CHECKING:
    from sidecar.errors import Refusal

MEDIA_TYPE: Final = "application/problem+json"
CHALLENGE: Final = "Bearer"
RETRY_AFTER: Final = 1
"""Seconds after which whoever was turned away may try again."""

_UNCACHED: Final = ("cache-control", "no-store")
_TITLES: Final = {
    "agent_busy": "Agent busy",
    "agent_not_available": "Agent not available",
    "channel_not_found": "Channel not found",
    "idempotency_key_in_progress": "Idempotency key in progress",
    "idempotency_key_reused": "Idempotency key reused",
    "rate_limited": "Too many requests",
    "session_not_found": "Session not found",
}


@dataclass(frozen=True, slots=True)
class Action:
    """What a caller can do next (Everruns, `allowed_actions`): `rel` says what, the rest how; None is left out."""

    rel: str
    method: str | None = None
    href: str | None = None
    operation_id: str | None = None
    hint: str | None = None

    def document(self) -> dict[str, str]:
        """Return it as JSON has it."""
        members = {
            "rel": self.rel,
            "operation_id": self.operation_id,
            "method": self.method,
            "href": self.href,
            "hint": self.hint,
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """Why a request is refused. `retry_after` is in seconds; `instance` is the request's path."""

    status: int
    code: str
    detail: str | None = None
    retry_after: int | None = None
    instance: str | None = None
    actions: tuple[Action, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        """What kind of problem it is, in a few words: the same for every problem with this code."""
        return _TITLES.get(self.code) or HTTPStatus(self.status).phrase

    def about(self, path: str) -> ProblemDetails:
        """Return the problem with the path of the request that it is about."""
        return replace(self, instance=path)

    def document(self) -> dict[str, Any]:
        """Return the problem as JSON has it; members without anything to say are left out."""
        members: dict[str, Any] = {
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "instance": self.instance,
            "retry_after_seconds": self.retry_after,
            "allowed_actions": [action.document() for action in self.actions] or None,
            "error": {"code": self.code, "message": self.detail or self.title},
        }
        return {name: value for name, value in members.items() if value is not None}

    def answer(self) -> Answer:
        """Return the answer, with `Retry-After` on 429 and 503, and a challenge on 401."""
        headers = [("content-type", MEDIA_TYPE), _UNCACHED, *self.headers]
        named = {name.lower() for name, _ in headers}
        if self.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            if "retry-after" not in named:
                headers.append(("retry-after", str(self.retry_after or RETRY_AFTER)))
        elif self.status == HTTPStatus.UNAUTHORIZED and "www-authenticate" not in named:
            headers.append(("www-authenticate", CHALLENGE))
        return Answer(self.status, tuple(headers), orjson.dumps(self.document()))


class ProblemError(Exception):
    """Raised inside a request to answer it with a problem."""

    def __init__(self, problem: ProblemDetails) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem


def of_refusal(refusal: Refusal) -> ProblemDetails:
    """Return a refusal that other doors tell in a shape of their own."""
    after = next((value for name, value in refusal.headers if name.lower() == "retry-after"), "")
    seconds = int(after) if after.isdigit() else None
    if seconds is None and refusal.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        seconds = RETRY_AFTER
    # a lone surrogate (bytes that are no UTF-8) has no place in JSON
    detail = refusal.message.encode(errors="backslashreplace").decode()
    return ProblemDetails(refusal.status, refusal.code, detail, seconds, headers=refusal.headers)
