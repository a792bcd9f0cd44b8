"""The store on a real file: commits, failures, what is found at start."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sidecar import store as store_module
from sidecar.errors import StoreCorruptError, StoreError
from sidecar.schema import SCHEMA_VERSION
from sidecar.store import Chain, Store
from tests.support.gates import Gate
from tests.support.somebody import AS_ROOT, NOBODY, open_place, somebody

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the database goes."""
    return tmp_path / "sidecar.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """Return an open store."""
    opened = Store.open(str(path))
    yield opened
    opened.close()


def remember(port: int, directory: str = "") -> Callable[[sqlite3.Connection], int]:
    """Return a change that makes one row."""

    def change(connection: sqlite3.Connection) -> int:
        key = os.fsencode(directory or f"/c/{port}")
        connection.execute("INSERT INTO ports VALUES (?, ?, 0)", (key, port))
        return port

    return change


def ports(connection: sqlite3.Connection) -> list[int]:
    """Return what the changes made, in the order in which they were run."""
    return [row[0] for row in connection.execute("SELECT port FROM ports ORDER BY rowid")]


async def test_a_change_is_committed_before_its_caller_hears_of_it(store: Store, path: Path) -> None:
    """Another connection sees it as soon as the future has its result, which is the change's own."""
    assert await store.write(remember(1)) == 1
    with closing(sqlite3.connect(path)) as other:
        assert ports(other) == [1]


async def test_changes_are_committed_in_the_order_in_which_they_came(store: Store) -> None:
    """From many callers at once."""
    await asyncio.gather(*(store.write(remember(port)) for port in range(300)))
    assert await store.read(ports) == list(range(300))


async def test_what_waits_is_committed_together(store: Store) -> None:
    """A hundred changes that queue up behind one cost one more commit, not a hundred."""
    statements: list[str] = []
    await store.write(lambda c: c.set_trace_callback(statements.append))
    gate = Gate(store)
    await gate.reached()
    waiting = [store.write(remember(port)) for port in range(100)]
    gate.open()
    await asyncio.gather(*waiting)
    await store.write(lambda c: c.set_trace_callback(None))
    assert statements.count("COMMIT") == 3, "that of the tracing, that of the gate, that of the hundred"
    assert await store.read(ports) == list(range(100))


def refuse(_: sqlite3.Connection) -> None:
    """Raise an error of its own."""
    raise KeyError("mine")


async def test_a_change_with_an_error_of_its_own_spoils_no_other(store: Store) -> None:
    """It gets its error back, and nothing of it is kept; those before and behind it in its group are committed."""

    def half(connection: sqlite3.Connection) -> None:
        remember(2)(connection)
        refuse(connection)

    gate = Gate(store)
    await gate.reached()
    waiting = [store.write(change) for change in (remember(1), half, remember(3))]
    gate.open()
    first, failed, third = await asyncio.gather(*waiting, return_exceptions=True)
    await gate.passed
    assert (first, third) == (1, 3)
    assert isinstance(failed, KeyError)
    assert await store.read(ports) == [1, 3]


async def test_a_group_that_cannot_be_committed_fails_as_a_whole_and_later_ones_work(store: Store) -> None:
    """All of it is rolled back and everyone is told; the next change is fine."""
    gate = Gate(store)
    await gate.reached()
    waiting = [store.write(change) for change in (remember(1), remember(1), remember(3))]
    gate.open()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreError] * 3
    assert await store.write(remember(4)) == 4
    assert await store.read(ports) == [4]


