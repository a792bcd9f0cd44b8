"""The murmur dialect: messages in, task objects and frames out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sidecar.dialects import murmur
from sidecar.dialects.murmur import InvalidMessageError
from sidecar.events import Event, EventKind, Task, TaskState
from sidecar.model import Conversation

SANE = {"messageId": "m1", "role": "user", "parts": [{"text": "hello"}]}


def task(state: TaskState, status: str | None = None, output: str | None = None) -> Task:
    """Return a task in this state."""
    return Task("tsk_1", "ctx_1", "operator", state, 1.0, status, output, 2.0 if state.terminal else None)


def event(state: TaskState, status: str, output: str | None = None) -> Event:
    """Return a status as the third frame of a session."""
    data = {"state": state, "message": status} | ({} if output is None else {"response": output})
    return Event(4, 3, "tsk_1", "ctx_1", EventKind.STATUS, data, 1.0)


@pytest.mark.parametrize(
    "params", [SANE, {"message": SANE}, {"message": None, **SANE}, {"message": SANE, "x": 1}]
)
def test_a_message_is_taken_with_its_wrapper_and_without(params: dict[str, Any]) -> None:
    """`params.message` if it is there, else the parameters themselves."""
    message = murmur.read_message(params)
    assert message.context_id is None
    assert json.loads(message.json) | {"message": None} == SANE | {"message": None}


@pytest.mark.parametrize(
    "parts", [[], [{}], [{"text": None}], [{"text": ""}], [{"data": {"a": [1]}}, {"text": "x"}]]
)
def test_parts_need_no_text(parts: list[dict[str, Any]]) -> None:
    """An empty list is a list, and parts of other kinds are kept."""
    message = murmur.read_message({**SANE, "parts": parts})
    assert json.loads(message.json)["parts"] == parts


@pytest.mark.parametrize(("context", "kept"), [("ctx_a", "ctx_a"), ("", ""), (None, None)])
def test_a_context_is_kept_verbatim(context: str | None, kept: str | None) -> None:
    """Null is as good as none."""
    assert murmur.read_message({**SANE, "contextId": context}).context_id == kept


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"messageId": None}, "messageId"),
        ({"messageId": 1}, "messageId"),
        ({"role": ["user"]}, "role"),
        ({"parts": None}, "parts"),
        ({"parts": {}}, "parts"),
        ({"parts": "hello"}, "parts"),
        ({"parts": ["hello"]}, "parts[0]"),
        ({"parts": [{"text": "a"}, {"text": 1}]}, "parts[1].text"),
        ({"contextId": 1}, "contextId"),
        ({"message": []}, "message"),
        ({"message": "hello"}, "message"),
        ({"message": {}}, "messageId"),
    ],
)
def test_a_bad_message_is_refused_with_the_key_named(change: dict[str, Any], said: str) -> None:
    """The text goes behind `Invalid params: `."""
    with pytest.raises(InvalidMessageError, match="^" + said.replace("[", r"\[")):
        murmur.read_message({**SANE, **change})


@pytest.mark.parametrize("key", ["messageId", "role", "parts"])
def test_a_missing_key_is_refused_as_missing(key: str) -> None:
    """Each of the three is required."""
    with pytest.raises(InvalidMessageError, match=f"^{key} is missing"):
        murmur.read_message({k: v for k, v in SANE.items() if k != key})


def test_a_message_that_cannot_be_written_again_is_refused() -> None:
    """The parser takes deeper nesting than the writer."""
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": deep}
    with pytest.raises(InvalidMessageError, match="nested too deeply"):
        murmur.read_message({**SANE, "metadata": deep})


@pytest.mark.parametrize("state", [TaskState.SUBMITTED, TaskState.WORKING])
def test_a_task_that_is_under_way_shows_its_state_alone(state: TaskState) -> None:
    """No artifacts, no message."""
    assert murmur.task_object(task(state, "inference turn 1")) == {
        "id": "tsk_1",
        "contextId": "ctx_1",
        "status": {"state": state.value},
    }


def test_a_waiting_task_shows_its_prompt() -> None:
    """As its one artifact."""
    shown = murmur.task_object(task(TaskState.INPUT_REQUIRED, output="Which one?"))
    assert shown["status"] == {"state": "input-required"}
    assert shown["artifacts"] == [{"name": "prompt", "parts": [{"text": "Which one?"}]}]


def test_a_completed_task_shows_its_reply() -> None:
    """As its one artifact, beside the message of its status."""
    shown = murmur.task_object(task(TaskState.COMPLETED, "session ended", "Done."))
    assert shown["artifacts"] == [{"name": "response", "parts": [{"text": "Done."}]}]
    assert shown["status"]["message"] == {
        "messageId": "msg_tsk_1_status",
        "role": "agent",
        "parts": [{"text": "session ended"}],
    }


@pytest.mark.parametrize("output", [None, ""])
def test_a_completed_task_without_a_reply_has_no_artifacts(output: str | None) -> None:
    """Not even an empty list."""
    assert "artifacts" not in murmur.task_object(task(TaskState.COMPLETED, "session ended", output))


@pytest.mark.parametrize("state", [TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED])
def test_other_final_states_show_their_message_and_no_artifacts(state: TaskState) -> None:
    """Whatever output there was."""
    shown = murmur.task_object(task(state, "why", "left over"))
    assert list(shown) == ["id", "contextId", "status"]
    assert shown["status"]["message"]["parts"] == [{"text": "why"}]


def test_a_status_frame_is_as_in_the_table() -> None:
    """Keys in order, the number as the id."""
    assert murmur.event_frame(event(TaskState.WORKING, "inference turn 1")) == (
        b"id: 3\nevent: status\ndata: "
        b'{"id":"tsk_1","context_id":"ctx_1","status":{"state":"working","message":"inference turn 1"},"final":false}\n\n'
    )


def test_only_a_completed_status_has_a_response() -> None:
    """Empty where the reply was."""
    assert murmur.event_frame(event(TaskState.COMPLETED, "session ended", "Done.")).endswith(
        b'"status":{"state":"completed","message":"session ended","response":"Done."},"final":true}\n\n'
    )
    assert b'"response":""' in murmur.event_frame(event(TaskState.COMPLETED, "session ended"))
    assert b"response" not in murmur.event_frame(event(TaskState.FAILED, "x"))


def test_a_rejected_frame_has_no_number_and_is_final() -> None:
    """For lack of room: nobody else ever sees it."""
    assert murmur.rejected_frame(task(TaskState.REJECTED, "task rejected: capsule is busy")) == (
        b"event: status\ndata: "
        b'{"id":"tsk_1","context_id":"ctx_1","status":{"state":"rejected","message":"task rejected: capsule is busy"},"final":true}\n\n'
    )


def test_the_other_frames_are_as_in_the_table() -> None:
    """None of them has a number."""
    assert murmur.ack_frame(Conversation.THREADED) == (
        b'event: connection-ack\ndata: {"role":"observer","conversation_mode":"threaded"}\n\n'
    )
    assert murmur.gap_frame(9) == b'event: gap\ndata: {"first_available_id":9}\n\n'
    assert murmur.lagged_frame(7) == b'event: lagged\ndata: {"missed":7}\n\n'
    assert murmur.CAPSULE_CLOSED == b"event: capsule-closed\ndata: {}\n\n"
    assert murmur.HEARTBEAT == b":heartbeat\n\n"


def test_an_error_frame_is_valid_json_whatever_it_quotes() -> None:
    """Quotes, line breaks and control characters of the input stay inside the one data line."""
    frame = murmur.error_frame('Invalid params: "\n\r\x00\u2028')
    (data,) = [line for line in frame.split(b"\n") if line.startswith(b"data: ")]
    assert json.loads(data.removeprefix(b"data: ")) == {"error": 'Invalid params: "\n\r\x00\u2028'}
    assert frame.count(b"\n") == 3


@pytest.mark.parametrize(
    ("parts", "text"),
    [([], ""), ([{"text": "a"}, {"data": 1}, {"text": None}, {"text": ""}, {"text": "b"}], "a\n\nb")],
)
def test_the_text_of_a_message_is_that_of_its_parts(parts: list[dict[str, Any]], text: str) -> None:
    """Joined by a newline; parts without text are skipped."""
    assert murmur.read_message({**SANE, "parts": parts}).text == text


def test_a_canceled_task_shows_what_still_runs_of_it() -> None:
    """And only then; what a completed one has stays."""
    canceled = task(TaskState.CANCELED, "task canceled")
    assert murmur.canceled_object(canceled, ()) == murmur.task_object(canceled)
    residue = [{"name": "residue", "parts": [{"text": "process 7"}]}]
    assert murmur.canceled_object(canceled, ["process 7"])["artifacts"] == residue
    completed = task(TaskState.COMPLETED, "session ended", "Done.")
    assert [each["name"] for each in murmur.canceled_object(completed, ["process 7"])["artifacts"]] == [
        "response",
        "residue",
    ]


def test_what_still_runs_is_in_the_answer_to_a_stop() -> None:
    """As a list of texts."""
    assert murmur.stopped("ses_1", [], ["process 7"])["residue"] == ["process 7"]


def test_stopped_has_exactly_three_keys() -> None:
    """In order, the ids sorted."""
    assert list(murmur.stopped("ses_1", ["b", "a"]).items()) == [
        ("session_id", "ses_1"),
        ("canceled", ["a", "b"]),
        ("residue", []),
    ]
