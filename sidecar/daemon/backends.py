"""One backend per served session: opened with it, kept over reloads that do not concern it, closed with it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import structlog

from sidecar.ops import subreaper
from sidecar.tasks.backends.command import INTERRUPTED, REMOVED, REPLACED, CommandBackend
from sidecar.tasks.backends.inbox import Inbox
from sidecar.tasks.backends.processes import Processes
from sidecar.tasks.backends.records import Records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from sidecar.model import Capsule, Settings
    from sidecar.tasks.backend import Backend
    from sidecar.tasks.backends.forward import Forward
    from sidecar.tasks.engine import Engine
    from sidecar.tasks.forwarding.planes import PassedPlanes

log = structlog.get_logger()


@dataclass(slots=True)
class _Running:
    """A backend at work for a capsule."""

    backend: Backend
    engine: Engine
    capsule_id: str


class Backends:
    """Owns the backends of all sessions. `make` makes the kind that a capsule's settings name. One event loop."""

    def __init__(self, make: Callable[[Settings], Backend]) -> None:
        self._make = make
        self._running: dict[str, _Running] = {}
        self._removed: set[str] = set()

    async def open(self, engine: Engine, capsule: Capsule) -> None:
        """Have a backend work for a session under a capsule's settings: the one that does, else a new one."""
        running = self._running.get(capsule.session_id)
        if running is not None and running.backend.name == capsule.settings.backend:
            running.capsule_id = capsule.id
            running.backend.reconfigure(capsule)
            return
        if running is not None:
            await self.close(capsule.session_id, grace=capsule.settings.stop_grace)
        backend = self._make(capsule.settings)
        if isinstance(backend, CommandBackend):
            backend.interruption = self._interruption(capsule.session_id, replaced=running is not None)
        self._removed.discard(capsule.session_id)
        self._running[capsule.session_id] = _Running(backend, engine, capsule.id)
        backend.start(engine, capsule)

    async def remove(self, session_id: str, *, grace: float) -> None:
        """End the backend of a session that is served no more, as `close` does."""
        self._removed.add(session_id)
        await self.close(session_id, grace=grace)

    async def close(self, session_id: str, *, grace: float) -> None:
        """End the backend of a session; its workers get `grace` seconds. Its tasks stay as they are."""
        running = self._running.pop(session_id, None)
        if running is None:
            return
        try:
            await running.backend.aclose(grace)
        except Exception:
            # the boundary of a backend: whatever went wrong at its end, the others and the stop go on
            log.exception("backend_failed", capsule=running.capsule_id, backend=running.backend.name)
        running.engine.let_go()

    async def aclose(self, grace: float) -> None:
        """End all backends at once; their workers get `grace` seconds altogether."""
        async with asyncio.TaskGroup() as group:
            for session_id in tuple(self._running):
                group.create_task(self.close(session_id, grace=grace), name=f"end backend of {session_id}")

    def _interruption(self, session_id: str, *, replaced: bool) -> str:
        if replaced:
            return REPLACED
        return REMOVED if session_id in self._removed else INTERRUPTED

    def of(self, session_id: str) -> Backend | None:
        """Return the backend of a session."""
        running = self._running.get(session_id)
        return running.backend if running is not None else None

    def passed_planes(self, session_id: str) -> PassedPlanes | None:
        """Return the planes that a session's backend passes on, None where its files are here."""
        backend = self.of(session_id)
        if backend is None or backend.name != "forward":
            return None
        planes = cast("Forward", backend).planes
        return planes if planes.on else None


class Makers:
    """Makes backends, and owns what those of one kind share. `open` before the first backend, `aclose` after the last."""

    def __init__(self, directory: Path, environ: Mapping[str, str]) -> None:
        self._processes = Processes(Records(directory))
        self._environ = environ

    def open(self, grace: float) -> None:
        """Become the parent of orphans, and end what an earlier run left; it gets `grace` seconds."""
        subreaper.claim()
        subreaper.plain_signals()
        self._processes.open(grace)

    async def aclose(self) -> None:
        """Bury the last processes."""
        await self._processes.aclose()

    def make(self, settings: Settings) -> Backend:
        """Make the backend that settings name."""
        if settings.backend == "command":
            return CommandBackend(self._processes, environ=self._environ)
        if settings.backend == "forward":
            from sidecar.tasks.backends.forward import Forward  # noqa: PLC0415 - a client, which few have a use for

            return Forward()
        return Inbox()
