"""Threads for file I/O that may hang: one capsule's stuck disk leaves the others their share."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from sidecar.errors import RefusedError, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = 16
MAX_WAITING: Final = 256
MAX_WAIT: Final = 10.0

BUSY: Final = refusal(
    "unavailable", "The files of this capsule are slow to answer now; try again.", ("retry-after", "1")
)


@dataclass(slots=True)
class _Job:
    """One piece of work. Its future belongs to the event loop; a thread only looks whether it is done."""

    lane: Hashable
    limit: int
    work: Callable[[], Any]
    future: asyncio.Future[Any]
    deadline: float


class Pool:
    """A few daemon threads, and in front of them a lane per capsule and kind of work.

    A lane has at most its limit of jobs in the threads, so that a hung disk behind one lane keeps no more than
    that many, and lanes take turns. What waits longer than `max_wait` seconds, or behind `max_waiting` others of
    its lane, is refused with 503 `unavailable`. A thread that is done takes the next job itself: the way back
    over the event loop would cost more than the job. Threads are started when first needed, and are daemons
    because a thread in a hung system call can be ended by nothing: the process must be able to exit without it.
    The methods belong to one event loop.
    """

    def __init__(
        self, threads: int = THREADS, *, max_wait: float = MAX_WAIT, max_waiting: int = MAX_WAITING
    ) -> None:
        self._size = threads
        self._max_wait = max_wait
        self._max_waiting = max_waiting
        self._threads: list[threading.Thread] = []
        self._work: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # over these three
        self._busy = 0
        self._running: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[_Job]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._closing = False
        self._idle = asyncio.Event()

    async def run(
        self, lane: Hashable, limit: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work` in a thread, at most `limit` at once for this lane, and return what it returns.

        Raises what it raises, and RefusedError `unavailable`. A caller that is cancelled leaves at once;
        its work, once begun, keeps its place in the lane until it ends; a result with a `close` that nobody takes
        is closed.
        """
        if self._closing:
            raise RefusedError(BUSY)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = _Job(lane, limit, partial(work, *args, **kwargs), future, loop.time() + self._max_wait)
        with self._lock:
            start = self._has_room(job)
            if start:
                self._take(job)
            else:
                self._wait(job)
        if start:
            if len(self._threads) < self._busy:
                self._start_thread()
            self._work.put(job)
        elif self._sweep is None:
            self._sweep = loop.call_at(job.deadline, self._expire)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                _let_go(future.result())  # it came in the moment in which its caller left
            raise

    async def aclose(self, within: float = 2.0) -> int:
        """Refuse what waits, let what runs end, and return how many threads were still stuck `within` seconds later."""
        self._closing = True
        if self._sweep is not None:
            self._sweep.cancel()
        with self._lock:
            waiting = list(chain.from_iterable(self._waiting.values()))
            self._waiting.clear()
            busy = self._busy
        _refuse(waiting)
        for _ in self._threads:
            self._work.put(None)
        if busy:
            try:
                async with asyncio.timeout(within):
                    await self._idle.wait()
            except TimeoutError:
                return self._busy
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        return 0

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._serve, name=f"planes-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        """Take jobs until told to end: the body of each thread."""
        while (job := self._work.get()) is not None:
            following: _Job | None = job
            while (job := following) is not None:
                result, error = None, None
                try:
                    if not job.future.cancelled():
                        result = job.work()
                except BaseException as raised:  # noqa: BLE001 -- the boundary of a thread: its caller gets it whole
                    error = raised
                following = self._following(job)
                try:
                    job.future.get_loop().call_soon_threadsafe(self._answer, job.future, result, error)
                except RuntimeError:  # the loop is closed: nobody waits any more
                    _let_go(result)
                    return

    def _following(self, job: _Job) -> _Job | None:
        """Give a job's place back and take the next one that has room; a lane that is served goes behind the others."""
        with self._lock:
            self._busy -= 1
            left = self._running[job.lane] - 1
            if left:
                self._running[job.lane] = left
            else:
                del self._running[job.lane]
            for lane, jobs in list(self._waiting.items()) if self._waiting else ():
                while jobs and jobs[0].future.done():
                    jobs.popleft()
                if jobs and not self._has_room(jobs[0]):
                    continue
                del self._waiting[lane]
                if jobs:
                    following = jobs.popleft()
                    if jobs:
                        self._waiting[lane] = jobs
                    self._take(following)
                    return following
        return None

    def _answer(self, future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
        """Back on the loop: tell the caller, if it still waits."""
        if not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        else:
            _let_go(result)
        if self._closing and not self._busy:
            self._idle.set()

    def _expire(self) -> None:
        """Refuse what has waited too long; the timer runs only while something waits."""
        self._sweep = None
        loop = asyncio.get_running_loop()
        now, late = loop.time(), list[_Job]()
        with self._lock:
            for lane, jobs in list(self._waiting.items()):
                while jobs and (jobs[0].future.done() or jobs[0].deadline <= now):
                    late.append(jobs.popleft())
                if not jobs:
                    del self._waiting[lane]
            first = min((jobs[0].deadline for jobs in self._waiting.values()), default=None)
        _refuse(late)
        if first is not None:
            self._sweep = loop.call_at(first, self._expire)

    def _has_room(self, job: _Job) -> bool:
        return self._busy < self._size and self._running.get(job.lane, 0) < job.limit

    def _take(self, job: _Job) -> None:
        self._busy += 1
        self._running[job.lane] = self._running.get(job.lane, 0) + 1

    def _wait(self, job: _Job) -> None:
        jobs = self._waiting.setdefault(job.lane, deque())
        if len(jobs) >= self._max_waiting:
            jobs = self._waiting[job.lane] = deque(j for j in jobs if not j.future.done())
        if len(jobs) >= self._max_waiting:
            raise RefusedError(BUSY)
        jobs.append(job)


def _refuse(jobs: Iterable[_Job]) -> None:
    for job in jobs:
        if not job.future.done():
            job.future.set_exception(RefusedError(BUSY))


def _let_go(result: object) -> None:
    close = getattr(result, "close", None)
    if close is not None:
        close()