async def test_a_full_disk_is_told_and_work_goes_on_when_there_is_space_again(store: Store) -> None:
    """What was acknowledged before is all there; nothing of the refused is."""
    await store.write(remember(1))
    limit = await store.write(lambda c: c.execute("PRAGMA max_page_count").fetchone()[0])
    pages = await store.write(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
    await store.write(lambda c: c.execute(f"PRAGMA max_page_count={pages}").fetchone())
    with pytest.raises(StoreError, match="disk is full"):
        await store.write(remember(2, "/" + "x" * 100_000))
    assert await store.read(ports) == [1]
    await store.write(lambda c: c.execute(f"PRAGMA max_page_count={limit}").fetchone())
    assert await store.write(remember(3, "/" + "x" * 100_000)) == 3


async def test_a_locked_file_refuses_changes_in_bounded_time_and_is_read_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that waits is refused at once when the wait is over; when the lock ends, work goes on."""
    monkeypatch.setattr(store_module, "BUSY_TIMEOUT", 0.05)
    store = Store.open(str(path))
    try:
        await store.write(remember(1))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            waiting = [store.write(remember(port)) for port in range(2, 20)]
            assert await store.read(ports) == [1]
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(o, StoreError) and "locked" in str(o) for o in outcomes)
            other.execute("COMMIT")
        assert await store.write(remember(99)) == 99
        assert await store.read(ports) == [1, 99]
    finally:
        store.close()


async def test_what_is_chained_behind_a_failure_is_refused(store: Store) -> None:
    """Until the owner of the chain clears it; changes outside of the chain are not concerned."""
    chain = Chain()
    gate = Gate(store)
    await gate.reached()
    changes = ((remember(1), chain), (refuse, chain), (remember(2), chain), (remember(3), None))
    waiting = [store.write(change, of) for change, of in changes]
    gate.open()
    first, failed, behind, apart = await asyncio.gather(*waiting, return_exceptions=True)
    await gate.passed
    assert (first, apart) == (1, 3)
    assert isinstance(failed, KeyError)
    assert isinstance(behind, StoreError)
    with pytest.raises(StoreError):
        await store.write(remember(4), chain)
    chain.error = None
    assert await store.write(remember(5), chain) == 5
    assert await store.read(ports) == [1, 3, 5]


async def test_a_failing_group_breaks_the_chains_in_it(store: Store) -> None:
    """Also those of its changes that had nothing wrong with them."""
    chain = Chain()
    gate = Gate(store)
    await gate.reached()
    waiting = [store.write(remember(1), chain), store.write(remember(1))]
    gate.open()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(chain.error, StoreError)


async def test_a_caller_that_leaves_takes_nothing_back(store: Store) -> None:
    """The change is committed, and the others of its group hear of theirs."""
    gate = Gate(store)
    await gate.reached()
    left, stayed = store.write(remember(1)), store.write(remember(2))
    left.cancel()
    gate.open()
    assert await stayed == 2
    assert await store.read(ports) == [1, 2]


async def test_a_query_cannot_change_anything(store: Store) -> None:
    """The reader's connection is for reading."""
    with pytest.raises(StoreError, match="read"):
        await store.read(remember(1))
    with pytest.raises(StoreError, match="read"):
        store.read_now(remember(1))
    assert await store.read(ports) == []


async def test_an_error_of_a_query_is_its_callers(store: Store) -> None:
    """And the reader goes on."""
    with pytest.raises(KeyError):
        await store.read(refuse)
    assert await store.read(ports) == []


async def test_closing_commits_what_is_queued(path: Path) -> None:
    """Whoever waits still hears of it; afterwards everything is refused, and closing again does nothing."""
    store = Store.open(str(path))
    waiting = [store.write(remember(port)) for port in range(50)]
    store.close()
    store.close()
    assert await asyncio.gather(*waiting) == list(range(50))
    with pytest.raises(StoreError, match="closed"):
        await store.write(remember(99))
    with pytest.raises(StoreError, match="closed"):
        await store.read(ports)
    with closing(sqlite3.connect(path)) as other:
        assert ports(other) == list(range(50))


def test_a_loop_that_ended_before_its_commit_disturbs_nobody(path: Path) -> None:
    """The change is kept, and the store serves another loop."""
    store = Store.open(str(path))

    async def leave() -> None:
        store.write(remember(1))

    async def look() -> list[int]:
        await store.write(remember(2))
        return await store.read(ports)

    try:
        asyncio.run(leave())
        assert asyncio.run(look()) == [1, 2]
    finally:
        store.close()


def test_a_new_database_is_its_owners_alone_and_durable(store: Store, path: Path) -> None:
    """Mode 0600 for each of its files, WAL, and the schema version."""
    assert {p.stat().st_mode & 0o777 for p in path.parent.iterdir()} == {0o600}
    assert store.read_now(lambda c: c.execute("PRAGMA journal_mode").fetchone()) == ("wal",)
    assert store.read_now(lambda c: c.execute("PRAGMA user_version").fetchone()) == (SCHEMA_VERSION,)


async def test_the_writer_syncs_each_commit(store: Store) -> None:
    """`synchronous` is FULL (2)."""
    assert await store.write(lambda c: c.execute("PRAGMA synchronous").fetchone()) == (2,)


async def test_everything_is_there_when_it_is_opened_again(path: Path) -> None:
    """Directories of any bytes included."""
    store = Store.open(str(path))
    await store.write(remember(7, os.fsdecode(b"/c/\xff")))
    store.close()
    again = Store.open(str(path))
    assert again.read_now(lambda c: c.execute("SELECT directory, port FROM ports").fetchall()) == [
        (b"/c/\xff", 7)
    ]
    again.close()


def closed_database(path: Path, rows: int = 0) -> None:
    """Make a database and close it."""
    store = Store.open(str(path))

    async def fill() -> None:
        await asyncio.gather(*(store.write(remember(n, f"/{n}/" + "x" * 200)) for n in range(rows)))

    asyncio.run(fill())
    store.close()


def spoil(path: Path, *, offset: int, data: bytes) -> None:
    """Overwrite a part of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_file_that_is_no_database_is_corrupt_at_start(path: Path) -> None:
    """The message names the file and the way out."""
    path.write_bytes(b"certainly not a database, " * 100)
    with pytest.raises(StoreCorruptError, match="--new-state") as caught:
        Store.open(str(path))
    assert str(path) in str(caught.value)


@pytest.mark.skipif(not AS_ROOT, reason="only root can become another user for a while")
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_a_file_of_another_user_is_said_with_what_to_check(suffix: str) -> None:
    """A copy that root brought back, or a database that root has looked at: one line that says where to look."""
    with open_place() as place:
        directory = place / "state"
        directory.mkdir()
        os.chown(directory, NOBODY, NOBODY)
        with somebody():
            Store.open(str(directory / "sidecar.db")).close()
        foreign = directory / f"sidecar.db{suffix}"
        foreign.touch(mode=0o600)
        os.chown(foreign, 0, 0)
        with (
            somebody(),
            pytest.raises(StoreError, match="check owner and mode of the file, of those beside it") as told,
        ):
            Store.open(str(directory / "sidecar.db"))
        assert str(told.value).startswith(f"{directory}/sidecar.db: cannot open it: ")
        assert "Errno" not in str(told.value)


@pytest.mark.parametrize("part", ["header", "middle", "cut"])
def test_a_damaged_database_is_corrupt_at_start(path: Path, part: str) -> None:
    """Wherever the damage is."""
    closed_database(path, rows=400)
    size = path.stat().st_size
    if part == "cut":
        os.truncate(path, size // 2)
    else:
        spoil(path, offset=0 if part == "header" else size // 2 // 4096 * 4096, data=b"\xa5" * 4096)
    with pytest.raises(StoreCorruptError, match="--new-state"):
        Store.open(str(path))


def test_a_newer_schema_is_refused_clearly(path: Path) -> None:
    """It is not corrupt, and it is left as it is."""
    closed_database(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    with pytest.raises(StoreError, match="newer sidecar") as caught:
        Store.open(str(path))
    assert not isinstance(caught.value, StoreCorruptError)


def test_another_programs_database_is_left_alone(path: Path) -> None:
    """Its tables are not mixed with ours."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE recipes (id INTEGER)")
        other.commit()
    with pytest.raises(StoreError, match="another program"):
        Store.open(str(path))


