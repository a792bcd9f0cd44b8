"""Connections over the limit, and those that come as their listener ends."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from sidecar.errors import refusal
from sidecar.web.answers import Wire, refusal_answer, wire
from sidecar.web.refusals import closing_bytes

if TYPE_CHECKING:
    from sidecar.web.server import HttpServer

MOST_TURNED_AWAY: Final = 64
"""How many connections over a limit are answered at a time; further ones are only closed."""
SEEN: Final = 1.0
"""Seconds for which such a connection stays, so that the client sees the answer."""


class TooLate(asyncio.Protocol):
    """A connection that was accepted just before its listener ended: it ends as if nobody had listened."""

    __slots__ = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Cut it off."""
        cast("asyncio.Transport", transport).abort()


class TurnedAway(asyncio.Protocol):
    """A connection over the limit: 503, and an end; what it sends is not looked at."""

    __slots__ = ("_server", "_timer", "wire")

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._timer: asyncio.TimerHandle | None = None
        self.wire: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Answer and close for writing; the client has a second to see it."""
        policy = self._server.policy
        policy.turned_away += 1
        self._server.turned_away[self] = None
        self.wire = ours = cast("asyncio.Transport", transport)
        if policy.turned_away > MOST_TURNED_AWAY:
            ours.abort()
            return
        loop = asyncio.get_running_loop()
        ours.write(closing_bytes(over_limit()))
        ours.write_eof()
        self._timer = loop.call_later(SEEN, ours.abort)

    def connection_lost(self, _exc: BaseException | None) -> None:
        """Forget it."""
        if self._timer is not None:
            self._timer.cancel()
        self._server.policy.turned_away -= 1
        self._server.turned_away.pop(self, None)
        self._server.left()

    def cut(self) -> None:
        """End it now."""
        if self.wire is not None:
            self.wire.abort()


@cache
def over_limit() -> Wire:
    """Return the answer to a connection that is one too many."""
    text = "This listener has all the connections that it takes; try again later."
    return wire(refusal_answer(refusal("unavailable", text)))
