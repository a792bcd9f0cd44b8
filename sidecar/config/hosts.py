"""Names and addresses of hosts, values of the Host and the Origin header: checked, in their usual form. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from sidecar.config.quantities import LAST_PORT, quoted

LONGEST_NAME: Final = 253
"""Characters of a host name (RFC 1035 section 2.3.4, without the root)."""
WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104 - known, not bound
USUAL_PORTS: Final = {"http": ":80", "https": ":443"}
"""What browsers leave out of an Origin (RFC 6454 section 6.2)."""

_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_AUTHORITY: Final = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_ORIGIN: Final = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#@\s]+)(?P<rest>[/?#].*)?", re.ASCII)
_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<authority>[^/?#]*)(?P<rest>(?:[/?][!-~]*)?)", re.ASCII | re.IGNORECASE
)
_PLACEHOLDER: Final = re.compile(r"\{[^{}]*\}")
_CREDENTIALS: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#]*@", re.IGNORECASE)

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_V4: Final = 0xFFFF_FFFF

IN_PUBLIC_URL: Final = ("{id}", "{port}")
"""What stands in a public URL for a capsule's id and for the port that a listener has."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def address_of(host: str) -> Address | None:
    """Return the address that a host is, None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether a host or address is this machine's own, by its name alone: other names are not looked up."""
    address = address_of(host)
    if address is not None:
        return address.is_loopback
    name = host.removesuffix(".")
    return name == "localhost" or name.endswith(".localhost")


