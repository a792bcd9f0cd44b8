"""What is said to those of whom no request was understood, or who were not asked for one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong

from sidecar.errors import Refusal, refusal
from sidecar.web.reply import CLOSES, date_line

if TYPE_CHECKING:
    from sidecar.web.answers import Wire

SHOWN: Final = 160


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


def closing_bytes(answer: Wire) -> bytes:
    """Return a whole answer that ends its connection, for where there is no request to reply to."""
    return b"".join((answer.head, date_line(int(time.time())), CLOSES, answer.body))
