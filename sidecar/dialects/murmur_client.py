"""The murmur dialect from a client's side: what is sent to a door, and what its streams and answers say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.dialects.reading import (
    Object,
    UnreadableError,
    a_text,
    an_object,
    maybe_text,
    objects,
    parsed,
    text_or,
)
from sidecar.events import TaskState
from sidecar.tracing import HEADER

if TYPE_CHECKING:
    from sidecar.dialects.sse_reader import Frame

STREAM: Final = "message/stream"
WATCH: Final = "stream/watch"
SEND: Final = "message/send"
GET: Final = "tasks/get"
CANCEL: Final = "tasks/cancel"


@dataclass(frozen=True, slots=True)
class StatusFrame:
    """A task came to another state, or is at something else."""

    task_id: str
    context_id: str
    state: TaskState
    message: str
    response: str | None
    number: int | None


@dataclass(frozen=True, slots=True)
class TextFrame:
    """A piece of the reply or, with `final`, its end: empty where pieces came before, else the whole."""

    task_id: str
    text: str
    final: bool
    number: int | None


@dataclass(frozen=True, slots=True)
class ThinkingFrame:
    """A piece of the reasoning."""

    task_id: str
    text: str
    number: int | None


@dataclass(frozen=True, slots=True)
class ToolFrame:
    """A tool was called (murmur reference, Streams, `artifact`)."""

    task_id: str
    name: str | None
    content: str
    call_id: str | None
    is_error: bool
    duration_ms: int | None
    exit_code: int | None
    truncated: bool
    number: int | None


@dataclass(frozen=True, slots=True)
class GapFrame:
    """Frames that were asked for are kept no longer; the oldest that is kept has this number."""

    first: int


@dataclass(frozen=True, slots=True)
class LaggedFrame:
    """So many frames were left out for a connection that did not keep up."""

    missed: int


@dataclass(frozen=True, slots=True)
class ErrorFrame:
    """The message was not taken."""

    error: str


OfTask = StatusFrame | TextFrame | ThinkingFrame | ToolFrame
FromDoor = OfTask | GapFrame | LaggedFrame | ErrorFrame


@dataclass(frozen=True, slots=True)
class TaskObject:
    """A task as `message/send` and `tasks/get` show it.

    `message` is the text of its status, `outputs` the texts of its artifacts by name: response, prompt, residue.
    """

    id: str
    context_id: str
    state: TaskState
    message: str
    outputs: dict[str, str]


def write_message(json: str, message_id: str, context_id: str | None) -> Object:
    """Return the parameters that hand a message on; its task belongs to this side and is left out."""
    message = dict(an_object(orjson.loads(json), "a message"))
    for key in ("taskId", "contextId", "kind", HEADER):
        message.pop(key, None)
    message |= {"messageId": message_id, "role": "user"}
    if context_id is not None:
        message["contextId"] = context_id
    return {"message": message}


def read_frame(frame: Frame) -> FromDoor | None:
    """Read a frame of a stream; None for one that tells nothing of tasks. Raises UnreadableError."""
    reader = _READERS.get(frame.event)
    if reader is None:
        return None
    data = an_object(parsed(frame.data, f"the data of its {frame.event} frame"), f"its {frame.event} frame")
    found: FromDoor = reader(data, frame.number)
    return found


def read_task(result: object) -> TaskObject:
    """Read the result of a call that is about a task. Raises UnreadableError."""
    value = an_object(result, "a task")
    status = an_object(value.get("status"), "the status of a task")
    message = status.get("message")
    outputs = {
        text_or(artifact, "name"): _texts(artifact.get("parts"))
        for artifact in objects(value.get("artifacts"))
    }
    return TaskObject(
        a_text(value, "id", "a task"),
        text_or(value, "contextId"),
        _state(status),
        _texts(message.get("parts")) if type(message) is dict else "",
        outputs,
    )


def _texts(parts: object) -> str:
    return "\n".join(part["text"] for part in objects(parts) if type(part.get("text")) is str)


def _state(status: Object) -> TaskState:
    try:
        return TaskState(text_or(status, "state"))
    except ValueError:
        raise UnreadableError("a task is in a state that there is not") from None


def _status(data: Object, number: int | None) -> StatusFrame:
    status = an_object(data.get("status"), "the status of a frame")
    response = status.get("response")
    return StatusFrame(
        a_text(data, "id", "a status frame"),
        text_or(data, "context_id"),
        _state(status),
        text_or(status, "message"),
        response if type(response) is str else None,
        number,
    )


def _text(data: Object, number: int | None) -> TextFrame:
    return TextFrame(
        a_text(data, "id", "a text frame"),
        a_text(data, "text", "a text frame"),
        data.get("final") is True,
        number,
    )


def _thinking(data: Object, number: int | None) -> ThinkingFrame:
    what = "a thinking frame"
    return ThinkingFrame(a_text(data, "id", what), a_text(data, "text", what), number)


def _tool(data: Object, number: int | None) -> ToolFrame:
    artifact = an_object(data.get("artifact"), "the artifact of a frame")
    return ToolFrame(
        a_text(data, "id", "an artifact frame"),
        maybe_text(artifact, "tool_name"),
        text_or(artifact, "content"),
        maybe_text(artifact, "tool_call_id"),
        artifact.get("is_error") is True,
        _integer(artifact, "duration_ms"),
        _integer(artifact, "exit_code"),
        artifact.get("truncated") is True,
        number,
    )


def _integer(holder: Object, key: str) -> int | None:
    value = holder.get(key)
    return value if type(value) is int else None


def _counted(data: Object, key: str) -> int:
    value = _integer(data, key)
    if value is None or value < 0:
        raise UnreadableError(f"a frame has no number called {key}")
    return value


_READERS: Final[dict[str, Any]] = {
    "status": _status,
    "text": _text,
    "thinking": _thinking,
    "artifact": _tool,
    "gap": lambda data, _: GapFrame(_counted(data, "first_available_id")),
    "lagged": lambda data, _: LaggedFrame(_counted(data, "missed")),
    "error": lambda data, _: ErrorFrame(text_or(data, "error", "it gave no reason")),
}
