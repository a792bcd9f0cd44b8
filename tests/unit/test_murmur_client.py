"""The murmur dialect from a client's side, against what our own door writes."""

from __future__ import annotations

from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.dialects import jsonrpc, murmur, murmur_client
from sidecar.dialects.jsonrpc import RpcError
from sidecar.dialects.murmur_client import (
    ErrorFrame,
    GapFrame,
    LaggedFrame,
    StatusFrame,
    TextFrame,
    ThinkingFrame,
    ToolFrame,
)
from sidecar.dialects.reading import UnreadableError
from sidecar.dialects.sse_reader import Frame, SseReader
from sidecar.events import Event, EventKind, Task, TaskState

TOOL = {
    "name": "grep",
    "content": "found",
    "call_id": "",
    "is_error": True,
    "duration_ms": 3,
    "exit_code": 1,
    "truncated": True,
}


def event(kind: EventKind, **data: object) -> Event:
    """Make an event of one task."""
    return Event(9, 7, "tsk_1", "ctx_1", kind, data, 0.0)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            murmur.event_frame(
                event(EventKind.STATUS, state=TaskState.COMPLETED, message="session ended", response="r")
            ),
            StatusFrame("tsk_1", "ctx_1", TaskState.COMPLETED, "session ended", "r", 7),
        ),
        (
            murmur.event_frame(event(EventKind.TEXT, text="a", final=False)),
            TextFrame("tsk_1", "a", False, 7),
        ),
        (murmur.event_frame(event(EventKind.THINKING, text="a")), ThinkingFrame("tsk_1", "a", 7)),
        (
            murmur.event_frame(event(EventKind.TOOL, **TOOL)),
            ToolFrame("tsk_1", "grep", "found", None, True, 3, 1, True, 7),
        ),
        (murmur.gap_frame(5), GapFrame(5)),
        (murmur.lagged_frame(2), LaggedFrame(2)),
        (murmur.error_frame("no"), ErrorFrame("no")),
        (murmur.CAPSULE_CLOSED, None),
    ],
)
def test_what_a_door_writes_is_read(written: bytes, read: object) -> None:
    """Each frame is read as what it says; what tells nothing of tasks is nothing."""
    (frame,) = SseReader().feed(written)
    assert murmur_client.read_frame(frame) == read


def test_a_task_is_read() -> None:
    """With the text of its status, and its outputs by name."""
    task = Task("tsk_1", "ctx_1", "", TaskState.COMPLETED, 0.0, status="session ended", output="r")
    read = murmur_client.read_task(orjson.loads(orjson.dumps(murmur.canceled_object(task, ["left"]))))
    assert (read.id, read.context_id, read.state, read.message) == (
        "tsk_1",
        "ctx_1",
        TaskState.COMPLETED,
        "session ended",
    )
    assert read.outputs == {"response": "r", "residue": "left"}


def test_a_message_is_handed_on_without_our_ids() -> None:
    """Its parts stay as they are; the ids are those that the other side is to have."""
    json = orjson.dumps(
        {"messageId": "m", "role": "user", "taskId": "t", "contextId": "c", "parts": [{"text": "a", "x": 1}]}
    ).decode()
    assert murmur_client.write_message(json, "new", "ctx") == {
        "message": {"messageId": "new", "role": "user", "parts": [{"text": "a", "x": 1}], "contextId": "ctx"}
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "status", "state", "text", "artifact", "final", "missed", "parts"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.sampled_from(["status", "text", "thinking", "artifact", "gap", "lagged", "error", "x"]))
def test_any_frame_is_read_or_refused(value: object, name: str) -> None:
    """Whatever a door sends, it is a value, nothing, or an UnreadableError."""
    for reader in (
        lambda: murmur_client.read_frame(Frame(name, orjson.dumps(value), 1)),
        lambda: murmur_client.read_task(value),
    ):
        with suppress(UnreadableError):
            reader()


@given(JSON | st.binary())
def test_any_answer_is_a_result_or_refused(answer: object) -> None:
    """Whatever a server answers, it is a result, its error, or an UnreadableError."""
    with suppress(UnreadableError, RpcError):
        jsonrpc.result_in(answer if isinstance(answer, bytes) else orjson.dumps(answer), "its answer")


def test_a_call_is_a_request_that_the_door_takes() -> None:
    """What is written for a server is read by ours."""
    request = jsonrpc.parse(jsonrpc.call(3, "tasks/get", {"id": "t"}))
    assert (request.id, request.method, request.params) == (3, "tasks/get", {"id": "t"})
    assert jsonrpc.result_in(jsonrpc.result(3, {"a": 1}), "it") == {"a": 1}
    with pytest.raises(RpcError, match="Task not found"):
        jsonrpc.result_in(jsonrpc.error(3, jsonrpc.TASK_NOT_FOUND, "Task not found"), "it")
