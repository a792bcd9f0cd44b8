"""What streams of one task show is numbered, densely and for good; a stream can be taken up behind any number."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.dialects.a2a03_server import A2A_03
from sidecar.events import Task, TaskState
from sidecar.tasks import machine
from sidecar.tasks.model import Input, State
from sidecar.tasks.said import (
    Artifact,
    Completed,
    Failed,
    InputRequired,
    Reply,
    Status,
    Text,
    Thinking,
    Tool,
    Turn,
)
from tests.support.sessions import capsule, session
from tests.support.working import work
from tests.unit.test_tasks_machine import EMPTY, RULES

if TYPE_CHECKING:
    from sidecar.dialects.a2a_server import Dialect
    from sidecar.events import Event, Record
    from sidecar.tasks.engine import Engine
    from sidecar.tasks.follow import Follower
    from sidecar.tasks.said import Said

QUEUE = capsule(queue_depth=50, concurrency=10)
FIRST = Input("hello", '{"messageId":"m-1","role":"user","parts":[{"text":"hello"}]}')
SECOND = Input("more", '{"messageId":"m-2","parts":[{"text":"more"}]}')
SAID: st.SearchStrategy[Any] = st.sampled_from(
    [
        Text("a"),
        Text(""),
        Thinking("hm"),
        Tool("sh", "ok"),
        Status("at it"),
        Turn(),
        Artifact("r", None, ({"text": "x"},)),
        InputRequired("Which?"),
    ]
)
ENDS = st.sampled_from(
    [Completed(), Completed(""), Completed("a"), Completed("other"), Failed("no"), Reply(({"text": "hi"},))]
)
ALL: list[Said] = [
    Status("reading"),
    Text("one "),
    Thinking("hm"),
    Text("two"),
    Artifact("r", "report", ({"text": "x"},)),
    Turn(),
    Text("draft"),
    Completed("final"),
]


def shown_by(dialect: Dialect, events: list[Event]) -> list[int | None]:
    """Return the numbers of the events that a stream in a dialect shows."""
    begun, found = False, []
    for event in events:
        if event.kind == "status" and "turn" in event.data:
            begun = False
        found += [event.number for _ in dialect.event_results(event, begun=begun)]
        begun = begun or event.kind == "text"
    return found


@given(parts=st.lists(st.lists(SAID, max_size=4), max_size=5), last=ENDS)
def test_numbers_count_what_a_stream_shows(parts: list[list[Said]], last: Said) -> None:
    """From 2 on, each once, in order, whatever is said and in however many pieces it comes."""
    state = State()
    task = Task("tsk_1", "ctx", "ada", TaskState.SUBMITTED, 1.0)
    events: list[Event] = []

    def take(change: Any) -> None:
        state.apply(change)
        events.extend(change.events)

    take(machine.submit(state, task, EMPTY))
    take(machine.hand_out(state, task, 2.0, attempt=True))
    for said in (*parts, [last]):
        if state.live["tsk_1"].state is TaskState.INPUT_REQUIRED:
            take(machine.deliver(state, state.live["tsk_1"], EMPTY, 3.0))
        take(machine.report(state, state.live["tsk_1"], said, 4.0, rules=RULES))
    assert not state.live
    numbered = [event.number for event in events if event.number is not None]
    assert numbered == list(range(2, len(numbered) + 2))
    assert shown_by(A2A_03, events) == numbered


async def record(engine: Engine, task_id: str) -> Record:
    """Return a task's record."""
    known = await engine.telling.record(task_id)
    assert known is not None
    assert known.record is not None
    return known.record


async def rest(follower: Follower) -> list[Event]:
    """Return what comes up to the end of a task."""
    found: list[Event] = []
    while not found or not found[-1].final:
        found += [told.event for told in await follower.next(10.0)]
    follower.close()
    return found


def picture(found: Record) -> tuple[Any, ...]:
    """Return what a record shows: its number, its state, and the text of its reply."""
    text = "".join(a.parts[0]["text"] for a in found.artifacts if a.name == "response")
    return found.number, str(found.task.state), text


async def test_a_task_can_be_followed_from_any_number(tmp_path: Path) -> None:
    """It begins as it was with that one, and goes on with the next; also when it is over, and after a restart."""
    async with session(tmp_path, QUEUE) as s:
        task = await s.engine.send(FIRST, context_id=None, owner="ada")
        worker = await work(s.engine)
        for said in ALL:
            await worker.say(said)
        whole = await record(s.engine, task.id)
        pictures = await followed(s.engine, task.id)
    assert pictures == [
        (1, "submitted", ""),
        (2, "working", ""),
        (3, "working", ""),
        (4, "working", "one "),
        (5, "working", "one two"),
        (6, "working", "one two"),
        (7, "working", "draft"),
        (8, "working", "final"),
        (9, "completed", "final"),
    ]
    assert picture(whole) == pictures[-1]
    assert [state for state, _ in whole.states] == ["submitted", "working", "completed"]
    async with session(tmp_path, QUEUE) as s:
        assert await record(s.engine, task.id) == whole
        assert await followed(s.engine, task.id) == pictures


async def followed(engine: Engine, task_id: str) -> list[tuple[Any, ...]]:
    """Follow a task that is over from each of its numbers; return what it was with each of them."""
    task = await engine.get(task_id)
    assert task is not None
    last = (await record(engine, task_id)).number
    pictures = []
    for number in range(1, last + 1):
        found = await engine.telling.follow_from(task, number)
        assert found is not None
        then, follower = found
        pictures.append(picture(then))
        if number < last:
            numbers = [event.number for event in await rest(follower) if event.number is not None]
            assert numbers == list(range(number + 1, last + 1))
        follower.close()
    assert await engine.telling.follow_from(task, last + 1) is None
    return pictures


async def test_numbers_go_on_after_a_restart_and_after_trimming(tmp_path: Path) -> None:
    """Also those of a task whose events are kept no longer; what it was with one of these cannot be told any more."""
    async with session(tmp_path, QUEUE) as s:
        task = await s.engine.send(FIRST, context_id=None, owner="ada")
        worker = await work(s.engine)
        await worker.say(Text("one "), Text("two "))
    async with session(tmp_path, QUEUE, keep_events=1) as s:
        assert (await record(s.engine, task.id)).number == 4
        await s.engine.resume(task.id)
        other = await s.engine.send(FIRST, context_id=None, owner="ada")
        noisy = await work(s.engine)
        assert noisy.id == other.id
        await noisy.say(*(Status(str(number)) for number in range(1200)))
        await s.engines.trim()
    async with session(tmp_path, QUEUE) as s:
        assert picture(await record(s.engine, task.id)) == (4, "working", "one two ")
        await s.engine.resume(task.id)
        await s.engine.report(task.id, [Text("three"), Completed()])
        whole = await record(s.engine, task.id)
        assert picture(whole) == (7, "completed", "one two three")
        found = await s.engine.get(task.id)
        assert found is not None
        assert await s.engine.telling.follow_from(found, 2) is None
        assert [state for state, _ in whole.states] == ["submitted", "working", "completed"]


async def test_states_are_remembered_with_their_times(tmp_path: Path) -> None:
    """Each change of them once, those inside one report too; saying the same again is none."""
    async with session(tmp_path, QUEUE) as s:
        task = await s.engine.send(FIRST, context_id=None, owner="ada")
        before = await record(s.engine, task.id)
        assert [state for state, _ in before.states] == ["submitted"]
        worker = await work(s.engine)
        await worker.say(Status("at it"), Turn(), InputRequired("Which?"))
        await s.engine.deliver(SECOND, task_id=task.id)
        await worker.say(InputRequired("And?"), Status("never mind"), Completed("done"))
        states = (await record(s.engine, task.id)).states
    assert [state for state, _ in states] == [
        "submitted",
        "working",
        "input-required",
        "working",
        "input-required",
        "working",
        "completed",
    ]
    assert [at for _, at in states] == sorted(at for _, at in states)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("over", [True, False])
async def test_a_place_and_what_follows_it_make_the_whole(data: st.DataObject, *, over: bool) -> None:
    """Whatever was said, and at whatever number a stream is taken up, nothing is missed and nothing comes twice."""
    said = data.draw(st.lists(SAID.filter(lambda one: type(one) is not InputRequired), max_size=8))
    with tempfile.TemporaryDirectory() as place:
        async with session(Path(place), QUEUE) as s:
            task = await s.engine.send(FIRST, context_id=None, owner="ada")
            worker = await work(s.engine)
            await worker.say(*said)
            if over:
                await worker.say(Completed())
            found = await s.engine.get(task.id)
            assert found is not None
            last = (await record(s.engine, task.id)).number
            number = data.draw(st.integers(1, last - over))
            taken = await s.engine.telling.follow_from(found, number)
            assert taken is not None
            if not over:
                await worker.say(Completed())
            events = await rest(taken[1])
    numbers = [event.number for event in events if event.number is not None]
    assert numbers == list(range(number + 1, number + 1 + len(numbers)))
    assert events[-1].final
