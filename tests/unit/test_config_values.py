"""Durations, sizes, ports, hosts and origins: from how a person writes them to what the sidecar works with."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config.hosts import (
    is_loopback,
    parse_advertised,
    parse_allowed,
    parse_base_url,
    parse_host,
    parse_network,
    parse_origin,
    parse_public_url,
    public_host,
    public_origin,
)
from sidecar.config.quantities import (
    A_CENTURY,
    SIZES,
    UNITS,
    PortRange,
    parse_duration,
    parse_ports,
    parse_size,
    written_duration,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("40ms", 0.04),
        ("2s", 2.0),
        ("1.5h", 5400.0),
        ("5m", 300.0),
        ("30d", 2592000.0),
        ("0s", 0.0),
        ("2500ms", 2.5),
    ],
)
def test_a_duration_is_a_number_and_its_unit(written: str, seconds: float) -> None:
    """Each unit of the design is understood, fractions too."""
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("2", "write 2s"),
        ("2 s", "write 2s"),
        ("40 ms", "write 40ms"),
        ("1sec", "write 1s"),
        ("10 Minutes", "write 10m"),
        ("7 days", "write 7d"),
        ("2S", "such as"),
        ("-2s", "such as"),
        ("1h30m", "such as"),
        ("soon", "such as"),
        ("", "such as"),
        ("٢s", "such as"),
        ("40000d", "hundred years"),
        ("2s\n", "write 2s"),
    ],
)
def test_what_is_no_duration_is_refused_with_what_to_write(written: str, instead: str) -> None:
    """The message shows the repaired value where there is one."""
    with pytest.raises(ValueError, match=instead):
        parse_duration(written)


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)))
def test_a_duration_survives_being_written(number: int, unit: str) -> None:
    """What is written in any unit comes back as that many seconds."""
    seconds = number / 1000 if unit == "ms" else number * UNITS[unit]
    if seconds <= A_CENTURY:
        assert parse_duration(f"{number}{unit}") == pytest.approx(seconds)


@given(st.sampled_from([0.01, 0.04, 0.5, 1.0, 2.5, 15.0]))
def test_a_written_duration_can_be_read_back(seconds: float) -> None:
    """Messages show durations as the file would have them."""
    assert parse_duration(written_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("written", "size"),
    [("1", 1), ("1048576", 1 << 20), ("128KiB", 131072), ("1MiB", 1 << 20), ("2GiB", 2 << 30)],
)
def test_a_size_is_bytes_or_carries_a_binary_unit(written: str, size: int) -> None:
    """A plain number is bytes."""
    assert parse_size(written) == size


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("1MB", "write 1MiB"),
        ("128k", "write 128KiB"),
        ("2 GiB", "write 2GiB"),
        ("1Mi", "write 1MiB"),
        ("1mib", "write 1MiB"),
        ("1.5MiB", "such as"),
        ("-1", "such as"),
        ("big", "such as"),
        ("9" * 100, "such as"),
        ("9" * 10_000, "such as"),
    ],
)
def test_what_is_no_size_is_refused_with_what_to_write(written: str, instead: str) -> None:
    """The message shows the repaired value where there is one."""
    with pytest.raises(ValueError, match=instead):
        parse_size(written)


PARSERS = (
    *(parse_duration, parse_size, parse_ports, parse_host, parse_allowed, parse_origin, parse_advertised),
    *(parse_public_url, parse_base_url, parse_network),
)


@given(st.sampled_from(PARSERS), st.text(max_size=30))
def test_any_text_is_a_value_or_a_value_error(parse: Callable[[str], object], text: str) -> None:
    """Nothing but ValueError comes out of the parsers, and its message is one line's worth."""
    message = ""
    try:
        assert parse(text) is not None
    except ValueError as error:
        message = str(error)
    assert len(message) < 250


@given(st.integers(1, 10**9), st.sampled_from(sorted(SIZES)))
def test_a_size_survives_being_written(number: int, unit: str) -> None:
    """What is written in any unit comes back as that many bytes."""
    assert parse_size(f"{number}{unit}") == number * SIZES[unit]


def test_a_range_of_ports_holds_both_its_ends() -> None:
    """The design's default range, and a range of one."""
    assert parse_ports("24000-31999") == PortRange(24000, 31999)
    assert 24000 in parse_ports("24000-31999")
    assert 31999 in parse_ports("24000-31999")
    assert 32000 not in parse_ports("24000-31999")
    assert parse_ports("24000") == PortRange(24000, 24000)
    assert str(parse_ports("1-65535")) == "1-65535"


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("0-100", "no range"),
        ("100-65536", "65535"),
        ("200-100", "write 100-200"),
        ("24000 - 31999", "no range"),
        ("24000:31999", "no range"),
        ("-5", "no range"),
        ("0123-200", "no range"),
        ("", "no range"),
        ("99999", "65535"),
    ],
)
def test_a_range_outside_the_ports_is_refused(written: str, instead: str) -> None:
    """A range lies within 1-65535 and is not upside down."""
    with pytest.raises(ValueError, match=instead):
        parse_ports(written)


@given(st.integers(1, 65535), st.integers(1, 65535), st.integers(1, 65535), st.integers(1, 65535))
def test_ranges_overlap_where_they_share_a_port(a: int, b: int, c: int, d: int) -> None:
    """Overlap is the same as an intersection that is not empty, and works both ways."""
    one, other = PortRange(min(a, b), max(a, b)), PortRange(min(c, d), max(c, d))
    shared = max(one.first, other.first) <= min(one.last, other.last)
    assert one.overlaps(other) == other.overlaps(one) == shared


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("::", "::"),
        ("2001:DB8::0001", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("localhost", "localhost"),
        ("Build-Host.Example.org", "build-host.example.org"),
        ("my_service", "my_service"),
        ("example.org.", "example.org."),
    ],
)
def test_a_host_comes_out_in_its_usual_form(written: str, host: str) -> None:
    """Names in lower case, addresses as the standard writes them, no brackets."""
    assert parse_host(written) == host


