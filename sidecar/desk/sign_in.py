"""Signing in to the page: one-time links, and the sessions that they open. In memory, so that a restart ends all."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from multidict import CIMultiDictProxy

LINK_LIFE: Final = 60.0
"""Seconds for which a link may be used, once."""
SESSION_LIFE: Final = 12 * 3600.0
"""Seconds after which a page asks for a new link."""
MOST_LINKS: Final = 32
MOST_SESSIONS: Final = 64
"""How many links and sessions there may be at a time; one more ends the oldest."""
KEY: Final = "x-sidecar-page"
"""The header by which the page shows its half of a session."""


@dataclass(frozen=True, slots=True)
class Opened:
    """What opens a session: the cookie and the key, each worth nothing without the other."""

    cookie: str
    key: str


@dataclass(eq=False, slots=True)
class Session:
    """A page that is signed in. `cuts` end what it holds open."""

    key: bytes
    timer: asyncio.TimerHandle | None = None
    cuts: set[Callable[[], None]] = field(default_factory=set)


class SignIn:
    """Makes links and sessions, and finds the session of a request. One event loop.

    A session has two halves. The cookie is out of reach of scripts, but a browser sends it to every port of its host:
    to capsules, to whatever else listens there. So it opens nothing without the key, which the page alone has, keeps
    where only its own origin can read, and sends as a header, which no other origin can make a browser do.

    Only hashes are kept. `life` and `link_life` are in seconds, `now` is a clock that never goes back.
    """

    def __init__(
        self,
        *,
        life: float = SESSION_LIFE,
        link_life: float = LINK_LIFE,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.life = life
        self.link_life = link_life
        self.cookie = f"sidecar_desk_{secrets.token_hex(4)}"
        """The cookie's name: desks on other ports of the host have theirs."""
        self._now = now
        self._links: dict[bytes, float] = {}
        self._sessions: dict[bytes, Session] = {}

    def link(self) -> str:
        """Return a fresh one-time token."""
        now = self._now()
        self._links = {link: end for link, end in self._links.items() if end > now}
        while len(self._links) >= MOST_LINKS:
            del self._links[next(iter(self._links))]
        token = secrets.token_urlsafe(32)
        self._links[_digest(token)] = now + self.link_life
        return token

    def open(self, token: str) -> Opened | None:
        """Open a session by a link; None where the link was used, is too old, or never was."""
        end = self._links.pop(_digest(token), None)
        if end is None or end <= self._now():
            return None
        while len(self._sessions) >= MOST_SESSIONS:
            self.end(next(iter(self._sessions.values())))
        opened = Opened(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        session = Session(_digest(opened.key))
        session.timer = asyncio.get_running_loop().call_later(self.life, self.end, session)
        self._sessions[_digest(opened.cookie)] = session
        return opened

    def visitor(self, headers: CIMultiDictProxy[str]) -> Session | None:
        """Return the session whose cookie a request brings: enough to be shown the page, and for nothing else."""
        given = [
            value for header in headers.getall(hdrs.COOKIE, ()) for value in _values(header, self.cookie)
        ]
        return self._sessions.get(_digest(given[0])) if len(given) == 1 else None

    def find(self, headers: CIMultiDictProxy[str]) -> Session | None:
        """Return the session that a request shows both halves of."""
        keys = headers.getall(KEY, [])
        session = self.visitor(headers) if len(keys) == 1 else None
        if session is None or not hmac.compare_digest(session.key, _digest(keys[0])):
            return None
        return session

    def end(self, session: Session) -> None:
        """End a session, and cut off what it holds open; does nothing the second time."""
        self._sessions = {cookie: one for cookie, one in self._sessions.items() if one is not session}
        if session.timer is not None:
            session.timer.cancel()
        for cut in tuple(session.cuts):
            cut()
        session.cuts.clear()

    def close(self) -> None:
        """End all sessions and links."""
        self._links.clear()
        for session in tuple(self._sessions.values()):
            self.end(session)


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogateescape")).digest()


def _values(header: str, name: str) -> list[str]:
    """Return the values that a `Cookie` header has for a name (RFC 6265 section 4.2.1)."""
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return [value for found, equals, value in pairs if equals and found == name]
