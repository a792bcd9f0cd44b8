"""Paths as text: what lies in what, and how deep to look. Absolute, surrogate-escaped where they are not UTF-8."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.watch.values import Root

Ident = tuple[int, int]
"""What tells one directory from another: device and inode."""


def ident_of(path: str) -> Ident | None:
    """Return the device and inode that a path leads to, or None where it cannot be told."""
    try:
        found = os.stat(path)  # noqa: PTH116 - surrogate-escaped text paths throughout
    except OSError:
        return None
    return found.st_dev, found.st_ino


def plain(path: str) -> str:
    """Return a path without slashes at its end."""
    return path.rstrip("/") or "/"


def inside(path: str) -> str:
    """Return what the paths of all that lies in a directory begin with."""
    return path if path == "/" else f"{path}/"


def parent_of(path: str) -> str:
    """Return the path of the directory that a path lies in, by its text."""
    return path.rpartition("/")[0] or "/"


def depths_of(roots: Iterable[Root]) -> dict[str, int]:
    """Return how deep to look below each root; one that lies in another is looked into as deep as both say."""
    own: dict[str, int] = {}
    for root in roots:
        path = plain(root.path)
        own[path] = max(root.depth, own.get(path, 0))
    depths = dict(own)
    for above, depth in own.items():
        for path, deep in depths.items():
            if path.startswith(inside(above)):
                levels = path[len(inside(above)) :].count("/") + 1
                depths[path] = max(deep, depth - levels)
    return depths