def test_a_missing_directory_is_told_plainly(tmp_path: Path) -> None:
    """With the path in the message."""
    with pytest.raises(StoreError, match="nowhere"):
        Store.open(str(tmp_path / "nowhere" / "sidecar.db"))


def test_an_empty_file_is_a_new_database(path: Path) -> None:
    """As a start that was killed may leave it."""
    path.touch(0o600)
    Store.open(str(path)).close()
    assert path.stat().st_size > 0


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of two megabytes."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.machine
async def test_a_really_full_disk_is_told_and_nothing_acknowledged_is_lost(tiny: Path) -> None:
    """Changes are refused while it is full, and taken when there is space again."""
    ballast = tiny / "ballast"
    ballast.write_bytes(b"x" * 500_000)
    store = Store.open(str(tiny / "sidecar.db"))
    kept: list[int] = []

    async def fill() -> None:
        for port in range(1000):
            kept.append(await store.write(remember(port, f"/{port}" + "x" * 10_000)))  # noqa: PERF401 - it ends in an error

    try:
        with pytest.raises(StoreError, match="disk"):
            await fill()
        assert await store.read(ports) == kept
        ballast.unlink()
        assert await store.write(remember(5000)) == 5000
    finally:
        store.close()
    with closing(sqlite3.connect(tiny / "sidecar.db")) as other:
        assert ports(other) == [*kept, 5000]
