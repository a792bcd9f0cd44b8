"""The processes of all commands of one daemon, with their descendants: none of them outlives what it was started for.

A process and its group are found by its pid. A descendant that left the group has its parent above it, or, once that
ended, has come to us (`ops/subreaper.py`). Of those that came to us, each belongs to the task that its environment
names; one that hides that, to the process whose session it is in; one that hides even that, to whichever process ran
when it began, and it ends with the last of these. What a kill -9 of the sidecar leaves is found at the next start:
processes and orphans by their records, and by their environment and their parents what came too late for one.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from sidecar.ops import proc
from sidecar.tasks.backends.process import Process, Start

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from sidecar.ops.proc import Seen
    from sidecar.tasks.backends.records import Record, Records

MARK: Final = "SIDECAR_TASK_ID"
"""The variable that tells whose descendant a process is."""
OUTLIVED: Final = 2.0
"""Seconds after SIGKILL from which on it is said that something lives on."""
TIDY: Final = 1.0
"""Seconds between two looks for orphans: those that ended are buried, new ones are recorded."""
ORPHAN: Final = "orphan"
"""Stands in a record for the task of a process that hides whose it is."""
SHORTEST, LONGEST, RARELY = 0.005, 0.1, 1.0
"""Seconds between two looks at those that are to end."""

_log = structlog.get_logger()


class Processes:
    """Starts and ends processes, and buries them and the orphans that come to us. One event loop."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._by_pid: dict[int, Process] = {}
        self._by_task: dict[str, Process] = {}
        self._recorded: dict[Seen, int | None] = {}
        self._first = math.inf
        self._tidying: asyncio.TimerHandle | None = None
        self._sweeping: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many processes were started and are not gone with all their descendants."""
        return len(self._by_pid)

    def open(self, grace: float) -> None:
        """Begin to end what an earlier run left: SIGTERM, and SIGKILL after so many seconds. `swept` waits for it."""
        if left := self._records.left():
            self._sweeping = asyncio.create_task(self._sweep(left, grace), name="processes of an earlier run")

    async def swept(self) -> None:
        """Wait until nothing of an earlier run lives, or cannot be ended."""
        if self._sweeping is not None:
            await asyncio.wait((self._sweeping,))

    def start(self, what: Start, leave: Callable[[str | None], None]) -> Process:
        """Start a process; it is on record before it is given anything to do. Raises as `Process.spawn`."""
        record = self._records.begin(what.task_id)
        try:
            process = Process.spawn(what, leave)
        except BaseException:
            self._records.strike(record)
            raise
        self._records.fill(record, what.task_id, process.pid, process.start)
        process.record = record
        self._by_pid[process.pid] = self._by_task[process.task_id] = process
        self._first = min(self._first, process.start)
        if self._tidying is None:
            self._tidying = asyncio.get_running_loop().call_later(TIDY, self._tidy)
        return process

    def end(self, process: Process, grace: float) -> asyncio.Task[None]:
        """End a process and its descendants: SIGTERM, and SIGKILL after so many seconds.

        The task that is returned ends once nothing of it lives; whoever waits for it leaves it alone when cancelled
        (`asyncio.wait`). A later call may shorten the time.
        """
        process.hurry(asyncio.get_running_loop().time() + grace)
        if process.ending is None:
            process.ending = asyncio.create_task(self._end(process), name=f"end process {process.pid}")
        return process.ending

    async def aclose(self) -> None:
        """Let go of everything; what could not be ended stays on record for the next start."""
        if self._tidying is not None:
            self._tidying.cancel()
            self._tidying = None
        ending = {process.ending for process in self._by_pid.values() if process.ending is not None}
        if self._sweeping is not None:
            ending.add(self._sweeping)
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        for process in self._by_pid.values():
            _log.warning("process_left", pid=process.pid, task=process.task_id)
            process.abandon()
        self._by_pid.clear()
        self._by_task.clear()
        self._records.close()

    # Ending

    async def _end(self, process: Process) -> None:
        loop = asyncio.get_running_loop()
        family: set[Seen] = set()
        asked: set[Seen] = set()
        pause, told = SHORTEST, False
        while living := self._living(process, family):
            family.update(living)
            left = process.deadline - loop.time()
            if left <= 0:
                process.signal_group(signal.SIGKILL)
                _send(living, signal.SIGKILL)
            elif process.exited.is_set():
                _send((seen for seen in living if seen not in asked), signal.SIGTERM)
                asked.update(living)
            elif not asked:
                process.signal_group(signal.SIGTERM)
                process.signal_group(signal.SIGCONT)
                asked.update(seen for seen in living if seen.group == process.pid)
            if left < -OUTLIVED and not told:
                told = True
                _log.warning("process_outlived_sigkill", pid=living[0].pid, task=process.task_id)
                process.leave(f"process {living[0].pid} outlived SIGKILL")
            await _until_news(process, left if left > 0 and not process.exited.is_set() else pause)
            pause = RARELY if told else min(2 * pause, LONGEST)
        if told:
            process.leave(None)
        self._bury(process)

    def _bury(self, process: Process) -> None:
        process.bury()
        self._records.strike(process.record)
        self._by_pid.pop(process.pid, None)
        if self._by_task.get(process.task_id) is process:
            del self._by_task[process.task_id]

    def _living(self, process: Process, known: Container[Seen]) -> list[Seen]:
        """Return what lives of a process: itself, its orphans, those `known` to be its among them, and what is below."""
        found = [seen for seen in self._orphans() if seen in known or self._is_of(seen, process)]
        if not process.exited.is_set() and (seen := proc.look(process.pid)) is not None:
            found.append(seen)
        return [*found, *proc.descendants([seen.pid for seen in found])] if found else []

    def _orphans(self) -> list[Seen]:
        """Return the living orphans that came to us, and bury those that ended.

        Our own children that are no orphans are in our session, or began before the first process here.
        """
        found = []
        session = os.getsid(0)
        for pid in proc.children(os.getpid()):
            seen = None if pid in self._by_pid else proc.look(pid)
            if seen is None or seen.session == session or seen.start < self._first:
                continue
            if seen.lives:
                found.append(seen)
            else:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        return found

    def _is_of(self, orphan: Seen, process: Process) -> bool:
        marked = self._by_task.get(proc.began_with(orphan.pid, MARK) or "")
        leader = marked or self._by_pid.get(orphan.session)
        if leader is not None:
            return leader is process
        return process.start <= orphan.start and not any(
            other.start <= orphan.start and other.ending is None for other in self._by_pid.values()
        )

    def _tidy(self) -> None:
        orphans = self._orphans()
        for gone in self._recorded.keys() - set(orphans):
            self._records.strike(self._recorded.pop(gone))
        for orphan in orphans:
            if orphan not in self._recorded:
                record = self._recorded[orphan] = self._records.begin(ORPHAN)
                self._records.fill(record, ORPHAN, orphan.pid, orphan.start)
        more = bool(self._by_pid or self._recorded)
        self._tidying = asyncio.get_running_loop().call_later(TIDY, self._tidy) if more else None

    # What an earlier run left

    async def _sweep(self, records: list[Record], grace: float) -> None:
        deadline = asyncio.get_running_loop().time() + grace
        asked: set[Seen] = set()
        roots = _roots(records)
        pause = SHORTEST
        while living := [
            seen for seen in {*roots, *proc.descendants([r.pid for r in roots])} if proc.again(seen)
        ]:
            left = deadline - asyncio.get_running_loop().time()
            if left < -OUTLIVED:
                _log.warning("process_outlived_sigkill", pids=sorted(seen.pid for seen in living))
                return
            if left <= 0:
                _send(living, signal.SIGKILL)
            else:
                _send((seen for seen in living if seen not in asked), signal.SIGTERM)
                if not asked:
                    _log.info("processes_of_an_earlier_run", pids=sorted(seen.pid for seen in living))
                asked.update(living)
            await asyncio.sleep(min(pause, left) if left > 0 else pause)
            pause = min(2 * pause, LONGEST)
            roots = [*living, *(seen for seen in _roots(records) if seen not in living)]
        for record in records:
            self._records.strike(record.line)


def _roots(records: list[Record]) -> list[Seen]:
    """Return the living processes that are on record, and all whose environment names their tasks; never our own line."""
    tasks = {record.task_id for record in records}
    recorded = {(record.pid, record.start) for record in records}
    ours = _line()
    seen = (proc.look(pid) for pid in proc.everybody() if pid not in ours)
    return [
        each
        for each in seen
        if each is not None
        and each.lives
        and ((each.pid, each.start) in recorded or proc.began_with(each.pid, MARK) in tasks)
    ]


def _line() -> set[int]:
    """Return our pid and those of our ancestors."""
    line, pid = set(), os.getpid()
    while pid > 0 and pid not in line:
        line.add(pid)
        seen = proc.look(pid)
        pid = seen.parent if seen is not None else 0
    return line


def _send(whom: Iterable[Seen], number: signal.Signals) -> None:
    for seen in whom:
        proc.send(seen, number)


async def _until_news(process: Process, seconds: float) -> None:
    process.news.clear()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.news.wait()
