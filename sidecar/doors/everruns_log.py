"""What the Everruns view keeps: sessions, their events with dense numbers, and replies that may be asked for again."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.dialects import everruns
from sidecar.doors import everruns_rows as rows
from sidecar.doors.everruns_trim import trim
from sidecar.doors.everruns_words import said, turn_words

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Sequence

    from sidecar.dialects.everruns import Envelope
    from sidecar.doors.everruns_rows import Session, Stored
    from sidecar.doors.everruns_stream import SessionStream
    from sidecar.store import Store
    from sidecar.tasks.model import Change, Input

KEPT: Final = 24 * 3600.0
"""Seconds for which a reply is kept for whoever repeats a request with its `Idempotency-Key`."""
PAGE_BYTES: Final = 256 * 1024
"""Bytes of events beyond which a page for a stream ends."""

_MAKE: Final = "INSERT INTO everruns_sessions (id, session_id, owner, title, created_at, active_at) VALUES (?, ?, ?, ?, ?, ?)"
_KEEP_EVENT: Final = (
    "INSERT INTO everruns_events (everruns_id, sequence, type, at, data) VALUES (?, ?, ?, ?, ?)"
)
_GO_ON: Final = (
    "UPDATE everruns_sessions SET sequence = ?, active_at = max(active_at, ?), last_turn = coalesce(?, last_turn)"
    " WHERE id = ?"
)
_KEEP_REPLY: Final = "INSERT OR REPLACE INTO everruns_replies (session_id, owner, key, digest, body, at) VALUES (?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The `Idempotency-Key` of a request: whose it is, and the hash of what was asked for with it."""

    owner: str
    key: str
    digest: bytes


