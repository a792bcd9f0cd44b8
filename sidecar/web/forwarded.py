"""What proxies say of a request that they pass on: believed of those that the configuration trusts, of nobody else."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs

from sidecar.web.guards import parse_authority

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv4Address

    from multidict import CIMultiDictProxy

FOR: Final = "X-Forwarded-For"
HOST: Final = "X-Forwarded-Host"
PROTO: Final = "X-Forwarded-Proto"
PREFIX: Final = "X-Forwarded-Prefix"

_PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9._~%!$&'()*+,;=:@-]{1,128}){0,16}/?", re.ASCII)


class Proxies:
    """The proxies of a configuration, by their addresses or networks."""

    __slots__ = ("_is_trusted", "_networks")

    def __init__(self, networks: Sequence[str] = ()) -> None:
        self._networks = tuple(ip_network(network) for network in networks)
        self._is_trusted = lru_cache(maxsize=256)(self._look_up)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def trusts(self, peer: str | None) -> bool:
        """Whether what this peer forwards is believed."""
        return bool(self._networks) and peer is not None and self._is_trusted(peer)

    def client(self, peer: str | None, headers: CIMultiDictProxy[str]) -> str | None:
        """Return the address of who asks: the peer, or whom a trusted one asks for.

        Of a chain of proxies the last that is not trusted counts, since whatever stands before it may be made up.
        """
        if not self.trusts(peer):
            return peer
        found = peer
        for text in reversed(",".join(headers.getall(FOR, ())).split(",")):
            address = _address(text.strip())
            if address is None:
                return found
            found = str(address)
            if not self._is_trusted(found):
                return found
        return found

    def base(self, peer: str | None, headers: CIMultiDictProxy[str]) -> str | None:
        """Return the URL, without a slash at its end, below which the client asked a trusted peer; None if it says none.

        What is not well-formed is as good as not said.
        """
        if not self.trusts(peer):
            return None
        host, proto, prefix = (_last(headers, name) for name in (HOST, PROTO, PREFIX))
        if not (host or proto or prefix):
            return None
        authority = host or headers.get(hdrs.HOST, "")
        if parse_authority(authority) is None or proto.lower() not in ("", "http", "https"):
            return None
        if _PREFIX.fullmatch(prefix) is None:
            return None
        return f"{proto.lower() or 'http'}://{authority.lower()}{prefix.rstrip('/')}"

    def _look_up(self, peer: str) -> bool:
        address = _address(peer)
        return address is not None and any(address in network for network in self._networks)


def _last(headers: CIMultiDictProxy[str], name: str) -> str:
    """Return what the nearest proxy put into a header."""
    return ",".join(headers.getall(name, ())).rpartition(",")[2].strip()


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address, with or without a port, as proxies write it; IPv4 in the form of IPv6 as IPv4."""
    authority = parse_authority(text) if text.startswith("[") or text.count(":") == 1 else (text, None)
    try:
        address = ip_address((authority or ("", None))[0].partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
