"""Ids: which capsule is called what. Pure.

An id is at most 129 characters of `a-z 0-9 . _ - ~`: a slug of the manifest's name, and for a namesake the slug of its
directory behind a `~`.
"""

from __future__ import annotations

import os.path
import re
import unicodedata
from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

SLUG_LENGTH: Final = 64
ID_LENGTH: Final = 129
NAMELESS: Final = "capsule"
"""The slug of a name that has nothing to make one of."""

_OTHERS: Final = re.compile(r"[^a-z0-9._-]+")


def slug(name: str) -> str:
    """Return 1 to 64 characters of `a-z 0-9 . _ -` for a name.

    Letters lose their accents and their case; runs of anything else become one `-`; `-` and `.` at the ends go.
    """
    apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", name).casefold())
    plain = "".join(c for c in apart if not unicodedata.combining(c))
    return _OTHERS.sub("-", plain).strip("-.")[:SLUG_LENGTH].rstrip("-.") or NAMELESS


def directory_slug(directory: str) -> str:
    """Return the slug of a directory's own name; undecodable bytes count as other characters."""
    return slug(os.path.basename(directory))  # noqa: PTH119 - text, kept as such


def assign(new: Iterable[tuple[str, str]], taken: Container[str]) -> dict[tuple[str, str], str]:
    """Return an id for each new (directory, name), none of which is taken.

    In sorted order of directories the first of a name gets its plain slug, the others `<slug>~<slug of directory>`,
    numbered where that is taken too.
    """
    given: dict[tuple[str, str], str] = {}
    free = _Free(taken)
    for directory, name in sorted(new):
        plain = slug(name)
        given[directory, name] = free.take(plain) or free.take_numbered(
            f"{plain}~{directory_slug(directory)}"
        )
    return given


def assign_listed(
    directories: Iterable[str], taken: Container[str], current: Mapping[str, str]
) -> dict[str, str]:
    """Return an id for each directory that is listed without being a capsule: its slug, numbered where taken.

    A directory keeps its `current` id while nothing else has it.
    """
    free = _Free(taken)
    given: dict[str, str] = {}
    waiting = []
    for directory in sorted(directories):
        kept = current.get(directory)
        if kept is not None and free.take(kept):
            given[directory] = kept
        else:
            waiting.append(directory)
    for directory in waiting:
        given[directory] = free.take_numbered(directory_slug(directory))
    return given


class _Free:
    """The ids that are still to be had."""

    def __init__(self, taken: Container[str]) -> None:
        self._taken = taken
        self._used: set[str] = set()
        self._tried: dict[str, int] = {}

    def take(self, wanted: str) -> str | None:
        if wanted in self._taken or wanted in self._used:
            return None
        self._used.add(wanted)
        return wanted

    def take_numbered(self, base: str) -> str:
        """Take the base, or `<base>~2`, `<base>~3`, …; numbers that were tried once are not tried again."""
        for number in count(self._tried.get(base, 1)):
            suffix = f"~{number}" if number > 1 else ""
            if taken := self.take(base[: ID_LENGTH - len(suffix)] + suffix):
                self._tried[base] = number + 1
                return taken
        raise AssertionError  # pragma: no cover - the numbers do not end
