"""Trimming the log, in small portions so that no change waits long behind it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection

    from sidecar.store import Store

REPLAYED: Final = 512
"""Numbered frames of a session that are never trimmed (murmur reference, Replay)."""
PORTION: Final = 500
"""Rows that are deleted in one transaction."""

_OLD_TASKS: Final = "SELECT id FROM tasks WHERE session_id = ? AND ended_at < ? ORDER BY ended_at LIMIT ?"
_ALL_TASKS: Final = "SELECT id FROM tasks WHERE session_id = ? LIMIT ?"
_FIRST_EVENTS: Final = (
    "SELECT count(*), max(seq) FROM"
    " (SELECT seq FROM events WHERE session_id = ? AND seq <= ? ORDER BY seq LIMIT ?)"
)
_LASTING_TEXTS: Final = (
    "SELECT task_id, data FROM events WHERE session_id = ? AND seq <= ? AND kind = 'text' AND"
    " EXISTS (SELECT 1 FROM tasks WHERE id = task_id AND ended_at IS NULL AND began < events.seq) ORDER BY seq"
)
_KEEP_MADE: Final = (
    "INSERT INTO made SELECT task_id, seq, kind, data FROM events WHERE session_id = ? AND seq <= ?"
    " AND kind IN ('artifact', 'reply') AND EXISTS (SELECT 1 FROM tasks WHERE id = task_id)"
)
_KEEP_TEXT: Final = "UPDATE tasks SET spoken = coalesce(spoken, '') || ? WHERE id = ?"
_KEEP_NUMBER: Final = (
    "UPDATE tasks SET shown = max(shown, coalesce((SELECT max(number) FROM events"
    " WHERE session_id = ?1 AND seq <= ?2 AND task_id = tasks.id), 0)) WHERE session_id = ?1 AND ended_at IS NULL"
)
_NEWEST: Final = 2**63 - 1


async def trim(
    store: Store, *, keep_events: int, ended_before: float, open_sessions: Collection[str]
) -> None:
    """Delete what is kept no longer, and return when nothing of it is left.

    That is: of each session all events but those since the newest `keep_events` numbered ones (at least 512 of them
    stay), the tasks that ended before `ended_before` (Unix seconds) with their inputs, and everything of sessions
    that no capsule holds any more and that are not open. Raises StoreError.
    """
    keep = max(keep_events, REPLAYED)
    for session_id, last in await store.read(partial(_with_old_events, keep)):
        await _all_portions(store, partial(_delete_events, session_id, last))
    for session_id in await store.read(partial(_with_old_tasks, ended_before)):
        await _all_portions(store, partial(_delete_tasks, _OLD_TASKS, (session_id, ended_before)))
    for session_id in await store.read(_forgotten):
        for delete in (
            partial(_delete_tasks, _ALL_TASKS, (session_id,)),
            partial(_delete_events, session_id, _NEWEST),
            partial(_delete_session, session_id),
        ):
            if session_id not in open_sessions:
                await _all_portions(store, delete)


async def _all_portions(store: Store, delete: Callable[[sqlite3.Connection], int]) -> None:
    while await store.write(delete) == PORTION:
        pass


def _delete_events(session_id: str, last: int, connection: sqlite3.Connection) -> int:
    """Delete the oldest events up to that number, a portion of them.

    Text of turns that still last goes to their tasks; what makes the artifacts of tasks that are kept, beside them.
    """
    count, last = connection.execute(_FIRST_EVENTS, (session_id, last, PORTION)).fetchone()
    texts: dict[str, list[str]] = {}
    for task_id, data in connection.execute(_LASTING_TEXTS, (session_id, last)):
        texts.setdefault(task_id, []).append(orjson.loads(data)["text"])
    connection.executemany(_KEEP_TEXT, [("".join(pieces), task_id) for task_id, pieces in texts.items()])
    connection.execute(_KEEP_MADE, (session_id, last))
    connection.execute(_KEEP_NUMBER, (session_id, last))
    connection.execute("DELETE FROM events WHERE session_id = ? AND seq <= ?", (session_id, last))
    return int(count)


def _delete_tasks(which: str, values: tuple[object, ...], connection: sqlite3.Connection) -> int:
    ids = connection.execute(which, (*values, PORTION)).fetchall()
    connection.executemany("DELETE FROM inputs WHERE task_id = ?", ids)
    connection.executemany("DELETE FROM made WHERE task_id = ?", ids)
    connection.executemany("DELETE FROM tasks WHERE id = ?", ids)
    return len(ids)


def _delete_session(session_id: str, connection: sqlite3.Connection) -> int:
    return connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount


def _with_old_events(keep: int, connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """Return the sessions with events that are too old, each with the last of those."""
    query = (
        "SELECT session_id, events.seq FROM (SELECT id, (SELECT max(frame) FROM events"
        " WHERE session_id = sessions.id AND frame IS NOT NULL) - ? AS last FROM sessions)"
        " JOIN events ON session_id = id AND frame = last AND frame IS NOT NULL"
    )
    return connection.execute(query, (keep,)).fetchall()


def _with_old_tasks(before: float, connection: sqlite3.Connection) -> list[str]:
    query = "SELECT id FROM sessions WHERE EXISTS (SELECT 1 FROM tasks WHERE session_id = sessions.id AND ended_at < ?)"
    return [row[0] for row in connection.execute(query, (before,))]


def _forgotten(connection: sqlite3.Connection) -> list[str]:
    query = "SELECT id FROM sessions WHERE id NOT IN (SELECT session_id FROM capsules)"
    return [row[0] for row in connection.execute(query)]
