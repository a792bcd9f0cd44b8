"""What can go wrong, as values: problems of files, refusals of requests, and the errors users are told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def visible(text: str) -> str:
    """Return text with everything that is not printable written as an escape, `x1b` behind a backslash.

    Undecodable bytes (surrogate escapes) count as not printable, so the result can be encoded and drives no terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode("ascii") for c in text
    )


def unreadable(error: OSError) -> str:
    """Say behind a path that it cannot be read, why, and what to do where another user may be the reason."""
    remedy = " (let the user that runs the sidecar read it)" if isinstance(error, PermissionError) else ""
    return f"cannot be read: {error.strerror}{remedy}"


class Severity(StrEnum):
    """How bad a problem is: an error refuses the file, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem of one file, with its place.

    `line` and `column` count from 1; 0 means that the problem concerns the file as a whole.
    `key` is the dotted path of the offending key (`artifacts[0].version`), or empty.
    `count` is how many problems it stands for: one, but for a last line that says how many more there are.
    """

    file: str
    line: int
    column: int
    code: str
    key: str
    message: str
    severity: Severity = Severity.ERROR
    count: int = 1

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place += f":{self.line}:{self.column}"
        key = f" {self.key}:" if self.key else ""
        return f"{place}: {self.code}{key} {self.message}"


class SidecarError(Exception):
    """Something the user is told in one plain line. `exit_status` is what the command line exits with."""

    exit_status = 1


class InputError(SidecarError):
    """Bad input: an argument, or a file with problems (all of them, in file order)."""

    exit_status = 2

    def __init__(self, message: str, problems: Iterable[Problem] = ()) -> None:
        super().__init__(message)
        self.problems: Sequence[Problem] = tuple(problems)


class StoreError(SidecarError):
    """The database cannot take or give anything now (disk full, locked, unreadable): refuse new work, serve the rest."""


class StoreCorruptError(StoreError):
    """The database was found corrupt at start. The message names the file and `--new-state`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP level refusal: one shape on every listener (`spec/murmur.md` section 3).

    The body is `{"error": code, "message": message}`. `headers` come on top of the content type and length.
    """

    status: int
    code: str
    message: str
    headers: tuple[tuple[str, str], ...] = ()


class RefusedError(Exception):
    """Raised inside a request to answer it with a refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


STATUS_OF: Final = {
    "bad_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "host_not_allowed": 403,
    "origin_not_allowed": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "timeout": 408,
    "lease_lost": 409,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "rate_limited": 429,
    "header_too_large": 431,
    "internal_error": 500,
    "unavailable": 503,
    "no_resource_plane": 404,
    "no_peer_plane": 404,
    "outside_root": 403,
    "symlink_refused": 403,
    "not_a_regular_file": 403,
    "too_large": 413,
    "io_error": 500,
    "malformed_handle": 400,
    "missing_audience": 400,
    "handle_not_valid": 403,
    "handle_expired": 410,
}
"""HTTP status by refusal code (`spec/murmur.md` sections 3, 5 and 6)."""


def refusal(code: str, message: str, *headers: tuple[str, str]) -> Refusal:
    """Make the refusal of a known code; `headers` are added to its answer."""
    return Refusal(STATUS_OF[code], code, message, headers)
