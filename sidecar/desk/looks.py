"""The operator's look at one capsule: its cards as clients see them, and its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import orjson
from aiohttp import hdrs

from sidecar.desk import api
from sidecar.errors import RefusedError, refusal
from sidecar.model import Answer
from sidecar.web.answers import Streamed, etag_matches
from sidecar.web.pouring import pour

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiohttp import web

    from sidecar.cards.views import View
    from sidecar.model import Capsule

CARDS: Final = "/api/capsules/{id}/cards"
FILES: Final = "/api/capsules/{id}/files"
FILE: Final = "/api/capsules/{id}/files/{path}"
METHODS: Final = dict.fromkeys((CARDS, FILES, FILE), (hdrs.METH_GET,))

INERT: Final = (
    ("content-security-policy", "default-src 'none'; sandbox"),
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "same-origin"),
)
"""What a file's bytes go out with: whatever they are, no browser runs them as part of the desk."""

_PLANE: Final = "/resources/files"
_NOT_SERVED: Final = refusal("unavailable", "The capsule is not served now: sidecar list says why.")


class Seen(Protocol):
    """What the desk needs of a capsule that is served, to look at it."""

    @property
    def capsule(self) -> Capsule:
        """The capsule."""

    @property
    def generation(self) -> int:
        """How many of the session's tasks have ended."""

    def views(self) -> Sequence[View]:
        """Every card that is served of it."""


class Plane(Protocol):
    """What answers under `/resources/` on a capsule's port."""

    async def answer(
        self,
        capsule: Capsule,
        method: str,
        raw_target: str,
        header: Callable[[str], str | None],
        generation: int,
    ) -> Answer | Streamed:
        """Return the answer; raises RefusedError."""


class Looks:
    """What `cards` and `files` below a capsule's path on the desk do. `seen` is None where nothing is served."""

    def __init__(self, seen: Callable[[str], Seen | None], planes: Plane) -> None:
        self._seen = seen
        self._planes = planes

    async def answer(
        self,
        request: web.BaseRequest,
        template: str,
        capsule_id: str,
        on_desk: Callable[[Capsule], Sequence[View]],
    ) -> Answer | web.StreamResponse:
        """Answer a request below a capsule that there is; `on_desk` returns its cards that the desk serves.

        Raises RefusedError.
        """
        seen = self._seen(capsule_id)
        if seen is None:
            raise RefusedError(_NOT_SERVED)
        if template == CARDS:
            return _cards(request, (*seen.views(), *on_desk(seen.capsule)))
        return await self._files(request, seen)

    async def _files(self, request: web.BaseRequest, seen: Seen) -> Answer | web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        # behind /api/capsules/<id>/files, as it was sent: the plane decodes it, once
        rest = "".join("/" + part for part in path.split("/")[5:])
        headers = request.headers
        answer = await self._planes.answer(
            seen.capsule,
            request.method,
            _PLANE + rest,
            lambda name: ", ".join(headers.getall(name)) if name in headers else None,
            seen.generation,
        )
        kept = (*answer.headers, *INERT, ("cache-control", "private, no-cache"))
        if isinstance(answer, Streamed):
            return await pour(request, Streamed(answer.status, kept, answer.body))
        return Answer(answer.status, kept, answer.body)


def _cards(request: web.BaseRequest, views: Sequence[View]) -> Answer:
    listed = [
        {
            "view": view.name,
            "audience": view.audience,
            "url": view.url,
            "card": orjson.Fragment(view.body),
        }
        for view in views
    ]
    etag, answer = api.tagged({"cards": listed})
    given = ", ".join(request.headers.getall(hdrs.IF_NONE_MATCH, ())) or None
    return api.not_modified(etag) if etag_matches(given, etag) else answer
