"""The murmur dialect: messages in, task objects and stream frames out (murmur reference, Tasks and Streams)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from sidecar.dialects import sse
from sidecar.events import TERMINAL, EventKind, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sidecar.events import Event, Task
    from sidecar.model import Conversation

HEARTBEAT: Final = sse.comment("heartbeat")
CAPSULE_CLOSED: Final = sse.frame("capsule-closed", b"{}")


class InvalidMessageError(Exception):
    """A message that is none; the text says what is wrong, for `Invalid params: …`."""


class Message(NamedTuple):
    """A valid message: its context, if it named one, its text, and the whole of it as JSON for the log.

    The text is that of its parts, joined by a newline; parts without text are skipped.
    """

    context_id: str | None
    text: str
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
    text = _text_of(message)
    try:
        return Message(context_id, text, orjson.dumps(message).decode())
    except orjson.JSONEncodeError:
        raise InvalidMessageError("the message is nested too deeply") from None


def _text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message's parts, having checked them."""
    parts = message.get("parts")
    if type(parts) is not list:
        raise InvalidMessageError("parts must be a list" if "parts" in message else "parts is missing")
    texts = []
    for index, part in enumerate(parts):
        if type(part) is not dict:
            raise InvalidMessageError(f"parts[{index}] must be an object")
        text = part.get("text")
        if type(text) is str:
            texts.append(text)
        elif text is not None:
            raise InvalidMessageError(f"parts[{index}].text must be a string")
    return "\n".join(texts)


def task_object(task: Task) -> dict[str, Any]:
    """Return a task as `message/send` and `tasks/get` show it."""
    status: dict[str, Any] = {"state": task.state}
    if task.state.terminal:
        status["message"] = {
            "messageId": f"msg_{task.id}_status",
            "role": "agent",
            "parts": [{"text": task.status or ""}],
        }
    shown: dict[str, Any] = {"id": task.id, "contextId": task.context_id, "status": status}
    if task.state is TaskState.INPUT_REQUIRED:
        shown["artifacts"] = [_artifact("prompt", task.output or "")]
    elif task.state is TaskState.COMPLETED and task.output:
        shown["artifacts"] = [_artifact("response", task.output)]
    return shown


def canceled_object(task: Task, residue: Iterable[str]) -> dict[str, Any]:
    """Return a task as `tasks/cancel` shows it: with what still runs of it, if anything does."""
    shown = task_object(task)
    left = [_artifact("residue", what) for what in residue]
    if left:
        shown["artifacts"] = [*shown.get("artifacts", ()), *left]
    return shown


def _artifact(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "parts": [{"text": text}]}


def stopped(session_id: str, canceled: Iterable[str], residue: Iterable[str] = ()) -> dict[str, Any]:
    """Return the result of `session/stop`: the ids of the tasks that it canceled, and what still runs of any."""
    return {"session_id": session_id, "canceled": sorted(canceled), "residue": list(residue)}


def event_frame(event: Event) -> bytes:
    """Return the frame of a numbered event of the log (murmur reference, Streams)."""
    data = event.data
    match event.kind:
        case EventKind.TEXT:
            name, shown = "text", {"id": event.task_id, "text": data["text"], "final": data["final"]}
        case EventKind.THINKING:
            name, shown = "thinking", {"id": event.task_id, "text": data["text"], "final": False}
        case EventKind.TOOL | EventKind.ARTIFACT:
            made = _tool if event.kind is EventKind.TOOL else _made
            name, shown = "artifact", {"id": event.task_id, "artifact": made(data)}
        case _:
            name = "status"
            shown = _status(
                event.task_id, event.context_id, data["state"], data["message"], data.get("response")
            )
    return sse.frame(name, orjson.dumps(shown), event.frame)


def _tool(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "tool_name": data["name"],
        "content": data["content"],
        "fence_source": None,
        "tool_call_id": data["call_id"] or None,
        "is_error": data["is_error"],
        "duration_ms": data["duration_ms"],
        "exit_code": data["exit_code"],
        "truncated": data["truncated"],
    }


def _made(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return an artifact of the worker in the shape that the reference has for tools."""
    return {
        "tool_name": data["name"],
        "content": _joined(data["parts"]),
        "fence_source": None,
        "tool_call_id": None,
        "is_error": False,
        "duration_ms": None,
        "exit_code": None,
        "truncated": False,
    }


def _joined(parts: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(part["text"] for part in parts if type(part.get("text")) is str)


def rejected_frame(task: Task) -> bytes:
    """Return the frame for a task that found no room: it has no number, for nobody else ever sees it."""
    return sse.frame("status", orjson.dumps(_status(task.id, task.context_id, task.state, task.status)))


@cache
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
) -> dict[str, Any]:
    status: dict[str, Any] = {"state": state, "message": message}
    if state is TaskState.COMPLETED:
        status["response"] = response or ""
    return {"id": task_id, "context_id": context_id, "status": status, "final": state in TERMINAL}
