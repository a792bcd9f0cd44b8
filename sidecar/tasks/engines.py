"""The engines of one daemon, one per session, and the trimming of their log."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sidecar.errors import StoreError
from sidecar.tasks import trim
from sidecar.tasks.engine import Engine
from sidecar.tasks.log import Log, sessions
from sidecar.tasks.model import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecar.store import Store
    from sidecar.tasks.model import Rules
    from sidecar.tasks.showing import Showing

TRIM_PERIOD: Final = 60.0
"""Seconds between two looks for what the log keeps no longer."""


class Engines:
    """The engines of one daemon, one per session, and the owner of the task that trims their log.

    `keep_events` is per session, `keep_tasks` in seconds since a task ended. `on_end` is called with the final state
    of each task that ends. `showings` are the views that keep something of their own in each commit. Raises
    StoreError when the database cannot be read.
    """

    def __init__(
        self,
        store: Store,
        *,
        keep_events: int,
        keep_tasks: float,
        period: float = TRIM_PERIOD,
        on_end: Callable[[str], object] = lambda _: None,
        showings: Sequence[Showing] = (),
    ) -> None:
        self._store = store
        self._log = Log(store, showings)
        self._showings = showings
        self._logged = store.read_now(sessions)
        self._engines: dict[str, Engine] = {}
        self._keep_events, self._keep_tasks = keep_events, keep_tasks
        self._period = period
        self._on_end = on_end
        self._trimmer: asyncio.Task[None] | None = None

    def reconfigure(self, *, keep_events: int, keep_tasks: float) -> None:
        """Keep other amounts from the next trimming on."""
        self._keep_events, self._keep_tasks = keep_events, keep_tasks

    async def open(self, session_id: str, rules: Rules) -> Engine:
        """Return the session's engine under these rules: the one that is open, else a new one.

        While the log cannot be read, the engine is returned nevertheless and tries again whenever it is used.
        """
        if self._trimmer is None:
            self._trimmer = asyncio.create_task(self._trim_for_ever(), name="trim-log")
        while (engine := self._engines.get(session_id)) is not None and engine.closed:
            await self.close(session_id)
        if engine is not None:
            engine.reconfigure(rules)
            return engine
        state = None if session_id in self._logged else State()
        self._logged.add(session_id)
        engine = self._engines[session_id] = Engine(session_id, self._log, rules, state, self._on_end)
        with suppress(StoreError):
            await engine.load()
        return engine

    async def close(self, session_id: str) -> None:
        """End a session's streams and let go of its engine; its tasks stay in the log."""
        if (engine := self._engines.get(session_id)) is None:
            return
        await engine.close()
        if self._engines.get(session_id) is engine:
            del self._engines[session_id]

    async def trim(self) -> None:
        """Delete what the log keeps no longer. Raises StoreError."""
        ended_before = time.time() - self._keep_tasks
        await trim.trim(
            self._store,
            keep_events=self._keep_events,
            ended_before=ended_before,
            open_sessions=self._engines.keys(),
        )
        for showing in self._showings:
            await showing.trim(
                keep_events=self._keep_events, ended_before=ended_before, open_sessions=self._engines.keys()
            )

    async def aclose(self) -> None:
        """Close every engine and end the trimming. The store stays open."""
        if self._trimmer is not None:
            self._trimmer.cancel()
            await asyncio.wait((self._trimmer,))
        for session_id in tuple(self._engines):
            await self.close(session_id)

    async def _trim_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._period)
            with suppress(StoreError):  # whoever writes or reads next hears of it, and the next look comes
                await self.trim()
