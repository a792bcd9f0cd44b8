"""The owner of all capsule listeners: makes what is open equal to what is wanted, and keeps trying."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from sidecar.listeners import reasons
from sidecar.listeners.binding import Binder, UnboundError
from sidecar.listeners.drain import drain
from sidecar.listeners.listener import Listener
from sidecar.listeners.plan import others, plan
from sidecar.listeners.second import SecondPorts
from sidecar.listeners.wishes import Wishes
from sidecar.model import served_methods, served_planes

if TYPE_CHECKING:
    from collections.abc import Container, Coroutine, Iterable, Mapping, Sequence

    from sidecar.model import Capsule, Wanted
    from sidecar.serve.endpoint import Planes, Served
    from sidecar.web.server import Policy

FIRST_RETRY: Final = 0.25
LAST_RETRY: Final = 4.0
"""Seconds between two attempts to open a listener: the first pause doubles up to the last."""

log = structlog.get_logger()


class Doors(Protocol):
    """What gives a capsule what it shows."""

    async def open(self, capsule: Capsule) -> Served:
        """Return what a capsule's port shows, its port being known."""

    async def close(self, session_id: str) -> None:
        """Let go of a session that is served no longer."""


class Facts(Protocol):
    """Who is told what became of the listeners, by directory."""

    def bound(self, directory: str, port: int) -> None:
        """Take note that a listener is open on this port."""

    def unbound(self, directory: str, reason: str) -> None:
        """Take note that a listener is not open, and why; told once until the reason changes."""

    def troubled(self, directory: str, reason: str | None) -> None:
        """Take note of what is wrong with a listener that is open, None where nothing is any more."""


@dataclass(slots=True)
class _Waiting:
    """A listener that could not be opened, and when it is tried again (loop time)."""

    wanted: Wanted
    reason: str
    pause: float
    due: float


