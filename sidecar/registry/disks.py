"""Looking at export roots on disks that may hang: one that does costs the capsules on it, and nobody else."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar.registry.checks import check_exports, real_paths
from sidecar.watch.thread import OwnThread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.errors import Problem
    from sidecar.registry.checks import ExportCheck

PATIENCE: Final = 3.0
"""Seconds without any progress after which a disk counts as one that hangs."""
ESCAPE: Final = re.compile(rb"\\([0-7]{3})")
MOUNT_POINT: Final = 4
"""The field of a line of `/proc/self/mountinfo`; white space in it is written in octal (proc(5))."""


@dataclass(slots=True, eq=False)
class _Work:
    """Checks that a thread does one after the other; who gives up on it takes what is there and has it stop."""

    checks: Sequence[ExportCheck]
    guarded: Sequence[str]
    found: list[tuple[Problem, ...]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        guarded = real_paths(self.guarded)
        for check in self.checks:
            problems = check_exports(check, guarded)
            if self.stop.is_set():
                return
            self.found.append(problems)


@dataclass(slots=True, eq=False)
class _Hung:
    """A thread that was given up on, and its job, which ends when the disk answers."""

    thread: OwnThread
    job: asyncio.Task[None]


class Disks:
    """Looks at export roots in a thread. One check at a time is under way; belongs to one event loop.

    Where a check makes no progress for `patience` seconds, its thread is left behind and the disk that it waits for is
    not asked again until that thread is back.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._thread = OwnThread("registry-checks")
        self._hung: dict[str, _Hung] = {}

    async def check(
        self, checks: Sequence[ExportCheck], guarded: Sequence[str]
    ) -> list[tuple[Problem, ...] | None]:
        """Return the problems of each check, None where its disk does not answer.

        `guarded` are paths that no export root may reach.
        """
        await self._take_back()
        found: list[tuple[Problem, ...] | None] = []
        while len(found) < len(checks):
            rest = checks[len(found) :]
            asked = next((n for n, check in enumerate(rest) if self._hangs(check)), len(rest))
            if asked:
                found += await self._ask(rest[:asked], guarded)
            if asked < len(rest) and len(found) == len(checks) - len(rest) + asked:
                found.append(None)
        return found

    async def aclose(self) -> None:
        """End the threads; those that hang are left behind, as daemons."""
        for hung in self._hung.values():
            hung.job.cancel()
        await asyncio.gather(*(hung.job for hung in self._hung.values()), return_exceptions=True)
        for hung in self._hung.values():
            await hung.thread.aclose(0.0)
        self._hung.clear()
        await self._thread.aclose()

    async def _ask(
        self, checks: Sequence[ExportCheck], guarded: Sequence[str]
    ) -> list[tuple[Problem, ...] | None]:
        """Do these checks, up to the first that hangs, of which the outcome is None."""
        work = _Work(checks, guarded)
        job = asyncio.create_task(self._thread.run(work.run), name="registry checks")
        try:
            while True:
                count = len(work.found)
                await asyncio.wait((job,), timeout=self._patience)
                if job.done():
                    job.result()
                    return [*work.found]
                if len(work.found) == count:
                    break
        except asyncio.CancelledError:
            work.stop.set()
            job.cancel()
            raise
        work.stop.set()
        self._hung[_disk_of(checks[count])] = _Hung(self._thread, job)
        self._thread = OwnThread("registry-checks")
        return [*work.found[:count], None]

    async def _take_back(self) -> None:
        for disk, hung in tuple(self._hung.items()):
            if hung.job.done():
                del self._hung[disk]
                await hung.thread.aclose()

    def _hangs(self, check: ExportCheck) -> bool:
        return bool(self._hung) and _disk_of(check) in self._hung


def _disk_of(check: ExportCheck) -> str:
    """Return the mount point that a workspace lies below, without asking the disk; itself where that is not known."""
    workspace = check.workspace
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return workspace
    points = (ESCAPE.sub(lambda m: bytes([int(m[1], 8)]), line.split()[MOUNT_POINT]) for line in lines)
    over = [p for point in points if _is_below(workspace, p := os.fsdecode(point))]
    return max(over, key=len, default=workspace)


def _is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(above.rstrip("/") + "/")
