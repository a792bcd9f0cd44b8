"""Foreign cards: what a door elsewhere speaks, and where (murmur reference, A2A 0.3 section 5.5, A2A 1.0 section 4.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from sidecar.dialects.reading import Object, UnreadableError, a_text, an_object, objects, parsed, text_or

if TYPE_CHECKING:
    from collections.abc import Iterator

BINDING: Final = "JSONRPC"
"""The one transport that is spoken here."""


@dataclass(frozen=True, slots=True)
class MurmurCard:
    """A murmur capsule: the session that it serves, its methods and its planes."""

    session_id: str
    methods: tuple[str, ...]
    planes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class A2aCard:
    """An A2A agent: the version to speak with it (`0.3` or `1.0`), where, and whether it streams."""

    version: str
    url: str
    streaming: bool


def read_card(data: bytes) -> MurmurCard | A2aCard:
    """Tell what a card is of: `serves` is murmur's, `supportedInterfaces` A2A 1.0's, else it is A2A 0.3's.

    Raises UnreadableError, also for an agent with which JSON-RPC cannot be spoken.
    """
    card = an_object(parsed(data, "its card"), "its card")
    serves = card.get("serves")
    if type(serves) is dict:
        return MurmurCard(
            a_text(card, "session_id", "its card"), _names(serves, "methods"), _names(serves, "planes")
        )
    capabilities = card.get("capabilities")
    streaming = type(capabilities) is dict and capabilities.get("streaming") is True
    found: dict[str, str] = {}
    bindings: set[str] = set()
    for version, binding, url in (*_interfaces_10(card), *_interfaces_03(card)):
        bindings.add(binding)
        if binding.upper() == BINDING and _is_http(url):
            found.setdefault(version, url)
    for version in ("1.0", "0.3"):
        if version in found:
            return A2aCard(version, found[version], streaming)
    if bindings:
        spoken = ", ".join(sorted(bindings)[:5])
        raise UnreadableError(f"its card offers {spoken}, and none of them is JSONRPC of A2A 0.3 or 1.0")
    raise UnreadableError("its card is neither a murmur capsule's nor an A2A agent's")


def _interfaces_10(card: Object) -> Iterator[tuple[str, str, str]]:
    for entry in objects(card.get("supportedInterfaces")):
        number = text_or(entry, "protocolVersion", "1.0")
        version = "0.3" if number.startswith("0.") else "1.0" if number.startswith("1.") else number
        yield version, text_or(entry, "protocolBinding"), text_or(entry, "url")


def _interfaces_03(card: Object) -> Iterator[tuple[str, str, str]]:
    if type(card.get("url")) is str:
        yield "0.3", text_or(card, "preferredTransport", BINDING), card["url"]
    for entry in objects(card.get("additionalInterfaces")):
        yield "0.3", text_or(entry, "transport"), text_or(entry, "url")


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and url.isascii() and url.isprintable() and " " not in url


def _names(holder: dict[str, Any], key: str) -> tuple[str, ...]:
    value = holder.get(key)
    return tuple(each for each in value if type(each) is str) if type(value) is list else ()
