"""A2A 0.3 over JSON-RPC. Here: what a client writes and reads (A2A specification 0.3.0, sections 6 and 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.dialects.a2a_seen import NEITHER, addressed, piece_seen, status_seen, task_seen
from sidecar.dialects.agent import MessageSeen, plain_parts
from sidecar.dialects.reading import Object, UnreadableError, a_text, an_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.dialects.agent import Outgoing, Part, Seen, TaskSeen

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
    return made | addressed(message)


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
            return status_seen(value, _state)
        case "artifact-update":
            return piece_seen(value)
    raise UnreadableError(NEITHER)


def read_task(result: object) -> TaskSeen:
    """Read a task. Raises UnreadableError."""
    return task_seen(result, _state)


def _state(status: Object) -> str:
    return a_text(status, "state", "a status")
