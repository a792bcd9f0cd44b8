"""Remembering ports: every bind is committed soon after it, whoever bound, without anybody waiting for it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from sidecar.registry.sessions import commit_ports

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.store import Store

RETRY: Final = 5.0
"""Seconds after which something is written again that the database did not take."""


class PortSaver:
    """Commits which directory has which port, one write at a time; what comes meanwhile goes with the next one.

    What the database does not take is kept and tried again after `retry` seconds. Used on one event loop.
    """

    def __init__(self, store: Store, clock: Callable[[], float], *, retry: float = RETRY) -> None:
        self._store = store
        self._clock = clock
        self._retry = retry
        self._unsaved: dict[str, int | None] = {}
        self._saving: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failed = False

    def note(self, directory: str, port: int | None) -> None:
        """Have it remembered which port a directory has now, None where it has lost it to another one."""
        self._unsaved[directory] = port
        if self._timer is None:
            self._start()

    async def flush(self) -> bool:
        """Return once everything is committed, or False when the database did not take it; it is kept then."""
        self._start()
        while self._saving is not None:
            await asyncio.wait({self._saving})
            await asyncio.sleep(0)  # the outcome is taken in by a callback of the same future
        return not self._unsaved

    async def aclose(self) -> None:
        """Try once more to save what is not saved, and stop trying."""
        if self._unsaved:
            await self.flush()
        self._stop_timer()

    def _start(self) -> None:
        self._stop_timer()
        if self._saving is None and self._unsaved:
            ports = dict(self._unsaved)
            self._saving = self._store.write(partial(commit_ports, ports=ports, at=self._clock()))
            self._saving.add_done_callback(partial(self._done, ports))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _done(self, ports: dict[str, int | None], saving: asyncio.Future[None]) -> None:
        self._saving = None
        error = saving.exception()
        if error is not None:
            if not self._failed:
                structlog.get_logger().warning("ports_not_saved", problem=str(error), retry_s=self._retry)
            self._failed = True
            self._timer = saving.get_loop().call_later(self._retry, self._start)
            return
        self._failed = False
        for directory, port in ports.items():
            if self._unsaved[directory] == port:
                del self._unsaved[directory]
        self._start()
