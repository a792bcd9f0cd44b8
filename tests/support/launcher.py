"""A sidecar that ends itself, as a kill -9 would, at a chosen moment of a chosen commit.

Run as `python -m tests.support.launcher run …`, with `sidecar`'s own arguments. It imports everything and waits for a
line `go` on standard input. A line `POINT COUNT MICROSECONDS` arms it: the COUNT-th commit from then on is its last. The
points, with a delay where one makes sense:

    before   the transaction is complete, COMMIT has not begun
    within   so many microseconds after COMMIT has begun
    after    COMMIT has returned, and nobody has been told
    soon     so many microseconds after that: while callers are told, answers sent, frames shown

When standard input ends it ends too, so that nothing outlives whoever started it.
"""

from __future__ import annotations

import importlib
import os
import signal
import sqlite3
import sys
import threading
from functools import partial
from typing import Any, Final

from sidecar.cli.main import main

POINTS: Final = ("before", "within", "after", "soon")
SIGNALS: Final = (signal.SIGKILL, signal.SIGALRM)
"""What a process ended by: the timer's signal has no handler, so the kernel ends the process as SIGKILL does."""


class Trap:
    """Counts commits once it is armed, and springs at the one that was named."""

    def __init__(self) -> None:
        self.point = ""
        self.left = 0
        self.delay = 0.0

    def arm(self, line: str) -> None:
        """Take a line of standard input."""
        point, count, microseconds = line.split()
        self.delay = max(1, int(microseconds)) / 1e6
        self.left = int(count)
        self.point = point

    def reach(self, *points: str) -> str | None:
        """Return the point where this commit is the last one and its point is one of these."""
        return self.point if self.left == 0 and self.point in points else None


class Commits(sqlite3.Connection):
    """A connection whose commits are counted."""

    trap: Trap

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement; the last COMMIT does not come back."""
        if sql != "COMMIT" or not self.trap.point:
            return super().execute(sql, *arguments)
        trap = self.trap
        trap.left -= 1
        if trap.reach("before"):
            end()
        if trap.reach("within"):
            signal.setitimer(signal.ITIMER_REAL, trap.delay)
        cursor = super().execute(sql, *arguments)
        if trap.reach("within", "after"):
            end()
        if trap.reach("soon"):
            signal.setitimer(signal.ITIMER_REAL, trap.delay)
        return cursor


def end() -> None:
    """End this process now: no handler, no flush, no clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)


def listen(trap: Trap, started: threading.Event) -> None:
    """Take orders until standard input ends."""
    with os.fdopen(os.dup(0)) as orders:
        for line in orders:
            if line == "go\n":
                started.set()
            else:
                trap.arm(line)
    end()


if __name__ == "__main__":
    Commits.trap = Trap()
    sqlite3.connect = partial(sqlite3.connect, factory=Commits)  # type: ignore[assignment]  # a hook for this process alone
    go = threading.Event()
    threading.Thread(target=listen, args=(Commits.trap, go), name="orders", daemon=True).start()
    importlib.import_module("sidecar.daemon.daemon")
    go.wait()
    sys.exit(main(sys.argv[1:]))
