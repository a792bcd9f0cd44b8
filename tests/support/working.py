"""A worker that does as a test says, over the engine's own interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.events import TaskState
from sidecar.tasks.said import Completed, InputRequired, Text

if TYPE_CHECKING:
    from sidecar.events import Task
    from sidecar.tasks.engine import Engine
    from sidecar.tasks.orders import Claim, Orders
    from sidecar.tasks.said import Said


class Working:
    """One claimed task."""

    def __init__(self, engine: Engine, claim: Claim) -> None:
        self._engine = engine
        self.claim = claim
        self.id = claim.task.id

    @property
    def orders(self) -> Orders:
        """What its worker must hear."""
        return self._engine.orders(self.id)

    async def say(self, *said: Said, note: str | None = None) -> Task:
        """Report in one go."""
        return await self._engine.report(self.id, said, note=note)

    async def ask(self, prompt: str) -> None:
        """Ask for input."""
        task = await self.say(InputRequired(prompt))
        assert task.state is TaskState.INPUT_REQUIRED

    async def complete(self, *pieces: str) -> Task:
        """Stream these pieces and complete."""
        return await self.say(*(Text(piece) for piece in pieces), Completed())

    def texts(self) -> list[str]:
        """Return the texts of its messages at the claim."""
        return [given.text for given in self.claim.inputs]


async def work(engine: Engine) -> Working:
    """Claim the next task, as soon as there is one."""
    while await engine.claimable():
        claim = await engine.claim()
        if claim is not None:
            return Working(engine, claim)
    raise AssertionError("the engine is closed")
