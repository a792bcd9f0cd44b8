"""What the tasks at one murmur door must know of each other, since streams there may tell of all of them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_REMEMBERED: Final = 4096


class Company:
    """The tasks at one door: whose their ids are, and which of them is being started."""

    def __init__(self) -> None:
        self._taken: dict[str, None] = {}
        self._starts: dict[str, tuple[asyncio.Lock, int]] = {}

    def __contains__(self, task_id: str) -> bool:
        """Whether an id belongs to a task that is known already."""
        return task_id in self._taken

    def take(self, task_id: str) -> None:
        """Take note of whose a task is."""
        self._taken[task_id] = None
        while len(self._taken) > _REMEMBERED:
            del self._taken[next(iter(self._taken))]

    @asynccontextmanager
    async def starting(self, context_id: str) -> AsyncIterator[Start]:
        """Wait until the task that was started before in this context is known by its id."""
        lock, users = self._starts.get(context_id, (asyncio.Lock(), 0))
        self._starts[context_id] = (lock, users + 1)
        start = Start(lock)
        try:
            await lock.acquire()
            try:
                yield start
            finally:
                start.over()
        finally:
            lock, users = self._starts[context_id]
            self._starts[context_id] = (lock, users - 1)
            if users == 1:
                del self._starts[context_id]


class Start:
    """The start of one task, while its id is not known; `over` lets the next one begin."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock: asyncio.Lock | None = lock

    def over(self) -> None:
        """Say that it is known, or will never be."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
