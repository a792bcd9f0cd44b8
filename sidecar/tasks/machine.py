"""The life of tasks as a pure state machine: decisions read the state and change nothing, `State.apply` does.

A decision is a `Change`: the tasks as they will be and the events that say so, numbered. The engine applies it at
once, so that the next decision builds on it, and shows it to nobody before it is committed.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from sidecar.events import NUMBERED, SHOWN, Event, EventKind, Task, TaskState
from sidecar.model import TaskAcceptance
from sidecar.tasks import said
from sidecar.tasks.model import Change, Delivery, Move, Submission

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecar.tasks.model import Input, Rules, State
    from sidecar.tasks.said import Said

BUSY: Final = "task rejected: capsule is busy"
CANCELED: Final = "task canceled"
CANCELED_BEFORE_START: Final = "task canceled before it started"
ENDED: Final = "session ended"
INPUT_TIMEOUT: Final = "input-timeout"
RESUMED: Final = "resumed"
TURN: Final = "inference turn {}"
TOO_MUCH: Final = "the reply is over the limit of {} bytes"


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


def next_queued(state: State, rules: Rules) -> Task | None:
    """Return the task that may start now: the oldest queued one, while fewer run than may."""
    if not state.queued or state.counts[TaskState.WORKING] >= rules.slots:
        return None
    return state.live[next(iter(state.queued))]


def submit(state: State, task: Task, given: Input) -> Change:
    """Decide that a new task is taken; no event says so, its first one comes when it starts."""
    new = Submission(task, given, state.seq)
    return Change(new, generation=None if state.stored else state.generation)


def rejected(task: Task) -> Task:
    """Return the task that found no room: it is answered, and kept nowhere."""
    return replace(task, state=TaskState.REJECTED, status=BUSY, ended_at=task.created_at)


def hand_out(state: State, task: Task, at: float, *, attempt: bool) -> Change:
    """Decide that a worker begins with a task, which begins a turn; `attempt` counts it as one."""
    draft = _Draft(state, at)
    draft.task = task
    draft.begin_turn(attempt=task.attempt + attempt)
    return draft.change(handed_out=True)


def deliver(state: State, task: Task, given: Input, at: float) -> Change:
    """Decide that a task gets the input that it waits for."""
    draft = _Draft(state, at)
    draft.task = task
    delivery = Delivery(task.id, draft.event(EventKind.INPUT, {}), given, task.output)
    draft.working(RESUMED)
    return replace(draft.change(), delivery=delivery)


def report(
    state: State, task: Task, lines: Iterable[Said], at: float, *, rules: Rules, note: str | None = None
) -> Change:
    """Decide what comes of what a worker said of a task that started; nothing follows a final one.

    `note`, if given, takes the place of the task's.
    """
    draft = _Report(state, task, at, rules.output)
    if note is not None:
        draft.task = replace(task, note=said.clean(note))
    for each in lines:
        draft.say(each)
        if draft.task.state.terminal:
            break
    return draft.change()


def end(state: State, tasks: Iterable[Task], ending: TaskState, message: str, at: float) -> Change:
    """Decide that live tasks end in this way, each with its one final event, in the order given."""
    draft = _Draft(state, at)
    for task in tasks:
        draft.task = task
        draft.end(ending, said.clean(message))
    return draft.change()


def cancel(state: State, tasks: Iterable[Task], at: float) -> Change:
    """Decide that live tasks are canceled, each with its one final event, in the order given."""
    draft = _Draft(state, at)
    for task in tasks:
        draft.task = task
        draft.end(
            TaskState.CANCELED, CANCELED if task.state is not TaskState.SUBMITTED else CANCELED_BEFORE_START
        )
    return draft.change()


def _members(each: said.Tool | said.Artifact) -> dict[str, Any]:
    return said.checked({field.name: getattr(each, field.name) for field in fields(each)})


class _Draft:
    """A change in the making. `task` is the one that it is about, as it stands in it."""

    task: Task

    def __init__(self, state: State, at: float) -> None:
        self._state = state
        self._at = at
        self._frame = state.frame
        self._generation = state.generation
        self._events: list[Event] = []
        self._updates: dict[str, Task] = {}
        self._shown: dict[str, int] = {}
        self._moves: list[Move] = []
        self._stands: dict[str, TaskState] = {}

    def change(self, *, handed_out: bool = False) -> Change:
        """Return what it has come to."""
        return Change(
            updates=tuple(self._updates.values()),
            events=tuple(self._events),
            generation=None if self._generation == self._state.generation else self._generation,
            handed_out=handed_out,
            moves=tuple(self._moves),
        )

    @property
    def seq(self) -> int:
        """The number of its last event."""
        return self._state.seq + len(self._events)

    def event(self, kind: EventKind, data: Mapping[str, Any], *, shown: bool = True) -> int:
        """Add an event of the task and return its number; `shown` False keeps it from streams of the task alone."""
        task = self.task
        frame = number = None
        if kind in NUMBERED:
            frame = self._frame = self._frame + 1
        if kind is EventKind.STATUS:
            # no later turn than the first is anything that such streams know of
            shown = data.get("turn", 1) == 1
            if self._stands.get(task.id, self._state.live[task.id].state) is not data["state"]:
                self._stands[task.id] = data["state"]
                self._moves.append(Move(task.id, self.seq + 1, data["state"]))
        if shown and kind in SHOWN:
            number = self._shown[task.id] = self._shown_of(task) + 1
        self._events.append(
            Event(self.seq + 1, frame, task.id, task.context_id, kind, data, self._at, number)
        )
        return self.seq

    def _shown_of(self, task: Task) -> int:
        turn = self._state.turns.get(task.id)
        return self._shown.get(task.id) or (1 if turn is None else turn.shown)

    def update(self, task: Task) -> None:
        """Have the task be so."""
        self.task = self._updates[task.id] = task

    def working(self, message: str, **more: int) -> int:
        """Say that the task is worked on; whatever it waited for, it waits no longer."""
        self.update(
            replace(
                self.task,
                state=TaskState.WORKING,
                status=message,
                output=None,
                waiting_since=None,
                status_at=self._at,
            )
        )
        return self.event(EventKind.STATUS, {"state": TaskState.WORKING, "message": message, **more})

    def begin_turn(self, *, attempt: int) -> None:
        """Begin the task's next turn."""
        turn = self.task.turn + 1
        began = self.working(TURN.format(turn), turn=turn)
        self.update(replace(self.task, turn=turn, attempt=attempt, began=began))

    def end(
        self, ending: TaskState, message: str, response: str | None = None, *, by_worker: bool = False
    ) -> None:
        """End the task, which keeps what its worker had said of its reply where it is not completed.

        Its note stays where its worker did not end it, and may have to hear of that.
        """
        self._generation += self.task.state is not TaskState.SUBMITTED
        data: dict[str, Any] = {"state": ending, "message": message}
        if ending is TaskState.COMPLETED:
            data["response"] = response or ""
        self.event(EventKind.STATUS, data)
        self.update(
            replace(
                self.task,
                state=ending,
                status=message,
                output=response if ending is TaskState.COMPLETED else self._reply() or None,
                ended_at=self._at,
                waiting_since=None,
                note=None if by_worker else self.task.note,
                status_at=self._at,
            )
        )

    def _reply(self) -> str:
        """Return the text of the reply so far."""
        turn = self._state.turns.get(self.task.id)
        return "" if turn is None else turn.text


