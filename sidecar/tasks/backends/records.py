"""Which processes run, written down so that a sidecar that starts after a kill -9 finds what is left of them.

One file of lines of one length, each of which is free or belongs to a process. It gets its line before it begins and
is named there right after. What must be outlived is this program, not the machine: so a line is written in place, and
nothing waits for the disk (to make and delete files would, behind the database's syncs).
"""

from __future__ import annotations

import heapq
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from sidecar.ops import proc

if TYPE_CHECKING:
    from pathlib import Path

WIDTH: Final = 128
"""Bytes of a line, its newline included: a page holds whole ones, so none is ever written in part."""
FREE: Final = b" " * (WIDTH - 1) + b"\n"
UNKNOWN: Final = 0
"""Stands for a pid and a start that their maker did not live to write down."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Record:
    """A process that was begun for a task. `pid` and `start` are `UNKNOWN` where only that is known."""

    line: int
    task_id: str
    pid: int
    start: int


class Records:
    """The records of one daemon, in a file that is its alone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._boot = proc.boot_id() or "-"
        self._file: int | None = None
        self._lines = 0
        self._free: list[int] = []

    def left(self) -> list[Record]:
        """Return what was not struck out, of an earlier run in particular.

        Lines of before the machine started count as free: nothing can be left of those.
        """
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            _log.warning("processes_unknown", problem=str(error))
            return []
        return [
            record
            for line, start in enumerate(range(0, len(text), WIDTH))
            if (record := self._read(line, text[start : start + WIDTH])) is not None
        ]

    def begin(self, task_id: str) -> int | None:
        """Write down that a process for this task is about to begin, and return its line; None where that cannot be."""
        try:
            self._open()
        except OSError as error:
            _log.warning("process_not_recorded", task=task_id, problem=str(error))
            return None
        if self._free:
            line = heapq.heappop(self._free)
        else:
            line = self._lines
            self._lines += 1
        self.fill(line, task_id, UNKNOWN, UNKNOWN)
        return line

    def fill(self, line: int | None, task_id: str, pid: int, start: int) -> None:
        """Write down which process it has become."""
        self._write(
            line, f"{self._boot} {task_id} {pid} {start}".encode().ljust(WIDTH - 1)[: WIDTH - 1] + b"\n"
        )

    def strike(self, line: int | None) -> None:
        """Free the line of a process that is gone."""
        if line is not None:
            with suppress(OSError):
                self._open()
            self._write(line, FREE)
            heapq.heappush(self._free, line)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> None:
        if self._file is not None:
            return
        taken = {record.line for record in self.left()}
        self._lines = max(taken, default=-1) + 1
        self._free = sorted(set(range(self._lines)) - taken)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _write(self, line: int | None, text: bytes) -> None:
        if self._file is None or line is None:
            return
        try:
            os.pwrite(self._file, text, line * WIDTH)
        except OSError as error:
            _log.warning("process_not_recorded", problem=str(error))

    def _read(self, line: int, text: bytes) -> Record | None:
        words = text.decode("utf-8", "replace").split()
        try:
            boot, task_id, pid, start = words
            record = Record(line, task_id, int(pid), int(start))
        except ValueError:
            return None
        return record if boot == self._boot else None
