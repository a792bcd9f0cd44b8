"""Turns at a big file: of those who want its hash at once, one computes it and the others find it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecar.errors import RefusedError
from sidecar.planes.pool import BUSY, MAX_WAIT

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable


@dataclass(slots=True)
class _Turn:
    """The turn at one file, when it last moved on (the loop's time), and how many have it or wait for it."""

    moved: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Turns:
    """Has one caller at a time work on a file. Who waits while nothing moves for `patience` seconds is refused.

    All methods belong to one event loop.
    """

    def __init__(self, patience: float = MAX_WAIT) -> None:
        self._patience = patience
        self._turns: dict[tuple[int, int], _Turn] = {}

    @asynccontextmanager
    async def at(self, facts: os.stat_result) -> AsyncIterator[Callable[[], None]]:
        """Wait for the turn at a file and have it; yields what is to be called whenever the work moves on.

        Raises RefusedError `unavailable`.
        """
        clock = asyncio.get_running_loop().time
        key = (facts.st_dev, facts.st_ino)
        turn = self._turns.setdefault(key, _Turn(clock()))

        def move() -> None:
            turn.moved = clock()

        turn.users += 1
        try:
            await self._wait(turn, clock)
            try:
                move()
                yield move
            finally:
                turn.lock.release()
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[key]

    async def _wait(self, turn: _Turn, clock: Callable[[], float]) -> None:
        while True:
            try:
                async with asyncio.timeout_at(turn.moved + self._patience):
                    await turn.lock.acquire()
            except TimeoutError:
                if clock() >= turn.moved + self._patience:
                    raise RefusedError(BUSY) from None
            else:
                return
