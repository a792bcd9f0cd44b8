"""Trimming the log, in small portions so that no change waits long behind it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

    from sidecar.store import Store

REPLAYED: Final = 512
"""Numbered frames of a session that are never trimmed (murmur reference, Replay)."""
PORTION: Final = 500
"""Rows that are deleted in one transaction."""

_OLD_EVENTS: Final = (
    "DELETE FROM events WHERE session_id = :id AND seq IN"
    " (SELECT seq FROM events WHERE session_id = :id AND frame <= :last ORDER BY frame LIMIT :portion)"
)
_OLD_TASKS: Final = (
    "DELETE FROM tasks WHERE seq IN"
    " (SELECT seq FROM tasks WHERE session_id = :id AND ended_at < :before ORDER BY ended_at LIMIT :portion)"
)
_ALL_EVENTS: Final = (
    "DELETE FROM events WHERE session_id = :id AND seq IN"
    " (SELECT seq FROM events WHERE session_id = :id ORDER BY seq LIMIT :portion)"
)
_ALL_TASKS: Final = (
    "DELETE FROM tasks WHERE seq IN (SELECT seq FROM tasks WHERE session_id = :id LIMIT :portion)"
)

_SESSION: Final = "DELETE FROM sessions WHERE id = :id"


async def trim(
    store: Store, *, keep_events: int, ended_before: float, open_sessions: Collection[str]
) -> None:
    """Delete what is kept no longer, and return when nothing of it is left.

    That is: of each session all events but the newest `keep_events` (and never the last 512 numbered), the tasks
    that ended before `ended_before` (Unix seconds), and everything of sessions that no capsule holds any more and
    that are not open. Raises StoreError.
    """
    keep = max(keep_events, REPLAYED)
    for session_id, last in await store.read(partial(_with_old_events, keep)):
        await _all_portions(store, _OLD_EVENTS, {"id": session_id, "last": last})
    for session_id in await store.read(partial(_with_old_tasks, ended_before)):
        await _all_portions(store, _OLD_TASKS, {"id": session_id, "before": ended_before})
    for session_id in await store.read(_forgotten):
        for statement in (_ALL_EVENTS, _ALL_TASKS, _SESSION):
            if session_id not in open_sessions:
                await _all_portions(store, statement, {"id": session_id})


async def _all_portions(store: Store, statement: str, values: dict[str, object]) -> None:
    while await store.write(partial(_delete, statement, {**values, "portion": PORTION})) == PORTION:
        pass


def _delete(statement: str, values: dict[str, object], connection: sqlite3.Connection) -> int:
    return connection.execute(statement, values).rowcount


def _with_old_events(keep: int, connection: sqlite3.Connection) -> list[tuple[str, int]]:
    query = (
        "SELECT id, last FROM (SELECT id, (SELECT max(frame) FROM events"
        " WHERE session_id = sessions.id AND frame IS NOT NULL) - ? AS last FROM sessions)"
        " WHERE EXISTS (SELECT 1 FROM events WHERE session_id = id AND frame <= last)"
    )
    return connection.execute(query, (keep,)).fetchall()


def _with_old_tasks(before: float, connection: sqlite3.Connection) -> list[str]:
    query = "SELECT id FROM sessions WHERE EXISTS (SELECT 1 FROM tasks WHERE session_id = sessions.id AND ended_at < ?)"
    return [row[0] for row in connection.execute(query, (before,))]


def _forgotten(connection: sqlite3.Connection) -> list[str]:
    query = "SELECT id FROM sessions WHERE id NOT IN (SELECT session_id FROM capsules)"
    return [row[0] for row in connection.execute(query)]
