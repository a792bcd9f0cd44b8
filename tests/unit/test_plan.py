"""The difference between wanted and open listeners."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from sidecar.listeners import reasons
from sidecar.listeners.plan import Plan, plan
from sidecar.model import Capsule, Manifest, Settings, Wanted
from sidecar.web.sockets import BindError

LOOPBACK = ("127.0.0.1",)


@dataclass(frozen=True)
class Open:
    """An open listener, as the plan sees it."""

    wanted: Wanted
    port: int


def capsule(name: str, *, hosts: tuple[str, ...] = LOOPBACK, version: str = "1") -> Capsule:
    """Make a capsule that lives in `/c/<name>`."""
    return Capsule(
        id=name,
        directory=f"/c/{name}",
        session_id=f"ses_{name}",
        manifest=Manifest(name, version),
        settings=Settings(hosts=hosts),
        workspace=f"/c/{name}",
        changed_at=0.0,
    )


def want(
    name: str,
    port: int | None = None,
    source: str | None = None,
    *,
    hosts: tuple[str, ...] = LOOPBACK,
    version: str = "1",
) -> Wanted:
    """Make a wish."""
    return Wanted(capsule(name, hosts=hosts, version=version), port, source)


def opened(wanted: Wanted, port: int | None = None) -> dict[str, Open]:
    """Make the open listener that a wish led to."""
    actual = wanted.port if port is None else port
    assert actual is not None
    return {wanted.capsule.directory: Open(wanted, actual)}


def test_what_is_open_as_wanted_is_kept() -> None:
    """Nothing is done for a capsule that did not change, also where its port is remembered by now."""
    first = want("a")
    later = Wanted(first.capsule, 5, "remembered")
    assert plan([first], opened(first, 5)) == Plan(("/c/a",), (), (), (), ())
    assert plan([later], opened(first, 5)).keep == ("/c/a",)
    same = want("a")
    assert plan([same], opened(first, 5)).keep == ("/c/a",)


def test_a_wish_that_says_the_same_takes_the_place_of_the_one_before() -> None:
    """So that the next look knows at a glance that nothing has changed: of thousands of capsules one has, mostly."""
    first = want("a")
    later = Wanted(first.capsule, 5, "remembered")
    assert plan([later], opened(first, 5)).again == (later,)
    assert plan([later], opened(later)).again == ()
    assert plan([want("a", version="2")], opened(first, 5)).again == ()


def test_another_manifest_on_the_same_address_is_swapped_in() -> None:
    """The socket stays."""
    new = want("a", version="2")
    made = plan([new], opened(want("a"), 5))
    assert (made.swap, made.keep, made.open, made.close) == ((new,), (), (), ())


def test_another_port_or_host_closes_before_it_opens() -> None:
    """B21: the old socket is closed before the new one is bound, since they may be the same port."""
    for new in (want("a", 6), want("a", 5, hosts=("0.0.0.0",)), want("a", hosts=("127.0.0.1", "::1"))):
        made = plan([new], opened(want("a", 5)))
        assert (made.close, made.open, made.keep, made.swap) == (("/c/a",), (new,), (), ())


def test_what_is_no_longer_wanted_is_closed() -> None:
    """Gone directories lose their listener."""
    assert plan([], opened(want("a", 5))).close == ("/c/a",)


def test_of_two_that_want_one_port_the_first_in_path_order_has_it() -> None:
    """Found before any socket is opened; the other's reason names the first, the port and the remedy."""
    first, second = want("a", 5, "configured"), want("b", 5, "configured")
    made = plan([first, second], {})
    assert made.open == (first,)
    (found,) = made.clashes
    assert (found.wanted, found.other) == (second, first.capsule)
    text = reasons.clash(found)
    assert all(part in text for part in ("port 5", "capsule a", "/c/a", "capsules.b.port"))


def test_a_listener_that_is_open_is_not_disturbed_by_a_newcomer() -> None:
    """Who is served and did not change keeps the port, wherever the newcomer stands in path order."""
    holder, newcomer = want("b", 5), want("a", 5)
    made = plan([newcomer, holder], opened(holder))
    assert made.keep == ("/c/b",)
    assert [c.wanted for c in made.clashes] == [newcomer]
    assert not made.open


def test_ports_can_be_exchanged() -> None:
    """Two capsules that swap ports are both closed, then both opened."""
    old = {**opened(want("a", 5)), **opened(want("b", 6))}
    made = plan([want("a", 6), want("b", 5)], old)
    assert set(made.close) == {"/c/a", "/c/b"}
    assert len(made.open) == 2
    assert not made.clashes


def test_one_port_on_two_addresses_is_no_clash_unless_one_is_a_wildcard() -> None:
    """127.0.0.1 and 127.0.0.2 are two places, 0.0.0.0 is all of them."""
    one, two = want("a", 5), want("b", 5, hosts=("127.0.0.2",))
    assert len(plan([one, two], {}).open) == 2
    everywhere = want("b", 5, hosts=("0.0.0.0",))
    assert [c.wanted for c in plan([one, everywhere], {}).clashes] == [everywhere]


def test_fixed_ports_are_opened_before_free_choices() -> None:
    """A free choice cannot take a port that another capsule must have."""
    free, fixed = want("a"), want("b", 5)
    assert plan([free, fixed], {}).open == (fixed, free)


NAMES = st.sampled_from("abcdef")
PORTS = st.none() | st.integers(1, 4)
HOSTS = st.sampled_from([LOOPBACK, ("127.0.0.2",), ("0.0.0.0",)])
WISHES = st.dictionaries(NAMES, st.tuples(PORTS, HOSTS, st.sampled_from("12")), max_size=6).map(
    lambda found: [want(n, p, hosts=h, version=v) for n, (p, h, v) in sorted(found.items())]
)


def carried_out(made: Plan, before: dict[str, Open]) -> dict[str, Open]:
    """Return what is open after a plan, every free choice finding a port of its own."""
    after = {d: o for d, o in before.items() if d not in made.close}
    for one in made.swap:
        after[one.capsule.directory] = replace(after[one.capsule.directory], wanted=one)
    for number, one in enumerate(made.open):
        after[one.capsule.directory] = Open(one, one.port or 1000 + number + len(before))
    return after


@given(WISHES, WISHES)
def test_every_wish_is_met_or_refused_and_nothing_else_stays_open(
    first: list[Wanted], second: list[Wanted]
) -> None:
    """From any state to any other: all wishes are accounted for once, and a second look has nothing to do."""
    before = carried_out(plan(first, {}), {})
    made = plan(second, before)
    after = carried_out(made, before)
    refused = {c.wanted.capsule.directory for c in made.clashes}
    assert after.keys() | refused == {one.capsule.directory for one in second}
    assert not after.keys() & refused
    for one in second:
        directory = one.capsule.directory
        if directory in after:
            assert after[directory].wanted.capsule == one.capsule
            assert one.port in (None, after[directory].port)
    again = plan(second, after)
    assert (again.swap, again.open, again.close) == ((), (), ())


@given(WISHES, WISHES)
def test_no_two_listeners_are_opened_on_one_address(first: list[Wanted], second: list[Wanted]) -> None:
    """Whatever is wanted, what is open has each address once."""
    before = carried_out(plan(first, {}), {})
    after = carried_out(plan(second, before), before)
    for one in after.values():
        for other in after.values():
            if one is not other and one.port == other.port:
                mine, theirs = (set(o.wanted.capsule.settings.hosts) for o in (one, other))
                assert not mine & theirs
                assert "0.0.0.0" not in mine | theirs


@given(WISHES)
def test_the_same_wishes_again_are_all_kept(wishes: list[Wanted]) -> None:
    """A reload without a change does no work."""
    before = carried_out(plan(wishes, {}), {})
    made = plan(wishes, before)
    assert set(made.keep) == before.keys()


def test_each_failure_to_bind_names_the_address_and_what_to_do() -> None:
    """The reasons are for people."""
    configured = want("a", 5, "configured")
    busy = reasons.bind_failed(configured, BindError("127.0.0.1", 5, OSError(98, "Address already in use")))
    assert busy.startswith("port 5 on 127.0.0.1 is in use by another program; ")
    assert "capsules.a.port" in busy
    remembered = replace(configured, port_from="remembered")
    told = reasons.bind_failed(remembered, BindError("::1", 5, OSError(98, "x")))
    assert told.startswith("port 5 on ::1, its port before, is in use by another program; ")
    low = reasons.bind_failed(configured, BindError("127.0.0.1", 80, OSError(13, "Permission denied")))
    assert "CAP_NET_BIND_SERVICE" in low
    absent = reasons.bind_failed(configured, BindError("10.9.9.9", 5, OSError(99, "Cannot assign")))
    assert "no such address" in absent
    assert "listen.host" in absent
    unknown = reasons.bind_failed(configured, BindError("no.such", 5, OSError(-2, "Name not known")))
    assert "does not resolve" in unknown
    manifest = replace(configured, port_from="manifest")
    assert "network.internal_port" in reasons.bind_failed(manifest, BindError("::", 5, OSError(98, "x")))
    assert "listen.ports" in reasons.exhausted(1, 2)
    assert "ulimit" in reasons.over_budget(7)
