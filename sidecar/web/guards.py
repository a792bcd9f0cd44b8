"""Who may ask at all: the `Host` allow-list against DNS rebinding, and the `Origin` check (design, Guards)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs

from sidecar.errors import Refusal, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multidict import CIMultiDictProxy

REMEMBERED: Final = 1024
SHOWN: Final = 100

_AUTHORITY: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._~!$&'()*+,;=%-]+))(?::(?P<port>[0-9]{0,5}))?"
)
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Authority = tuple[str, int | None]


def parse_authority(text: str) -> Authority | None:
    """Return host (lowercase, without brackets or a final dot) and port (None: not given); None if malformed."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        return None
    if (v6 := match["v6"]) is not None:
        try:
            host = str(ipaddress.IPv6Address(v6))
        except ValueError:
            return None
    else:
        host = match["name"].lower().removesuffix(".")
    port = int(match["port"]) if match["port"] else None
    return None if port is not None and port > 65535 else (host, port)  # noqa: PLR2004 - the highest port


def parse_origin(text: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of an http(s) origin, the default port filled in; None if it is none."""
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    authority = parse_authority(rest) if separator and scheme in _DEFAULT_PORTS else None
    return None if authority is None else (scheme, authority[0], authority[1] or _DEFAULT_PORTS[scheme])


def is_loopback(host: str) -> bool:
    """Tell whether a host is a loopback name: `localhost`, 127.0.0.0/8, `::1` (without brackets)."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=64)
def _is_loopback_address(address: str) -> bool:
    return is_loopback(address)


@dataclass(frozen=True, slots=True)
class Rules:
    """What a listener lets in. `hosts` are `host` (any port) or `host:port`; `advertised` are hosts named on cards.

    `origins` are further origins than a listener's own. `section` is where `allowed_hosts` stands in the
    configuration, for messages: `listen` or `desk`.
    """

    section: str
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    advertised: tuple[str, ...] = ()


class Guard:
    """The check of one kind of address: `strict` ones take only known hosts, the others any well-formed one."""

    __slots__ = ("_good", "_hosts", "_origins", "_rules", "_strict")

    def __init__(self, rules: Rules, *, strict: bool) -> None:
        self._rules = rules
        self._strict = strict
        self._hosts = frozenset(_authorities((*rules.hosts, *rules.advertised)))
        self._origins = frozenset(parse_origin(o) or o.lower() for o in rules.origins)
        self._good: dict[str, Authority] = {}

    @property
    def remembered(self) -> int:
        """How many good hosts it knows by heart."""
        return len(self._good)

    def check(self, headers: CIMultiDictProxy[str], *, secure: bool = False) -> Refusal | None:
        """Return why a request with these headers is refused, or None. Comes before anything is dispatched.

        `secure`: it came over TLS. A listener of plain HTTP takes https origins too: a proxy may end TLS before it.
        """
        host = headers.get(hdrs.HOST)
        if host in self._good and hdrs.ORIGIN not in headers:
            return None
        return self._check_host(headers) or self._check_origin(headers, secure=secure)

    def _check_host(self, headers: CIMultiDictProxy[str]) -> Refusal | None:
        given = headers.getall(hdrs.HOST, [])
        if len(given) != 1:
            return refusal("bad_request", "A request needs exactly one Host header.")
        authority = parse_authority(given[0])
        if authority is None:
            return refusal("bad_request", f"The Host header {_shown(given[0])} is malformed.")
        if self._strict and not self._knows(authority):
            return refusal(
                "host_not_allowed",
                f"The Host {_shown(given[0])} is not allowed here; if it is meant to reach this listener, "
                f"add it to {self._rules.section}.allowed_hosts.",
            )
        if len(self._good) >= REMEMBERED:
            self._good.clear()
        self._good[given[0]] = authority
        return None

    def _knows(self, authority: Authority) -> bool:
        host, _ = authority
        return is_loopback(host) or authority in self._hosts or (host, None) in self._hosts

    def _check_origin(self, headers: CIMultiDictProxy[str], *, secure: bool) -> Refusal | None:
        for text in headers.getall(hdrs.ORIGIN, ()):
            origin = parse_origin(text)
            if origin is not None and self._same(origin, headers[hdrs.HOST], secure=secure):
                continue
            if text != "null" and (origin or text.lower()) in self._origins:
                continue
            return refusal(
                "origin_not_allowed",
                f"The Origin {_shown(text)} is not allowed here; if its pages are meant to call this listener, "
                "add it to listen.allowed_origins.",
            )
        return None

    def _same(self, origin: tuple[str, str, int], host: str, *, secure: bool) -> bool:
        scheme, name, port = origin
        if secure and scheme != "https":
            return False  # a page of plain HTTP can be made up by whoever is on the way
        known, known_port = self._good[host]
        return name == known and port == (known_port or _DEFAULT_PORTS[scheme])


class Guards:
    """The guards of all listeners of one section, by the address that a socket is bound to."""

    __slots__ = ("_elsewhere", "_loopback")

    def __init__(self, rules: Rules) -> None:
        self._loopback = Guard(rules, strict=True)
        self._elsewhere = self._loopback if rules.hosts else Guard(rules, strict=False)

    def of(self, address: str) -> Guard:
        """Return the guard of a listening address: beyond loopback `Host` is checked only if hosts are configured."""
        return self._loopback if _is_loopback_address(address) else self._elsewhere


def _authorities(texts: Iterable[str]) -> Iterable[Authority]:
    for text in texts:
        bracketed = f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text
        if (authority := parse_authority(bracketed)) is not None:
            yield authority


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")
