"""Which addresses are public: where a provider may be without being allowed to be inside."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.config.hosts import is_public


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
        ),
        *("169.254.169.254", "100.64.0.1", "198.18.0.1", "192.0.2.1", "224.0.0.1", "239.1.1.1", "240.0.0.1"),
        *(
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fe80::1%eth0",
            "fc00::1",
            "fd00::1",
            "ff02::1",
            "fec0::1",
        ),
        *("2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"),
        *("64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::1"),
        *("", "example.org", "127.1", "0x7f000001", "2130706433", "1.1.1.1.1", "[::1]"),
    ],
)
def test_what_is_not_certainly_outside_is_not_public(address: str) -> None:
    """This machine, networks around it, what only documents use, IPv6 that stands for any of these, and no addresses."""
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "93.184.216.34",
        "2606:4700:4700::1111",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
        "2002:101:101::1",
    ],
)
def test_what_is_outside_is_public(address: str) -> None:
    """Written in either way."""
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_an_address_is_judged_alike_in_every_disguise(address: ipaddress.IPv4Address) -> None:
    """Mapped, behind NAT64, and by 6to4."""
    number = int(address)
    disguises = (f"::ffff:{address}", str(ipaddress.IPv6Address((0x64FF9B << 96) | number)))
    assert {is_public(one) for one in disguises} == {is_public(str(address))}
    if not is_public(str(address)):
        assert not is_public(str(ipaddress.IPv6Address((0x2002 << 112) | (number << 80))))
