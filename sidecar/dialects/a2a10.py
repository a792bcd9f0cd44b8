"""A2A 1.0 over JSON-RPC. Here: what a client writes and reads (A2A specification 1.0, sections 4 and 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.dialects.a2a_seen import NEITHER, addressed, piece_seen, status_seen, task_seen
from sidecar.dialects.agent import MessageSeen, plain_parts
from sidecar.dialects.reading import Object, UnreadableError, an_object, text_or

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.dialects.agent import Outgoing, Seen, TaskSeen

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
    return made | addressed(message)


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
        return status_seen(an_object(value["statusUpdate"], "a status update"), _state)
    if "artifactUpdate" in value:
        return piece_seen(an_object(value["artifactUpdate"], "an artifact update"))
    raise UnreadableError(NEITHER)


def read_task(result: object) -> TaskSeen:
    """Read a task. Raises UnreadableError."""
    return task_seen(result, _state)


def _state(status: Object) -> str:
    return text_or(status, "state", "unknown").removeprefix("TASK_STATE_").lower().replace("_", "-")
