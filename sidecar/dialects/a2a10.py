"""A2A 1.0 over JSON-RPC. Here: what a client writes and reads (A2A specification 1.0, sections 4 and 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

VERSION: str = "1.0"
HEADERS: Mapping[str, str] = {"A2A-Version": "1.0"}
SEND: str = "SendMessage"
STREAM: str = "SendStreamingMessage"
GET: str = "GetTask"
CANCEL: str = "CancelTask"
SUBSCRIBE: str | None = "SubscribeToTask"


def write_message(message: Outgoing) -> Object:
    """Return a message of the user; its parts are as they stand."""
    made: Object = {"messageId": message.message_id, "role": "ROLE_USER", "parts": list(message.parts)}
    given = {"contextId": message.context_id, "taskId": message.task_id, "metadata": message.metadata}
    return made | {key: value for key, value in given.items() if value is not None}


def send_params(message: Outgoing) -> Object:
    """Return the parameters of `SendMessage` for an answer at once."""
    return {"message": write_message(message), "configuration": {"returnImmediately": True}}


def stream_params(message: Outgoing) -> Object:
    """Return the parameters of `SendStreamingMessage`."""
    return {"message": write_message(message)}


def read_event(result: object) -> Seen:
    """Read the result of a send, or one of a stream, told apart by its member. Raises UnreadableError."""
    value = an_object(result, "a result")
    if "task" in value:
        return read_task(value["task"])
    if "message" in value:
        return MessageSeen(plain_parts(an_object(value["message"], "a message").get("parts")))
    if "statusUpdate" in value:
        update = an_object(value["statusUpdate"], "a status update")
        state, message = _status(update)
        return StatusSeen(a_text(update, "taskId", "a status update"), state, message)
    if "artifactUpdate" in value:
        update = an_object(value["artifactUpdate"], "an artifact update")
        return PieceSeen(
            a_text(update, "taskId", "an artifact update"),
            _artifact(an_object(update.get("artifact"), "the artifact of an update")),
            append=update.get("append") is True,
            last=update.get("lastChunk") is True,
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
    state = text_or(status, "state", "unknown").removeprefix("TASK_STATE_").lower().replace("_", "-")
    message = status.get("message")
    parts = plain_parts(message.get("parts")) if type(message) is dict else ()
    return state if state in KNOWN else "unknown", parts


def _artifact(value: Object) -> ArtifactSeen:
    parts = plain_parts(value.get("parts"))
    return ArtifactSeen(text_or(value, "artifactId"), maybe_text(value, "name"), parts)
