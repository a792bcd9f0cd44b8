"""The span of a request: what it asked for in general terms, and what it was answered."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sidecar.tracing import HEADER, read_trace, within_trace
from sidecar.web.reply import status_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from sidecar.tracing import Tracer

WHOLE: Final = re.compile(
    r"/(?:a2a(?:/v[0-9.]{1,4})?/?)?(?:\.well-known/[a-z-]{1,16}(?:\.json)?)?|/healthz|/readyz|/metrics"
)
"""Paths that are told as they are."""
KNOWN: Final = frozenset({"resources", "api", "page", "workers", "v1", "newmoi"})
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
FAULTS: Final = 500


def route_of(target: str) -> str:
    """Return what a target asks for, without what differs by request: ids, and handles, which are secrets."""
    path = target.partition("?")[0]
    if WHOLE.fullmatch(path):
        return path
    first = path[1:].partition("/")[0]
    return f"/{first}/…" if first in KNOWN else "/…"


async def spanned(
    request: web.BaseRequest,
    tracer: Tracer,
    listener: str,
    answered: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> web.StreamResponse:
    """Answer a request as a part of its trace; a stream is over when it ends."""
    method = request.method if request.method in METHODS else "_OTHER"
    route = route_of(request.raw_path)
    facts = {"http.request.method": method, "http.route": route, "sidecar.listener": listener}
    span = tracer.begin(f"{method} {route}", "server", read_trace(request.headers.get(HEADER)), facts)
    fault: str | None = "the client left"
    try:
        with within_trace(span.trace):
            answer = await answered(request)
        status = status_of(answer)
        span.note("http.response.status_code", status)
        fault = f"status {status}" if status >= FAULTS else None
        return answer
    finally:
        span.end(fault)