class _Report(_Draft):
    """A change made of what one worker said."""

    def __init__(self, state: State, task: Task, at: float, limit: int) -> None:
        super().__init__(state, at)
        self.task = task
        self._turn = state.turns[task.id]
        self._same_turn = True
        self._size = self._turn.size
        self._limit = limit
        self._texts: list[str] = []
        self._made: dict[str, str | None] = {}

    def change(self, *, handed_out: bool = False) -> Change:
        """Return what it has come to; a note alone changes the task as well."""
        if self.task is not self._state.live[self.task.id]:
            self._updates[self.task.id] = self.task
        return super().change(handed_out=handed_out)

    def say(self, each: Said) -> None:
        """Take in one thing that the worker said. Raises NotSaidError for what no JSON can hold."""
        match each:
            case said.Text(text):
                self._text(said.clean(text))
            case said.Thinking(text):
                if text:
                    self.event(EventKind.THINKING, {"text": said.clean(text)})
            case said.Tool():
                self.event(EventKind.TOOL, _members(each))
            case said.Artifact():
                self._make(each)
            case said.Status(message):
                self.working(said.clean(message))
            case said.InputRequired(prompt):
                self._wait(said.clean(prompt))
            case said.Turn():
                if not self._says_its_first:
                    self._next_turn()
            case _:
                self._say_last(each)

    def _say_last(self, each: said.Reply | said.Completed | said.Failed | said.Rejected) -> None:
        match each:
            case said.Reply(parts):
                first = self.task.turn == 1 and self._says_its_first
                self.event(EventKind.REPLY, said.checked({"parts": parts, "first": first}))
                self._complete(said.texts(parts))
            case said.Completed(response):
                self._complete(None if response is None else said.clean(response))
            case said.Failed(message):
                self.end(TaskState.FAILED, said.clean(message), by_worker=True)
            case said.Rejected(message):
                self.end(TaskState.REJECTED, said.clean(message), by_worker=True)

    @property
    def _says_its_first(self) -> bool:
        """Whether the worker has said nothing yet in its turn."""
        return self._turn.fresh and self.seq == self._state.seq

    def _make(self, artifact: said.Artifact) -> None:
        """Add what was made; without an id it belongs to the artifact begun last of its name, or is one of its own."""
        made = artifact.artifact_id or None
        if made is None and artifact.append:
            last_first = (pair for all_ in (self._made, self._turn.made) for pair in reversed(all_.items()))
            made = next((i for i, name in last_first if artifact.name in (None, name)), None)
        identity = f"art_{self.task.id}_{self.seq + 1}" if made is None else said.clean(made)
        begun = identity in self._made or identity in self._turn.made
        data = _members(artifact) | {"artifact_id": identity, "append": artifact.append and begun}
        self.event(EventKind.ARTIFACT, data)
        self._made.setdefault(identity, artifact.name)

    def _text(self, text: str) -> None:
        if not text:
            return
        self._size += len(text.encode())
        if self._size > self._limit:
            self._overflow()
            return
        self._texts.append(text)
        self.event(EventKind.TEXT, {"text": text, "final": False})

    def _next_turn(self) -> None:
        self.begin_turn(attempt=self.task.attempt)
        self._same_turn = False
        self._size = 0
        self._texts.clear()

    def _wait(self, prompt: str) -> None:
        self.update(
            replace(
                self.task,
                state=TaskState.INPUT_REQUIRED,
                status=prompt,
                output=prompt,
                waiting_since=self.task.waiting_since or self._at,
                status_at=self._at,
            )
        )
        self.event(EventKind.STATUS, {"state": TaskState.INPUT_REQUIRED, "message": prompt})

    def _complete(self, response: str | None) -> None:
        """Split the end in two, as every view wants it: the last of the text, and the status."""
        text = self._reply()
        if response is None:
            response = text
        elif len(response.encode()) > self._limit:
            self._overflow()
            return
        last: dict[str, Any] = {"text": "" if self._size else response, "final": True}
        if self._size and response != text:
            last["whole"] = response
        self.event(EventKind.TEXT, last, shown=bool(self._size or response))
        self.end(TaskState.COMPLETED, ENDED, response, by_worker=True)

    def _reply(self) -> str:
        return (self._turn.text if self._same_turn else "") + "".join(self._texts)

    def _overflow(self) -> None:
        self.end(TaskState.FAILED, TOO_MUCH.format(self._limit))
