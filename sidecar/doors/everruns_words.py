"""What sessions of the Everruns view say of a change of tasks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.dialects import everruns
from sidecar.dialects.redaction import redacted
from sidecar.events import EventKind, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.events import Event
    from sidecar.tasks.model import Change, Input

REPLY: Final = "reply"
"""What tells the one reply of a task from the questions that it asks, each by its number."""
FAILED: Final = "task_failed"
REJECTED: Final = "task_rejected"
_CODES: Final = {
    "input-timeout": "input_timeout",
    "worker lost": "worker_lost",
    "session ended": "agent_stopped",
}
"""Codes of failures that the sidecar itself tells in these words."""


@dataclass(frozen=True, slots=True)
class Saying:
    """An event that is to be numbered; `at` is Unix seconds."""

    context_id: str
    task_id: str
    type: str
    at: float
    data: dict[str, Any]


def said(change: Change) -> Iterator[Saying]:
    """Yield what a change says to sessions, in order; what concerns no context that could be a session is left out."""
    new = change.submission
    if new is not None and everruns.is_session_id(new.task.context_id):
        yield _input(new.task.context_id, new.task.id, new.task.created_at, new.given)
    for event in change.events:
        if not everruns.is_session_id(event.context_id):
            continue
        if event.kind is EventKind.INPUT:
            if (delivery := change.delivery) is not None:
                yield _input(event.context_id, event.task_id, event.at, delivery.given)
        elif event.kind is EventKind.TEXT:
            if event.data["text"] and not event.data["final"]:
                message = everruns.message_id(event.task_id, REPLY)
                yield _of(event, everruns.DELTA, message_id=message, delta=event.data["text"])
        elif event.kind is EventKind.STATUS:
            yield from _status(event)


def turn_words(given: Input) -> tuple[str | None, dict[str, Any]]:
    """Return the context of a message that came, and the message as sessions show it."""
    message = orjson.loads(given.json)
    parts = message.get("parts")
    found = [part.get("text") for part in parts if type(part) is dict] if type(parts) is list else []
    texts = [text for text in found if type(text) is str]
    identity = message.get("messageId")
    shown = everruns.message(identity if type(identity) is str else "", "user", texts or [given.text])
    return message.get("contextId"), shown


def _input(context_id: str, task_id: str, at: float, given: Input) -> Saying:
    _, message = turn_words(given)
    data = {"turn_id": everruns.turn_id(task_id), "message": message}
    return Saying(context_id, task_id, everruns.INPUT, at, data)


def _status(event: Event) -> Iterator[Saying]:
    data = event.data
    match data["state"]:
        case TaskState.WORKING:
            if data.get("turn") == 1:
                yield _of(event, everruns.STARTED)
        case TaskState.INPUT_REQUIRED:
            yield _output(event, f"question {event.seq}", data["message"])
        case TaskState.COMPLETED:
            yield _output(event, REPLY, data["response"])
            yield _of(event, everruns.COMPLETED)
        case TaskState.CANCELED:
            yield _of(event, everruns.CANCELLED)
        case TaskState.FAILED | TaskState.REJECTED as state:
            text = data["message"]
            code = _CODES.get(text, FAILED if state is TaskState.FAILED else REJECTED)
            yield _of(event, everruns.FAILED, error_code=code, error=redacted(text))


def _output(event: Event, what: str, text: str) -> Saying:
    message = everruns.message(everruns.message_id(event.task_id, what), "agent", (text,))
    return _of(event, everruns.OUTPUT, message=message)


def _of(event: Event, kind: str, **more: Any) -> Saying:
    data = {"turn_id": everruns.turn_id(event.task_id), **more}
    return Saying(event.context_id, event.task_id, kind, event.at, data)
