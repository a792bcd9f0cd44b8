"""Links and sessions of the page: what opens, what does not, and what ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from multidict import CIMultiDict, CIMultiDictProxy

from sidecar.desk import sign_in
from sidecar.desk.sign_in import KEY, Opened, SignIn
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock of the test's own."""
    return Clock()


@pytest_asyncio.fixture
async def signing(clock: Clock) -> AsyncIterator[SignIn]:
    """Links and sessions by that clock."""
    made = SignIn(now=clock)
    yield made
    made.close()


def brought(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    """Return the headers of a request."""
    return CIMultiDictProxy(CIMultiDict(pairs))


def halves(signing: SignIn, opened: Opened) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the two headers that a page brings."""
    return ("Cookie", f"{signing.cookie}={opened.cookie}"), (KEY, opened.key)


def opened_by(signing: SignIn) -> Opened:
    """Open a session."""
    opened = signing.open(signing.link())
    assert opened is not None
    return opened


async def test_a_link_opens_one_session_and_then_nothing(signing: SignIn) -> None:
    """The second use, a link that never was and one that is cut short are alike."""
    token = signing.link()
    assert signing.open(token[:-1]) is None
    assert signing.open(token) is not None
    assert signing.open(token) is None
    assert signing.open("") is None


async def test_a_link_is_good_for_a_minute(signing: SignIn, clock: Clock) -> None:
    """To the last moment, and not beyond."""
    early, late = signing.link(), signing.link()
    clock.now += 59.9
    assert signing.open(early) is not None
    clock.now += 0.1
    assert signing.open(late) is None


async def test_a_session_takes_both_of_its_halves(signing: SignIn) -> None:
    """A cookie goes to every port of a host, so that alone it shows the page and opens nothing."""
    opened, other = opened_by(signing), opened_by(signing)
    cookie, key = halves(signing, opened)
    found = signing.find(brought(cookie, key))
    assert found is not None
    assert signing.visitor(brought(cookie)) is found
    for headers in (
        (cookie,),
        (key,),
        (cookie, (KEY, other.key)),
        (cookie, (KEY, opened.cookie)),
        (cookie, key, key),
        (cookie, cookie, key),
        (("Cookie", f"{signing.cookie}={opened.cookie}; {signing.cookie}={opened.cookie}"), key),
        (("Cookie", f"{signing.cookie}={opened.cookie}x"), key),
        (("Cookie", f"x{signing.cookie}={opened.cookie}"), key),
        (("Cookie", "="), key),
        (("Cookie", "\udcff;;=;"), (KEY, "\udcff")),
    ):
        assert signing.find(brought(*headers)) is None


async def test_the_cookie_is_found_among_those_of_other_programs_of_the_host(signing: SignIn) -> None:
    """They come in one header, in any order."""
    cookie, key = halves(signing, opened_by(signing))
    assert signing.find(brought(("Cookie", f"a=1; {cookie[1]};b=x=y"), key)) is not None


async def test_two_desks_of_one_host_do_not_sign_each_other_out() -> None:
    """Their cookies have different names, as they share one jar."""
    assert SignIn().cookie != SignIn().cookie


async def test_the_end_of_a_session_cuts_off_what_it_holds_open(signing: SignIn) -> None:
    """Once, and it opens nothing any more."""
    headers = brought(*halves(signing, opened_by(signing)))
    session = signing.find(headers)
    assert session is not None
    cut: list[str] = []
    session.cuts.add(lambda: cut.append("cut"))
    signing.end(session)
    signing.end(session)
    assert (cut, signing.find(headers)) == (["cut"], None)


async def test_a_session_ends_by_itself() -> None:
    """After its life, whether it is used or not."""
    signing = SignIn(life=0.01)
    headers = brought(*halves(signing, opened_by(signing)))
    assert signing.find(headers) is not None
    await until(lambda: signing.find(headers) is None, what="the end of the session")
    signing.close()


async def test_there_are_only_so_many_links_and_sessions(
    signing: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more ends the oldest."""
    monkeypatch.setattr(sign_in, "MOST_LINKS", 2)
    monkeypatch.setattr(sign_in, "MOST_SESSIONS", 2)
    first, *others = [signing.link() for _ in range(3)]
    assert signing.open(first) is None
    assert all(signing.open(link) is not None for link in others)
    old, new = (brought(*halves(signing, opened_by(signing))) for _ in range(2))
    oldest = signing.find(old)
    assert oldest is not None
    cut: list[str] = []
    oldest.cuts.add(lambda: cut.append("cut"))
    opened_by(signing)
    assert (cut, signing.find(old)) == (["cut"], None)
    assert signing.find(new) is not None


async def test_nothing_that_opens_is_kept_as_it_is(signing: SignIn) -> None:
    """Who reads the memory of links and sessions finds hashes."""
    link, opened = signing.link(), opened_by(signing)
    session = signing.find(brought(*halves(signing, opened)))
    kept = repr([vars(signing), session])
    assert [text for text in (link, opened.cookie, opened.key) if text in kept] == []
