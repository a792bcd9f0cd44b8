"""Answers as bytes: built once, sent many times. Pure; `reply.py` sends them."""

from __future__ import annotations

import re
from calendar import timegm
from dataclasses import dataclass
from email.utils import parsedate
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import orjson

from sidecar.model import Answer

if TYPE_CHECKING:
    from sidecar.errors import Refusal

JSON: Final = ("content-type", "application/json")
RETRY_AFTER: Final = "1"
"""Seconds after which a client that was turned away may try again."""

_UNSAFE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_ENTITY_TAG: Final = re.compile(r'[\s,]*(?:W/)?("[\x21\x23-\x7e\x80-\U0010ffff]*")\s*(?:,|$)')
_DATE: Final = re.compile(
    r"""
    [A-Z][a-z]{2}, [ ] \d\d [ ] [A-Z][a-z]{2} [ ] (?!0000)\d{4} [ ] \d\d:\d\d:\d\d [ ] GMT      # the form of today
    | [A-Z][a-z]{5,8}, [ ] \d\d - [A-Z][a-z]{2} - \d\d [ ] \d\d:\d\d:\d\d [ ] GMT             # RFC 850
    | [A-Z][a-z]{2} [ ] [A-Z][a-z]{2} [ ] [ \d]\d [ ] \d\d:\d\d:\d\d [ ] (?!0000)\d{4}           # asctime
    """,
    re.ASCII | re.VERBOSE,
)
_BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class Wire(NamedTuple):
    """An answer ready to be sent.

    `head` is the status line and the header lines, each with its line end, without those that depend on the moment
    or on the request: `Date`, `Connection` and the empty line.
    """

    status: int
    head: bytes
    body: bytes


class Body(Protocol):
    """A body that is too big to hold, or shared: `length` bytes, handed out piece by piece as the client takes them."""

    @property
    def length(self) -> int:
        """How many bytes there are in all."""

    async def next(self) -> bytes:
        """Return what comes next, empty at the end. Raises ConnectionError where the rest cannot be had as promised."""

    def close(self) -> None:
        """Let go of what it holds; may be called twice."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer whose body comes in pieces; whoever has it must close the body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: Body


def wire(answer: Answer, *, length: int | None = None) -> Wire:
    """Write an answer out, with its content length: that of its body, or the one given where the body comes apart.

    Raises ValueError where a header holds a control character (RFC 9110 section 5.5).
    """
    lines = [f"{name}: {value}" for name, value in answer.headers]
    text = " ".join(lines)
    if not (text.isascii() and text.isprintable()):
        for line in lines:
            if _UNSAFE.search(line):
                raise ValueError(f"control character in header {line!r}")
    if answer.status not in _BODILESS:
        lines.append(f"content-length: {len(answer.body) if length is None else length}")
    head = "\r\n".join((_status_line(answer.status), *lines, ""))
    return Wire(answer.status, head.encode(), answer.body)


@cache
def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"


_JSON_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "


def json_wire(body: bytes) -> Wire:
    """Return `wire` of a plain 200 with a JSON body, without the work that is the same each time."""
    return Wire(200, b"%b%d\r\n" % (_JSON_HEAD, len(body)), body)


def refusal_answer(refusal: Refusal) -> Answer:
    """Make the one shape of every refusal: `{"error": code, "message": text}`; `unavailable` says when to retry."""
    headers = refusal.headers
    if refusal.code == "unavailable" and all(name.lower() != "retry-after" for name, _ in headers):
        headers = (*headers, ("retry-after", RETRY_AFTER))
    # a lone surrogate (bytes that are no UTF-8) has no place in JSON
    message = refusal.message.encode(errors="backslashreplace").decode()
    return Answer(refusal.status, (JSON, *headers), orjson.dumps({"error": refusal.code, "message": message}))


def json_answer(value: object, *headers: tuple[str, str], status: int = 200) -> Answer:
    """Make a JSON answer of any value that orjson can write."""
    return Answer(status, (JSON, *headers), orjson.dumps(value))


def etag_matches(if_none_match: str | None, etag: str) -> bool:
    """Tell whether an `If-None-Match` names the current entity tag (RFC 9110 section 13.1.2).

    Takes a list (with empty elements, section 5.6.1.2) or `*` and compares weakly. A header that is neither is ignored from the first fault on.
    `etag` is the current one, quoted and strong.
    """
    if if_none_match is None:
        return False
    if if_none_match.strip() == "*":
        return True
    place = 0
    while match := _ENTITY_TAG.match(if_none_match, place):
        if match[1] == etag:
            return True
        place = match.end()
    return False


def unmodified_since(if_modified_since: str | None, modified: int) -> bool:
    """Tell whether something was last modified (Unix seconds) by the time of an `If-Modified-Since`.

    For use where no `If-None-Match` is given. Ignores what is no date (RFC 9110 section 13.1.3), takes all three
    forms of section 5.6.7.
    """
    if if_modified_since is None or not _DATE.fullmatch(if_modified_since):
        return False
    parts = parsedate(if_modified_since)
    return parts is not None and modified <= timegm(parts)
