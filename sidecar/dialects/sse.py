"""Server-sent events (HTML standard, section 9.2): framing, and the id that a client comes back with."""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = re.compile(r"0*([0-9]+)", re.ASCII)
_HIGHEST: Final = 2**64 - 1
_DIGITS: Final = len(str(_HIGHEST))


def frame(event: str, data: bytes, number: int | None = None) -> bytes:
    r"""Return one frame; `data` is one line (JSON), `number` its id where it has one.

    Lines end in `\n` alone.
    """
    if number is None:
        return b"event: %b\ndata: %b\n\n" % (event.encode(), data)
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (number, event.encode(), data)


def comment(text: str) -> bytes:
    """Return a comment, which keeps a connection alive and means nothing."""
    return b":%b\n\n" % text.encode()


def last_event_id(value: str | None) -> int | None:
    """Return a `Last-Event-ID` in plain digits; anything else counts as absent.

    Numbers beyond 64 bits come out as the highest of those: either is beyond all that ever was.
    """
    found = _NUMBER.fullmatch(value) if value is not None else None
    if found is None:
        return None
    return min(int(found[1]), _HIGHEST) if len(found[1]) <= _DIGITS else _HIGHEST
