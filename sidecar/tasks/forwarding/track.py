"""How far a task has come elsewhere: what must be known to go on after a broken connection or a restart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from sidecar.tasks.forwarding.picture import Picture

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from sidecar.tasks.said import Said


@dataclass(frozen=True, slots=True)
class Track:
    """Kept as the note of a task, in the same change as what was said up to there.

    `kind` is what is spoken, `begun` says that the other side may know of the task. `task` is its id there, `session`
    and `cursor` the murmur session and the number of the last frame that was read. `inputs` messages were handed on,
    `giving` says that the next one may have been. `picture` is what an A2A agent's artifacts hold so far, and
    `whole` that no event of its can have been missed.
    """

    kind: str = ""
    begun: bool = False
    task: str | None = None
    session: str | None = None
    cursor: int | None = None
    inputs: int = 0
    giving: bool = False
    picture: Picture = field(default_factory=Picture)
    whole: bool = True

    def note(self) -> str:
        """Return it as text."""
        document = {
            "kind": self.kind,
            "begun": self.begun,
            "task": self.task,
            "session": self.session,
            "cursor": self.cursor,
            "inputs": self.inputs,
            "giving": self.giving,
            "picture": self.picture.document(),
            "whole": self.whole,
        }
        return orjson.dumps(document).decode()

    @classmethod
    def of(cls, note: str | None) -> Self | None:
        """Return the track that a note tells of; None for none, or for one that is not of this kind."""
        try:
            document = orjson.loads(note or "")
            picture = Picture.of(document.pop("picture"))
            return cls(picture=picture, **document)
        except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Batch:
    """What was said, and how far the task has come with that.

    `early` says that nothing of what comes next has been sent: it may still be left.
    """

    said: Sequence[Said]
    track: Track
    early: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing can follow."""
        return any(each.final for each in self.said)
