"""The Host allow-list and the Origin check."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from sidecar.web.guards import REMEMBERED, Guard, Guards, Rules, is_loopback, parse_authority, parse_origin

OURS = Rules(
    "listen",
    hosts=("inside.example", "exact.example:8080", "[2001:db8::1]"),
    origins=("https://page.example", "http://dev.example:3000", "app://desk"),
    advertised=("agents.example", "2001:db8::7"),
)


def headers(*hosts: str, origins: tuple[str, ...] = ()) -> CIMultiDictProxy[str]:
    """Make the headers of a request."""
    fields = [("Host", host) for host in hosts] + [("Origin", origin) for origin in origins]
    return CIMultiDictProxy(CIMultiDict(fields))


def code(guard: Guard, *hosts: str, origins: tuple[str, ...] = ()) -> str | None:
    """Return the code of the refusal, None for none; asks twice, since a good host is remembered."""
    first = guard.check(headers(*hosts, origins=origins))
    assert guard.check(headers(*hosts, origins=origins)) == first
    return first.code if first else None


@pytest.fixture
def strict() -> Guard:
    """Return the guard of a loopback address."""
    return Guards(OURS).of("127.0.0.1")


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:24000",
        "LOCALHOST:1",
        "localhost.",
        "localhost:",
        "127.0.0.1",
        "127.0.0.1:24000",
        "127.9.8.7:80",
        "[::1]",
        "[::1]:24000",
        "[0:0:0:0:0:0:0:1]:24000",
        "agents.example",
        "agents.example:24000",
        "[2001:db8::7]:24000",
        "inside.example:99",
        "Inside.Example",
        "exact.example:8080",
        "[2001:db8:0::1]:5",
    ],
)
def test_loopback_takes_its_own_names_the_advertised_host_and_the_configured_ones(
    strict: Guard, host: str
) -> None:
    """Hosts that mean this listener pass, with any port or none, in any spelling."""
    assert code(strict, host) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil-localhost",
        "10.0.0.1:24000",
        "127.1",
        "2130706433",
        "exact.example",
        "exact.example:8081",
        "[::ffff:10.0.0.1]:24000",
        "0.0.0.0:24000",
        "localhost,evil.example",
    ],
)
def test_b46_a_foreign_host_is_refused_on_loopback(strict: Guard, host: str) -> None:
    """B46 DNS rebinding: a name that only resolves to this machine is refused, naming the key to set."""
    refused = strict.check(headers(host))
    assert refused is not None
    assert (refused.status, refused.code) == (403, "host_not_allowed")
    assert "listen.allowed_hosts" in refused.message


@pytest.mark.parametrize(
    "hosts",
    [
        (),
        ("",),
        ("a", "a"),
        ("localhost", "evil.example"),
        ("local host",),
        ("localhost:port",),
        ("localhost:99999",),
        ("localhost:123456",),
        ("[::1",),
        ("::1",),
        ("[localhost]",),
        ("user@localhost",),
        ("localhost/",),
        ("localh\x00ost",),
        ("ünï",),
    ],
)
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_missing_double_or_malformed_host_is_a_bad_request_everywhere(
    hosts: tuple[str, ...], address: str
) -> None:
    """RFC 9112 section 3.2: a request has one valid Host."""
    for rules in (Rules("listen"), OURS):
        assert code(Guards(rules).of(address), *hosts) == "bad_request"


def test_beyond_loopback_hosts_are_checked_only_where_some_are_configured() -> None:
    """On other addresses any host passes until `allowed_hosts` is set."""
    assert code(Guards(Rules("listen")).of("0.0.0.0"), "whatever.example") is None
    assert code(Guards(Rules("listen")).of("10.0.0.1"), "whatever.example:80") is None
    assert code(Guards(OURS).of("0.0.0.0"), "whatever.example") == "host_not_allowed"
    assert code(Guards(OURS).of("0.0.0.0"), "inside.example") is None


def test_the_refusal_names_the_key_of_the_desk_on_the_desk() -> None:
    """The desk has a list of its own."""
    refused = Guards(Rules("desk")).of("::1").check(headers("evil.example"))
    assert refused is not None
    assert "desk.allowed_hosts" in refused.message


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:24000", "http://localhost:24000"),
        ("LocalHost:24000", "http://localhost:24000"),
        ("localhost", "http://localhost"),
        ("localhost", "http://localhost:80"),
        ("localhost:443", "https://localhost"),
        ("[::1]:24000", "http://[::1]:24000"),
        ("localhost:24000", "https://page.example"),
        ("localhost:24000", "https://page.example:443"),
        ("localhost:24000", "HTTP://dev.example:3000"),
        ("localhost:24000", "app://desk"),
    ],
)
def test_the_own_origin_and_configured_ones_pass(strict: Guard, host: str, origin: str) -> None:
    """A page of this listener may call it, and so may the pages that the configuration names."""
    assert code(strict, host, origins=(origin,)) is None


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "",
        "http://localhost:24001",
        "http://localhost",
        "http://127.0.0.1:24000",
        "https://page.example:444",
        "http://page.example",
        "http://page.example@evil.example",
        "http://evil.example/https://page.example",
        "file://",
        "app://other",
        "localhost:24000",
    ],
)
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_b46_a_foreign_origin_is_refused_everywhere(address: str, origin: str) -> None:
    """B46: a page from elsewhere is refused on every address, also one without an origin of its own."""
    refused = Guards(OURS).of(address).check(headers("localhost:24000", origins=(origin,)))
    assert refused is not None
    assert (refused.status, refused.code) == (403, "origin_not_allowed")
    assert "listen.allowed_origins" in refused.message


def test_each_of_several_origins_must_pass(strict: Guard) -> None:
    """A second header cannot hide behind a good one."""
    good, bad = "http://localhost:1", "http://evil.example"
    assert code(strict, "localhost:1", origins=(good, good)) is None
    assert code(strict, "localhost:1", origins=(good, bad)) == "origin_not_allowed"


def test_an_origin_of_null_cannot_be_allowed() -> None:
    """Sandboxed frames and local files share that origin: naming it would let all of them in."""
    guard = Guards(Rules("listen", origins=("null",))).of("127.0.0.1")
    assert code(guard, "localhost", origins=("null",)) == "origin_not_allowed"


def test_what_is_remembered_is_bounded() -> None:
    """A client that makes up hosts cannot make the memory grow, and good ones go on passing."""
    guard = Guards(Rules("listen")).of("0.0.0.0")
    for number in range(3 * REMEMBERED):
        assert guard.check(headers(f"h{number}.example")) is None
    assert 0 < guard.remembered <= REMEMBERED


def test_a_shown_host_is_harmless(strict: Guard) -> None:
    """What a refusal repeats is short and without control characters."""
    refused = strict.check(headers("x" * 5000))
    assert refused is not None
    assert len(refused.message) < 400
    refused = strict.check(headers("a\x1b[31m"))
    assert refused is not None
    assert refused.message.isprintable()


@given(st.text(max_size=40))
def test_parsing_an_authority_never_fails_otherwise(text: str) -> None:
    """Any text is an authority or it is not."""
    found = parse_authority(text)
    if found is not None:
        host, port = found
        assert host == host.lower()
        assert port is None or 0 <= port <= 65535


@given(st.text(max_size=60))
def test_parsing_an_origin_never_fails_otherwise(text: str) -> None:
    """Any text is an origin or it is not."""
    found = parse_origin(text)
    assert found is None or found[0] in ("http", "https")


@given(st.text(alphabet=string.ascii_lowercase + string.digits + ".-", min_size=1, max_size=30))
def test_only_loopback_names_pass_a_strict_guard(name: str) -> None:
    """Whatever the name: without configuration it passes exactly when it is a loopback one."""
    refused = Guards(Rules("listen")).of("127.0.0.1").check(headers(name))
    assert (refused is None) == is_loopback(name.removesuffix("."))
