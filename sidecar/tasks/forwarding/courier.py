"""Carries one task: hands it on, reports what comes back, delivers input, cancels, and does not give up too early."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final

import structlog

from sidecar.errors import StoreError
from sidecar.events import TaskState
from sidecar.tasks import said
from sidecar.tasks.forwarding.a2a import A2aWay
from sidecar.tasks.forwarding.murmur import MurmurWay
from sidecar.tasks.forwarding.track import Track
from sidecar.tasks.forwarding.trouble import AwayError, BusyError, GoneError, TroubleError, WrongError
from sidecar.tasks.forwarding.wake import Wake
from sidecar.tasks.forwarding.way import Errand
from sidecar.tracing import within_trace

if TYPE_CHECKING:
    from sidecar.events import Task
    from sidecar.tasks.engine import Engine
    from sidecar.tasks.forwarding.caller import Patience
    from sidecar.tasks.forwarding.company import Company
    from sidecar.tasks.forwarding.track import Batch
    from sidecar.tasks.forwarding.way import Way
    from sidecar.tasks.forwarding.where import Door, Whereabouts
    from sidecar.tasks.orders import Claim
    from sidecar.tasks.said import Said

RETRY: Final = 1.0
"""Seconds after which what the database refused is tried again."""
SETTLED: Final = 5.0
"""Seconds after which a stream counts as one that works, whatever it said."""
FAULT: Final = "the sidecar failed at handing the task on: its log says why"

log = structlog.get_logger()


class Courier:
    """The worker of one task whose work is done elsewhere. `run` returns once the task is over."""

    def __init__(
        self, engine: Engine, claim: Claim, where: Whereabouts, company: Company, patience: Patience
    ) -> None:
        self._engine = engine
        self._task_id = claim.task.id
        self._inputs = list(claim.inputs)
        self._trace = claim.inputs[0].trace if claim.inputs else None
        self._orders = engine.orders(claim.task.id)
        self._where = where
        self._patience = patience
        self._track = Track.of(claim.task.note) or Track()
        self._wake = Wake()
        self._heard = asyncio.Event()
        waiting = claim.task.state is TaskState.INPUT_REQUIRED
        self._errand = Errand(claim.task, self._wake, patience, waiting=waiting)
        self._murmur = MurmurWay(self._errand, company)
        self._a2a = A2aWay(self._errand)
        self._over = False
        self._noted = False
        self._away_since: float | None = None
        self._pause = 0.0
        self._told_away = False

    @property
    def canceling(self) -> bool:
        """Whether nothing is left to do but to tell the other side that the task is canceled."""
        return self._orders.canceled and not self._over

    async def run(self) -> None:
        """Carry the task to its end; what it sends belongs to the trace of the task."""
        with within_trace(self._trace):
            await self._run()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            listener = group.create_task(self._listen(), name=f"orders of {self._task_id}")
            try:
                await self._carry()
            except Exception:  # boundary: the carrier of one task failed; the others go on
                log.exception("forward_failed", task=self._task_id)
                await self._end(said.Failed(FAULT))
            finally:
                listener.cancel()
        if self._over and self._noted:
            with suppress(StoreError):  # it is cleared after the next start
                await self._engine.forget_note(self._task_id)

    async def _listen(self) -> None:
        """Ring whenever there is something to hear."""
        while await self._orders.wait():
            self._wake.ring()
            if self._orders.canceled:
                return
            await self._heard.wait()
            self._heard.clear()

    async def _carry(self) -> None:
        while not self._over and not self._engine.closed:
            self._hear()
            try:
                if self._orders.canceled and (self._track.task is not None or not self._track.begun):
                    await self._cancel()
                    return
                await self._follow(await self._found())
            except BusyError as error:
                await self._wait_for(error, said.Rejected(str(error)))
            except AwayError as error:
                await self._wait_for(error, said.Failed(f"{error}; tried for {self._patience.away:g} s"))
            except TroubleError as error:
                await self._give_up(error)
            except StoreError:
                await self._wake.sleep(RETRY)

    def _hear(self) -> None:
        given = self._orders.take()
        if given:
            self._inputs += given
            self._errand.waiting = False
        if not self._orders.canceled:
            self._wake.hush()
        self._heard.set()

    async def _found(self) -> Door:
        door = await self._where.look()
        if self._track.kind and (door.kind == "murmur") != (self._track.kind == "murmur"):
            raise GoneError(
                f"{door.where} speaks {door.kind} now, and the task began with {self._track.kind}"
            )
        return door

    def _way(self, door: Door) -> Way:
        return self._murmur if door.a2a is None else self._a2a

    async def _follow(self, door: Door) -> None:
        began = time.monotonic()
        async with aclosing(self._way(door).follow(door, self._track, self._inputs)) as steps:
            async for batch in steps:
                await self._report(batch)
                if self._over:
                    return
                if batch.said or time.monotonic() - began > SETTLED:
                    self._away_since, self._pause, self._told_away = None, 0.0, False
                if self._wake.rung and self._must_stop(door, batch):
                    return

    def _must_stop(self, door: Door, batch: Batch) -> bool:
        """Whether to leave the stream for what there is to hear: only with an id can anything be done about it."""
        if self._orders.canceled and batch.early:
            if not self._track.inputs or self._track.task is None:
                self._track = Track()
            return True
        if self._track.task is None and self._track.begun:
            if self._orders.canceled:
                self._engine.leave(
                    self._task_id, f"{door.where} may begin with the task before it hears of it"
                )
            return False
        return True

    async def _report(self, batch: Batch) -> None:
        """Keep what was said, and with it how far that is. A cursor alone is not worth a commit."""
        before, track = self._track, batch.track
        if batch.said or (track.task, track.inputs, track.giving, track.begun) != (
            before.task,
            before.inputs,
            before.giving,
            before.begun,
        ):
            try:
                task = await self._engine.report(self._task_id, batch.said, note=track.note())
            except said.NotSaidError as error:
                raise WrongError(f"{self._where.named} says what cannot be kept: {error}") from None
            self._take_note(task)
            self._errand.waiting = task.state is TaskState.INPUT_REQUIRED
        self._track = track
        self._over = batch.over

    def _take_note(self, task: Task) -> None:
        """Note whether the task was ended by others: then its note stays until the other side has heard of it."""
        self._noted = task.state.terminal and task.note is not None

    # when things go wrong

    async def _wait_for(self, error: AwayError, last: Said) -> None:
        """Wait before the next try, longer each time; end the task where that has been going on for too long."""
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
        if now - self._away_since >= self._patience.away:
            await self._end(last)
            if self._orders.canceled and self._track.begun:
                self._engine.leave(self._task_id, f"{error}; the task may still run there")
            return
        if self._pause and not (self._told_away or self._errand.waiting or self._orders.canceled):
            self._told_away = True
            with suppress(StoreError):
                await self._engine.report(self._task_id, (said.Status(f"{error}; trying again"),))
        pause, self._pause = self._pause, min(self._pause * 2 or self._patience.first, self._patience.longest)
        await (asyncio.sleep(pause) if self._orders.canceled else self._wake.sleep(pause))

    async def _give_up(self, error: TroubleError) -> None:
        await self._end(said.Failed(str(error)))
        if self._track.task is not None and not isinstance(error, GoneError):
            await self._cancel()

    async def _end(self, last: Said) -> None:
        """Report the end, however long the database refuses it."""
        self._over = True
        while not self._engine.closed:
            try:
                self._take_note(await self._engine.report(self._task_id, (last,)))
            except StoreError:
                await asyncio.sleep(RETRY)
            else:
                return

    async def _cancel(self) -> None:
        """Have the other side end the task, for as long as it may be away; say what is left of it."""
        residue: str | None = None
        pause, until = self._patience.first, time.monotonic() + self._patience.away
        while self._track.task is not None:
            try:
                door = await self._found()
                residue = await self._way(door).cancel(door, self._track)
            except AwayError as error:
                if time.monotonic() < until:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, self._patience.longest)
                    continue
                residue = f"{error}; the task may still run there"
            except GoneError:
                residue = None
            except TroubleError as error:
                residue = f"{error}; the task may still run there"
            break
        self._engine.leave(self._task_id, residue)
        self._over = self._noted = True
