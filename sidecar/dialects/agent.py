"""What an agent elsewhere says of a task, in neither version of A2A, and what a version must be able to do.

States are spelled as in A2A 0.3; parts have the form of the workers' protocol (docs/workers.md): exactly one of
`text`, `raw` (base64), `url`, `data`, and with it `filename`, `mediaType`, `metadata`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from sidecar.dialects.reading import Object, an_object, objects, text_or

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Part = dict[str, Any]

FINAL: Final = frozenset({"completed", "failed", "canceled", "rejected"})
"""The states that nothing follows."""
KNOWN: Final = FINAL | {"submitted", "working", "input-required", "auth-required", "unknown"}

NOT_FOUND: Final = -32001
NOT_CANCELABLE: Final = -32002
UNSUPPORTED: Final = frozenset({-32004, -32601})
"""Codes of errors (A2A 0.3 section 8.2, A2A 1.0 section 5.4)."""


@dataclass(frozen=True, slots=True)
class ArtifactSeen:
    """An artifact as a task carries it: all its parts so far."""

    id: str
    name: str | None
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class TaskSeen:
    """A task as it stands; `message` is the parts of its status message."""

    id: str
    context_id: str
    state: str
    message: tuple[Part, ...] = ()
    artifacts: tuple[ArtifactSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusSeen:
    """A task came to another state."""

    task_id: str
    state: str
    message: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class PieceSeen:
    """Parts that begin an artifact or, with `append`, belong to its end."""

    task_id: str
    artifact: ArtifactSeen
    append: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True)
class MessageSeen:
    """The agent answers with a message instead of a task."""

    parts: tuple[Part, ...]


Seen = TaskSeen | StatusSeen | PieceSeen | MessageSeen


class A2a(Protocol):
    """One version of A2A over JSON-RPC, from a client's side; a module is one."""

    VERSION: str
    HEADERS: Mapping[str, str]
    SEND: str
    STREAM: str
    GET: str
    CANCEL: str
    SUBSCRIBE: str | None

    def write_message(self, message: Outgoing) -> Object:
        """Return a message as the version has it."""

    def send_params(self, message: Outgoing) -> Object:
        """Return the parameters of `SEND` for an answer at once."""

    def stream_params(self, message: Outgoing) -> Object:
        """Return the parameters of `STREAM`."""

    def read_event(self, result: object) -> Seen:
        """Read the result of `SEND`, or one of a stream. Raises UnreadableError."""

    def read_task(self, result: object) -> TaskSeen:
        """Read the result of `GET` or `CANCEL`. Raises UnreadableError."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to an agent: its parts, and the task and the context that it belongs to where there are any."""

    message_id: str
    parts: tuple[Part, ...]
    context_id: str | None = None
    task_id: str | None = None
    metadata: Object | None = None

    @classmethod
    def of(cls, json: str, message_id: str, *, context_id: str | None, task_id: str | None) -> Outgoing:
        """Return a message that came here, of either version or of a murmur door, as one that goes out.

        Its own ids are left behind: they name tasks and contexts of this side.
        """
        message = an_object(orjson.loads(json), "a message")
        metadata = message.get("metadata")
        return cls(
            message_id,
            plain_parts(message.get("parts")),
            context_id,
            task_id,
            metadata if type(metadata) is dict and metadata else None,
        )


def plain_parts(value: object) -> tuple[Part, ...]:
    """Return the parts of a list, whichever version wrote them; what is none is left out."""
    return tuple(part for part in map(_plain, objects(value)) if part is not None)


def texts_of(parts: Iterable[Part]) -> str:
    """Return the texts of some parts, joined by a newline."""
    return "\n".join(part["text"] for part in parts if "text" in part)


def all_text(parts: Iterable[Part]) -> bool:
    """Whether parts are nothing but text."""
    return all("text" in part for part in parts)


def _plain(part: Object) -> Part | None:
    made = _content(part)
    if made is None:
        return None
    file = part.get("file")
    holder: Object = file if type(file) is dict else part
    for key, theirs in (("filename", "name"), ("mediaType", "mimeType")):
        value = text_or(part, key) or text_or(holder, theirs)
        if value:
            made[key] = value
    if type(part.get("metadata")) is dict and part["metadata"]:
        made["metadata"] = part["metadata"]
    return made


def _content(part: Object) -> Part | None:
    """Return what a part holds, in A2A 1.0's form or in 0.3's."""
    for key in ("text", "raw", "url"):
        if type(part.get(key)) is str:
            return {key: part[key]}
    file = part.get("file")
    if type(file) is dict:
        if type(file.get("bytes")) is str:
            return {"raw": file["bytes"]}
        return {"url": file["uri"]} if type(file.get("uri")) is str else None
    return {"data": part["data"]} if "data" in part else None