@pytest.mark.parametrize(
    "written",
    [
        "",
        "127.0.0.01",
        "127.1",
        "256.0.0.1",
        "1.2.3.4.5",
        "a b",
        "-a",
        "a-",
        "a..b",
        "*",
        "ex*mple.org",
        "http://localhost",
        "localhost:80",
        "[::1]:80",
        "[::1",
        "::g",
        "é.example",
        "a" * 64,
        ".".join(["a" * 60] * 5),
    ],
)
def test_what_is_no_host_is_refused(written: str) -> None:
    """Names follow RFC 1123 (underscores allowed), and what ends in a number must be an address."""
    with pytest.raises(ValueError, match=r"host"):
        parse_host(written)


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_every_address_is_a_host(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """An address comes back equal, however it was spelt."""
    assert ipaddress.ip_address(parse_host(str(address))) == address
    assert ipaddress.ip_address(parse_host(address.exploded)) == address


@pytest.mark.parametrize("written", ["0.0.0.0", "::", "[::]", "0:0:0:0:0:0:0:0"])
def test_cards_never_name_a_wildcard(written: str) -> None:
    """B35 (the advertised address): nobody can connect to a wildcard."""
    with pytest.raises(ValueError, match="no address to connect to"):
        parse_advertised(written)


@pytest.mark.parametrize(
    ("written", "header"),
    [
        ("Example.org", "example.org"),
        ("example.org:8080", "example.org:8080"),
        ("10.0.0.7:080", "10.0.0.7:80"),
        ("::1", "[::1]"),
        ("[::1]:24000", "[::1]:24000"),
        ("[2001:DB8::1]", "[2001:db8::1]"),
    ],
)
def test_an_allowed_host_is_what_clients_send(written: str, header: str) -> None:
    """The Host header has brackets around IPv6 addresses (RFC 9110 section 7.2)."""
    assert parse_allowed(written) == header


@pytest.mark.parametrize(
    "written", ["example.org:0", "example.org:99999", "example.org:http", "http://example.org", ""]
)
def test_what_no_client_sends_is_no_allowed_host(written: str) -> None:
    """A value that could never match is refused, not kept."""
    with pytest.raises(ValueError, match=r"port|host"):
        parse_allowed(written)


@pytest.mark.parametrize(
    ("written", "header"),
    [
        ("https://Example.org", "https://example.org"),
        ("https://example.org:443", "https://example.org"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
    ],
)
def test_an_origin_is_what_browsers_send(written: str, header: str) -> None:
    """Lower case, and without the usual port (RFC 6454 section 6.2)."""
    assert parse_origin(written) == header


@pytest.mark.parametrize(
    "written",
    ["example.org", "https://example.org/", "https://example.org/app", "null", "*", "ftp://a", "https://u@a"],
)
def test_what_no_browser_sends_is_no_origin(written: str) -> None:
    """A value that could never match is refused, not kept."""
    with pytest.raises(ValueError, match="origin"):
        parse_origin(written)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("a.localhost.", True),
        ("0.0.0.0", False),
        ("192.168.1.1", False),
        ("example.org", False),
        ("localhost.example.org", False),
    ],
)
def test_loopback_is_told_by_name_or_address(host: str, *, loopback: bool) -> None:
    """No name is looked up."""
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("written", "url", "host", "origin"),
    [
        ("https://A.example", "https://A.example", "a.example", "https://a.example"),
        ("http://a.example:8080/x/", "http://a.example:8080/x", "a.example:8080", "http://a.example:8080"),
        ("https://a.example/{id}//", "https://a.example/{id}", "a.example", "https://a.example"),
        ("http://[::1]:{port}", "http://[::1]:{port}", None, None),
        ("https://{id}.a.example", "https://{id}.a.example", None, None),
    ],
)
def test_a_public_url_is_a_place_with_an_id_and_a_port_put_in(
    written: str, url: str, host: str | None, origin: str | None
) -> None:
    """It names the Host and the Origin to let in, where these are the same for all capsules."""
    assert parse_public_url(written) == url
    assert (public_host(url), public_origin(url)) == (host, origin)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("ftp://a.example", "write it like https"),
        ("https://", "names no host"),
        ("https://u:p@a.example/{id}", "credentials"),
        ("https://a.example/#x", "fragment"),
        ("https://a.example/{Id}", "there are {id} and {port}"),
        ("https://a.example/{id", "unpaired brace"),
        ("https://a.example/a b", "percent-encoded"),
        ("https://a.example:{id}", "with an id and a port put in"),
    ],
)
def test_a_public_url_that_is_none_is_refused_with_what_to_write(written: str, words: str) -> None:
    """What would make cards that lead nowhere."""
    with pytest.raises(ValueError, match=words):
        parse_public_url(written)


def test_the_desk_has_one_public_url() -> None:
    """What stands for a capsule on the cards of many has no place in it."""
    assert parse_base_url("https://desk.example/sidecar/") == "https://desk.example/sidecar"
    with pytest.raises(ValueError, match="one desk"):
        parse_base_url("https://desk.example/{id}")


@given(st.ip_addresses())
def test_a_proxy_is_an_address_or_a_network(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """In their usual form, whichever way they were written."""
    assert parse_network(str(address)) == parse_network(address.exploded) == str(address)
    network = ipaddress.ip_network((address, 9), strict=False)
    assert parse_network(str(network)) == str(network)
