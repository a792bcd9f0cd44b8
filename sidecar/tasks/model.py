"""The life of tasks as a pure state machine: decisions read the state and change nothing, `State.apply` does.

A decision is a `Change`: the tasks as they will be and the events that say so, numbered. The engine applies it at
once, so that the next decision builds on it, and shows it to nobody before it is committed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from sidecar.model import Event, Task, TaskAcceptance, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from sidecar.model import Capsule

BUSY: Final = "task rejected: capsule is busy"
CANCELED: Final = "task canceled"
CANCELED_BEFORE_START: Final = "task canceled before it started"

_FIRST: Final = (TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.SUBMITTED)


@dataclass(frozen=True, slots=True)
class Rules:
    """How many tasks a capsule takes (murmur reference, `lifecycle`).

    `queue_depth` counts waiting tasks beside the `concurrency` running ones; `max_live` bounds all that live.
    """

    acceptance: TaskAcceptance = TaskAcceptance.SINGLE
    queue_depth: int = 1
    concurrency: int = 1
    max_live: int = 1000

    @classmethod
    def of(cls, capsule: Capsule, *, max_live: int) -> Self:
        """Return the rules of a capsule under its manifest and its settings."""
        lifecycle = capsule.manifest.lifecycle
        return cls(lifecycle.task_acceptance, lifecycle.queue_depth, capsule.settings.concurrency, max_live)


@dataclass(frozen=True, slots=True)
class Submission:
    """A task that is new, with the message that started it as JSON."""

    task: Task
    request: str


@dataclass(frozen=True, slots=True)
class Change:
    """What one decision comes to. It is committed as a whole or not at all.

    `generation` is set where the session's own row must be written: with its first task, and when a task ended
    that had run.
    """

    submission: Submission | None = None
    updates: tuple[Task, ...] = ()
    events: tuple[Event, ...] = ()
    generation: int | None = None

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every task that it touches, as it will be."""
        return self.updates if self.submission is None else (self.submission.task, *self.updates)


@dataclass(slots=True)
class State:
    """What decisions of one session rest on: its live tasks in order of arrival, and its counters.

    `seq` and `frame` are the last numbers given, `stored` says whether the session has its row, `last_ended` is
    the task that ended last.
    """

    seq: int = 0
    frame: int = 0
    generation: int = 0
    stored: bool = False
    live: dict[str, Task] = field(default_factory=dict)
    last_ended: str | None = None
    counts: Counter[TaskState] = field(default_factory=Counter)

    def admit(self, tasks: Iterable[Task]) -> None:
        """Take up live tasks, in order of arrival."""
        for task in tasks:
            self.live[task.id] = task
            self.counts[task.state] += 1

    def apply(self, change: Change) -> None:
        """Make a decision's outcome the ground of the next one."""
        if change.submission is not None:
            self.admit((change.submission.task,))
        for task in change.updates:
            self.counts[self.live[task.id].state] -= 1
            if task.state.terminal:
                del self.live[task.id]
                self.last_ended = task.id
            else:
                self.live[task.id] = task
                self.counts[task.state] += 1
        if change.events:
            self.seq, self.frame = change.events[-1].seq, change.events[-1].frame
        if change.generation is not None:
            self.generation, self.stored = change.generation, True

    def current(self) -> str | None:
        """Return the id of the active task: the oldest that runs, else that waits for input, else that is queued.

        With none alive it is the one that ended last, and None before any task.
        """
        for state in _FIRST:
            if self.counts[state]:
                return next(task.id for task in self.live.values() if task.state is state)
        return self.last_ended


def has_room(state: State, rules: Rules) -> bool:
    """Whether one more task is taken (murmur reference, `task_acceptance` and `queue_depth`).

    A task that waits for input holds no running slot; a queue of depth 0 takes nothing.
    """
    if len(state.live) >= rules.max_live or rules.acceptance is TaskAcceptance.NONE:
        return False
    if rules.acceptance is TaskAcceptance.SINGLE:
        return not state.live
    free = max(0, rules.concurrency - state.counts[TaskState.WORKING])
    return rules.queue_depth > 0 and state.counts[TaskState.SUBMITTED] < free + rules.queue_depth


def submit(state: State, task: Task, request: str) -> Change:
    """Decide that a new task is taken; no frame says so, its first one comes when it starts."""
    return Change(Submission(task, request), generation=None if state.stored else state.generation)


def rejected(task: Task) -> Task:
    """Return the task that found no room: it is answered, and kept nowhere."""
    return replace(task, state=TaskState.REJECTED, status=BUSY, ended_at=task.created_at)


def cancel(state: State, tasks: Iterable[Task], at: float) -> Change:
    """Decide that live tasks are canceled, each with its one final event, in the order given."""
    ended = []
    events = []
    generation = state.generation
    for number, task in enumerate(tasks, 1):
        ran = task.state is not TaskState.SUBMITTED
        generation += ran
        over = replace(
            task,
            state=TaskState.CANCELED,
            status=CANCELED if ran else CANCELED_BEFORE_START,
            output=None,
            ended_at=at,
        )
        ended.append(over)
        events.append(_event(state, number, over, at))
    changed = None if generation == state.generation else generation
    return Change(updates=tuple(ended), events=tuple(events), generation=changed)


def _event(state: State, number: int, task: Task, at: float) -> Event:
    return Event(
        seq=state.seq + number,
        frame=state.frame + number,
        task_id=task.id,
        context_id=task.context_id,
        state=task.state,
        status=task.status or "",
        output=task.output,
        at=at,
    )
