"""What an A2A agent has shown of its artifacts so far, and what of it the workers' vocabulary says. Pure.

Agents stream a reply as pieces of an artifact; here a reply is text. So the text of an artifact called `response`, or
else of the first one that is all text, is the reply; every other artifact stays one. What a whole task shows is
compared with what is known, so that nothing is told twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sidecar.dialects.agent import ArtifactSeen, PieceSeen, all_text
from sidecar.dialects.reading import UnreadableError
from sidecar.tasks import said

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from sidecar.dialects.agent import Part, Seen, TaskSeen
    from sidecar.tasks.said import Said

REPLY: Final = "response"
MOST_ARTIFACTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Picture:
    """For each artifact, by id, how many parts and how many characters of text are known.

    `reply` is the id of the artifact that is the reply; `named` says that it is called so. `told` says that some of
    the reply was.
    """

    known: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    reply: str | None = None
    named: bool = False
    told: bool = False

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"known": self.known, "reply": self.reply, "named": self.named, "told": self.told}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return it from its JSON. Raises TypeError, KeyError, ValueError."""
        known = {key: (int(parts), int(length)) for key, (parts, length) in document["known"].items()}
        return cls(known, document["reply"], document["named"], document["told"])

    def piece(self, piece: PieceSeen) -> tuple[Picture, list[Said]]:
        """Take in a piece of an artifact: what is known then, and what it says. Raises UnreadableError."""
        artifact = piece.artifact
        parts, length = self.known.get(artifact.id, (0, 0))
        replaced = not piece.append and parts > 0
        if replaced:
            parts = length = 0
        if artifact.id not in self.known and len(self.known) >= MOST_ARTIFACTS:
            raise UnreadableError(f"a task has more than {MOST_ARTIFACTS} artifacts")
        seen = {artifact.id: (parts + len(artifact.parts), length + _length(artifact.parts))}
        now = replace(self, known={**self.known, **seen})
        if not self._is_reply(artifact):
            return now, [_artifact(artifact, append=piece.append, last=piece.last)]
        spoken: list[Said] = []
        if self.told and (replaced or self.reply != artifact.id):
            spoken.append(said.Turn())  # the reply begins anew
        for index, part in enumerate(artifact.parts):
            if "text" in part:
                spoken.append(said.Text(part["text"]))
            else:
                beside = ArtifactSeen(f"{artifact.id}-{parts + index}", artifact.name, (part,))
                spoken.append(_artifact(beside, append=False, last=True))
        told = self.told or _length(artifact.parts) > 0
        return replace(now, reply=artifact.id, named=self.named or artifact.name == REPLY, told=told), spoken

    def whole(self, task: TaskSeen) -> tuple[Picture, list[Said]]:
        """Take in all artifacts of a task: what is known then, and what is new. Raises UnreadableError."""
        now, spoken = self, list[said.Said]()
        for artifact in task.artifacts:
            known = artifact.id in now.known
            rest = _rest(artifact.parts, *now.known.get(artifact.id, (0, 0)))
            if known and not rest:
                continue
            beginning = PieceSeen(task.id, replace(artifact, parts=rest), append=known)
            now, more = now.piece(beginning)
            spoken += more
        return now, spoken

    def text_in(self, task: TaskSeen) -> str | None:
        """Return the reply as a whole task shows it; None where it shows none."""
        for artifact in task.artifacts:
            if artifact.id == self.reply:
                return "".join(part["text"] for part in artifact.parts if "text" in part)
        return None

    def _is_reply(self, artifact: ArtifactSeen) -> bool:
        if artifact.id == self.reply:
            return True
        if artifact.name == REPLY:
            return not self.named
        return self.reply is None and not self.known and bool(artifact.parts) and all_text(artifact.parts)


def overlap(task: TaskSeen, seen: Sequence[Seen]) -> list[Seen]:
    """Return what of some events a task does not show already.

    They came between the beginning of their stream and the look at the task, which may hold the first of them. So as
    many are left out as the end of each artifact is made of.
    """
    shown = {artifact.id: artifact.parts for artifact in task.artifacts}
    pieces: dict[str, list[PieceSeen]] = {}
    for each in seen:
        if isinstance(each, PieceSeen):
            pieces.setdefault(each.artifact.id, []).append(each)
    left_out: set[int] = set()
    for key, of_one in pieces.items():
        for count in range(len(of_one), 0, -1):
            parts = [part for piece in of_one[:count] for part in piece.artifact.parts]
            if _ends_with(shown.get(key, ()), parts):
                left_out.update(id(piece) for piece in of_one[:count])
                break
    return [each for each in seen if id(each) not in left_out]


def _ends_with(parts: Sequence[Part], end: Sequence[Part]) -> bool:
    if all_text(parts) and all_text(end):
        return "".join(p["text"] for p in parts).endswith("".join(p["text"] for p in end))
    return list(parts[-len(end) :]) == list(end) if end else True


def _rest(parts: tuple[Part, ...], known: int, length: int) -> tuple[Part, ...]:
    """Return what follows the known beginning; agents may have made one part of many."""
    if len(parts) > known and _length(parts[:known]) == length:
        return parts[known:]
    if _length(parts) <= length or not all_text(parts):
        return parts[known:]
    return ({"text": "".join(part["text"] for part in parts)[length:]},)


def _length(parts: Sequence[Part]) -> int:
    return sum(len(part["text"]) for part in parts if "text" in part)


def _artifact(artifact: ArtifactSeen, *, append: bool, last: bool) -> Said:
    value = {
        "type": "artifact",
        "name": artifact.name,
        "artifact_id": artifact.id or None,
        "parts": list(artifact.parts),
        "append": append,
        "last": last,
    }
    try:
        return said.read(value)
    except said.NotSaidError as error:
        raise UnreadableError(f"an artifact is not what it should be: {error}") from None