class EverrunsLog:
    """The way to what the view keeps, for all capsules of one daemon: a `Showing` of the tasks.

    `in_progress` has the `Idempotency-Key`s of requests that are being answered, by capsule session, owner and key,
    each with the hash of what is asked for. `streams` are the open ones by capsule session. `clock` is in Unix
    seconds.
    """

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._listening: dict[str, set[Callable[[], None]]] = {}
        self.in_progress: dict[tuple[str, str, str], bytes] = {}
        self.streams: defaultdict[str, set[SessionStream]] = defaultdict(set)

    # The view's part of each commit

    def write(self, connection: sqlite3.Connection, session_id: str, change: Change) -> None:
        """Number and keep what sessions show of a change (`Showing.write`)."""
        places: dict[str, _Place | None] = {}
        for one in said(change):
            if one.context_id not in places:
                places[one.context_id] = _place(connection, session_id, one.context_id)
            place = places[one.context_id]
            if place is None or _owner(connection, change, one.task_id) != place.owner:
                continue
            data = one.data
            if one.type == everruns.STARTED:
                data = data | {"input_message_id": _first_message(connection, one.task_id)}
            place.sequence += 1
            row = (one.context_id, place.sequence, one.type, one.at, orjson.dumps(data).decode())
            connection.execute(_KEEP_EVENT, row)
            if one.type != everruns.DELTA:
                place.active_at = max(place.active_at, one.at)
            place.last_turn = everruns.LAST_TURN.get(one.type, place.last_turn)
        for context_id, place in places.items():
            if place is not None:
                connection.execute(_GO_ON, (place.sequence, place.active_at, place.last_turn, context_id))
        self._write_receipt(connection, session_id, change)

    def _write_receipt(self, connection: sqlite3.Connection, session_id: str, change: Change) -> None:
        taken: tuple[tuple[str, Input], ...] = ()
        if change.submission is not None:
            taken += ((change.submission.task.id, change.submission.given),)
        if change.delivery is not None:
            taken += ((change.delivery.task_id, change.delivery.given),)
        for task_id, given in taken:
            if isinstance(given.receipt, Receipt):
                body = message_reply(given, task_id)
                self._keep_reply(connection, session_id, given.receipt, body)

    def _keep_reply(
        self, connection: sqlite3.Connection, session_id: str, receipt: Receipt, body: bytes
    ) -> None:
        row = (session_id, receipt.owner, receipt.key, receipt.digest, body, self._clock())
        connection.execute(_KEEP_REPLY, row)

    def landed(self, change: Change) -> None:
        """Wake the streams of the sessions that a change is about (`Showing.landed`)."""
        if not self._listening:
            return
        contexts = {task.context_id for task in change.tasks} | {event.context_id for event in change.events}
        for context_id in contexts & self._listening.keys():
            for wake in tuple(self._listening[context_id]):
                wake()

    async def trim(self, *, keep_events: int, ended_before: float, open_sessions: Collection[str]) -> None:
        """Delete what is kept no longer (`Showing.trim`)."""
        await trim(
            self._store,
            keep_events=keep_events,
            idle_since=ended_before,
            replied_before=self._clock() - KEPT,
            open_sessions=open_sessions,
        )

    # Streams

    def listen(self, everruns_id: str, wake: Callable[[], None]) -> None:
        """Have `wake` called after each commit that is about a session."""
        self._listening.setdefault(everruns_id, set()).add(wake)

    def leave(self, everruns_id: str, wake: Callable[[], None]) -> None:
        """Have it called no more; may be called twice."""
        listening = self._listening.get(everruns_id)
        if listening is not None:
            listening.discard(wake)
            if not listening:
                del self._listening[everruns_id]

    def end_streams(self, session_id: str, reason: str) -> None:
        """Have every stream of a capsule's session end with its closing frame."""
        for stream in tuple(self.streams.get(session_id, ())):
            stream.end(reason)

    # What callers ask for

    async def create(
        self, session_id: str, made: Session, body: bytes, receipt: Receipt | None = None
    ) -> None:
        """Keep a new session, and the reply about it where there is a key for it. Raises StoreError."""

        def write(connection: sqlite3.Connection) -> None:
            row = (made.id, session_id, made.owner, made.title, made.created_at, made.active_at)
            connection.execute(_MAKE, row)
            if receipt is not None:
                self._keep_reply(connection, session_id, receipt, body)

        await self._store.write(write)

    async def find(self, session_id: str, everruns_id: str, owner: str) -> Session | None:
        """Return an owner's session on a capsule; None where there is none, or it is another's. Raises StoreError."""
        if not everruns.is_session_id(everruns_id):
            return None
        return await self._store.read(partial(rows.find, session_id, everruns_id, owner))

    async def list(
        self, session_id: str, owner: str, most: int, after: tuple[float, str] | None
    ) -> Sequence[Session]:
        """Return an owner's sessions on a capsule, the most recently active first. Raises StoreError."""
        return await self._store.read(partial(rows.sessions, session_id, owner, most, after or rows.EVER))

    async def events(
        self, everruns_id: str, after: int, most: int, size: int | None = None
    ) -> tuple[Envelope, ...]:
        """Return the kept events of a session behind a number, the oldest first. Raises StoreError.

        With `size` no more follow once they have so many bytes.
        """
        return await self._store.read(partial(rows.events, everruns_id, after, most, size))

    async def is_quiet(self, everruns_id: str, sequence: int) -> bool:
        """Whether the event with this number is a session's newest, and no turn of it goes on. Raises StoreError."""
        return await self._store.read(partial(rows.is_quiet, everruns_id, sequence))

    async def reply(self, session_id: str, owner: str, key: str) -> Stored | None:
        """Return the reply that is kept for an owner's `Idempotency-Key`. Raises StoreError.

        The writer is asked, behind all that waits for it: a client that gave up and comes again may find its first
        request still there.
        """
        after = self._clock() - KEPT
        return await self._store.write(partial(rows.reply, session_id, owner, key, after))


def message_reply(given: Input, task_id: str) -> bytes:
    """Return the body of the answer to a message that was taken."""
    session_id, shown = turn_words(given)
    return orjson.dumps({**shown, "session_id": session_id, "turn_id": everruns.turn_id(task_id)})


@dataclass(slots=True)
class _Place:
    """Where a session stands, inside one change."""

    owner: str
    sequence: int
    active_at: float
    last_turn: str | None = None


def _place(connection: sqlite3.Connection, session_id: str, everruns_id: str) -> _Place | None:
    row = connection.execute(
        "SELECT owner, sequence, active_at FROM everruns_sessions WHERE id = ? AND session_id = ?",
        (everruns_id, session_id),
    ).fetchone()
    return row and _Place(*row)


def _owner(connection: sqlite3.Connection, change: Change, task_id: str) -> str | None:
    for task in change.tasks:
        if task.id == task_id:
            return task.owner
    row = connection.execute("SELECT owner FROM tasks WHERE id = ?", (task_id,)).fetchone()
    return row and str(row[0])


def _first_message(connection: sqlite3.Connection, task_id: str) -> Any:
    row = connection.execute("SELECT request FROM tasks WHERE id = ?", (task_id,)).fetchone()
    return None if row is None else orjson.loads(row[0]).get("messageId")
