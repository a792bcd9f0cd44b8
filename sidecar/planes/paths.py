"""From the raw rest of a request target to a path that is safe to resolve (murmur reference, resource planes)."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_to_bytes

from sidecar.errors import RefusedError, refusal

_OUTSIDE: Final = refusal(
    "outside_root",
    "The path does not lie beneath the exported root; name it relative to the root, without '.', '..' or empty components.",
)


def outside() -> RefusedError:
    """Return the refusal of a path that is badly shaped or leads outside."""
    return RefusedError(_OUTSIDE)


def from_target(rest: str) -> bytes:
    """Decode what follows the plane's prefix in a raw request target, and check its shape.

    `rest` has no query. It is percent-decoded once: a `%` without two hex digits and a `+` stay, `%2F` separates.
    Returns the bytes of a relative path. Raises RefusedError `outside_root`.
    """
    try:
        raw = rest.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise outside() from None
    return checked(unquote_to_bytes(raw) if b"%" in raw else raw)


def checked(path: bytes) -> bytes:
    """Check the shape of a decoded path; one trailing `/` is dropped. Raises RefusedError `outside_root`."""
    if not path or b"\0" in path or path.startswith(b"/"):
        raise outside()
    try:
        path.decode()
    except UnicodeDecodeError:
        raise outside() from None
    path = path.removesuffix(b"/")
    if not {b"", b".", b".."}.isdisjoint(path.split(b"/")):
        raise outside()
    return path
