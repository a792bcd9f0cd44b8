"""Tasks and what happens to them, as values in no dialect: what the log keeps and every door reads."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class TaskState(StrEnum):
    """Where a task stands. The last four are final (murmur reference, Tasks)."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    COMPLETED = "completed"
    FAILED = "failed"
    REJECTED = "rejected"
    CANCELED = "canceled"

    @property
    def terminal(self) -> bool:
        """Whether nothing can follow."""
        return self in TERMINAL


TERMINAL: Final = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED})


@dataclass(frozen=True, slots=True)
class Task:
    """One task as it stands. Times are Unix seconds.

    `status` is the text of its last status, `output` the reply of a task that is over, as far as it came, or the prompt
    of a waiting one, `owner` the caller it belongs to. `ended_at` is None while it lives, `waiting_since` unless it waits for input,
    `status_at`, when its last status came, until the first one comes.
    `turn` and `attempt` count from 1 once it has started; `began` is the number of the event its turn began with.
    `note` is whatever its backend wants to find again after a restart.
    """

    id: str
    context_id: str
    owner: str
    state: TaskState
    created_at: float
    status: str | None = None
    output: str | None = None
    ended_at: float | None = None
    waiting_since: float | None = None
    turn: int = 0
    attempt: int = 0
    began: int = 0
    note: str | None = None
    status_at: float | None = None


class EventKind(StrEnum):
    """What an event says, and the keys of its `data`.

    - `input`: a further message came for the task; no keys, the message itself is kept beside the events
    - `status`: `state`, `message`, `response` where the state is completed, and `turn` where it begins one: its number
    - `text`: `text`, `final`: a piece of the reply; final on the last one, which is the whole where none came before.
      That one has `whole` as well where the reply is another text than the pieces before it
    - `thinking`: `text`: a piece of the reasoning
    - `tool`: `name`, `content`, `call_id`, `is_error`, `duration_ms`, `exit_code`, `truncated`
    - `artifact`: `name`, `artifact_id`, `parts`, `append`, `last`; the id is always there, and whatever is to be added
      to was begun before
    - `reply`: `parts`: the task's call is answered with this message instead of a task, where a dialect can; `first`
      says whether the worker had said nothing before
    """

    INPUT = "input"
    STATUS = "status"
    TEXT = "text"
    THINKING = "thinking"
    TOOL = "tool"
    ARTIFACT = "artifact"
    REPLY = "reply"


NUMBERED: Final = frozenset(EventKind) - {EventKind.INPUT, EventKind.REPLY}
"""The kinds that murmur streams show, and therefore number (murmur reference, Streams)."""
SHOWN: Final = frozenset({EventKind.STATUS, EventKind.TEXT, EventKind.ARTIFACT})
"""The kinds that streams of one task show (A2A 1.0 section 4.2), and that `Event.number` counts."""


@dataclass(frozen=True, slots=True)
class Event:
    """One fact of a session as the log keeps it.

    `seq` counts all events of the session from 1; `frame` is the murmur id, from 1 over the numbered kinds alone and
    None for the others. `number` counts what streams of the task alone show of it: the task itself is 1, so that it
    begins with 2; None for what they leave out. `at` is Unix seconds.
    """

    seq: int
    frame: int | None
    task_id: str
    context_id: str
    kind: EventKind
    data: Mapping[str, Any]
    at: float
    number: int | None = None

    @property
    def final(self) -> bool:
        """Whether its task ends with it."""
        return self.kind is EventKind.STATUS and self.data["state"] in TERMINAL


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a task's conversation.

    `role` is `user` or `agent`. A part holds exactly one of `text`, `raw` (base64), `url` and `data`, and perhaps
    `filename`, `mediaType` and `metadata`.
    """

    role: str
    id: str
    parts: tuple[Mapping[str, Any], ...]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """One artifact of a task, put together from its updates; its id stays the same for as long as its task is kept."""

    id: str
    name: str | None
    parts: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A task with all that was said and made in it: what dialects show that keep these with the task (A2A).

    `status_at` is when its last status came, or else the task, in Unix seconds. `history` is in order; a prompt is
    there once it is answered. `artifacts` begins with the text of the reply, as far as it has come. `reply` holds
    the parts of a worker's `message` that came as the first thing it said, None where none did. `number` is the
    newest `Event.number` in it, `states` where the task stood so far, each with its time, the oldest first.
    """

    task: Task
    status_at: float
    history: tuple[Message, ...]
    artifacts: tuple[ArtifactRecord, ...]
    reply: tuple[Mapping[str, Any], ...] | None = None
    number: int = 1
    states: tuple[tuple[TaskState, float], ...] = ()
