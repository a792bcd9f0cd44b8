"""Trimming what the Everruns view keeps, in small portions so that no change waits long behind it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from sidecar.tasks.trim import REPLAYED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection

    from sidecar.store import Store

PORTION: Final = 500
"""Rows that are deleted in one transaction."""

_LET_GO: Final = (
    "UPDATE everruns_sessions SET session_id = '' WHERE id IN (SELECT id FROM everruns_sessions AS s"
    " WHERE active_at < ? AND session_id <> '' AND NOT EXISTS (SELECT 1 FROM tasks"
    " WHERE tasks.session_id = s.session_id AND ended_at IS NULL AND context_id = s.id) LIMIT ?)"
)
"""No capsule has a session then, so that nobody finds it and it goes with those of capsules that are gone."""
_LEFT: Final = (
    "SELECT id, session_id FROM everruns_sessions WHERE session_id NOT IN (SELECT session_id FROM capsules)"
)
_DELETE_EVENTS: Final = (
    "DELETE FROM everruns_events WHERE everruns_id = ?1 AND sequence <= ?2 AND sequence IN"
    " (SELECT sequence FROM everruns_events WHERE everruns_id = ?1 ORDER BY sequence LIMIT ?3)"
)
_DELETE_REPLIES: Final = (
    "DELETE FROM everruns_replies WHERE (session_id, owner, key) IN"
    " (SELECT session_id, owner, key FROM everruns_replies WHERE at <= ? LIMIT ?)"
)
_NEWEST: Final = 2**63 - 1


async def trim(
    store: Store,
    *,
    keep_events: int,
    idle_since: float,
    replied_before: float,
    open_sessions: Collection[str],
) -> None:
    """Delete what is kept no longer, and return when nothing of it is left.

    That is: of each session all events but the newest `keep_events` (at least 512 of them stay), whose numbers stay
    as they are; the sessions
    without a live turn that were active last before `idle_since` (Unix seconds); those of capsules that nobody holds
    any more and that are not open; and replies given before `replied_before`. Raises StoreError.
    """
    keep = max(keep_events, REPLAYED)
    for everruns_id, last in await store.read(partial(_with_old_events, keep)):
        await _all_portions(store, partial(_delete_events, everruns_id, last))
    await _all_portions(store, partial(_let_go, idle_since))
    for everruns_id, session_id in await store.read(_left):
        if session_id not in open_sessions:
            await _all_portions(store, partial(_delete_events, everruns_id, _NEWEST))
            await store.write(partial(_delete_session, everruns_id))
    await _all_portions(store, partial(_delete_replies, replied_before))


async def _all_portions(store: Store, delete: Callable[[sqlite3.Connection], int]) -> None:
    while await store.write(delete) == PORTION:
        pass


def _with_old_events(keep: int, connection: sqlite3.Connection) -> list[tuple[str, int]]:
    """Return the sessions with events that are too old, each with the last of those."""
    return connection.execute(
        "SELECT id, sequence - ?1 FROM everruns_sessions WHERE sequence > ?1 AND EXISTS"
        " (SELECT 1 FROM everruns_events WHERE everruns_id = id AND everruns_events.sequence <= everruns_sessions.sequence - ?1)",
        (keep,),
    ).fetchall()


def _let_go(before: float, connection: sqlite3.Connection) -> int:
    return connection.execute(_LET_GO, (before, PORTION)).rowcount


def _left(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute(_LEFT).fetchall()


def _delete_events(everruns_id: str, last: int, connection: sqlite3.Connection) -> int:
    return connection.execute(_DELETE_EVENTS, (everruns_id, last, PORTION)).rowcount


def _delete_session(everruns_id: str, connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM everruns_sessions WHERE id = ?", (everruns_id,))


def _delete_replies(before: float, connection: sqlite3.Connection) -> int:
    return connection.execute(_DELETE_REPLIES, (before, PORTION)).rowcount
