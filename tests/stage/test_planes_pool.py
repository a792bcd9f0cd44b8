"""The planes' threads: a stuck disk costs only those who wait for it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from sidecar.errors import RefusedError
from sidecar.planes.pool import Pool
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class Disk:
    """A disk that hangs until it is let go, and counts who waits for it."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.waiting = 0
        self.most = 0
        self._lock = threading.Lock()

    def read(self, value: object = None) -> object:
        """Block until the disk is free."""
        with self._lock:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
        self.free.wait()
        with self._lock:
            self.waiting -= 1
        return value


@pytest.fixture
def disk() -> Iterator[Disk]:
    """A hung disk, free again at the end whatever happened."""
    disk = Disk()
    yield disk
    disk.free.set()


@pytest_asyncio.fixture
async def pool(disk: Disk) -> AsyncIterator[Pool]:
    """Four threads."""
    pool = Pool(4)
    yield pool
    disk.free.set()
    assert await pool.aclose() == 0


async def test_work_is_done_in_a_thread_and_its_outcome_comes_back(pool: Pool) -> None:
    """What the work returns or raises is what the caller gets."""
    assert await pool.run("a", 2, threading.get_ident) != threading.get_ident()
    assert await pool.run("a", 2, max, 3, 5, key=lambda n: -n) == 3
    with pytest.raises(ZeroDivisionError):
        await pool.run("a", 2, lambda: 1 // 0)


async def test_a_stuck_lane_leaves_the_others_their_threads(pool: Pool, disk: Disk) -> None:
    """A hung disk keeps no more threads than its lane may have, however many wait for it."""
    async with asyncio.TaskGroup() as group:
        stuck = [group.create_task(pool.run("a", 2, disk.read, n)) for n in range(10)]
        await until(lambda: disk.waiting == 2)
        assert await pool.run("b", 2, lambda: "fine") == "fine"
        assert await pool.run("c", 1, lambda: "fine") == "fine"
        disk.free.set()
    assert [task.result() for task in stuck] == list(range(10))
    assert disk.most == 2


async def test_lanes_take_turns(disk: Disk) -> None:
    """A lane that asked for much does not keep one that asked for little waiting for all of it."""
    order: list[str] = []
    pool = Pool(1)
    async with asyncio.TaskGroup() as group:
        group.create_task(pool.run("x", 1, disk.read))
        await until(lambda: disk.waiting == 1)
        for lane in ("a", "a", "a", "b"):
            group.create_task(pool.run(lane, 1, order.append, lane))
        await asyncio.sleep(0)  # each is in its lane now
        disk.free.set()
    assert order == ["a", "b", "a", "a"]
    assert await pool.aclose() == 0


async def test_who_waits_too_long_is_refused(disk: Disk) -> None:
    """503 unavailable with retry-after, while the stuck work keeps its place."""
    pool = Pool(1, max_wait=0.05)
    async with asyncio.TaskGroup() as group:
        stuck = group.create_task(pool.run("a", 1, disk.read))
        await until(lambda: disk.waiting == 1)
        for lane in ("a", "b"):
            with pytest.raises(RefusedError) as caught:
                await pool.run(lane, 1, disk.read)
            assert (caught.value.refusal.status, caught.value.refusal.code) == (503, "unavailable")
            assert caught.value.refusal.headers == (("retry-after", "1"),)
        disk.free.set()
        await stuck
    assert await pool.run("b", 1, lambda: 1) == 1
    assert await pool.aclose() == 0


async def test_a_queue_that_is_full_refuses_at_once(disk: Disk) -> None:
    """So many may wait in one lane; callers that left make room again."""
    pool = Pool(2, max_waiting=2)
    async with asyncio.TaskGroup() as group:
        group.create_task(pool.run("a", 1, disk.read))
        await until(lambda: disk.waiting == 1)
        waiting = [group.create_task(pool.run("a", 1, disk.read)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RefusedError):
            await pool.run("a", 1, disk.read)
        assert await pool.run("b", 1, lambda: 1) == 1
        waiting[0].cancel()
        await asyncio.wait([waiting[0]])
        third = group.create_task(pool.run("a", 1, disk.read, "third"))
        await asyncio.sleep(0)
        disk.free.set()
    assert third.result() == "third"
    assert await pool.aclose() == 0


async def test_a_caller_that_leaves_does_not_wait(pool: Pool, disk: Disk) -> None:
    """Its work keeps its place until it ends, and work that had not begun is never done."""
    done: list[int] = []
    task = asyncio.ensure_future(pool.run("a", 1, disk.read))
    await until(lambda: disk.waiting == 1)
    behind = asyncio.ensure_future(pool.run("a", 1, done.append, 1))
    await asyncio.sleep(0)
    for left in (behind, task):
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
    assert disk.waiting == 1
    disk.free.set()
    await pool.run("a", 1, done.append, 2)
    assert done == [2]


async def test_closing_refuses_who_waits_and_reports_who_is_stuck(disk: Disk) -> None:
    """The process need not wait for a hung disk; threads in order are gone afterwards."""
    pool = Pool(1)
    stuck = asyncio.ensure_future(pool.run("a", 1, disk.read, "late"))
    await until(lambda: disk.waiting == 1)
    behind = asyncio.ensure_future(pool.run("a", 1, disk.read))
    await asyncio.sleep(0)
    assert await pool.aclose(within=0.05) == 1
    with pytest.raises(RefusedError):
        await behind
    with pytest.raises(RefusedError):
        await pool.run("b", 1, disk.read)
    disk.free.set()
    assert await stuck == "late"
    assert await pool.aclose() == 0


async def test_nothing_is_kept_of_lanes_that_are_gone(pool: Pool) -> None:
    """A thousand capsules that came and went leave no lane behind."""
    for n in range(1000):
        await pool.run(n, 1, int)
    assert not pool._running  # noqa: SLF001 -- growth can be seen nowhere else
    assert not pool._waiting  # noqa: SLF001 -- likewise
