"""What the path of a request is an instance of, and the parts of it that vary. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

CAPSULE: Final = "/api/capsules/{id}"
WORKER: Final = "/workers/{id}"
OWN: Final = frozenset({"/page/sign-in", "/page/sign-out"})
"""Paths beside the files of the page that are none."""

_PAGE: Final = "/page/"
_PARENTS: Final = (CAPSULE.split("/")[:-1], WORKER.split("/")[:-1])
_NAMES: Final = {"handles": "{handle_id}", "keys": "{key}", "tasks": "{task}"}


def template_of(path: str) -> str:
    """Return a path with what varies in braces: a capsule's id, that of a handle, key or task, the path of a file."""
    if path.startswith(_PAGE) and path not in OWN and path.count("/") == 2:  # noqa: PLR2004 - the file's own
        return f"{_PAGE}{{file}}"
    parts = path.split("/")
    for parent in _PARENTS:
        at = len(parent)
        if parts[:at] == parent and len(parts) > at:
            parts[at] = "{id}"
            kind, below = "".join(parts[at + 1 : at + 2]), at + 2
            if kind == "files" and len(parts) > below:
                parts[below:] = ["{path}"]
            elif kind in _NAMES and len(parts) > below:
                parts[below] = _NAMES[kind]
    return "/".join(parts)


def parts_of(path: str) -> list[str]:
    """Return the parts of the path of something of one capsule, from its id on, decoded."""
    return [unquote(part) for part in path.split("/")[3:]]
