"""Streams end with the credential that opened them: when it is revoked, when it runs out, when its provider says so."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from sidecar.auth.access import Access
    from sidecar.auth.caller import Caller
    from sidecar.model import Capsule

ASK_AGAIN: Final = 60.0
"""Seconds after which a provider is asked again about a token that a stream was opened with."""
LONGEST_WAIT: Final = 3600.0
"""Seconds after which the clock is looked at again at the latest."""


class Hold:
    """One open stream: who has it, and how it is ended. Looked after for as long as it is entered, or until `release`."""

    __slots__ = ("_holds", "asking", "caller", "capsule", "directory", "door", "end", "timer")

    def __init__(
        self,
        holds: Holds,
        capsule: Callable[[], Capsule],
        caller: Caller,
        end: Callable[[], object],
        *,
        door: bool,
    ) -> None:
        self._holds = holds
        self.capsule = capsule
        self.directory = capsule().directory
        self.caller = caller
        self.end = end
        self.door = door
        self.timer: asyncio.TimerHandle | None = None
        self.asking: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let go: the stream is over. A second call does nothing."""
        self._holds.drop(self)


class Holds:
    """The open streams of all listeners. One event loop. `clock` is in Unix seconds, `ask_again` in seconds."""

    def __init__(
        self, access: Access, *, clock: Callable[[], float] = time.time, ask_again: float = ASK_AGAIN
    ) -> None:
        self._access = access
        self._clock = clock
        self._ask_again = ask_again
        self._open: dict[str, set[Hold]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    @property
    def count(self) -> int:
        """How many streams are looked after."""
        return sum(map(len, self._open.values()))

    async def aclose(self) -> None:
        """End the questions that are under way, and forget the streams."""
        for hold in [hold for holds in self._open.values() for hold in holds]:
            hold.release()
        while self._asking:
            await asyncio.wait(self._asking)

    def hold(
        self, capsule: Callable[[], Capsule], caller: Caller, end: Callable[[], object], *, door: bool = False
    ) -> Hold:
        """Have a stream ended once its caller's credential is no longer good; call `release` when it is over.

        `capsule` returns the capsule as it is served now, in the directory where it was. `door` is true for the murmur
        door and the files plane. `end` may be called at once, and once only.
        """
        hold = Hold(self, capsule, caller, end, door=door)
        self._open.setdefault(hold.directory, set()).add(hold)
        self._look(hold)
        return hold

    def recheck(self, directory: str) -> None:
        """Look again at the streams of a directory's capsule, since something about its credentials changed."""
        for hold in tuple(self._open.get(directory, ())):
            self._look(hold)

    def recheck_all(self) -> None:
        """Look again at every stream."""
        for directory in tuple(self._open):
            self.recheck(directory)

    def drop(self, hold: Hold) -> None:
        """Forget a stream."""
        holds = self._open.get(hold.directory)
        if holds is None or hold not in holds:
            return
        holds.discard(hold)
        if not holds:
            del self._open[hold.directory]
        if hold.timer is not None:
            hold.timer.cancel()
        if hold.asking is not None:
            hold.asking.cancel()

    def _look(self, hold: Hold) -> None:
        if not self._access.still_good(hold.capsule(), hold.caller, door=hold.door):
            self._end(hold)
            return
        if hold.timer is not None:
            hold.timer.cancel()
            hold.timer = None
        ends_at = self._access.ends_at(hold.caller)
        waits = [] if ends_at is None else [max(0.0, ends_at - self._clock()), LONGEST_WAIT]
        loop = asyncio.get_running_loop()
        if hold.caller.again is not None and hold.asking is None:
            hold.asking = loop.create_task(self._keep_asking(hold), name="ask about an open stream")
            self._asking.add(hold.asking)
            hold.asking.add_done_callback(self._asking.discard)
        if waits:
            hold.timer = loop.call_later(min(waits), self._look, hold)

    async def _keep_asking(self, hold: Hold) -> None:
        assert hold.caller.again is not None  # noqa: S101 - as the caller of this has seen
        while True:
            await asyncio.sleep(self._ask_again)
            if await hold.caller.again() is None:
                self._asking.discard(asyncio.current_task())
                hold.asking = None
                self._end(hold)
                return

    def _end(self, hold: Hold) -> None:
        self.drop(hold)
        hold.end()
