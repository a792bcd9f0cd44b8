"""The catalogs of the desk: written when somebody asks for them, and kept for as long as they are true."""

from __future__ import annotations

import asyncio
import operator
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol

import orjson
from aiohttp import hdrs

from sidecar.cards.catalog import ai_catalog, api_catalog
from sidecar.model import Answer
from sidecar.web.answers import etag_matches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from aiohttp import web

    from sidecar.model import Capsule

AI: Final = "/.well-known/ai-catalog.json"
API: Final = "/.well-known/api-catalog"
METHODS: Final = dict.fromkeys((AI, API), (hdrs.METH_GET, hdrs.METH_HEAD))
AI_TYPE: Final = "application/ai-catalog+json"
PROFILE: Final = "https://www.rfc-editor.org/info/rfc9727"
API_TYPE: Final = f'application/linkset+json; profile="{PROFILE}"'
CACHE_CONTROL: Final = "public, max-age=10"


class Places(Protocol):
    """Where things are on the desk, as its clients reach them."""

    def base(self) -> str:
        """Return the desk's URL, without a slash at its end."""

    def channel(self, capsule: Capsule) -> str:
        """Return where Everruns clients find a capsule."""

    def moi(self) -> str:
        """Return the MOI door that all capsules share."""


class Catalogs:
    """What is at the two well-known paths. Big ones are written by a thread of `writer`.

    `served` returns the capsules that are served now, by id; each is the same object for as long as nothing about it
    changes.
    """

    def __init__(self, served: Callable[[], Sequence[Capsule]], places: Places, writer: Executor) -> None:
        self._served = served
        self._places = places
        self._writer = writer
        self._written: dict[str, tuple[Sequence[Capsule], str, str, Answer]] = {}

    async def answer(self, request: web.BaseRequest, path: str) -> Answer:
        """Answer a request for one of the paths of `METHODS`."""
        capsules, base = self._served(), self._places.base()
        known = self._written.get(path)
        if known is None or known[1] != base or not _same(known[0], capsules):
            write = partial(self._ai if path == AI else self._api, capsules, base)
            made = await asyncio.get_running_loop().run_in_executor(self._writer, write)
            known = self._written[path] = (capsules, base, *made)
        given = ", ".join(request.headers.getall(hdrs.IF_NONE_MATCH, ())) or None
        etag, whole = known[2], known[3]
        return Answer(304, whole.headers[1:]) if etag_matches(given, etag) else whole

    def _ai(self, capsules: Sequence[Capsule], base: str) -> tuple[str, Answer]:
        return _answer(ai_catalog(capsules, base=base), AI_TYPE)

    def _api(self, capsules: Sequence[Capsule], base: str) -> tuple[str, Answer]:
        places, own = self._places, base + API
        made = api_catalog(
            capsules, catalog=own, moi=places.moi(), health=f"{base}/healthz", channel=places.channel
        )
        # HEAD is answered with where the catalog is (RFC 9727 section 2)
        return _answer(made, API_TYPE, ("link", f'<{own}>; rel="api-catalog"'))


def _same(one: Sequence[Capsule], other: Sequence[Capsule]) -> bool:
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _answer(made: object, kind: str, *headers: tuple[str, str]) -> tuple[str, Answer]:
    body = orjson.dumps(made)
    etag = f'"{sha256(body).hexdigest()[:32]}"'
    kept = (("content-type", kind), ("etag", etag), ("cache-control", CACHE_CONTROL), *headers)
    return etag, Answer(200, kept, body)
