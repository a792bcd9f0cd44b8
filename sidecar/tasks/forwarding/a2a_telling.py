"""What the states of an A2A task say in the vocabulary of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.dialects.agent import TaskSeen, texts_of
from sidecar.tasks import said
from sidecar.tasks.forwarding.trouble import WrongError, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.dialects.agent import Part, StatusSeen
    from sidecar.tasks.forwarding.track import Track
    from sidecar.tasks.forwarding.way import Errand
    from sidecar.tasks.forwarding.where import Door
    from sidecar.tasks.said import Said

WAITING: Final = frozenset({"input-required"})


class Telling:
    """Tells of one task; it knows the last status message, which is not told twice."""

    def __init__(self, errand: Errand) -> None:
        self._errand = errand
        self._status = errand.task.status or ""

    def at_work(self, door: Door, state: str, text: str) -> list[Said]:
        """Return what a state says that is not the last one. Raises WrongError for one that is no use here."""
        if state in WAITING:
            return [] if self._errand.waiting and text == self._status else self._once(text, asks=True)
        if state == "auth-required":
            raise WrongError(f"{door.where} wants credentials for the task: {shown(text)}")
        if text:
            return self._once(text)
        if self._errand.waiting and state == "working":  # somebody else has answered
            self._errand.waiting = False
            return [said.Status("resumed")]
        return []

    def _once(self, text: str, *, asks: bool = False) -> list[Said]:
        """Return a status that was not the last one already."""
        if asks:
            self._status = text
            return [said.InputRequired(text)]
        if text == self._status and not self._errand.waiting:
            return []
        self._status = text
        return [said.Status(text)]

    def last(self, door: Door, track: Track, seen: TaskSeen | StatusSeen) -> list[Said]:
        """Return what the last state says."""
        message = texts_of(seen.message)
        match seen.state:
            case "completed":
                return self._completed(track, seen, message)
            case "failed":
                return [said.Failed(message or f"{door.where} says that the task failed, and not why")]
            case "rejected":
                return [said.Rejected(message or f"{door.where} does not take the task")]
        return [said.Failed(f"{door.where} canceled the task")]

    def _completed(self, track: Track, seen: TaskSeen | StatusSeen, message: str) -> list[Said]:
        """Return the end: the reply is what was streamed of it or, without any, the message."""
        if not track.picture.told:
            return [said.Completed(message)]
        reply = track.picture.text_in(seen) if isinstance(seen, TaskSeen) and not track.whole else None
        after: list[Said] = [said.Status(message)] if message and message != self._status else []
        return [*after, said.Completed(reply)]

    def reply(self, door: Door, parts: Sequence[Part]) -> Said:
        """Return what a message in the place of a task says. Raises WrongError for parts that are none."""
        try:
            return said.read({"type": "message", "parts": list(parts)})
        except said.NotSaidError as error:
            raise WrongError(f"{door.where} is not understood: {error}") from None
