"""The life of tasks: pure decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.events import Event, Task, TaskState
from sidecar.model import Capsule, CommandSettings, Lifecycle, Manifest, Settings, TaskAcceptance
from sidecar.tasks import machine
from sidecar.tasks.model import MAX_OUTPUT, Change, Input, Rules, State

EMPTY = Input("", "{}")
LIVE = [TaskState.SUBMITTED, TaskState.WORKING, TaskState.INPUT_REQUIRED]


def task(number: int, state: TaskState = TaskState.SUBMITTED) -> Task:
    """Return a task."""
    return Task(f"tsk_{number}", "ctx", "operator", state, float(number))


def state_of(*states: TaskState) -> State:
    """Return a session's state with live tasks in these states."""
    state = State()
    state.admit(task(number, each) for number, each in enumerate(states, 1))
    return state


def held(rules: Rules) -> int:
    """Count how many tasks are taken, one after another, none of them ending."""
    state = State()
    while machine.has_room(state, rules):
        state.apply(machine.submit(state, task(len(state.live) + 1), EMPTY))
    return len(state.live)


@pytest.mark.parametrize(
    ("acceptance", "depth", "expected"),
    [
        (TaskAcceptance.NONE, 5, 0),
        (TaskAcceptance.SINGLE, 5, 1),
        (TaskAcceptance.QUEUE, 0, 0),
        (TaskAcceptance.QUEUE, 1, 2),
        (TaskAcceptance.QUEUE, 3, 4),
    ],
)
def test_a_session_holds_what_its_acceptance_says(
    acceptance: TaskAcceptance, depth: int, expected: int
) -> None:
    """None 0, single 1, a queue its depth and the running one; a queue of depth 0 nothing."""
    assert held(Rules(acceptance, queue_depth=depth)) == expected


def test_concurrency_adds_running_slots() -> None:
    """Three running and two waiting."""
    assert held(Rules(TaskAcceptance.QUEUE, queue_depth=2, concurrency=3)) == 5


@pytest.mark.parametrize("acceptance", [TaskAcceptance.SINGLE, TaskAcceptance.QUEUE])
def test_tasks_over_the_limit_are_no_room(acceptance: TaskAcceptance) -> None:
    """The limit on live tasks goes before everything."""
    assert held(Rules(acceptance, queue_depth=50, max_live=10)) == min(
        10, held(Rules(acceptance, queue_depth=50))
    )
    assert not machine.has_room(state_of(TaskState.INPUT_REQUIRED), Rules(TaskAcceptance.QUEUE, max_live=1))


def test_a_task_that_waits_for_input_holds_no_running_slot() -> None:
    """In a queue the next ones are taken as if it were not there; a `single` capsule is taken by it."""
    waiting = state_of(TaskState.INPUT_REQUIRED, TaskState.INPUT_REQUIRED)
    assert machine.has_room(waiting, Rules(TaskAcceptance.QUEUE))
    assert not machine.has_room(waiting, Rules(TaskAcceptance.SINGLE))


def test_more_running_tasks_than_slots_do_not_eat_the_queue() -> None:
    """Input that comes while all slots run is worked on at once: the waiting places stay."""
    busy = state_of(TaskState.WORKING, TaskState.WORKING, TaskState.SUBMITTED)
    assert machine.has_room(busy, Rules(TaskAcceptance.QUEUE, queue_depth=2))
    assert not machine.has_room(busy, Rules(TaskAcceptance.QUEUE, queue_depth=1))


def test_rules_come_from_the_manifest_and_the_settings() -> None:
    """Acceptance, depth and the time for input are the manifest's, the rest the operator's."""
    lifecycle = Lifecycle(task_acceptance=TaskAcceptance.QUEUE, queue_depth=7, input_timeout_secs=5)
    settings = Settings(concurrency=3, command=CommandSettings(("x",), output=99))
    capsule = Capsule("a", "/c", "ses_1", Manifest("a", "1", lifecycle=lifecycle), settings, "/c", 0.0)
    assert Rules.of(capsule, max_live=9) == Rules(TaskAcceptance.QUEUE, 7, 3, 9, 5, 99)
    plain = Capsule("a", "/c", "ses_1", Manifest("a", "1"), Settings(), "/c", 0.0)
    assert Rules.of(plain, max_live=9).output == MAX_OUTPUT


