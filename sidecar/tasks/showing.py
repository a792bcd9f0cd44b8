"""Views that number what they show of the tasks: the number is part of the commit (design, Tasks)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

    from sidecar.tasks.model import Change


class Showing(Protocol):
    """A view that keeps what it shows beside the log, in the same commits."""

    def write(self, connection: sqlite3.Connection, session_id: str, change: Change) -> None:
        """Write what the view shows of a change that the log itself has written already.

        Runs in the writer thread, inside the transaction: it changes the database and nothing else, for it may be
        run again, and it commits nothing.
        """

    def landed(self, change: Change) -> None:
        """Take note, on the loop, of a change that is committed."""

    async def trim(self, *, keep_events: int, ended_before: float, open_sessions: Collection[str]) -> None:
        """Delete what is kept no longer, by the measures of `tasks.trim`. Raises StoreError."""
