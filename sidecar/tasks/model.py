"""The values of the engine: rules, inputs, and the state of a session on which decisions rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.events import EventKind, TaskState
from sidecar.model import TaskAcceptance
from sidecar.tracing import HEADER, read_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from sidecar.events import Event, Task
    from sidecar.model import Capsule

MAX_OUTPUT: Final = 16 * 1024 * 1024

_FIRST: Final = (TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.SUBMITTED)
_JOINED: Final = 1024
"""Pieces of text that are kept apart before they are made one."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How many tasks a capsule takes, and what bounds them (murmur reference, `lifecycle`).

    `queue_depth` counts waiting tasks beside the `concurrency` running ones; `max_live` bounds all that live.
    `input_timeout` is the seconds for which a task waits for input, None for ever. `output` is the most bytes of
    text in one turn.
    """

    acceptance: TaskAcceptance = TaskAcceptance.SINGLE
    queue_depth: int = 1
    concurrency: int = 1
    max_live: int = 1000
    input_timeout: float | None = None
    output: int = MAX_OUTPUT

    @classmethod
    def of(cls, capsule: Capsule, *, max_live: int) -> Self:
        """Return the rules of a capsule under its manifest and its settings."""
        lifecycle = capsule.manifest.lifecycle
        command = capsule.settings.command
        return cls(
            lifecycle.task_acceptance,
            lifecycle.queue_depth,
            capsule.settings.concurrency,
            max_live,
            lifecycle.input_timeout_secs,
            MAX_OUTPUT if command is None else command.output,
        )

    @property
    def slots(self) -> int:
        """Tasks that may run at once."""
        return 1 if self.acceptance is TaskAcceptance.SINGLE else self.concurrency


@dataclass(frozen=True, slots=True)
class Input:
    """One message for a task: its text, and the whole of it as it came, in JSON.

    `receipt` is for the view whose door took it: what is to be committed beside it. It is not kept with the message.
    """

    text: str
    json: str
    receipt: object = None

    @classmethod
    def of(cls, json: str) -> Self:
        """Return an input of which only the JSON is kept."""
        return cls(text_of(orjson.loads(json)), json)

    def within(self, trace: str | None) -> Self:
        """Return it with the trace that it belongs to, a member that is kept with the message and not shown with it."""
        if trace is None:
            return self
        start, _, _ = self.json.rpartition("}")
        return replace(self, json=f'{start}{"" if start.endswith("{") else ","}"{HEADER}":"{trace}"}}')

    @property
    def trace(self) -> str | None:
        """The trace that it belongs to."""
        return read_trace(orjson.loads(self.json).get(HEADER))


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message: its parts' texts joined by a newline, parts without text skipped."""
    parts = message.get("parts")
    found = (part.get("text") for part in parts if type(part) is dict) if type(parts) is list else ()
    return "\n".join(text for text in found if type(text) is str)


def input_line(task: Task, given: Input) -> dict[str, Any]:
    """Return an input as workers read it: one object of their protocol (docs/workers.md)."""
    message = orjson.loads(given.json)
    metadata = message.get("metadata")
    trace = read_trace(message.get(HEADER))
    carried = {} if trace is None else {HEADER: trace}
    return {
        "type": "message",
        "text": given.text,
        "messageId": message.get("messageId"),
        "taskId": task.id,
        "contextId": task.context_id,
        "parts": message.get("parts", []),
        "metadata": carried | metadata if type(metadata) is dict else carried,
    }


@dataclass(frozen=True, slots=True)
class Submission:
    """A task that is new, with the message that started it; it came behind the event of the session with this number."""

    task: Task
    given: Input
    behind: int = 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A further message for a task; `seq` is the number of the event that says so, `prompt` what it answers."""

    task_id: str
    seq: int
    given: Input
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A task comes to stand elsewhere; `seq` is the number of the event that says so."""

    task_id: str
    seq: int
    state: TaskState