def test_the_first_task_brings_the_session_into_the_log() -> None:
    """Only the first."""
    state = State()
    first = machine.submit(state, task(1), EMPTY)
    assert first.generation == 0
    state.apply(first)
    assert machine.submit(state, task(2), EMPTY).generation is None


def test_a_submission_is_no_event() -> None:
    """The first numbered frame of a session is the first task's first status."""
    state = State()
    change = machine.submit(state, task(1), EMPTY)
    state.apply(change)
    assert (change.events, state.seq, state.frame) == ((), 0, 0)


@pytest.mark.parametrize(
    ("before", "status", "generation"),
    [
        (TaskState.SUBMITTED, "task canceled before it started", None),
        (TaskState.WORKING, "task canceled", 1),
        (TaskState.INPUT_REQUIRED, "task canceled", 1),
    ],
)
def test_a_cancel_says_whether_the_task_had_started(
    before: TaskState, status: str, generation: int | None
) -> None:
    """And only tasks that ran count for the generation."""
    state = state_of(before)
    change = machine.cancel(state, tuple(state.live.values()), 5.0)
    (ended,) = change.updates
    (event,) = change.events
    assert (ended.state, ended.status, ended.output, ended.ended_at) == (
        TaskState.CANCELED,
        status,
        None,
        5.0,
    )
    assert (event.frame, event.data) == (1, {"state": TaskState.CANCELED, "message": status})
    assert change.generation == generation


def test_decisions_change_nothing_until_they_are_applied() -> None:
    """The same question gives the same answer."""
    state = state_of(*LIVE)
    live = tuple(state.live.values())
    assert machine.cancel(state, live, 1.0) == machine.cancel(state, live, 1.0)
    assert len(state.live) == 3


def test_a_rejected_task_says_that_the_capsule_is_busy() -> None:
    """It has ended as it began."""
    rejected = machine.rejected(task(1))
    assert (rejected.state, rejected.status) == (TaskState.REJECTED, "task rejected: capsule is busy")


@pytest.mark.parametrize(
    ("states", "current"),
    [
        ([], None),
        ([TaskState.SUBMITTED, TaskState.SUBMITTED], "tsk_1"),
        ([TaskState.SUBMITTED, TaskState.INPUT_REQUIRED], "tsk_2"),
        ([TaskState.INPUT_REQUIRED, TaskState.SUBMITTED, TaskState.WORKING], "tsk_3"),
    ],
)
def test_the_active_task_is_the_one_that_runs_or_is_next(
    states: list[TaskState], current: str | None
) -> None:
    """Running before waiting before queued, the oldest of each."""
    assert state_of(*states).current() == current


def test_with_none_alive_the_active_task_is_the_last_that_ended() -> None:
    """Not the last that came."""
    state = state_of(TaskState.WORKING, TaskState.SUBMITTED)
    for task_id in ("tsk_2", "tsk_1"):
        state.apply(machine.cancel(state, (state.live[task_id],), 1.0))
    assert state.current() == "tsk_1"


@given(st.lists(st.sampled_from(["submit", "cancel first", "cancel all"])))
def test_numbers_stay_dense_and_counts_true_whatever_happens(commands: list[str]) -> None:
    """The counters are what the live tasks say, each task has exactly one final event, numbers go up by one."""
    state, rules = State(), Rules(TaskAcceptance.QUEUE, queue_depth=3)
    events: list[Event] = []
    came = 0
    for command in commands:
        live = tuple(state.live.values())
        if command != "submit":
            change = machine.cancel(state, live if command == "cancel all" else live[:1], 1.0)
        elif machine.has_room(state, rules):
            came += 1
            change = machine.submit(state, task(came), EMPTY)
        else:
            continue
        state.apply(change)
        events += change.events
        assert all(
            count == len([t for t in state.live.values() if t.state is s])
            for s, count in state.counts.items()
        )
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    ended = [e for e in events if e.frame is not None]
    assert [e.frame for e in ended] == list(range(1, len(ended) + 1))
    assert len({e.task_id for e in ended}) == len(ended) == came - len(state.live)


def test_an_update_that_ends_nothing_moves_the_task_to_its_new_state() -> None:
    """Counters follow."""
    state = state_of(TaskState.SUBMITTED)
    state.apply(Change(updates=(replace(task(1), state=TaskState.WORKING),)))
    assert state.counts[TaskState.WORKING] == 1
    assert state.counts[TaskState.SUBMITTED] == 0