class Pool:
    """Opens, swaps and closes listeners. One task calls `follow`; use it on one event loop.

    `ports` are the first and last port of the range to choose from, `reserved` those that are not chosen freely.
    `most` is how many sockets the descriptors allow. `budget` are the seconds that a closed listener's connections
    have to end in.
    """

    def __init__(
        self,
        *,
        doors: Doors,
        planes: Planes,
        facts: Facts,
        policy: Policy,
        ports: tuple[int, int],
        most: int,
        budget: float,
        first_retry: float = FIRST_RETRY,
    ) -> None:
        self._doors = doors
        self._planes = planes
        self._facts = facts
        self.policy = policy
        self._binder = Binder(ports, most)
        self.budget = budget
        self.retries = 0
        self._first_retry = first_retry
        self._open: dict[str, Listener] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._told: dict[str, str] = {}
        self._reserved: Container[int] = frozenset()
        self._lock = asyncio.Lock()
        self._wishes = Wishes()
        self._held: set[str] = set()
        self._draining: dict[Listener, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._second = SecondPorts(
            binder=self._binder, facts=facts, policy=policy, own=self._own, first_pause=first_retry
        )
        self._retrier: asyncio.Task[None] | None = None
        self._sooner = asyncio.Event()
        self._closed = False

    @property
    def ports(self) -> tuple[int, int]:
        """First and last port of the range; another one holds for choices to come, what is open stays where it is."""
        return self._binder.ports

    @ports.setter
    def ports(self, ports: tuple[int, int]) -> None:
        self._binder.ports = ports

    @property
    def open_streams(self) -> int:
        """Streams that are open now, on all listeners."""
        return sum(listener.endpoint.open_streams for listener in self._open.values())

    def capsules(self) -> Sequence[Capsule]:
        """Return the capsules that have a listener, with their ports."""
        return [listener.endpoint.capsule for listener in self._open.values()]

    async def follow(
        self, changes: Mapping[str, Wanted | None], reserved: Container[int] = frozenset()
    ) -> None:
        """Make what is open equal to what is wanted, where that is another than before, as far as it can be done now.

        `changes` is by directory, None where nothing is wanted any more; what else is not as it is wanted is looked
        at too. Returns when every listener was tried once. What cannot be opened is told to `facts` and tried again
        until it can, or until it is no longer wanted. Unchanged listeners are not touched.
        """
        async with self._lock:
            if self._closed:
                return
            self._reserved = reserved
            self._binder.look_again()
            self._wishes.take(changes)
            self._forget(directory for directory, wish in changes.items() if wish is None)
            concerned = self._wishes.concerned(changes)
            wanted = self._wishes.of(concerned)
            now = {directory: self._open[directory] for directory in concerned if directory in self._open}
            todo = plan(wanted, now, others(wanted, now, self._open, self._binder.has))
            self._close(todo.close)
            for found in todo.clashes:
                self._waiting.pop(found.wanted.capsule.directory, None)
                self._unbound(found.wanted, reasons.clash(found))
            for one in todo.again:
                self._open[one.capsule.directory].wanted = one
            for one in todo.swap:
                await self._swap(one)
            for one in todo.open:
                known = self._waiting.get(one.capsule.directory)
                # what was closed may be what another one waits for
                if todo.close or known is None or known.wanted != one:
                    await self._try(one, self._first_retry)
            self._wishes.settle(wanted, self._open)
            await self._second.reconcile(self._open, concerned, budget=self.budget)
            self._release()
            self._keep_trying()

    async def refresh(self, directories: Iterable[str]) -> None:
        """Show anew what these directories' capsules show: something changed that no manifest and no setting says."""
        async with self._lock:
            for directory in directories:
                if directory in self._open:
                    await self._swap(self._open[directory].wanted, changed_at=time.time())

    async def aclose(self, budget: float | None = None) -> None:
        """Close every listener, each stream with its last frame, within `budget` seconds; sessions are not ended."""
        self._closed = True
        loop = asyncio.get_running_loop()
        seconds = self.budget if budget is None else budget
        deadline = loop.time() + seconds
        async with self._lock:
            if self._retrier is not None:
                self._retrier.cancel()
                await asyncio.wait((self._retrier,))
            listeners = tuple(self._open.values())
            self._open.clear()
            await drain(listeners, budget=seconds)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=max(0.0, deadline - loop.time()))
        for listener in self._draining:
            for server in listener.servers:
                server.cut()  # it was closed before, with a budget of its own
        self._second.cut()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _forget(self, directories: Iterable[str]) -> None:
        """Drop what was noted about directories of which nothing is wanted."""
        for directory in directories:
            self._told.pop(directory, None)
            self._waiting.pop(directory, None)

    def _close(self, directories: Sequence[str]) -> None:
        closing = [self._open.pop(directory) for directory in directories]
        for directory, listener in zip(directories, closing, strict=True):
            for server in listener.servers:
                server.stop_accepting()
            self._binder.give_back(listener.port, listener.sockets)
            self._second.forget(directory, listener)
            self._draining[listener] = listener.wanted.capsule.session_id
            log.info("capsule_closed", capsule=listener.server.name, port=listener.port)
        if closing:
            self._own(self._drain(closing), "close listeners")

    async def _drain(self, listeners: Sequence[Listener]) -> None:
        await drain(listeners, budget=self.budget)
        for listener in listeners:
            del self._draining[listener]
        self._release()

    def _release(self) -> None:
        """Let go of the sessions that nobody wants and no listener is ending."""
        unwanted = self._wishes.unwanted
        for session_id in unwanted.difference(self._draining.values()) if unwanted else ():
            unwanted.discard(session_id)
            if session_id in self._held:
                self._held.discard(session_id)
                self._own(self._doors.close(session_id), f"close {session_id}")

    async def _swap(self, wanted: Wanted, changed_at: float | None = None) -> None:
        listener = self._open[wanted.capsule.directory]
        try:
            served = await self._serve(wanted, listener.port, changed_at)
        except Exception:
            # the boundary of one capsule: whatever is wrong with it, what it served before goes on, and so do the others
            log.exception("capsule_failed", capsule=wanted.capsule.id)
            return
        listener.swap(wanted, served)
        self._facts.bound(wanted.capsule.directory, listener.port)

    async def _try(self, wanted: Wanted, pause: float) -> None:
        directory = wanted.capsule.directory
        try:
            listener = await self._opened(wanted)
        except UnboundError as error:
            reason = str(error)
        except Exception:
            # the boundary of one capsule, as above
            log.exception("capsule_failed", capsule=wanted.capsule.id)
            reason = reasons.FAILED
        else:
            self._waiting.pop(directory, None)
            self._told.pop(directory, None)
            self._open[directory] = listener
            capsule = listener.endpoint.capsule
            log.info("capsule_bound", capsule=capsule.id, **_told_of(capsule))
            self._facts.bound(directory, listener.port)
            return
        due = asyncio.get_running_loop().time() + pause
        self._waiting[directory] = _Waiting(wanted, reason, pause, due)
        self._unbound(wanted, reason)

    def _unbound(self, wanted: Wanted, reason: str) -> None:
        capsule = wanted.capsule
        if self._told.get(capsule.directory) != reason:
            self._told[capsule.directory] = reason
            log.warning("capsule_unbound", capsule=capsule.id, port=wanted.port, reason=reason)
            self._facts.unbound(capsule.directory, reason)

    async def _opened(self, wanted: Wanted) -> Listener:
        sockets = self._binder.bind(wanted, self._reserved)
        port = sockets[0].getsockname()[1]
        try:
            served = await self._serve(wanted, port)
            listener = Listener(wanted, served, port, planes=self._planes, policy=self.policy)
            await listener.start(sockets)
        except BaseException:
            self._binder.give_back(port, len(sockets))
            for sock in sockets:
                sock.close()
            raise
        return listener

    async def _serve(self, wanted: Wanted, port: int, changed_at: float | None = None) -> Served:
        capsule = wanted.capsule
        self._held.add(capsule.session_id)
        return await self._doors.open(
            replace(capsule, port=port, changed_at=capsule.changed_at if changed_at is None else changed_at)
        )

    def _keep_trying(self) -> None:
        if self._dues() and (self._retrier is None or self._retrier.done()):
            self._retrier = asyncio.get_running_loop().create_task(self._retry(), name="retry listeners")
        self._sooner.set()

    async def _retry(self) -> None:
        """Try what waits when it is due, until nothing waits any more."""
        loop = asyncio.get_running_loop()
        while dues := self._dues():
            self._sooner.clear()
            try:
                async with asyncio.timeout_at(min(dues)):
                    await self._sooner.wait()
            except TimeoutError:
                async with self._lock:
                    self._binder.look_again()
                    for waits in sorted(
                        self._waiting.values(), key=lambda waits: waits.wanted.capsule.directory
                    ):
                        if waits.due <= loop.time():
                            self.retries += 1
                            await self._try(waits.wanted, min(waits.pause * 2, LAST_RETRY))
                    await self._second.reconcile(self._open, self._wishes.unsettled, budget=self.budget)
                    self.retries += await self._second.retry(self._open)

    def _dues(self) -> list[float]:
        """Return when something is to be tried again (loop time)."""
        return [*(waits.due for waits in self._waiting.values()), *self._second.dues()]

    def _own(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _told_of(capsule: Capsule) -> dict[str, object]:
    """What the log says of a capsule that is served: where, in which session, and what its port answers."""
    return {
        "url": capsule.url,
        "session": capsule.session_id,
        "methods": [method.name for method in served_methods(capsule.manifest.lifecycle.task_acceptance)],
        "planes": list(served_planes(capsule.manifest)),
    }
