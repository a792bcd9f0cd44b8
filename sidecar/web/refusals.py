"""What is said to those of whom no request was understood, or who were not asked for one."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import hdrs
from aiohttp.http import HttpVersion11
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong

from sidecar.errors import Refusal, refusal
from sidecar.web.reply import CLOSES, date_line

if TYPE_CHECKING:
    from aiohttp import web

    from sidecar.web.answers import Wire

SHOWN: Final = 160

log = structlog.get_logger()


def parser_refusal(error: BaseException | None) -> Refusal:
    """Return the refusal for what the HTTP parser would not take."""
    if isinstance(error, LineTooLong):
        return refusal(
            "header_too_large", f"The request line or a header is longer than {error.args[1]} bytes."
        )
    reason = error.message if isinstance(error, HttpProcessingError) else ""
    if reason.startswith("Too many headers"):
        return refusal("header_too_large", "The request has too many headers.")
    if isinstance(error, BadHttpMethod) and "HTTPS" in str(error):
        return refusal("bad_request", "This port speaks plain HTTP, not HTTPS.")
    reason = reason.rstrip(".").partition(":\n")[0].removeprefix("Bad status line").strip().partition("\n")[0]
    shown = reason if reason.isprintable() and len(reason) <= SHOWN else ""
    return refusal(
        "bad_request",
        f"The request is not valid HTTP: {shown}." if shown else "The request is not valid HTTP.",
    )


class RefusalLog:
    """Log lines about refused requests, few enough that nobody can flood the log; shared by all listeners."""

    def __init__(self, *, lines: int = 5, period: float = 10.0) -> None:
        self._lines = lines
        self._period = period
        self._begin = float("-inf")
        self._said = 0
        self._unsaid = 0

    def note(self, **fields: object) -> None:
        """Log `request_refused` with these fields, or only count it; the count comes with the next line."""
        now = asyncio.get_running_loop().time()
        if now - self._begin >= self._period:
            self._begin, self._said = now, 0
        if self._said >= self._lines:
            self._unsaid += 1
            return
        self._said += 1
        if self._unsaid:
            fields["not_logged"] = self._unsaid
            self._unsaid = 0
        log.warning("request_refused", **fields)


def target_refusal(request: web.BaseRequest) -> Refusal | None:
    """Return what is wrong with a request that the parser took, although it is none that we take; None: nothing."""
    target = request.raw_path
    if target[:1] != "/":
        return _ASTERISK if target == "*" else _NO_PATH
    if "#" in target:
        return _FRAGMENT
    codings = request.headers.getall(hdrs.TRANSFER_ENCODING, None)
    if codings is not None and (
        request.version != HttpVersion11 or len(codings) != 1 or codings[0].strip().lower() != "chunked"
    ):
        # RFC 9112 section 6.1: who takes such a body for a plain one may disagree with a proxy about where it ends
        return _CODING
    return None


def closing_bytes(answer: Wire) -> bytes:
    """Return a whole answer that ends its connection, for where there is no request to reply to."""
    return b"".join((answer.head, date_line(int(time.time())), CLOSES, answer.body))


_NO_PATH: Final = refusal("bad_request", "The request target must be a path that begins with a slash.")
_ASTERISK: Final = refusal(
    "bad_request", "The request target must be a path; * is none, and nothing takes it."
)
_FRAGMENT: Final = refusal(
    "bad_request", "The request target has a fragment; leave out the # and what follows, or write it as %23."
)
_CODING: Final = refusal(
    "bad_request",
    "The only transfer coding taken is chunked, alone and in HTTP/1.1; send the body so or plain.",
)