def is_public(address: str) -> bool:
    """Whether an address may be anywhere on the internet: neither this machine nor a network around it.

    An IPv6 address that stands for an IPv4 one (mapped, 6to4, Teredo, NAT64) is judged by that one. What is no
    address at all is not public.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address | None, ...] = ()
    if isinstance(found, ipaddress.IPv6Address):
        nat64 = ipaddress.IPv4Address(int(found) & _V4) if found in _NAT64 else None
        if found.ipv4_mapped is not None:
            return is_public(str(found.ipv4_mapped))
        if nat64 is not None:
            return is_public(str(nat64))
        if found.is_site_local:
            return False
        inner = (found.sixtofour, *(found.teredo or ()))
    return (
        found.is_global
        and not found.is_multicast
        and not found.is_reserved
        and all(one is None or is_public(str(one)) for one in inner)
    )


def parse_host(text: str) -> str:
    """Return a host name or an address, without a port, in its usual form: lower case, no brackets.

    Raises ValueError with what to write instead.
    """
    if "://" in text or re.fullmatch(r"[^:]+:[0-9]*|\[.*\]:[0-9]*", text, re.ASCII):
        raise ValueError(f"{quoted(text)}: write the host alone, without scheme and port")
    return _host(text)


def _host(text: str) -> str:
    address = address_of(text[1:-1] if text.startswith("[") and text.endswith("]") else text)
    if address is not None:
        return str(address)
    name = text.lower()
    labels = name.removesuffix(".").split(".")
    plain = all(_LABEL.fullmatch(label) for label in labels) and len(name) <= LONGEST_NAME
    if not plain or labels[-1].isdigit():
        raise ValueError(f"{quoted(text)} is neither a host name nor an address")
    return name


def parse_advertised(text: str) -> str:
    """Return the host that cards name: one that a client can connect to.

    Raises ValueError with what to write instead.
    """
    found = parse_host(text)
    if found in WILDCARDS:
        raise ValueError(
            f"{found} is no address to connect to; write the name by which clients reach this host"
        )
    return found


def parse_allowed(text: str) -> str:
    """Return a value of the Host header as clients send it: `name`, `name:8080`, `[::1]`, `[::1]:8080`.

    Raises ValueError with what to write instead.
    """
    match = _AUTHORITY.fullmatch(text)
    found = _host(match["host"] if match else text)
    if ":" in found:
        found = f"[{found}]"
    if match is None or match["port"] is None:
        return found
    port = int(match["port"])
    if not 1 <= port <= LAST_PORT:
        raise ValueError(f"{match['port']} is no port: they go from 1 to {LAST_PORT}")
    return f"{found}:{port}"


def parse_origin(text: str) -> str:
    """Return a value of the Origin header as browsers send it: scheme, host, and the port where it is unusual.

    Raises ValueError with what to write instead.
    """
    match = _ORIGIN.fullmatch(text.lower())
    if match is None:
        raise ValueError(
            f"{quoted(text)} is no origin; write it like https://example.org or http://localhost:3000"
        )
    start = f"{match['scheme']}://{match['authority']}"
    if match["rest"]:
        raise ValueError(f"{quoted(text)}: write the origin without a path, {start}")
    authority = parse_allowed(match["authority"])
    return f"{match['scheme']}://{authority.removesuffix(USUAL_PORTS[match['scheme']])}"


def parse_url(text: str) -> str:
    """Return a URL to connect to: http or https, with a host, without credentials and fragment.

    Raises ValueError with what to write instead; where there are credentials it does not repeat them.
    """
    if _CREDENTIALS.match(text):
        raise ValueError("must hold no credentials; take them out of the URL")
    if "#" in text:
        raise ValueError("must hold no fragment; leave out the # and what follows it")
    match = _URL.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{quoted(text)} is no URL of http or https; write it like http://localhost:52222, "
            "with anything but visible ASCII percent-encoded"
        )
    authority = match["authority"]
    if not authority:
        raise ValueError(f"{quoted(text)} names no host; write it like http://localhost:52222")
    if not authority.startswith("[") and authority.count(":") > 1:
        raise ValueError(f"{quoted(text)}: an IPv6 address stands in brackets, like http://[::1]:52222")
    return f"{match['scheme'].lower()}://{parse_allowed(authority)}{match['rest']}"


def parse_public_url(text: str) -> str:
    """Return the URL by which clients reach a capsule through a proxy, without a slash at its end.

    `{id}` and `{port}` may stand in it. Raises ValueError with what to write instead.
    """
    for found in _PLACEHOLDER.findall(text):
        if found not in IN_PUBLIC_URL:
            raise ValueError(f"{quoted(text)}: {found} is unknown; there are {' and '.join(IN_PUBLIC_URL)}")
    example = text.replace("{id}", "a").replace("{port}", "1")
    if "?" in text or "\\" in text or set("{}") & set(example):
        what = (
            "an unpaired brace" if set("{}") & set(example) else "a query" if "?" in text else "a backslash"
        )
        raise ValueError(f"{quoted(text)} holds {what}; write scheme, host and path alone")
    if not text.lower().startswith(("http://", "https://")):
        raise ValueError(f"{quoted(text)} is no URL; write it like https://example.org/agents/{{id}}")
    try:
        parse_url(example)
    except ValueError as error:
        if example == text:
            raise
        raise ValueError(f"with an id and a port put in: {error}") from None
    return text.rstrip("/")


def parse_base_url(text: str) -> str:
    """Return the URL by which browsers reach the desk through a proxy, without a slash at its end.

    Raises ValueError with what to write instead.
    """
    if "{" in text or "}" in text:
        raise ValueError(f"{quoted(text)}: there is one desk, so nothing is put in for braces")
    return parse_public_url(text)


def public_host(url: str) -> str | None:
    """Return the `host` or `host:port` of a public URL as clients name it, None where it differs by capsule."""
    authority = url.split("/", 3)[2]
    return None if "{" in authority else parse_allowed(authority)


def public_origin(url: str) -> str | None:
    """Return the origin of the pages below a public URL, None where it differs by capsule."""
    start = "/".join(url.split("/", 3)[:3])
    return None if "{" in start else parse_origin(start)


def parse_network(text: str) -> str:
    """Return an address, or a network of them such as `10.0.0.0/8`, in its usual form.

    Raises ValueError with what to write instead.
    """
    try:
        network = ipaddress.ip_network(text.strip("[]") if "/" not in text else text)
    except ValueError:
        pass
    else:
        return str(network.network_address if network.num_addresses == 1 else network)
    try:
        meant = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(
            f"{quoted(text)} is neither an address nor a network; write it like 127.0.0.1 or 10.0.0.0/8"
        ) from None
    raise ValueError(f"{quoted(text)} has bits beyond its network; write {meant}")
