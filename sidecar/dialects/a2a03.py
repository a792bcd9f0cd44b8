"""A2A 0.3 over JSON-RPC. Here: what a client writes and reads (A2A specification 0.3.0, sections 6 and 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.dialects.agent import (
    KNOWN,
    ArtifactSeen,
    MessageSeen,
    PieceSeen,
    StatusSeen,
    TaskSeen,
    plain_parts,
)
from sidecar.dialects.reading import Object, UnreadableError, a_text, an_object, maybe_text, objects, text_or

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.dialects.agent import Outgoing, Part, Seen

VERSION: str = "0.3"
HEADERS: Mapping[str, str] = {}
SEND: str = "message/send"
STREAM: str = "message/stream"
GET: str = "tasks/get"
CANCEL: str = "tasks/cancel"
SUBSCRIBE: str | None = None
"""`tasks/resubscribe` is not used: the official server of this version keeps each later piece twice once it was."""

_FILE: Final = {"raw": "bytes", "url": "uri"}


def write_message(message: Outgoing) -> Object:
    """Return a message of the user."""
    made: Object = {
        "kind": "message",
        "messageId": message.message_id,
        "role": "user",
        "parts": [write_part(part) for part in message.parts],
    }
    given = {"contextId": message.context_id, "taskId": message.task_id, "metadata": message.metadata}
    return made | {key: value for key, value in given.items() if value is not None}


def write_part(part: Part) -> Object:
    """Return a part, told apart by its `kind`."""
    rest = {"metadata": part["metadata"]} if "metadata" in part else {}
    for key, theirs in _FILE.items():
        if key in part:
            file = {theirs: part[key]}
            for name, called in (("filename", "name"), ("mediaType", "mimeType")):
                if name in part:
                    file[called] = part[name]
            return {"kind": "file", "file": file, **rest}
    if "text" in part:
        return {"kind": "text", "text": part["text"], **rest}
    data = part["data"]  # only objects are taken in this version (section 6.5.3)
    return {"kind": "data", "data": data if type(data) is dict else {"value": data}, **rest}


def send_params(message: Outgoing) -> Object:
    """Return the parameters of `message/send` for an answer at once."""
    return {"message": write_message(message), "configuration": {"blocking": False}}


def stream_params(message: Outgoing) -> Object:
    """Return the parameters of `message/stream`."""
    return {"message": write_message(message)}


def read_event(result: object) -> Seen:
    """Read the result of a send, or one of a stream, told apart by its `kind`. Raises UnreadableError."""
    value = an_object(result, "a result")
    match value.get("kind"):
        case "task":
            return read_task(value)
        case "message":
            return MessageSeen(plain_parts(value.get("parts")))
        case "status-update":
            state, message = _status(value)
            return StatusSeen(a_text(value, "taskId", "a status update"), state, message)
        case "artifact-update":
            artifact = an_object(value.get("artifact"), "the artifact of an update")
            return PieceSeen(
                a_text(value, "taskId", "an artifact update"),
                _artifact(artifact),
                append=value.get("append") is True,
                last=value.get("lastChunk") is True,
            )
    raise UnreadableError("a result is neither a task, a message, nor an update of either kind")


def read_task(result: object) -> TaskSeen:
    """Read a task. Raises UnreadableError."""
    value = an_object(result, "a task")
    state, message = _status(value)
    return TaskSeen(
        a_text(value, "id", "a task"),
        text_or(value, "contextId"),
        state,
        message,
        tuple(_artifact(artifact) for artifact in objects(value.get("artifacts"))),
    )


def _status(holder: Object) -> tuple[str, tuple[Part, ...]]:
    status = an_object(holder.get("status"), "a status")
    state = a_text(status, "state", "a status")
    message = status.get("message")
    parts = plain_parts(message.get("parts")) if type(message) is dict else ()
    return state if state in KNOWN else "unknown", parts


def _artifact(value: Object) -> ArtifactSeen:
    parts = plain_parts(value.get("parts"))
    return ArtifactSeen(text_or(value, "artifactId"), maybe_text(value, "name"), parts)
