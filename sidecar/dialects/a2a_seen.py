"""What a client reads of an A2A server's tasks and updates, alike in both versions but for the words of states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.dialects.agent import KNOWN, ArtifactSeen, PieceSeen, StatusSeen, TaskSeen, plain_parts
from sidecar.dialects.reading import Object, a_text, an_object, maybe_text, objects, text_or

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.dialects.agent import Outgoing, Part

    StateOf = Callable[[Object], str]
    """Returns the state in a status by its name in A2A 0.3."""

NEITHER: Final = "a result is neither a task, a message, nor an update of either kind"


def addressed(message: Outgoing) -> Object:
    """Return the members that say what a message belongs to, and its metadata; those that there are."""
    given = {"contextId": message.context_id, "taskId": message.task_id, "metadata": message.metadata}
    return {key: value for key, value in given.items() if value is not None}


def task_seen(result: object, state_of: StateOf) -> TaskSeen:
    """Read a task. Raises UnreadableError."""
    value = an_object(result, "a task")
    state, message = _status(value, state_of)
    return TaskSeen(
        a_text(value, "id", "a task"),
        text_or(value, "contextId"),
        state,
        message,
        tuple(_artifact(artifact) for artifact in objects(value.get("artifacts"))),
    )


def status_seen(update: Object, state_of: StateOf) -> StatusSeen:
    """Read the update of a status. Raises UnreadableError."""
    state, message = _status(update, state_of)
    return StatusSeen(a_text(update, "taskId", "a status update"), state, message)


def piece_seen(update: Object) -> PieceSeen:
    """Read the update of an artifact. Raises UnreadableError."""
    return PieceSeen(
        a_text(update, "taskId", "an artifact update"),
        _artifact(an_object(update.get("artifact"), "the artifact of an update")),
        append=update.get("append") is True,
        last=update.get("lastChunk") is True,
    )


def _status(holder: Object, state_of: StateOf) -> tuple[str, tuple[Part, ...]]:
    status = an_object(holder.get("status"), "a status")
    state = state_of(status)
    message = status.get("message")
    parts = plain_parts(message.get("parts")) if type(message) is dict else ()
    return state if state in KNOWN else "unknown", parts


def _artifact(value: Object) -> ArtifactSeen:
    parts = plain_parts(value.get("parts"))
    return ArtifactSeen(text_or(value, "artifactId"), maybe_text(value, "name"), parts)
