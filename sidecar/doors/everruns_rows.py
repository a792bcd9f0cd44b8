"""What the Everruns view keeps, read back: sessions, events, replies. Each function is one query of the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.dialects.everruns import Envelope
from sidecar.events import TaskState

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

_SESSION: Final = (
    "SELECT id, owner, title, created_at, active_at, last_turn, sequence FROM everruns_sessions WHERE "
)
_FIND: Final = _SESSION + "id = ? AND session_id = ? AND owner = ?"
_LIST: Final = (
    _SESSION
    + "session_id = ? AND owner = ? AND (active_at, id) < (?, ?) ORDER BY active_at DESC, id DESC LIMIT ?"
)
_LIVE: Final = (
    "SELECT context_id, id, state, output, waiting_since FROM tasks"
    " WHERE session_id = ? AND ended_at IS NULL AND owner = ? ORDER BY seq"
)


EVER: Final = (float("inf"), "")
"""Where the first page of sessions begins."""


@dataclass(frozen=True, slots=True)
class LiveTurn:
    """A turn that is not over; `question` and `since` (Unix seconds) are set where it waits for an answer."""

    task_id: str
    state: TaskState
    question: str | None
    since: float | None


@dataclass(frozen=True, slots=True)
class Session:
    """One session as it is committed: the conversation of one caller. Times are Unix seconds.

    `sequence` is the number of its newest event, `turns` are those that are not over, the oldest first.
    """

    id: str
    owner: str
    title: str | None
    created_at: float
    active_at: float
    last_turn: str | None = None
    sequence: int = 0
    turns: tuple[LiveTurn, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """A reply that was given to a request with an `Idempotency-Key`."""

    digest: bytes
    body: bytes


def find(session_id: str, everruns_id: str, owner: str, connection: sqlite3.Connection) -> Session | None:
    """Return an owner's session on a capsule, if there is one."""
    row = connection.execute(_FIND, (everruns_id, session_id, owner)).fetchone()
    if row is None:
        return None
    return _session(row, _turns(connection, session_id, owner))


def sessions(
    session_id: str, owner: str, most: int, after: tuple[float, str], connection: sqlite3.Connection
) -> tuple[Session, ...]:
    """Return an owner's sessions on a capsule, the most recently active first, from behind a place on."""
    rows = connection.execute(_LIST, (session_id, owner, *after, most)).fetchall()
    turns = _turns(connection, session_id, owner)
    return tuple(_session(row, turns) for row in rows)


def _session(row: Sequence[Any], turns: Mapping[str, tuple[LiveTurn, ...]]) -> Session:
    everruns_id, owner, title, created_at, active_at, last_turn, sequence = row
    return Session(
        everruns_id, owner, title, created_at, active_at, last_turn, sequence, turns.get(everruns_id, ())
    )


def _turns(connection: sqlite3.Connection, session_id: str, owner: str) -> dict[str, tuple[LiveTurn, ...]]:
    """Return the turns of an owner that are not over, by their sessions."""
    found: dict[str, tuple[LiveTurn, ...]] = {}
    for context_id, task_id, state, output, since in connection.execute(_LIVE, (session_id, owner)):
        turn = LiveTurn(task_id, TaskState(state), output if since is not None else None, since)
        found[context_id] = (*found.get(context_id, ()), turn)
    return found


def events(
    everruns_id: str, after: int, most: int, size: int | None, connection: sqlite3.Connection
) -> tuple[Envelope, ...]:
    """Return the kept events of a session behind a number; with `size` no more once they have so many bytes."""
    rows = connection.execute(
        "SELECT sequence, type, at, data FROM everruns_events WHERE everruns_id = ? AND sequence > ?"
        " ORDER BY sequence LIMIT ?",
        (everruns_id, after, most),
    )
    found: list[Envelope] = []
    taken = 0
    for sequence, kind, at, data in rows:
        found.append(Envelope(sequence, kind, at, orjson.Fragment(data)))
        taken += len(data)
        if size is not None and taken >= size:
            break
    return tuple(found)


def is_quiet(everruns_id: str, sequence: int, connection: sqlite3.Connection) -> bool:
    """Whether the event with this number is a session's newest, and no turn of it goes on."""
    (busy,) = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM everruns_events WHERE everruns_id = ?1 AND sequence > ?2) OR EXISTS"
        " (SELECT 1 FROM everruns_sessions AS s JOIN tasks ON tasks.session_id = s.session_id"
        " WHERE s.id = ?1 AND ended_at IS NULL AND context_id = s.id AND tasks.owner = s.owner)",
        (everruns_id, sequence),
    ).fetchone()
    return not busy


def reply(
    session_id: str, owner: str, key: str, after: float, connection: sqlite3.Connection
) -> Stored | None:
    """Return the reply that was kept for an owner's key after a time (Unix seconds)."""
    row = connection.execute(
        "SELECT digest, body FROM everruns_replies WHERE session_id = ? AND owner = ? AND key = ? AND at > ?",
        (session_id, owner, key, after),
    ).fetchone()
    return row and Stored(*row)
