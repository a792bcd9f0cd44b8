"""Tasks that wait for input longer than they may fail (murmur reference, `input_timeout_secs`)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from sidecar.errors import StoreError
from sidecar.events import TaskState
from sidecar.tasks import machine
from sidecar.tasks.orders import Bell

if TYPE_CHECKING:
    from sidecar.tasks.ledger import Ledger

RETRY: Final = 1.0
"""Seconds after which what the database refused is tried again where nobody asks."""


class Timeouts:
    """Watches the clock for one session, in a task of its own that lives only while something waits.

    `limit` is in seconds; None is for ever. It counts from when the task began to wait, over restarts as well.
    """

    __slots__ = ("_bell", "_ledger", "_limit", "_watch")

    def __init__(self, ledger: Ledger, limit: float | None) -> None:
        self._ledger = ledger
        self._limit = limit
        self._watch: asyncio.Task[None] | None = None
        self._bell = Bell()

    def reconfigure(self, limit: float | None) -> None:
        """Take another limit, for what waits already too."""
        self._limit = limit
        self._bell.ring()
        self.mind()

    def mind(self) -> None:
        """Begin to watch if something waits."""
        if self._limit is None or self._ledger.closed or not self._ledger.state.waiting:
            return
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._until_none_waits(), name="input-timeouts")

    async def aclose(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait((self._watch,))

    async def _until_none_waits(self) -> None:
        while self._limit is not None and not self._ledger.closed:
            try:
                await self._ledger.load()
                state = self._ledger.state
                if not state.waiting:
                    return
                task = state.live[next(iter(state.waiting))]
                left = (task.waiting_since or 0.0) + self._limit - time.time()
                if left > 0:
                    await self._bell.wait(left)
                    continue
                late = machine.end(state, (task,), TaskState.FAILED, machine.INPUT_TIMEOUT, time.time())
                await self._ledger.commit(late)
            except StoreError:
                await self._bell.wait(RETRY)
