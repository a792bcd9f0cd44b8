"""Sessions: which id and which session a directory and name have, remembered in the database.

`Memory` holds the rows and changes only as the database did: what is new is committed before anything is served
under it, and all changes of one snapshot are one write.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sidecar.registry.ports import PortMemory

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    from sidecar.store import Store

Pair = tuple[str, str]
"""A directory (absolute path) and a manifest's name: what an id and a session belong to."""


@dataclass(frozen=True, slots=True)
class Session:
    """One capsule's serving life. Times are Unix seconds; `gone_at` None means that the capsule is there."""

    directory: str
    name: str
    id: str
    session_id: str
    created_at: float
    gone_at: float | None = None

    @property
    def pair(self) -> Pair:
        """What it belongs to."""
        return self.directory, self.name


@dataclass(frozen=True, slots=True)
class Changes:
    """What one snapshot changes in the memory; done as one transaction, or not at all.

    `kept` are rows to be written: new ones, returned ones, gone ones. `forgotten` ones are not remembered any more.
    """

    kept: tuple[Session, ...] = ()
    forgotten: tuple[Session, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.kept or self.forgotten)


class Memory:
    """The rows of `capsules` and `ports`, by what they are looked up by."""

    def __init__(self, sessions: Iterable[Session], ports: Mapping[str, int]) -> None:
        self.ports = PortMemory(ports)
        self._by_pair: dict[Pair, Session] = {}
        self._by_id: dict[str, Session] = {}
        self._gone: dict[Pair, Session] = {}
        self._in: dict[str, tuple[Session, ...]] = {}
        for session in sessions:
            self._keep(session)

    @classmethod
    def load(cls, store: Store) -> Memory:
        """Read what earlier runs remembered; raises StoreError."""
        return store.read_now(_load)

    def get(self, pair: Pair) -> Session | None:
        """Return the session of a directory and name, gone or not."""
        return self._by_pair.get(pair)

    def present(self, directory: str) -> Session | None:
        """Return the session in a directory that is not gone: at most one of its names has one."""
        return next((s for s in self._in.get(directory, ()) if s.gone_at is None), None)

    def all_present(self) -> Iterator[Session]:
        """Yield the sessions that are not gone."""
        return (session for session in self._by_pair.values() if session.gone_at is None)

    @property
    def ids(self) -> Mapping[str, Session]:
        """The remembered sessions by id, gone ones included: what no other capsule may be called."""
        return self._by_id

    def overdue(self, now: float, forget: float) -> list[Session]:
        """Return the sessions that have been gone for `forget` seconds. A clock that was set back forgets nothing."""
        return [s for s in self._gone.values() if s.gone_at is not None and now - s.gone_at >= forget]

    def next_overdue(self, forget: float) -> float | None:
        """Return when (Unix seconds) the next session will have been gone for `forget` seconds."""
        return min((s.gone_at + forget for s in self._gone.values() if s.gone_at is not None), default=None)

    def apply(self, changes: Changes) -> None:
        """Take over what was committed. Ports are remembered at the bind and only forgotten here."""
        for session in changes.forgotten:
            self._by_pair.pop(session.pair, None)
            self._by_id.pop(session.id, None)
            self._gone.pop(session.pair, None)
            if others := self._others(session):
                self._in[session.directory] = others
            else:
                self._in.pop(session.directory, None)
                self.ports.forget(session.directory)
        for session in changes.kept:
            self._keep(session)

    def _others(self, session: Session) -> tuple[Session, ...]:
        """Return the sessions that its directory has under other names: most have none."""
        return tuple(s for s in self._in.get(session.directory, ()) if s.name != session.name)

    def _keep(self, session: Session) -> None:
        self._by_pair[session.pair] = session
        self._by_id[session.id] = session
        self._in[session.directory] = (*self._others(session), session)
        if session.gone_at is None:
            self._gone.pop(session.pair, None)
        else:
            self._gone[session.pair] = session


def returned(session: Session) -> Session:
    """Return the session as one whose capsule is there again."""
    return replace(session, gone_at=None)


def gone(session: Session, at: float) -> Session:
    """Return the session as one whose capsule went away at that time."""
    return replace(session, gone_at=at)


def commit(connection: sqlite3.Connection, changes: Changes) -> None:
    """Write the changes inside the caller's transaction; doing it twice changes nothing more.

    Nothing in here can break a constraint: an error would fail the other changes of the same group commit.
    """
    for session in changes.forgotten:
        _forget(connection, session)
    connection.executemany(
        "INSERT OR REPLACE INTO capsules (id, directory, name, session_id, created_at, gone_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        [
            (s.id, os.fsencode(s.directory), s.name, s.session_id, s.created_at, s.gone_at)
            for s in changes.kept
        ],
    )


def commit_ports(connection: sqlite3.Connection, ports: Mapping[str, int | None], at: float) -> None:
    """Write which port each directory has now, None where it has lost it; `at` is in Unix seconds."""
    connection.executemany(
        "DELETE FROM ports WHERE directory = ?",
        [(os.fsencode(d),) for d, port in ports.items() if port is None],
    )
    connection.executemany(
        "INSERT OR REPLACE INTO ports (directory, port, updated_at) VALUES (?, ?, ?)",
        [(os.fsencode(d), port, at) for d, port in ports.items() if port is not None],
    )


def _forget(connection: sqlite3.Connection, session: Session) -> None:
    """Drop the row; what the session had goes with the next trimming of the log, which knows it by that."""
    directory = os.fsencode(session.directory)
    connection.execute("DELETE FROM capsules WHERE session_id = ?", (session.session_id,))
    connection.execute(
        "DELETE FROM ports WHERE directory = ? AND NOT EXISTS (SELECT 1 FROM capsules WHERE directory = ?)",
        (directory, directory),
    )


def _load(connection: sqlite3.Connection) -> Memory:
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT directory, name, id, session_id, created_at, gone_at FROM capsules"
    ).fetchall()
    ports = connection.execute("SELECT directory, port FROM ports ORDER BY updated_at").fetchall()
    return Memory(
        (Session(os.fsdecode(directory), *rest) for directory, *rest in rows),
        {os.fsdecode(directory): port for directory, port in ports},
    )
