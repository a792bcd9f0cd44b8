"""The murmur dialect: messages in, task objects and stream frames out (murmur reference, Tasks and Streams)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.dialects import sse
from sidecar.model import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecar.model import Conversation, Event, Task

HEARTBEAT: Final = sse.comment("heartbeat")
CAPSULE_CLOSED: Final = sse.frame("capsule-closed", b"{}")


class InvalidMessageError(Exception):
    """A message that is none; the text says what is wrong, for `Invalid params: …`."""


@dataclass(frozen=True, slots=True)
class Message:
    """A valid message: its context, if it named one, and the whole of it as JSON for the log."""

    context_id: str | None
    json: str


def read_message(params: Mapping[str, Any]) -> Message:
    """Read `params.message` if it is there, else the parameters themselves. Raises InvalidMessageError."""
    message = params.get("message")
    if message is None:
        message = params
    if type(message) is not dict:
        raise InvalidMessageError("message must be an object")
    for key in ("messageId", "role"):
        if type(message.get(key)) is not str:
            raise InvalidMessageError(f"{key} must be a string" if key in message else f"{key} is missing")
    context_id = message.get("contextId")
    if context_id is not None and type(context_id) is not str:
        raise InvalidMessageError("contextId must be a string")
    _check_parts(message)
    try:
        return Message(context_id, orjson.dumps(message).decode())
    except orjson.JSONEncodeError:
        raise InvalidMessageError("the message is nested too deeply") from None


def _check_parts(message: Mapping[str, Any]) -> None:
    parts = message.get("parts")
    if type(parts) is not list:
        raise InvalidMessageError("parts must be a list" if "parts" in message else "parts is missing")
    for index, part in enumerate(parts):
        if type(part) is not dict:
            raise InvalidMessageError(f"parts[{index}] must be an object")
        text = part.get("text")
        if text is not None and type(text) is not str:
            raise InvalidMessageError(f"parts[{index}].text must be a string")


def task_object(task: Task) -> dict[str, Any]:
    """Return a task as `message/send`, `tasks/get` and `tasks/cancel` show it."""
    status: dict[str, Any] = {"state": task.state}
    if task.state.terminal:
        status["message"] = {
            "messageId": f"msg_{task.id}_status",
            "role": "agent",
            "parts": [{"text": task.status or ""}],
        }
    shown: dict[str, Any] = {"id": task.id, "contextId": task.context_id, "status": status}
    if task.state is TaskState.INPUT_REQUIRED:
        shown["artifacts"] = [{"name": "prompt", "parts": [{"text": task.output or ""}]}]
    elif task.state is TaskState.COMPLETED and task.output:
        shown["artifacts"] = [{"name": "response", "parts": [{"text": task.output}]}]
    return shown


def stopped(session_id: str, canceled: Iterable[str]) -> dict[str, Any]:
    """Return the result of `session/stop`, given the ids of the tasks that it canceled; nothing is left running."""
    return {"session_id": session_id, "canceled": sorted(canceled), "residue": []}


def event_frame(event: Event) -> bytes:
    """Return the numbered frame of an event of the log."""
    data = _status(event.task_id, event.context_id, event.state, event.status, event.output)
    return sse.frame("status", data, event.frame)


def rejected_frame(task: Task) -> bytes:
    """Return the frame for a task that found no room: it has no number, for nobody else ever sees it."""
    return sse.frame("status", _status(task.id, task.context_id, task.state, task.status))


def ack_frame(conversation: Conversation) -> bytes:
    """Return what an observer's stream begins with."""
    return sse.frame("connection-ack", orjson.dumps({"role": "observer", "conversation_mode": conversation}))


def gap_frame(first_available: int) -> bytes:
    """Return what says that frames before this one are kept no longer."""
    return sse.frame("gap", orjson.dumps({"first_available_id": first_available}))


def lagged_frame(missed: int) -> bytes:
    """Return what says that so many frames came faster than this connection took them."""
    return sse.frame("lagged", orjson.dumps({"missed": missed}))


def error_frame(message: str) -> bytes:
    """Return what a stream says instead of starting a task."""
    return sse.frame("error", orjson.dumps({"error": message}))


def _status(
    task_id: str, context_id: str, state: TaskState, message: str | None, response: str | None = None
) -> bytes:
    status: dict[str, Any] = {"state": state, "message": message}
    if state is TaskState.COMPLETED:
        status["response"] = response or ""
    return orjson.dumps({"id": task_id, "context_id": context_id, "status": status, "final": state.terminal})
