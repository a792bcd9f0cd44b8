"""A sidecar whose disk takes nothing while a file exists: `python -m tests.support.held FILE run …`, with `sidecar`'s arguments.

A commit waits for as long as the file is there, in the thread that writes; everything else goes on.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from sidecar.cli.main import main


class Commits(sqlite3.Connection):
    """A connection whose commits wait."""

    held: Path

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement; COMMIT when it may."""
        while sql == "COMMIT" and self.held.exists():
            time.sleep(0.01)
        return super().execute(sql, *arguments)


if __name__ == "__main__":
    Commits.held = Path(sys.argv[1])
    sqlite3.connect = partial(sqlite3.connect, factory=Commits)  # type: ignore[assignment]  # a hook for this process alone
    sys.exit(main(sys.argv[2:]))
