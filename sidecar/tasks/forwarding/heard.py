"""What the frames of a murmur door say of our task, in the vocabulary of workers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from sidecar.dialects import murmur_client as murmur
from sidecar.dialects.murmur_client import StatusFrame
from sidecar.events import TaskState
from sidecar.tasks import said

if TYPE_CHECKING:
    from sidecar.dialects.murmur_client import OfTask, TaskObject
    from sidecar.tasks.forwarding.way import Errand
    from sidecar.tasks.forwarding.where import Door
    from sidecar.tasks.said import Said

MISSED: Final = "some of what was said is lost"
RESUMED: Final = "resumed"
_TURN: Final = re.compile(r"inference turn ([0-9]+)", re.ASCII)


class Heard:
    """One task's frames, in their order: a whole reply is held back until what follows is known."""

    def __init__(self, errand: Errand) -> None:
        self._errand = errand
        self._held: str | None = None

    def forget(self) -> None:
        """Begin anew: what was held back comes again."""
        self._held = None

    def missed(self, known: TaskObject | None) -> list[Said]:
        """Say that frames are lost, and what must not be lost with them: that the task waits for input."""
        if known is None or known.state.terminal:
            return []
        if known.state is TaskState.INPUT_REQUIRED:
            return [] if self._errand.waiting else [said.InputRequired(known.outputs.get("prompt", ""))]
        return [said.Status(MISSED)]

    def said(self, door: Door, told: OfTask) -> list[Said]:
        """Return what a frame of our task says. A whole reply is held back: the last status has it too."""
        held, self._held = self._held, None
        match told:
            case murmur.TextFrame(text=text, final=True):
                self._held = text or None
                return [said.Text(held)] if held else []
            case StatusFrame() if told.state.terminal:
                response = held if told.response is None else told.response
                return [self.last(door, told.state, told.message, response)]
        spoken: list[Said] = [said.Text(held)] if held else []
        match told:
            case murmur.TextFrame(text=text):
                spoken.append(said.Text(text))
            case murmur.ThinkingFrame(text=text):
                spoken.append(said.Thinking(text))
            case murmur.ToolFrame() as tool:
                spoken.append(_tool(tool))
            case StatusFrame(state=TaskState.INPUT_REQUIRED, message=prompt):
                spoken.append(said.InputRequired(prompt))
            case StatusFrame(message=message):
                spoken += self._at_work(message)
        return spoken

    def _at_work(self, message: str) -> list[Said]:
        """Return what a working status says: that it begins a turn, or goes on, is said here already."""
        turn = _TURN.fullmatch(message)
        if turn is not None:
            return [said.Turn()] if turn[1] != "1" else []
        if message == RESUMED and not self._errand.waiting:
            return []
        return [said.Status(message)]

    def last(self, door: Door, state: TaskState, message: str, response: str | None) -> Said:
        """Return what the last status of our task says."""
        match state:
            case TaskState.COMPLETED:
                return said.Completed(response)
            case TaskState.FAILED:
                return said.Failed(message)
            case TaskState.REJECTED:
                return said.Rejected(message)
        return said.Failed(f"{door.where} canceled the task")


def _tool(frame: murmur.ToolFrame) -> Said:
    return said.Tool(
        frame.name,
        frame.content,
        frame.call_id,
        frame.is_error,
        frame.duration_ms,
        frame.exit_code,
        frame.truncated,
    )
