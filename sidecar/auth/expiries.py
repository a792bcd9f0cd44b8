"""What a capsule takes may change by time alone: a key ends that could speak for end users, and its card says so."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.auth.access import Access
    from sidecar.auth.keys import KeyRing
    from sidecar.model import Capsule

LONGEST_WAIT: Final = 3600.0
"""Seconds after which the clock is looked at again at the latest."""


class Expiries:
    """Watches the ends of keys, for the capsules that have such keys. One event loop. `clock` is in Unix seconds."""

    def __init__(self, access: Access, ring: KeyRing, clock: Callable[[], float] = time.time) -> None:
        self._access = access
        self._ring = ring
        self._clock = clock
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def close(self) -> None:
        """Watch nothing any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def watch(self, capsule: Capsule) -> None:
        """Have `Access.on_change` called once a capsule takes other kinds than its `credentials` by time alone."""
        self.forget(capsule.directory)
        now = self._clock()
        ends = [
            key.expires_at
            for key in self._ring.of(capsule.directory, capsule.manifest.name)
            if key.expires_at is not None and key.is_valid(now)
        ]
        if ends:
            wait = min(max(0.0, min(ends) - now), LONGEST_WAIT)
            timer = asyncio.get_running_loop().call_later(wait, self._look, capsule)
            self._timers[capsule.directory] = timer

    def forget(self, directory: str) -> None:
        """Watch the capsule of a directory no more."""
        if (timer := self._timers.pop(directory, None)) is not None:
            timer.cancel()

    def _look(self, capsule: Capsule) -> None:
        if self._access.kinds(capsule) != capsule.credentials:
            self._access.on_change(capsule.directory)
        else:
            self.watch(capsule)
