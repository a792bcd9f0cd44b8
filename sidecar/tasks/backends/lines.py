"""JSON lines as workers of the inbox post them: all of a body, or what is wrong with its first bad line. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from sidecar.tasks.said import NotSaidError, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.tasks.said import Said

MOST_LINES: Final = 1000
"""Lines of one body: all of them are one change, during which nothing else happens."""


class BadLineError(Exception):
    """The text names the line, counted from 1 with the empty ones, and says what is wrong with it."""


class TooManyLinesError(Exception):
    """There are more than `MOST_LINES`."""


@dataclass(frozen=True, slots=True)
class Line:
    """What one line says. `seq` is its number among all lines under a lease, where the worker gives it."""

    said: Said
    number: int
    seq: int | None = None


def read_lines(body: bytes) -> tuple[Line, ...]:
    """Read one JSON object a line; empty lines are left out. Raises BadLineError or TooManyLinesError."""
    found: list[Line] = []
    for number, text in enumerate(body.split(b"\n"), 1):
        if not text.strip():
            continue
        if len(found) == MOST_LINES:
            raise TooManyLinesError
        try:
            value = orjson.loads(text)
            found.append(Line(read(value), number, _seq(value)))
        except orjson.JSONDecodeError as error:
            raise BadLineError(f"Line {number}: not JSON: {error}.") from None
        except NotSaidError as error:
            raise BadLineError(f"Line {number}: {error}.") from None
    return tuple(found)


def unheard(lines: Sequence[Line], accepted: int) -> tuple[Line, ...]:
    """Return the lines that are new where so many were accepted before.

    A line with a number that was accepted is a repeat; one without a number is always new. Raises BadLineError where
    a line in between is missing.
    """
    found: list[Line] = []
    for line in lines:
        following = accepted + len(found) + 1
        if line.seq is None or line.seq == following:
            found.append(line)
        elif line.seq > following:
            raise BadLineError(f"Line {line.number}: seq is {line.seq}, but {following} comes next.")
    return tuple(found)


def _seq(value: dict[str, object]) -> int | None:
    seq = value.get("seq")
    if seq is None:
        return None
    if type(seq) is not int or seq < 1:
        raise NotSaidError("seq must be an integer from 1")
    return seq
