"""Which processes run, written down so that a sidecar that starts after a kill -9 finds what is left of them.

One small file per process in a directory of the state. It is made before the process and filled in after, with a
plain write: what must be outlived is this program, not the machine, so nothing waits for the disk.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from sidecar.ops import proc

if TYPE_CHECKING:
    from pathlib import Path

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Record:
    """A process that was begun for a task. `pid` and `start` are None where its maker ended before it knew them."""

    file: Path
    task_id: str
    pid: int | None = None
    start: int | None = None


class Records:
    """The records of one daemon."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)
        self._boot = proc.boot_id()

    def left(self) -> list[Record]:
        """Return what an earlier run did not strike out; records of before the machine started are deleted."""
        found = []
        try:
            files = sorted(self._directory.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            _log.warning("processes_unknown", problem=str(error))
            return []
        for file in files:
            if (record := self._read(file)) is None:
                self.strike(file)
            else:
                found.append(record)
        return found

    def begin(self, task_id: str) -> Path | None:
        """Write down that a process for this task is about to begin; None, and a warning, where that cannot be."""
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            while True:
                file = self._directory / f"{task_id}.{next(self._numbers)}"
                with suppress(FileExistsError), file.open("x") as made:
                    made.write(self._boot)
                    return file
        except OSError as error:
            _log.warning("process_not_recorded", task=task_id, problem=str(error))
            return None

    def fill(self, file: Path | None, pid: int, start: int) -> None:
        """Write down which process it has become."""
        if file is None:
            return
        try:
            file.write_text(f"{self._boot} {pid} {start}")
        except OSError as error:
            _log.warning("process_not_recorded", task=file.stem, problem=str(error))

    def strike(self, file: Path | None) -> None:
        """Delete the record of a process that is gone."""
        if file is not None:
            with suppress(OSError):
                file.unlink()

    def _read(self, file: Path) -> Record | None:
        """Read a record; None for one of another start of the machine, of which nothing can be left."""
        try:
            boot, *process = file.read_text().split(" ")
        except (OSError, ValueError):
            boot, process = self._boot, []
        if boot not in (self._boot, ""):
            return None
        try:
            pid, start = map(int, process)
        except ValueError:
            return Record(file, file.stem)
        return Record(file, file.stem, pid, start)
