"""`sidecar.db`: one writer thread with group commit, one reader thread.

Everything that must survive goes through `Store.write`: the writer takes all changes that wait, runs them in one
transaction and commits once (WAL, `synchronous=FULL`), and only then do their callers hear of it. So one sync of the
disk serves as many callers as there are. Reads have a thread and a connection of their own and see committed data.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import sqlite3
import threading
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sidecar.errors import StoreError
from sidecar.upgrade import explained, prepare, sync_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

T = TypeVar("T")

BUSY_TIMEOUT: Final = 2.0
"""Seconds for which a change waits for another program's lock before it is refused."""

_WAL_KEPT_BYTES: Final = 64 * 1024 * 1024


class Chain:
    """Changes that build on each other: once one of them fails, those behind it are refused.

    `error` is set by the writer and stays until the owner clears it, which it may do only while none of its
    changes is under way. So nothing that was decided on a state that never came to be can be committed.
    """

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: StoreError | None = None


@dataclass(slots=True, eq=False)
class _Job:
    """One change or query, and the future of whoever waits for it."""

    run: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]
    chain: Chain | None = None
    result: Any = field(default=None, init=False)
    error: Exception | None = field(default=None, init=False)

    def fail(self, error: Exception) -> None:
        self.error = error
        if self.chain is not None and self.chain.error is None:
            self.chain.error = error if isinstance(error, StoreError) else StoreError(str(error))

    def refused(self) -> bool:
        """Whether an earlier change of its chain failed; it fails with that one's error then."""
        if self.chain is None or self.chain.error is None:
            return False
        self.error = self.chain.error
        return True


class Store:
    """The database of one daemon. One event loop uses it; `close` ends its two threads."""

    def __init__(self, path: str, writer: sqlite3.Connection, reader: sqlite3.Connection) -> None:
        self._path = path
        self._name = os.path.basename(path)  # noqa: PTH119 - for messages that go to callers: no host path
        self._closed = False
        self._changes: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._queries: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = (
            threading.Thread(target=self._write_all, args=(writer,), name="store-writer", daemon=True),
            threading.Thread(target=self._read_all, args=(reader,), name="store-reader", daemon=True),
        )
        for thread in self._threads:
            thread.start()

    @classmethod
    def open(cls, path: str) -> Self:
        """Open or make the database at `path` (mode 0600; its directory exists); an older one is brought up to date.

        Raises StoreCorruptError where the file is no intact database, StoreError where it cannot be used: it is
        another program's or a newer sidecar's, the disk is full, permission is missing.
        """
        connections: list[sqlite3.Connection] = []
        try:
            made = _make_file(path)
            connections += [_connect(path, writes=True), _connect(path, writes=False)]
            prepare(connections[0], path, made=made)
            connections[1].execute("SELECT count(*) FROM sessions").fetchone()
            if made:
                sync_directory(path)
        except (sqlite3.Error, OSError, StoreError) as error:
            for connection in connections:
                connection.close()
            raise error if isinstance(error, StoreError) else explained(error, path, "open it") from error
        return cls(path, connections[0], connections[1])

    def write(
        self, change: Callable[[sqlite3.Connection], T], chain: Chain | None = None
    ) -> asyncio.Future[T]:
        """Queue a change at once and return the future of its result, which comes after the commit.

        Changes are run in the order of the calls, in the writer thread, inside a transaction; a change may be run
        twice (when another one of its group is taken out for an error of its own) and must not commit.
        The future raises StoreError when the database could not take it, and whatever the change itself raises.
        """
        return self._queue(self._changes, _Job(change, asyncio.get_running_loop().create_future(), chain))

    def read(self, query: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Queue a query and return the future of its result; it sees one committed state. Raises StoreError."""
        return self._queue(self._queries, _Job(query, asyncio.get_running_loop().create_future()))

    def read_now(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return a query's result in the calling thread: for the start, before the loop serves. Raises StoreError."""
        try:
            with closing(_connect(self._path, writes=False)) as connection:
                return query(connection)
        except sqlite3.Error as error:
            raise explained(error, self._path, "read it") from error

    def close(self) -> None:
        """Commit what is queued, end both threads and close the file; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._changes.put(None)
        self._queries.put(None)
        for thread in self._threads:
            thread.join()

    def _queue(self, jobs: queue.SimpleQueue[_Job | None], job: _Job) -> asyncio.Future[Any]:
        if self._closed:
            job.future.set_exception(StoreError(f"{self._name}: the database is closed"))
        else:
            jobs.put(job)
        return job.future

    def _write_all(self, connection: sqlite3.Connection) -> None:
        with closing(connection):
            while (job := self._changes.get()) is not None:
                group = [job]
                going = self._take_waiting(group)
                if (error := self._commit(connection, group)) is not None:
                    going = going and self._take_waiting(group)
                    for member in group:
                        member.fail(error)
                _resolve(group)
                if not going:
                    return

    def _take_waiting(self, group: list[_Job]) -> bool:
        """Add everything that waits to the group; False when the end was among it."""
        with suppress(queue.Empty):
            while (job := self._changes.get_nowait()) is not None:
                group.append(job)
            return False
        return True

    def _commit(self, connection: sqlite3.Connection, group: list[_Job]) -> StoreError | None:
        """Run a group in one transaction; return why none of it could be committed, if so."""
        try:
            try:
                _in_transaction(connection, group, _run_plainly)
            except sqlite3.Error:
                raise
            except Exception:  # noqa: BLE001 - boundary: a change of somebody's raised; find it, spare the others
                _in_transaction(connection, group, _run_apart)
        except sqlite3.Error as error:
            return explained(error, self._name, "write to it")
        return None

    def _read_all(self, connection: sqlite3.Connection) -> None:
        with closing(connection):
            while (job := self._queries.get()) is not None:
                try:
                    connection.execute("BEGIN")
                    job.result = job.run(connection)
                except sqlite3.Error as error:
                    job.error = explained(error, self._name, "read it")
                except Exception as error:  # noqa: BLE001 - boundary: it belongs to the caller of this query
                    job.error = error
                finally:
                    _roll_back(connection)
                _resolve([job])


def _in_transaction(
    connection: sqlite3.Connection,
    group: list[_Job],
    run: Callable[[sqlite3.Connection, _Job], None],
) -> None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        for job in group:
            if not job.refused():
                run(connection, job)
        connection.execute("COMMIT")
    finally:
        _roll_back(connection)


def _run_plainly(connection: sqlite3.Connection, job: _Job) -> None:
    job.result = job.run(connection)


def _run_apart(connection: sqlite3.Connection, job: _Job) -> None:
    """Run a change so that an error of its own undoes nothing but itself."""
    connection.execute("SAVEPOINT change")
    try:
        job.result = job.run(connection)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - boundary: it belongs to the caller of this change
        connection.execute("ROLLBACK TO change")
        job.fail(error)
    connection.execute("RELEASE change")


def _roll_back(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _resolve(jobs: list[_Job]) -> None:
    """Hand the outcomes to the loop that waits, with one wake-up for all of them."""
    for loop, of_loop in itertools.groupby(jobs, lambda job: job.future.get_loop()):
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_deliver, list(of_loop))


def _deliver(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


def _make_file(path: str) -> bool:
    """Make the file for its owner alone if there is none; whether it was made (or is still empty)."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        return os.fstat(descriptor).st_size == 0
    finally:
        os.close(descriptor)


def _connect(path: str, *, writes: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
    try:
        if writes:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA journal_size_limit={_WAL_KEPT_BYTES}")
        else:
            connection.execute("PRAGMA query_only=ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection
