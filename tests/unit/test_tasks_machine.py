"""What comes of what workers say: pure decisions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.events import EventKind, Task, TaskState
from sidecar.model import TaskAcceptance
from sidecar.tasks import machine
from sidecar.tasks.model import Input, Rules, State, input_line
from sidecar.tasks.said import (
    Artifact,
    Completed,
    Failed,
    InputRequired,
    NotSaidError,
    Rejected,
    Reply,
    Status,
    Text,
    Thinking,
    Tool,
    Turn,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.events import Event
    from sidecar.tasks.model import Change
    from sidecar.tasks.said import Said

EMPTY = Input("", "{}")
RULES = Rules(TaskAcceptance.QUEUE)


class Life:
    """One task from its submission on, and all that was logged."""

    def __init__(self, rules: Rules = RULES, *, claimed: bool = True) -> None:
        self.rules = rules
        self.state = State()
        self.events: list[Event] = []
        self.task = Task("tsk_1", "ctx", "operator", TaskState.SUBMITTED, 1.0)
        self.take(machine.submit(self.state, self.task, EMPTY))
        if claimed:
            self.claim()

    def take(self, change: Any) -> None:
        """Apply a decision."""
        self.state.apply(change)
        self.events += change.events
        for task in change.updates:
            self.task = task

    def claim(self, *, attempt: bool = True) -> None:
        """Have a worker begin."""
        self.take(machine.hand_out(self.state, self.task, 2.0, attempt=attempt))

    def say(self, *said: Said, note: str | None = None) -> None:
        """Have the worker say this in one go."""
        self.take(machine.report(self.state, self.task, said, 3.0, rules=self.rules, note=note))

    def answer(self) -> None:
        """Deliver input."""
        self.take(machine.deliver(self.state, self.task, EMPTY, 4.0))

    def shown(self, begin: int = 0) -> list[tuple[str, object]]:
        """Return what was logged, shortened: kinds, and texts or messages."""
        return [
            (event.kind.value, event.data.get("text", event.data.get("message")))
            for event in self.events[begin:]
        ]

    def ended(self) -> tuple[str | None, ...]:
        """The state, status and output of the task."""
        return str(self.task.state), self.task.status, self.task.output


def test_a_started_task_begins_its_first_turn() -> None:
    """That is its first frame."""
    life = Life()
    (event,) = life.events
    assert (event.seq, event.frame, event.final) == (1, 1, False)
    assert event.data == {"state": TaskState.WORKING, "message": "inference turn 1", "turn": 1}
    assert (life.task.state, life.task.turn, life.task.attempt, life.task.began) == ("working", 1, 1, 1)


def test_turns_count_up_and_the_first_one_begins_by_itself() -> None:
    """A `turn` before any other line changes nothing."""
    life = Life()
    life.say(Turn())
    life.say(Turn(), Thinking("hm"), Turn())
    life.say(Turn())
    assert life.shown() == [
        ("status", "inference turn 1"),
        ("thinking", "hm"),
        ("status", "inference turn 2"),
        ("status", "inference turn 3"),
    ]


def test_each_attempt_begins_a_new_turn_in_which_the_same_holds() -> None:
    """What was said in the one before is no part of its reply."""
    life = Life()
    life.say(Text("lost"))
    life.claim()
    life.say(Turn(), Text("found"), Completed())
    assert life.shown(2) == [
        ("status", "inference turn 2"),
        ("text", "found"),
        ("text", ""),
        ("status", "session ended"),
    ]
    assert life.ended() == ("completed", "session ended", "found")
    assert life.task.attempt == 2


def test_a_worker_that_takes_over_after_input_is_no_further_attempt() -> None:
    """It begins a turn like any other."""
    life = Life()
    life.say(InputRequired("Which?"))
    life.answer()
    life.claim(attempt=False)
    assert (life.task.turn, life.task.attempt) == (2, 1)


def test_a_reply_that_was_streamed_ends_with_an_empty_text() -> None:
    """And the status has the whole."""
    life = Life()
    life.say(Text("a"), Text(""), Text("b"))
    life.say(Text("c"), Completed())
    assert life.shown(1) == [
        ("text", "a"),
        ("text", "b"),
        ("text", "c"),
        ("text", ""),
        ("status", "session ended"),
    ]
    assert [event.data.get("final") for event in life.events[1:5]] == [False, False, False, True]
    assert life.events[-1].data["response"] == life.task.output == "abc"
    assert [event.frame for event in life.events] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("response", ["the whole", "", None])
def test_a_reply_that_was_not_streamed_is_one_text(response: str | None) -> None:
    """Final, also when it is empty."""
    life = Life()
    life.say(Completed(response))
    assert life.shown(1) == [("text", response or ""), ("status", "session ended")]
    assert life.events[1].data["final"]
    assert life.ended() == ("completed", "session ended", response or "")


def test_a_response_of_its_own_is_the_reply_whatever_was_streamed() -> None:
    """The streamed text still ends with an empty one."""
    life = Life()
    life.say(Text("thinking aloud"), Completed("42"))
    assert life.shown(2) == [("text", ""), ("status", "session ended")]
    assert life.ended()[2] == "42"


def test_the_reply_is_the_text_of_the_last_turn() -> None:
    """In one go or in many, and streamed means streamed in that turn."""
    for apart in (True, False):
        life = Life()
        lines = (Text("one"), Turn(), Text("tw"), Text("o"), Completed())
        for each in [(line,) for line in lines] if apart else [lines]:
            life.say(*each)
        assert life.ended()[2] == "two"
        assert life.shown(-2) == [("text", ""), ("status", "session ended")]
    life = Life()
    life.say(Text("one"), Turn(), Completed("two"))
    assert life.shown(-2) == [("text", "two"), ("status", "session ended")]


def test_a_status_is_a_working_frame_with_its_message() -> None:
    """And what the task says of itself."""
    life = Life()
    life.say(Status("reading"))
    assert life.events[-1].data == {"state": TaskState.WORKING, "message": "reading"}
    assert (life.task.state, life.task.status) == ("working", "reading")


def test_tools_and_artifacts_are_kept_whole() -> None:
    """For every dialect to show in its way."""
    life = Life()
    parts = ({"text": "a", "mediaType": "text/x"}, {"data": [1]})
    life.say(Tool("sh", "ok", "c1", exit_code=0), Artifact("n", "i", parts, append=True))
    tool, artifact = life.events[1:]
    assert (tool.kind, artifact.kind) == (EventKind.TOOL, EventKind.ARTIFACT)
    assert tool.data == {
        "name": "sh",
        "content": "ok",
        "call_id": "c1",
        "is_error": False,
        "duration_ms": None,
        "exit_code": 0,
        "truncated": False,
    }
    assert artifact.data == {"name": "n", "artifact_id": "i", "parts": parts, "append": False, "last": False}


def test_a_worker_that_asks_waits_with_its_prompt() -> None:
    """Input takes it up again, and says so; the input itself has no number."""
    life = Life()
    life.say(Text("so "), InputRequired("Which?"))
    assert life.ended() == ("input-required", "Which?", "Which?")
    assert list(life.state.waiting) == ["tsk_1"]
    life.answer()
    assert life.ended() == ("working", "resumed", None)
    assert life.task.began == 1
    assert [(e.kind.value, e.seq, e.frame) for e in life.events[2:]] == [
        ("status", 3, 3),
        ("input", 4, None),
        ("status", 5, 4),
    ]
    life.say(Text("that"), Completed())
    assert life.ended()[2] == "so that"


def test_who_asks_again_keeps_the_place_in_the_line() -> None:
    """The new prompt is shown."""
    life = Life()
    life.say(InputRequired("Which?"))
    life.take(machine.report(life.state, life.task, [InputRequired("When?")], 9.0, rules=RULES))
    assert (life.task.output, life.task.waiting_since) == ("When?", 3.0)


@pytest.mark.parametrize("line", [Status("never mind"), Turn()])
def test_a_worker_that_goes_on_by_itself_waits_no_longer(line: Said) -> None:
    """As one that was answered by somebody else."""
    life = Life()
    life.say(InputRequired("Which?"))
    life.say(line)
    assert (life.task.state, life.task.output, life.task.waiting_since) == ("working", None, None)
    assert not life.state.waiting


@pytest.mark.parametrize("line", [Text("a"), Thinking("a"), Tool("a", "b"), Artifact("a", None, ())])
def test_a_worker_may_speak_while_it_waits(line: Said) -> None:
    """It still waits."""
    life = Life()
    life.say(InputRequired("Which?"))
    life.say(line)
    assert life.ended() == ("input-required", "Which?", "Which?")


@pytest.mark.parametrize(
    ("line", "ended"),
    [
        (Failed("no"), ("failed", "no", None)),
        (Failed(""), ("failed", "", None)),
        (Rejected("not mine"), ("rejected", "not mine", None)),
        (Completed("yes"), ("completed", "session ended", "yes")),
        (Reply(({"text": "a"}, {"url": "u"}, {"text": "b"})), ("completed", "session ended", "a\nb")),
    ],
)
@pytest.mark.parametrize("waits", [False, True])
def test_nothing_follows_a_final_line(line: Said, ended: tuple[str | None, ...], waits: bool) -> None:  # noqa: FBT001 - a parameter
    """One final event, the last; a task that ran counts."""
    life = Life()
    if waits:
        life.say(InputRequired("Which?"))
    life.say(line, Text("more"), Failed("again"))
    assert life.ended() == ended
    assert [event.final for event in life.events].count(True) == 1
    assert life.events[-1].final
    assert (life.state.live, life.state.turns, life.state.generation) == ({}, {}, 1)
    assert (life.task.ended_at, life.task.waiting_since) == (3.0, None)


@pytest.mark.parametrize("ending", [TaskState.CANCELED, TaskState.FAILED, TaskState.REJECTED])
def test_a_task_that_is_not_completed_keeps_what_its_turn_had_said(ending: TaskState) -> None:
    """Whoever ends it, also while it waits for input, and in one go with what was said last; not what came before its turn."""
    for waits in (False, True):
        life = Life()
        life.say(Text("old"), Turn(), Text("ha"))
        life.say(Text("lf"), *([InputRequired("Which?")] if waits else []))
        if ending is TaskState.CANCELED:
            life.take(machine.cancel(life.state, [life.task], 5.0))
        elif waits:
            life.take(machine.end(life.state, [life.task], ending, "so", 5.0))
        else:
            life.say(Text("!"), Failed("so") if ending is TaskState.FAILED else Rejected("so"))
        assert life.task.state is ending
        assert life.task.output == ("half" if waits or ending is TaskState.CANCELED else "half!")
    life = Life()
    life.say(Turn(), Text("x"), Turn(), Failed("so"))
    assert life.ended() == ("failed", "so", None)


def test_a_message_is_kept_for_the_dialects_that_have_it() -> None:
    """For the others its text is the reply."""
    life = Life()
    life.say(Reply(({"text": "hi"},)))
    assert [(e.kind.value, e.frame) for e in life.events] == [
        ("status", 1),
        ("reply", None),
        ("text", 2),
        ("status", 3),
    ]
    assert life.events[1].data == {"parts": ({"text": "hi"},), "first": True}


def test_more_text_than_may_be_fails_the_task() -> None:
    """Counted in bytes, in the turn, also where it comes as the response."""
    life = Life(Rules(output=4))
    life.say(Text("abcd"))
    life.say(Turn(), Text("ää"))
    assert life.task.state == "working"
    life.say(Text("b"), Text("c"))
    assert life.ended() == ("failed", "the reply is over the limit of 4 bytes", "ää")
    assert life.shown()[-2:] == [("text", "ää"), ("status", "the reply is over the limit of 4 bytes")]
    life = Life(Rules(output=4))
    life.say(Completed("abcde"))
    assert life.ended()[0] == "failed"


def test_what_utf8_or_json_cannot_hold_never_reaches_the_log() -> None:
    """Texts are mended, everything else is refused."""
    life = Life()
    life.say(Text("\ud800"), Thinking("\ud800"), Status("\ud800"), InputRequired("\ud800"), note="\ud800")
    assert life.shown(1) == [(kind, "?") for kind in ("text", "thinking", "status", "status")]
    assert life.task.note == "?"
    for line in (Tool("\ud800", ""), Tool("a", "", exit_code=10**30), Artifact("a", None, ({"data": {1}},))):
        with pytest.raises(NotSaidError):
            life.say(line)
    life.say(Failed("\ud800"))
    assert life.ended() == ("failed", "?", "?")


def test_a_note_stays_until_another_comes_or_the_task_ends() -> None:
    """Alone it is a change as well, and no event."""
    life = Life()
    life.say(note="pid 1")
    life.say(Text("a"))
    assert (life.task.note, len(life.events)) == ("pid 1", 2)
    life.say(Text("b"), note="pid 2")
    assert life.task.note == "pid 2"
    life.say(Completed())
    assert life.task.note is None


def test_a_note_outlives_an_end_that_the_worker_did_not_make() -> None:
    """Canceled, out of time or too long: whoever works on it elsewhere may have to hear of that, after a restart too."""
    ends: tuple[Callable[[Life], Change], ...] = (
        lambda life: machine.cancel(life.state, (life.task,), 5.0),
        lambda life: machine.end(life.state, (life.task,), TaskState.FAILED, machine.INPUT_TIMEOUT, 5.0),
        lambda life: machine.report(life.state, life.task, (Text("x" * 11),), 5.0, rules=life.rules),
    )
    for end in ends:
        life = Life(Rules(TaskAcceptance.QUEUE, output=10))
        life.say(note="there 1")
        life.take(end(life))
        assert (life.task.state.terminal, life.task.note) == (True, "there 1")


def test_the_oldest_queued_task_starts_while_a_slot_is_free() -> None:
    """A task that waits for input holds none; a `single` capsule has one, whatever is configured."""
    rules = Rules(TaskAcceptance.QUEUE, queue_depth=9, concurrency=2)
    state = State()
    for number in range(4):
        task = Task(f"tsk_{number}", "ctx", "o", TaskState.SUBMITTED, 1.0)
        state.apply(machine.submit(state, task, EMPTY))
    started = []
    while (task_or_none := machine.next_queued(state, rules)) is not None:
        started.append(task_or_none.id)
        state.apply(machine.hand_out(state, task_or_none, 1.0, attempt=True))
    assert started == ["tsk_0", "tsk_1"]
    asking = machine.report(state, state.live["tsk_0"], [InputRequired("?")], 2.0, rules=rules)
    state.apply(asking)
    next_one = machine.next_queued(state, rules)
    assert next_one is not None
    assert next_one.id == "tsk_2"
    assert machine.next_queued(state, Rules(concurrency=2)) is None


def test_long_texts_in_small_pieces_stay_whole() -> None:
    """Whatever is put together in between."""
    life = Life()
    pieces = [str(number) for number in range(5000)]
    for start in range(0, len(pieces), 7):
        life.say(*(Text(piece) for piece in pieces[start : start + 7]))
    life.say(Completed())
    assert life.ended()[2] == "".join(pieces)


@pytest.mark.parametrize(
    ("message", "text", "parts", "metadata"),
    [
        ({"parts": [{"text": "a"}, {"data": 1}, {"text": "b"}], "metadata": {"k": 1}}, "a\nb", 3, {"k": 1}),
        ({"parts": []}, "", 0, {}),
        ({"parts": [{"kind": "text", "text": "a"}], "metadata": 5}, "a", 1, {}),
    ],
)
def test_an_input_line_has_the_whole_message(
    message: dict[str, Any], text: str, parts: int, metadata: dict[str, Any]
) -> None:
    """As workers read it."""
    given_input = Input.of(json.dumps({"messageId": "m1", "role": "user", **message}))
    line = input_line(Task("tsk_1", "ctx", "o", TaskState.WORKING, 1.0), given_input)
    assert list(line) == ["type", "text", "messageId", "taskId", "contextId", "parts", "metadata"]
    assert (line["type"], line["messageId"], line["taskId"], line["contextId"]) == (
        "message",
        "m1",
        "tsk_1",
        "ctx",
    )
    assert (line["text"], len(line["parts"]), line["metadata"]) == (text, parts, metadata)


LINES = st.sampled_from(
    [
        Text("a"),
        Text(""),
        Thinking("b"),
        Tool("t", "c"),
        Artifact("x", None, ()),
        Turn(),
        Status("s"),
        InputRequired("?"),
        Completed(),
        Completed("r"),
        Failed("f"),
    ]
)


@given(st.lists(st.tuples(LINES, st.booleans())))
def test_it_makes_no_difference_how_lines_are_put_together(lines: list[tuple[Said, bool]]) -> None:
    """One report of many lines is as many reports of one, whatever they are."""
    one, many = Life(), Life()
    group: list[Said] = []
    for line, break_after in lines:
        group.append(line)
        if many.task.id in many.state.live:
            many.say(line)
        if break_after:
            if one.task.id in one.state.live:
                one.say(*group)
            group = []
    if group and one.task.id in one.state.live:
        one.say(*group)
    assert one.events == many.events
    assert one.task == many.task
    assert [event.seq for event in one.events] == list(range(1, len(one.events) + 1))


@pytest.mark.parametrize("together", [True, False])
def test_an_artifact_without_an_id_gets_one_and_is_added_to_by_its_name(*, together: bool) -> None:
    """Each that begins is one of its own; what is added goes to the last of its name, or to the last of all."""
    life = Life()
    lines: list[Said] = [
        Artifact("a", None, ({"text": "1"},)),
        Artifact("b", None, ({"text": "2"},)),
        Artifact("a", None, ({"text": "3"},), append=True),
        Artifact(None, None, ({"text": "4"},), append=True),
        Turn(),
        Artifact("a", None, ({"text": "5"},)),
        Artifact("a", None, ({"text": "6"},), append=True),
        Artifact("c", None, ({"text": "7"},), append=True),
        Artifact("own", "id", ({"text": "8"},), append=True),
        Artifact("other", "id", ({"text": "9"},), append=True),
        Artifact("", "", ({"text": "10"},)),
    ]
    if together:
        life.say(*lines)
    else:
        for line in lines:
            life.say(line)
    made = [(e.data["artifact_id"], e.data["append"]) for e in life.events if e.kind is EventKind.ARTIFACT]
    first, second, *rest = [identity for identity, _ in made]
    assert len({identity for identity, _ in made}) == 6
    assert rest[:2] == [first, second]
    assert rest[2] == rest[3]
    assert rest[5] == rest[6] == "id"
    assert [append for _, append in made] == [
        False,
        False,
        True,
        True,
        False,
        True,
        False,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("said", "whole"),
    [
        ((Text("draft"), Completed("final")), "final"),
        ((Text("same"), Completed("same")), None),
        ((Text("it"), Completed()), None),
        ((Completed("only"),), None),
        ((Text("old"), Turn(), Text("new"), Completed("new")), None),
        ((Text("old"), Turn(), Text("new"), Completed("old")), "old"),
    ],
)
def test_a_reply_that_is_another_text_than_was_streamed_is_told_with_the_last_of_it(
    said: tuple[Said, ...], whole: str | None
) -> None:
    """So that who has the pieces can tell; murmur's frames do not show it."""
    life = Life()
    life.say(*said)
    assert life.events[-2].data.get("whole") == whole
    later = Life()
    for each in said:
        later.say(each)
    assert later.events[-2].data.get("whole") == whole


def test_a_message_is_first_only_if_nothing_was_said_or_answered_before() -> None:
    """Not in any turn."""
    cases: tuple[tuple[Said, bool], ...] = (
        (Text("x"), False),
        (Status("x"), False),
        (InputRequired("?"), False),
        (Turn(), True),
    )
    for before, first in cases:
        life = Life()
        life.say(before)
        if life.task.state is TaskState.INPUT_REQUIRED:
            life.answer()
        life.say(Reply(({"text": "hi"},)))
        reply = next(event for event in life.events if event.kind is EventKind.REPLY)
        assert reply.data["first"] == first


def test_the_time_of_the_last_status_is_kept() -> None:
    """Of any status, and of nothing else."""
    life = Life(claimed=False)
    steps: tuple[Callable[[], None], ...] = (
        lambda: None,
        life.claim,
        lambda: life.say(Text("x")),
        lambda: life.say(InputRequired("?")),
        life.answer,
    )
    times = []
    for step in steps:
        step()
        times.append(life.task.status_at)
    assert times == [None, 2.0, 2.0, 3.0, 4.0]
