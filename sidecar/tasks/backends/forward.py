"""The backend `forward`: the sidecar is the worker of a live door elsewhere (docs/forward.md)."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from sidecar.errors import StoreError
from sidecar.model import ForwardSettings, LastError
from sidecar.tasks.backends.live import Records
from sidecar.tasks.forwarding.caller import Patience
from sidecar.tasks.forwarding.company import Company
from sidecar.tasks.forwarding.courier import RETRY, Courier
from sidecar.tasks.forwarding.planes import PassedPlanes
from sidecar.tasks.forwarding.track import Track
from sidecar.tasks.forwarding.trouble import TroubleError
from sidecar.tasks.forwarding.where import Whereabouts

if TYPE_CHECKING:
    from sidecar.model import Capsule
    from sidecar.tasks.engine import Engine
    from sidecar.tasks.forwarding.where import Door
    from sidecar.tasks.orders import Claim

PATIENCE: Final = Patience()

log = structlog.get_logger()


@dataclass(slots=True)
class _Place:
    """Where tasks are handed on to, under one configuration."""

    where: Whereabouts
    company: Company = field(default_factory=Company)


class Forward:
    """Hands the tasks of one capsule on to the door that `forward` names; one event loop.

    `home` is the home directory whose live capsules may be discovered.
    """

    name = "forward"

    def __init__(self, *, home: Path | None = None, patience: Patience = PATIENCE) -> None:
        self._records = Records(home or Path(os.path.expanduser("~")))  # noqa: PTH111 - Path.home raises without one
        self._patience = patience
        self._settings = ForwardSettings()
        self._capsule_id = ""
        self._directory = ""
        self._place: _Place | None = None
        self._former: list[_Place] = []
        self._serving: asyncio.Task[None] | None = None
        self._couriers: dict[Courier, asyncio.Task[None]] = {}
        self._look = asyncio.Event()
        self._door: Door | None = None
        self.trouble: LastError | None = None
        self.planes = PassedPlanes(self._whereabouts)

    @property
    def workers(self) -> int:
        """1 while the door is there, else 0."""
        return int(self._door is not None)

    @property
    def busy(self) -> int:
        """How many tasks are under way, those counted whose cancel is."""
        return len(self._couriers)

    def start(self, engine: Engine, capsule: Capsule) -> None:
        """Begin to hand on the tasks of an engine. Those that were under way are taken up where they are."""
        self.reconfigure(capsule)
        self._serving = asyncio.create_task(self._serve(engine), name=f"forward {capsule.id}")

    def reconfigure(self, capsule: Capsule) -> None:
        """Hand the tasks to come on to where the capsule's settings say now."""
        settings = capsule.settings.forward or ForwardSettings()
        self._capsule_id = capsule.id
        if self._place is not None:
            if (settings, capsule.directory) == (self._settings, self._directory):
                return
            self._former.append(self._place)
        self._settings, self._directory = settings, capsule.directory
        self._place = _Place(Whereabouts(settings, capsule.directory, self._records, self._patience))
        self._look.set()

    async def aclose(self, grace: float) -> None:
        """Leave the tasks where they are, to be taken up again; only what is being canceled is waited for."""
        canceling = [task for courier, task in self._couriers.items() if courier.canceling]
        if canceling and grace > 0:
            await asyncio.wait(canceling, timeout=grace)
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait((self._serving,))
        for place in (*self._former, *([self._place] if self._place is not None else [])):
            await place.where.aclose()
        self._door = None

    async def _serve(self, engine: Engine) -> None:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self._watch(), name=f"watch the door of {self._capsule_id}")
            if await engine.ready():
                for task in engine.interrupted():
                    await self._take_up(group, engine, task.id, task.note)
                for left in await _unheard(engine):
                    self._carry(group, engine, left)
            while await engine.claimable():
                if (claim := await engine.claim()) is not None:
                    self._carry(group, engine, claim)
            watch.cancel()

    async def _take_up(
        self, group: asyncio.TaskGroup, engine: Engine, task_id: str, note: str | None
    ) -> None:
        """Go on with a task of before a restart; one that was not handed on yet begins anew."""
        track = Track.of(note)
        if track is None or not track.begun:
            await engine.release(task_id)
            return
        while not engine.closed:
            try:
                claim = await engine.resume(task_id)
            except StoreError:
                await asyncio.sleep(RETRY)
                continue
            if claim is not None:
                self._carry(group, engine, claim)
            return

    def _carry(self, group: asyncio.TaskGroup, engine: Engine, claim: Claim) -> None:
        place = self._placed()
        courier = Courier(engine, claim, place.where, place.company, self._patience)
        task = group.create_task(courier.run(), name=f"courier of {claim.task.id}")
        self._couriers[courier] = task
        task.add_done_callback(lambda _: self._couriers.pop(courier, None))

    def _placed(self) -> _Place:
        assert self._place is not None  # noqa: S101 - `start` made it
        return self._place

    def _whereabouts(self) -> Whereabouts | None:
        """Return where planes are read, if they are to be passed through."""
        return self._place.where if self._place is not None and self._settings.planes == "forward" else None

    async def _watch(self) -> None:
        """Look after the door for ever, so that people see whether it is there."""
        while True:
            self._look.clear()
            before, told = self._door, self.trouble is not None
            try:
                self._door = await self._placed().where.look()
                self.trouble = None
            except TroubleError as error:
                since = time.time() if self.trouble is None else self.trouble.at
                self._door, self.trouble = None, LastError(since, str(error))
            if self._door is not None and before is None:
                log.info(
                    "door_found", capsule=self._capsule_id, door=self._door.where, speaks=self._door.kind
                )
            elif self.trouble is not None and not told:
                log.warning("door_away", capsule=self._capsule_id, reason=self.trouble.message)
            try:
                async with asyncio.timeout(self._patience.probe):
                    await self._look.wait()
            except TimeoutError:
                continue


async def _unheard(engine: Engine) -> tuple[Claim, ...]:
    """Return the tasks whose cancel may not have been delivered before the sidecar ended."""
    while not engine.closed:
        try:
            return await engine.unheard()
        except StoreError:
            await asyncio.sleep(RETRY)
    return ()
