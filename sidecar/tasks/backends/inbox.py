"""The inbox: tasks wait in the log until a worker takes them, and each is its worker's for as long as that lives."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import structlog

from sidecar.errors import RefusedError, StoreError, refusal
from sidecar.events import TaskState
from sidecar.tasks.backends.leases import Lease, News
from sidecar.tasks.backends.lines import BadLineError, unheard
from sidecar.tasks.orders import Bell
from sidecar.tasks.said import NotSaidError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from sidecar.model import Capsule, LastError
    from sidecar.tasks.backends.lines import Line
    from sidecar.tasks.engine import Engine

WORKER_LOST: Final = "worker lost"
LINGERS: Final = 2.0
"""Seconds for which a worker with a name counts as attached between two requests."""
RETRY: Final = 1.0
"""Seconds after which a task whose worker is lost is failed again, where the database refused it."""
TICK: Final = 0.05
"""Seconds between two looks at the leases, at least."""
STALL: Final = 1.0
"""Seconds by which the sidecar itself may be late before it gives workers so long to be heard."""

log = structlog.get_logger()


class Inbox:
    """The backend `inbox` of one capsule: hands tasks out under leases and takes in what workers say of them.

    Leases are in memory alone and end with the process. The methods for workers raise RefusedError: `lease_lost`
    (409) for a lease that is another's or over, `unavailable` (503) while the sidecar stops.
    """

    __slots__ = (
        "_beginning",
        "_capsule",
        "_closing",
        "_done",
        "_earlier",
        "_engine",
        "_leases",
        "_looks_at",
        "_polls",
        "_reports",
        "_scopes",
        "_seen",
        "_watch",
        "name",
        "trouble",
    )

    def __init__(self) -> None:
        self.name = "inbox"
        self.trouble: LastError | None = None
        self._engine: Engine
        self._capsule: Capsule
        self._leases: dict[str, Lease] = {}
        self._polls: list[str] = []
        self._seen: dict[str, float] = {}
        self._scopes: dict[asyncio.Timeout, None] = {}
        self._reports: dict[asyncio.Task[News], None] = {}
        self._done = Bell()
        self._earlier = Bell()
        self._looks_at = 0.0
        self._beginning: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._closing = False

    # as a backend

    @property
    def workers(self) -> int:
        """How many workers are attached: they wait for a task, hold one, or did so a moment ago."""
        since = asyncio.get_running_loop().time() - LINGERS
        self._seen = {worker: at for worker, at in self._seen.items() if at > since}
        holding = (lease.worker for lease in self._leases.values() if lease.live)
        return len({*self._polls, *holding, *self._seen})

    @property
    def lease_seconds(self) -> float:
        """Seconds after which a worker that says nothing has lost its task."""
        return self._capsule.settings.inbox.lease

    def start(self, engine: Engine, capsule: Capsule) -> None:
        """Begin: tasks that were worked on when the sidecar ended wait again."""
        self._engine, self._capsule = engine, capsule
        if engine.may_hold_interrupted:
            self._beginning = asyncio.create_task(self._begin(), name=f"inbox of {capsule.id}")

    def reconfigure(self, capsule: Capsule) -> None:
        """Take other settings; leases that are held get the new length with the next sign of life."""
        self._capsule = capsule

    async def aclose(self, grace: float) -> None:
        """End: whoever waits is answered at once, and what is under way has `grace` seconds to be committed."""
        self._closing = True
        now = asyncio.get_running_loop().time()
        for scope in self._scopes:
            if not scope.expired():
                scope.reschedule(now)
        for task in filter(None, (self._beginning, self._watch)):
            task.cancel()
            await asyncio.wait((task,))
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self._polls or self._reports:
                    await self._done.wait()
        for report in tuple(self._reports):
            report.cancel()
            await asyncio.wait((report,))

    # for workers

    async def next(self, worker: str | None, wait: float) -> Lease | None:
        """Hand out a task, waiting for one at most so many seconds; None if there is none.

        `worker` is the name of one that has several requests under way. The caller must answer at once: a lease
        that does not arrive runs out.
        """
        self._refuse_while_closing()
        deadline = asyncio.get_running_loop().time() + wait
        with self._attached(worker) as name:
            while True:
                claim = await self._engine.claim()
                if self._closing:
                    return None  # whoever comes next finds it interrupted
                if claim is not None:
                    orders = self._engine.orders(claim.task.id)
                    lease = Lease(claim, orders, worker=name, deadline=self._deadline())
                    self._leases[claim.task.id] = lease
                    self._mind(lease)
                    return lease
                if not await self._until(self._engine.claimable, deadline):
                    return None

    async def events(self, task_id: str, token: str, lines: Sequence[Line], heard: int | None = None) -> News:
        """Take in what a worker says of its task, all of it or nothing, and return what it must hear.

        It is taken in also when the caller leaves. Raises StoreError: nothing was, and it may be said again; and
        RefusedError `bad_request`.
        """
        self._refuse_while_closing()
        lease = self._lease(task_id, token)
        self._renew(lease)
        report = asyncio.create_task(self._report(lease, lines, heard), name=f"report of {task_id}")
        self._reports[report] = None
        report.add_done_callback(self._reported)
        return await asyncio.shield(report)

    async def heartbeat(self, task_id: str, token: str, wait: float, heard: int | None = None) -> News:
        """Keep a lease, and wait at most so many seconds for news.

        It answers within half of the lease, so that a worker that is stopped is missed in time.
        """
        self._refuse_while_closing()
        lease = self._lease(task_id, token)
        self._renew(lease)
        deadline = asyncio.get_running_loop().time() + min(wait, self.lease_seconds / 2)
        while not lease.has_news(heard) and await self._until(lease.orders.wait, deadline):
            pass
        async with lease.lock:  # a report that is under way may be the one that ended the task
            return self._news(lease, heard)

    async def give_back(self, task_id: str, token: str) -> None:
        """End a lease: its worker leaves, and the task is handed to another one. That is no attempt.

        What the worker said before is taken in first.
        """
        self._refuse_while_closing()
        lease = self._lease(task_id, token)
        async with lease.lock:
            if lease.lost:
                raise RefusedError(_LOST)
            lease.lost = True
            del self._leases[task_id]
            if not lease.orders.canceled:
                await self._engine.release(task_id, attempt=False)

    # leases

    async def _report(self, lease: Lease, lines: Sequence[Line], heard: int | None) -> News:
        async with lease.lock:
            if not lease.lost:
                try:
                    new = unheard(lines, lease.accepted)
                    if new:
                        task = await self._engine.report(lease.task.id, [line.said for line in new])
                        lease.took_in(new, task)
                except BadLineError as error:
                    raise RefusedError(refusal("bad_request", str(error))) from None
                except NotSaidError as error:
                    raise RefusedError(refusal("bad_request", f"A line is not taken: {error}.")) from None
                self._renew(lease)
        return self._news(lease, heard)

    def _reported(self, report: asyncio.Task[News]) -> None:
        self._reports.pop(report, None)
        self._done.ring()
        if not report.cancelled():
            report.exception()  # its caller may have left

    def _lease(self, task_id: str, token: str) -> Lease:
        lease = self._leases.get(task_id)
        if lease is None or lease.lost or not lease.opened_by(token):
            raise RefusedError(_LOST)
        return lease

    def _news(self, lease: Lease, heard: int | None) -> News:
        if lease.lost:
            raise RefusedError(_LOST)
        return lease.news(heard)

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self.lease_seconds

    def _renew(self, lease: Lease) -> None:
        if lease.live:
            lease.deadline = self._deadline()
            self._mind(lease)

    def _mind(self, lease: Lease) -> None:
        """Watch the deadlines, in a task that lives only while there are leases."""
        if lease.deadline < self._looks_at:
            self._earlier.ring()
        if not self._closing and (self._watch is None or self._watch.done()):
            self._watch = asyncio.create_task(self._mind_leases(), name=f"leases of {self._capsule.id}")

    async def _mind_leases(self) -> None:
        clock = asyncio.get_running_loop().time
        while self._leases:
            due = min(lease.deadline for lease in self._leases.values())
            if due > clock():
                self._looks_at = max(due, clock() + TICK)
                await self._earlier.wait(self._looks_at - clock())
                if clock() - self._looks_at > STALL:
                    # the sidecar stood still, not the workers: what they sent meanwhile is yet to be read
                    for lease in self._leases.values():
                        lease.deadline = max(lease.deadline, clock() + STALL)
                continue
            for lease in [lease for lease in self._leases.values() if lease.deadline <= clock()]:
                if lease.lock.locked():
                    lease.deadline = clock() + RETRY
                else:
                    await self._run_out(lease)

    async def _run_out(self, lease: Lease) -> None:
        """Let go of a lease; its task, if it lives, waits again or fails."""
        task_id = lease.task.id
        if not lease.orders.canceled:
            attempts = self._capsule.settings.inbox.attempts
            if not lease.lost:
                lease.lost = True
                log.warning(
                    "worker_lost",
                    capsule=self._capsule.id,
                    task=task_id,
                    attempt=lease.attempt,
                    attempts=attempts,
                )
            try:
                task = await self._engine.get(task_id)
                working = task is not None and task.state is TaskState.WORKING
                spent = working and lease.attempt >= attempts
                await self._engine.release(task_id, failed=WORKER_LOST if spent else None)
            except StoreError:
                lease.deadline = asyncio.get_running_loop().time() + RETRY
                return
        if self._leases.get(task_id) is lease:
            del self._leases[task_id]

    # everything else

    async def _begin(self) -> None:
        if await self._engine.ready():
            for task in self._engine.interrupted():
                if task.state is TaskState.WORKING:
                    await self._engine.release(task.id, attempt=False)

    def _refuse_while_closing(self) -> None:
        if self._closing:
            raise RefusedError(_STOPPING)

    async def _until(self, ready: Callable[[], Coroutine[Any, Any, bool]], deadline: float) -> bool:
        """Wait until something is so; whether it came to be before the deadline and the end."""
        if self._closing:
            return False
        scope = asyncio.timeout_at(deadline)
        try:
            async with scope:
                self._scopes[scope] = None
                return await ready()
        except TimeoutError:
            return False
        finally:
            self._scopes.pop(scope, None)

    @contextmanager
    def _attached(self, worker: str | None) -> Iterator[str]:
        """Count a worker while it waits; one without a name is another one each time."""
        name = worker or secrets.token_hex(8)
        self._polls.append(name)
        try:
            yield name
        finally:
            self._polls.remove(name)
            if worker is not None:
                self._seen[name] = asyncio.get_running_loop().time()
            self._done.ring()


_LOST: Final = refusal("lease_lost", "The task is no longer yours: leave it, and ask for the next one.")
_STOPPING: Final = refusal("unavailable", "The sidecar is stopping, or the capsule is being closed.")