@dataclass(frozen=True, slots=True)
class Change:
    """What one decision comes to. It is committed as a whole or not at all.

    `generation` is set where the session's own row must be written: with its first task, and when a task ended
    that had run. `handed_out` says that a worker begins with the task that it updates. `moves` are in order.
    """

    submission: Submission | None = None
    updates: tuple[Task, ...] = ()
    events: tuple[Event, ...] = ()
    delivery: Delivery | None = None
    generation: int | None = None
    handed_out: bool = False
    moves: tuple[Move, ...] = ()

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every task that it touches, as it will be."""
        return self.updates if self.submission is None else (self.submission.task, *self.updates)


class Turn:
    """What a task's worker said in the turn it is in, which began with the event of this number.

    `fresh` means that the worker has only just begun. `size` is the bytes of its text so far. `made` has the names
    of the artifacts of all turns by their ids, in the order in which they were begun. `shown` is the `Event.number`
    that the task has come to.
    """

    __slots__ = ("_joined", "_pieces", "began", "fresh", "made", "shown", "size")

    def __init__(
        self, began: int, *, fresh: bool, made: dict[str, str | None] | None = None, shown: int = 1
    ) -> None:
        self.began = began
        self.fresh = fresh
        self.shown = shown
        self.made = {} if made is None else made
        self.size = 0
        self._joined: list[str] = []
        self._pieces: list[str] = []

    def hear(self, kind: EventKind, data: Mapping[str, Any]) -> None:
        """Take in what an event of the turn says; of one that is no text `data` may be left empty."""
        self.fresh = False
        if kind is EventKind.TEXT and not data["final"]:
            self.add(data["text"])
        elif kind is EventKind.ARTIFACT and data:
            self.make(data["artifact_id"], data["name"])

    def make(self, artifact_id: str, name: str | None) -> None:
        """Take in that an artifact was begun, or added to."""
        self.made.setdefault(artifact_id, name)

    def add(self, text: str) -> None:
        """Take in a piece of the reply."""
        self.size += len(text.encode())
        self._pieces.append(text)
        if len(self._pieces) == _JOINED:
            self._joined.append("".join(self._pieces))
            self._pieces.clear()

    @property
    def text(self) -> str:
        """The reply so far."""
        return "".join(self._joined) + "".join(self._pieces)


@dataclass(slots=True)
class State:
    """What decisions of one session rest on: its live tasks in order of arrival, and its counters.

    `seq` and `frame` are the last numbers given, `stored` says whether the session has its row, `last_ended` is
    the task that ended last. `queued` and `waiting` are the ids of those tasks, the oldest first; `turns` belong to
    the tasks that started.
    """

    seq: int = 0
    frame: int = 0
    generation: int = 0
    stored: bool = False
    live: dict[str, Task] = field(default_factory=dict)
    last_ended: str | None = None
    counts: Counter[TaskState] = field(default_factory=Counter)
    queued: dict[str, None] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)

    def admit(self, tasks: Iterable[Task]) -> None:
        """Take up live tasks, in order of arrival."""
        for task in tasks:
            self.live[task.id] = task
            self._count(task)
            if task.state is not TaskState.SUBMITTED:
                self.turns[task.id] = Turn(task.began, fresh=True)
        self.waiting = dict.fromkeys(sorted(self.waiting, key=lambda i: self.live[i].waiting_since or 0.0))

    def apply(self, change: Change) -> None:
        """Make a decision's outcome the ground of the next one."""
        if change.submission is not None:
            self.live[change.submission.task.id] = change.submission.task
            self._count(change.submission.task)
        for task in change.updates:
            self._update(task, fresh=change.handed_out)
        for event in change.events:
            turn = self.turns.get(event.task_id)
            if turn is None:
                continue
            turn.shown = event.number or turn.shown
            if event.seq > turn.began and event.kind is not EventKind.INPUT:
                turn.hear(event.kind, event.data)
        if change.events:
            self.seq = change.events[-1].seq
            self.frame = next((e.frame for e in reversed(change.events) if e.frame is not None), self.frame)
        if change.generation is not None:
            self.generation, self.stored = change.generation, True

    def _count(self, task: Task) -> None:
        self.counts[task.state] += 1
        if task.state is TaskState.SUBMITTED:
            self.queued[task.id] = None
        elif task.state is TaskState.INPUT_REQUIRED:
            self.waiting[task.id] = None

    def _update(self, task: Task, *, fresh: bool) -> None:
        before = self.live[task.id].state
        if before is not task.state:
            self.counts[before] -= 1
            self.queued.pop(task.id, None)
            self.waiting.pop(task.id, None)
        if task.state.terminal:
            del self.live[task.id]
            self.turns.pop(task.id, None)
            self.last_ended = task.id
            return
        self.live[task.id] = task
        if before is not task.state:
            self._count(task)
        turn = self.turns.get(task.id)
        if turn is None or turn.began != task.began:
            made, shown = (None, 1) if turn is None else (turn.made, turn.shown)
            self.turns[task.id] = Turn(task.began, fresh=fresh, made=made, shown=shown)

    def current(self) -> str | None:
        """Return the id of the active task: the oldest that runs, else that waits for input, else that is queued.

        With none alive it is the one that ended last, and None before any task.
        """
        for state in _FIRST:
            if self.counts[state]:
                return next(task.id for task in self.live.values() if task.state is state)
        return self.last_ended
