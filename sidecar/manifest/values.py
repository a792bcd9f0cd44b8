"""The types of single values of a manifest: strict, and with messages that say what to write."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final

from sidecar.shapes import After, Before, Bounds, Schema, UnfitError
from sidecar.words import is_blank

if TYPE_CHECKING:
    from collections.abc import Mapping

BLANK: Final = "blank"
VALUE: Final = "value"
"""How a value does not fit, besides what shapes find: nothing can be seen of it; it is not allowed, as `text` says."""

MOST: Final = 2**53 - 1
"""No number of a manifest is larger: readers of JSON would round it."""

MAX_PORT: Final = 65535

_SIZE: Final = re.compile(r"([0-9]{1,16})(Ki|Mi|Gi)")
_TTL: Final = re.compile(r"([0-9]{1,16})([smhd]?)")
_UNITS: Final = MappingProxyType({"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30})
_SECONDS: Final = MappingProxyType({"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400})
_PEER: Final = re.compile(
    r"(?:https?://)?(?:\[([0-9A-Fa-f:.]+)\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?)(?::([0-9]{1,5}))?"
)


def size(value: object) -> object:
    """Return bytes of an integer, or of digits with Ki, Mi or Gi; what is neither is left to the type check."""
    return _quantity(
        value,
        _SIZE,
        _UNITS,
        "size; write bytes, or digits with Ki, Mi or Gi, above 0: 10485760 or 10Mi, for example",
    )


def ttl(value: object) -> object:
    """Return seconds of an integer, or of digits with s, m, h or d; what is neither is left to the type check."""
    return _quantity(
        value,
        _TTL,
        _SECONDS,
        "time; write seconds, or digits with s, m, h or d, above 0: 900 or 15m, for example",
    )


def seconds_of(value: object) -> int | None:
    """Return the seconds of a `max_ttl` as it stands in a manifest; None where it is not allowed."""
    try:
        seconds = ttl(value)
    except UnfitError:
        return None
    return seconds if type(seconds) is int else None


def _quantity(value: object, pattern: re.Pattern[str], units: Mapping[str, int], wanted: str) -> object:
    number = value
    if isinstance(value, str):
        found = pattern.fullmatch(value)
        number = int(found[1]) * units[found[2]] if found else 0
    if type(number) is int and not 0 < number <= MOST:
        raise UnfitError(VALUE, text=f"is no {wanted}")
    return number


def _seen(value: str) -> str:
    if is_blank(value):
        raise UnfitError(BLANK)
    return value


def _root(value: str) -> str:
    _seen(value)
    if value.startswith("/"):
        raise UnfitError(VALUE, text="is absolute; write it relative to the workspace, `out/` for example")
    if ".." in value.split("/"):
        raise UnfitError(
            VALUE, text="has a `..` in it; write a directory below the workspace, `out/` for example"
        )
    if "\0" in value:
        raise UnfitError(VALUE, text="has a NUL in it, which no path can have; remove it")
    return value


def _peer(value: str) -> str:
    found = _PEER.fullmatch(value)
    if (
        found is None
        or not _is_ipv6(found[1])
        or (found[2] is not None and not 0 < int(found[2]) <= MAX_PORT)
    ):
        raise UnfitError(
            VALUE, text="is no address of a peer; write `host`, `host:port` or `http(s)://host[:port]`"
        )
    return value


def _is_ipv6(bracketed: str | None) -> bool:
    try:
        return bracketed is None or bool(IPv6Address(bracketed))
    except AddressValueError:
        return False


Text = Annotated[str, After(_seen), Schema({"type": "string", "pattern": r"\S"})]
Whole = Annotated[int, Bounds(0, MOST)]
Port = Annotated[int, Bounds(0, MAX_PORT)]
Peer = Annotated[str, After(_peer)]
Root = Annotated[str, After(_root), Schema({"type": "string", "pattern": r"^[^/]"})]
Size = Annotated[
    int,
    Before(size),
    Schema(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9]+(Ki|Mi|Gi)$"}]}
    ),
]
Ttl = Annotated[
    int,
    Before(ttl),
    Schema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9]+[smhd]?$"}]}),
]
