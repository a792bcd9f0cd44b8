"""What proxies say of the requests that they pass on."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from sidecar.web.forwarded import Proxies


def headers(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    """Make the headers of a request."""
    return CIMultiDictProxy(CIMultiDict(pairs))


LOCAL = Proxies(("127.0.0.1", "10.0.0.0/8", "::1"))


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("127.0.0.1", True),
        ("127.0.0.2", False),
        ("10.1.2.3", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:11.0.0.1", False),
        ("unix", False),
        ("", False),
        (None, False),
    ],
)
def test_a_peer_is_trusted_by_its_address(peer: str | None, trusted: bool) -> None:  # noqa: FBT001 - a table
    """Single addresses and networks, IPv4 also where it comes as IPv6."""
    assert LOCAL.trusts(peer) is trusted
    assert Proxies().trusts(peer) is False


@pytest.mark.parametrize(
    ("chain", "client"),
    [
        ((), "127.0.0.1"),
        (("192.0.2.7",), "192.0.2.7"),
        (("192.0.2.7:4711",), "192.0.2.7"),
        (("[2001:db8::7]:4711",), "2001:db8::7"),
        (("203.0.113.9, 192.0.2.7",), "192.0.2.7"),
        (("203.0.113.9, 192.0.2.7, 10.0.0.1",), "192.0.2.7"),
        (("203.0.113.9", "192.0.2.7"), "192.0.2.7"),
        (("10.0.0.9, 10.0.0.1",), "10.0.0.9"),
        (("192.0.2.7, unknown",), "127.0.0.1"),
        (("unknown, 10.0.0.1",), "10.0.0.1"),
    ],
)
def test_the_client_is_the_last_of_the_chain_that_is_no_proxy_of_ours(
    chain: tuple[str, ...], client: str
) -> None:
    """What stands before it anybody may have made up."""
    made = headers(*(("X-Forwarded-For", value) for value in chain))
    assert LOCAL.client("127.0.0.1", made) == client
    assert LOCAL.client("192.0.2.1", made) == "192.0.2.1"
    assert Proxies().client("127.0.0.1", made) == "127.0.0.1"


HOST, PROTO, PREFIX = "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Prefix"


@pytest.mark.parametrize(
    ("said", "base"),
    [
        ([], None),
        ([("Host", "a.example")], None),
        ([(HOST, "A.example")], "http://a.example"),
        ([(HOST, "a.example:8443"), (PROTO, "HTTPS")], "https://a.example:8443"),
        ([(HOST, "a.example"), (PREFIX, "/agents/x/")], "http://a.example/agents/x"),
        ([("Host", "b.example"), (PROTO, "https")], "https://b.example"),
        ([(HOST, "made-up.example, a.example")], "http://a.example"),
        ([(HOST, "[::1]:1")], "http://[::1]:1"),
        ([(PROTO, "https")], None),
        ([(HOST, "a.example/x")], None),
        ([(HOST, "u@a.example")], None),
        ([(HOST, "a.example"), (PROTO, "gopher")], None),
        ([(HOST, "a.example"), (PREFIX, "x")], None),
        ([(HOST, "a.example"), (PREFIX, "//x")], None),
        ([(HOST, "a.example"), (PREFIX, "/a?b")], None),
        ([(HOST, "a.example"), (PREFIX, '/"')], None),
    ],
)
def test_the_base_is_where_the_client_asked(said: list[tuple[str, str]], base: str | None) -> None:
    """Scheme, host and prefix, of a trusted peer alone; what is malformed is as good as not said."""
    assert LOCAL.base("127.0.0.1", headers(*said)) == base
    assert LOCAL.base("192.0.2.1", headers(*said)) is None
    assert Proxies().base("127.0.0.1", headers(*said)) is None


TEXT = st.text(st.characters(codec="latin-1"), max_size=20)


@given(
    st.lists(st.tuples(st.sampled_from(["Host", HOST, PROTO, PREFIX, "X-Forwarded-For"]), TEXT), max_size=6)
)
def test_whatever_is_forwarded_makes_a_url_or_nothing(said: list[tuple[str, str]]) -> None:
    """Nothing raises; a base is a URL without anything that a card should not hold."""
    made = headers(*said)
    base = LOCAL.base("127.0.0.1", made)
    if base is not None:
        parts = urlsplit(base)
        assert parts.scheme in ("http", "https")
        assert parts.hostname
        assert base.isascii()
        assert base.isprintable()
        assert not set(base) & set(' "<>?#\\')
    assert LOCAL.client("127.0.0.1", made)
