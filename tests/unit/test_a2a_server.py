"""Both versions of A2A as a server reads and writes them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.dialects import a2a03, a2a10
from sidecar.dialects.a2a import Call, ListQuery, Page, Query, response_id, status_id
from sidecar.dialects.a2a03_server import A2A_03
from sidecar.dialects.a2a10_server import A2A_10
from sidecar.dialects.a2a_server import interrupted, timestamp
from sidecar.dialects.agent import Outgoing
from sidecar.dialects.jsonrpc import RpcError
from sidecar.events import ArtifactRecord, Event, EventKind, Message, Record, Task, TaskState
from sidecar.tasks import machine
from tests.support.a2a_documents import JSON, PART, TEXT, events, records

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.dialects.a2a_server import Dialect

VERSIONS = pytest.mark.parametrize("dialect", [A2A_03, A2A_10], ids=lambda dialect: dialect.version)
ROLE = {"0.3": "user", "1.0": "ROLE_USER"}


def message(dialect: Dialect, **more: Any) -> dict[str, Any]:
    """Return a message of text."""
    return {"messageId": "m", "role": ROLE[dialect.version], "parts": [{"text": "hello"}], **more}


def code_of(call: Callable[..., object], *arguments: object) -> int:
    """Return the code with which something is refused."""
    with pytest.raises(RpcError) as refused:
        call(*arguments)
    return refused.value.code


# --- what a caller asks for


@VERSIONS
def test_a_message_is_read(dialect: Dialect) -> None:
    """Its ids, its text, its metadata; an id that is empty is none, and so is null."""
    found = dialect.read_send(
        {
            "message": message(
                dialect,
                taskId="tsk_1",
                contextId="ctx_1",
                metadata={"a": 1},
                extensions=["x"],
                referenceTaskIds=["tsk_0"],
                unknown={},
                parts=[{"text": "one"}, {"text": "two"}],
            ),
            "configuration": {"historyLength": 3, "acceptedOutputModes": ["text/plain"]},
        }
    )
    assert (found.message_id, found.task_id, found.context_id) == ("m", "tsk_1", "ctx_1")
    assert (found.text, found.history_length) == ("one\ntwo", 3)
    assert json.loads(found.json) == {
        "messageId": "m",
        "role": "user",
        "parts": [{"text": "one"}, {"text": "two"}],
        "contextId": "ctx_1",
        "taskId": "tsk_1",
        "metadata": {"a": 1},
        "extensions": ["x"],
        "referenceTaskIds": ["tsk_0"],
    }
    nothing = dialect.read_send(
        {"message": message(dialect, taskId="", contextId=None, metadata=None), "configuration": None}
    )
    assert (nothing.task_id, nothing.context_id, nothing.metadata, nothing.history_length) == (
        None,
        None,
        {},
        None,
    )


@given(st.lists(PART, min_size=1, max_size=4))
def test_every_part_arrives_as_it_was_sent(parts: list[dict[str, Any]]) -> None:
    """What a client of either version writes of a part, the server has again."""
    kept = [{k: v for k, v in part.items() if not (k == "metadata" and v == {})} for part in parts]
    text_free = [
        {
            k: v
            for k, v in part.items()
            if k not in ("filename", "mediaType") or "raw" in part or "url" in part
        }
        for part in kept
    ]
    sent = Outgoing("m", tuple(kept))
    newer = A2A_10.read_send(a2a10.send_params(sent))
    assert list(newer.parts) == kept
    # 0.3 has names and types for files alone
    older = A2A_03.read_send(a2a03.send_params(sent))
    assert list(older.parts) == text_free


@pytest.mark.parametrize(
    ("dialect", "configuration", "blocks"),
    [
        (A2A_03, None, True),
        (A2A_03, {}, True),
        (A2A_03, {"blocking": True}, True),
        (A2A_03, {"blocking": False}, False),
        (A2A_10, None, True),
        (A2A_10, {"returnImmediately": False}, True),
        (A2A_10, {"returnImmediately": True}, False),
        (A2A_10, {"blocking": False}, True),
    ],
)
def test_a_send_waits_unless_its_sender_does_not_want_to(
    dialect: Dialect, configuration: dict[str, Any] | None, *, blocks: bool
) -> None:
    """Each version has its own word for it; both official servers of 0.3 wait where nothing is said."""
    made = {"message": message(dialect), "configuration": configuration}
    assert dialect.read_send(made).blocking is blocks


@VERSIONS
@pytest.mark.parametrize(
    "broken",
    [
        {"messageId": None},
        {"messageId": ""},
        {"messageId": 7},
        {"role": None},
        {"role": "system"},
        {"role": ["user"]},
        {"parts": None},
        {"parts": []},
        {"parts": "text"},
        {"parts": ["text"]},
        {"parts": [{}]},
        {"parts": [{"kind": "text"}]},
        {"parts": [{"text": 7}]},
        {"parts": [{"kind": "video", "text": "a"}]},
        {"parts": [{"kind": "file", "file": {}}]},
        {"parts": [{"kind": "file", "file": {"bytes": "§"}}]},
        {"parts": [{"raw": "no base64"}]},
        {"taskId": 7},
        {"contextId": {}},
        {"metadata": []},
        {"extensions": "x"},
        {"referenceTaskIds": [7]},
    ],
)
def test_a_message_that_is_none_is_refused(dialect: Dialect, broken: dict[str, Any]) -> None:
    """As invalid params, and nothing is started."""
    assert code_of(dialect.read_send, {"message": message(dialect, **broken)}) == -32602


@VERSIONS
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"message": "hello"},
        {"message": []},
        {"configuration": []},
        {"configuration": {"historyLength": -1}},
        {"configuration": {"historyLength": "1"}},
        {"configuration": {"historyLength": 1.5}},
        {"configuration": {"historyLength": True}},
    ],
)
def test_a_send_that_is_none_is_refused(dialect: Dialect, params: dict[str, Any]) -> None:
    """Whatever of it is wrong."""
    made = params if "message" in params or not params else {"message": message(dialect), **params}
    assert code_of(dialect.read_send, made) == -32602


@pytest.mark.parametrize(
    ("dialect", "broken"),
    [(A2A_03, {"blocking": "yes"}), (A2A_10, {"returnImmediately": 1})],
)
def test_a_flag_is_true_or_false(dialect: Dialect, broken: dict[str, Any]) -> None:
    """Nothing is guessed."""
    assert code_of(dialect.read_send, {"message": message(dialect), "configuration": broken}) == -32602


def test_roles_and_kinds_are_those_of_the_version() -> None:
    """A message of the other one is refused, not misread."""
    assert code_of(A2A_03.read_send, {"message": message(A2A_10)}) == -32602
    assert code_of(A2A_10.read_send, {"message": message(A2A_03)}) == -32602
    assert code_of(A2A_03.read_send, {"message": message(A2A_03, kind="task")}) == -32602


@pytest.mark.parametrize(
    ("dialect", "key"), [(A2A_03, "pushNotificationConfig"), (A2A_10, "taskPushNotificationConfig")]
)
def test_who_wants_to_be_called_back_is_told_that_nobody_is(dialect: Dialect, key: str) -> None:
    """Else the sender would wait for ever."""
    made = {"message": message(dialect), "configuration": {key: {"url": "https://a.example"}}}
    assert code_of(dialect.read_send, made) == -32003


@VERSIONS
def test_a_task_is_asked_for_by_its_id(dialect: Dialect) -> None:
    """With so many of its messages; negative numbers are none."""
    assert dialect.read_get({"id": "tsk_1"}) == Query("tsk_1", None)
    assert dialect.read_get({"id": "tsk_1", "historyLength": 0}) == Query("tsk_1", 0)
    assert dialect.read_task_id({"id": "tsk_1", "metadata": {}}) == "tsk_1"
    for broken in ({}, {"id": ""}, {"id": 7}, {"id": None}, {"id": "t", "historyLength": -1}):
        assert code_of(dialect.read_get, broken) == -32602


def test_a_list_is_asked_for() -> None:
    """Every filter, and what holds where none is given."""
    assert A2A_10.read_list({}) == ListQuery()
    assert (
        A2A_10.read_list({"status": "TASK_STATE_UNSPECIFIED", "contextId": "", "pageToken": ""})
        == ListQuery()
    )
    assert A2A_10.read_list(
        {
            "contextId": "ctx_1",
            "status": "TASK_STATE_INPUT_REQUIRED",
            "pageSize": 100,
            "pageToken": "t",
            "historyLength": 2,
            "statusTimestampAfter": "1970-01-01T01:00:01.500+01:00",
            "includeArtifacts": True,
        }
    ) == ListQuery("ctx_1", "input-required", 100, "t", 2, 1.5, include_artifacts=True)
    assert A2A_10.read_list({"status": "TASK_STATE_AUTH_REQUIRED"}).status == "auth-required"


@pytest.mark.parametrize(
    "broken",
    [
        {"status": "working"},
        {"status": 3},
        {"pageSize": 0},
        {"pageSize": 101},
        {"pageSize": "5"},
        {"pageToken": 5},
        {"contextId": 5},
        {"historyLength": -1},
        {"includeArtifacts": "yes"},
        {"statusTimestampAfter": "yesterday"},
        {"statusTimestampAfter": "2026-13-01T00:00:00Z"},
        {"statusTimestampAfter": "2026-01-01"},
        {"statusTimestampAfter": 5},
    ],
)
def test_a_list_that_cannot_be_is_refused(broken: dict[str, Any]) -> None:
    """As invalid params."""
    assert code_of(A2A_10.read_list, broken) == -32602


@given(st.floats(0, 4e9))
def test_a_time_that_was_written_is_read_again(at: float) -> None:
    """To the millisecond, and never later than it was, so that a list from there on has the task."""
    found = A2A_10.read_list({"statusTimestampAfter": timestamp(at)}).status_after
    assert found is not None
    assert at - 0.0011 < found <= at + 1e-6


ANY_PARAMS = st.dictionaries(
    st.sampled_from(["message", "configuration", "id", "historyLength", "status", "pageSize", "pageToken"])
    | TEXT,
    JSON | st.fixed_dictionaries({"messageId": TEXT, "role": TEXT, "parts": st.lists(JSON, max_size=2)}),
    max_size=5,
)


@given(ANY_PARAMS)
def test_any_params_are_read_or_refused(params: dict[str, Any]) -> None:
    """Whatever a client sends, it is a value or an RpcError."""
    for dialect in (A2A_03, A2A_10):
        for reader in (dialect.read_send, dialect.read_get, dialect.read_task_id):
            with suppress(RpcError):
                reader(params)
    with suppress(RpcError):
        A2A_10.read_list(params)


def test_a_message_as_deep_as_json_goes_is_refused() -> None:
    """What cannot be written again cannot be kept."""
    deep: Any = []
    for _ in range(260):
        deep = [deep]
    made = {"message": message(A2A_10, parts=[{"data": deep}])}
    assert code_of(A2A_10.read_send, made) == -32602


def test_names_of_the_protocol_buffers_are_taken_in_the_newer_version() -> None:
    """Its JSON is that of protocol buffers, whose readers take both; what is free-form stays as it is."""
    found = A2A_10.read_send(
        {
            "message": {
                "message_id": "m",
                "role": "ROLE_USER",
                "parts": [{"data": {"a_b": 1}, "media_type": "x/y", "metadata": {"c_d": 2}}, {"text": "hi"}],
                "task_id": "tsk_1",
                "context_id": "ctx_1",
                "metadata": {"e_f": 3},
            },
            "configuration": {"return_immediately": True, "history_length": 2},
        }
    )
    assert (found.message_id, found.task_id, found.context_id) == ("m", "tsk_1", "ctx_1")
    assert (found.blocking, found.history_length, found.metadata) == (False, 2, {"e_f": 3})
    assert found.parts[0] == {"data": {"a_b": 1}, "mediaType": "x/y", "metadata": {"c_d": 2}}
    assert A2A_10.read_get({"id": "t", "history_length": 1}) == Query("t", 1)
    assert A2A_10.read_list({"context_id": "c", "page_size": 7}) == ListQuery(context_id="c", page_size=7)
    assert A2A_10.read_get({"id": "t", "historyLength": 1, "history_length": 2}) == Query("t", 1)
    assert A2A_03.read_get({"id": "t", "history_length": 1}) == Query("t", None)


def test_the_methods_of_the_versions_are_apart() -> None:
    """So that a name alone tells the version; each version has each call, but for lists."""
    assert not A2A_03.methods.keys() & A2A_10.methods.keys()
    assert set(A2A_10.methods.values()) == set(Call)
    assert set(A2A_03.methods.values()) == set(Call) - {Call.LIST}


# --- what it gets

TASK = Task("tsk_1", "ctx_1", "anybody", TaskState.COMPLETED, 1.0, "session ended", "hi", 2.0)
RECORD = Record(
    TASK,
    2.0015,
    (
        Message("user", "m1", ({"text": "a"},), {"k": 1}),
        Message("agent", "m2", ({"text": "b"},), {}),
        Message("user", "m3", ({"url": "u", "filename": "f"},), {}),
    ),
    (ArtifactRecord(response_id("tsk_1"), "response", ({"text": "hi"},)), ArtifactRecord("x", None, ())),
)


def test_a_task_has_the_shape_of_its_version() -> None:
    """States, roles, kinds, parts, times; an artifact without parts has one that is empty."""
    assert A2A_03.task(RECORD) == {
        "kind": "task",
        "id": "tsk_1",
        "contextId": "ctx_1",
        "status": {"state": "completed", "timestamp": "1970-01-01T00:00:02.001Z"},
        "artifacts": [
            {
                "artifactId": "art_tsk_1_response",
                "name": "response",
                "parts": [{"kind": "text", "text": "hi"}],
            },
            {"artifactId": "x", "parts": [{"kind": "text", "text": ""}]},
        ],
        "history": [
            {
                "kind": "message",
                "messageId": "m1",
                "role": "user",
                "parts": [{"kind": "text", "text": "a"}],
                "taskId": "tsk_1",
                "contextId": "ctx_1",
                "metadata": {"k": 1},
            },
            {
                "kind": "message",
                "messageId": "m2",
                "role": "agent",
                "parts": [{"kind": "text", "text": "b"}],
                "taskId": "tsk_1",
                "contextId": "ctx_1",
            },
            {
                "kind": "message",
                "messageId": "m3",
                "role": "user",
                "parts": [{"kind": "file", "file": {"uri": "u", "name": "f"}}],
                "taskId": "tsk_1",
                "contextId": "ctx_1",
            },
        ],
    }
    newer = A2A_10.task(RECORD, 1)
    assert newer["status"] == {"state": "TASK_STATE_COMPLETED", "timestamp": "1970-01-01T00:00:02.001Z"}
    assert newer["history"] == [
        {
            "messageId": "m3",
            "role": "ROLE_USER",
            "parts": [{"url": "u", "filename": "f"}],
            "taskId": "tsk_1",
            "contextId": "ctx_1",
        }
    ]
    assert A2A_10.sent_task(RECORD, 1) == {"task": newer}


@VERSIONS
def test_so_many_messages_are_shown_as_were_asked_for(dialect: Dialect) -> None:
    """None at all leaves the member out; a number has it there, however few there are."""
    ids = [each["messageId"] for each in dialect.task(RECORD)["history"]]
    assert ids == ["m1", "m2", "m3"]
    assert "history" not in dialect.task(RECORD, 0)
    assert [each["messageId"] for each in dialect.task(RECORD, 2)["history"]] == ["m2", "m3"]
    assert len(dialect.task(RECORD, 9)["history"]) == 3
    bare = Record(TASK, 2.0, (), ())
    assert dialect.task(bare, 1)["history"] == []
    assert "history" not in dialect.task(bare)


@VERSIONS
def test_the_texts_that_the_sidecar_writes_itself_are_no_message_of_the_agent(dialect: Dialect) -> None:
    """Turns, and the end of a session, are murmur's; what a worker says, and why a task failed, is told."""
    for status, shown in (
        (machine.TURN.format(1), False),
        (machine.TURN.format(12), False),
        (machine.RESUMED, False),
        (machine.ENDED, False),
        (machine.CANCELED, True),
        (machine.INPUT_TIMEOUT, True),
        (machine.BUSY, True),
        ("reading the files", True),
        ("", False),
        (None, False),
    ):
        task = Task("tsk_1", "ctx_1", "anybody", TaskState.WORKING, 1.0, status)
        found = dialect.task(Record(task, 1.0, (), ()))["status"]
        assert ("message" in found) is shown
        if shown:
            assert found["message"]["parts"][0]["text"] == status
            assert found["message"]["messageId"] == status_id("tsk_1", TaskState.WORKING, 1.0, str(status))


@VERSIONS
def test_a_reply_that_is_a_message_names_no_task(dialect: Dialect) -> None:
    """That one is over: what is sent there later would be refused."""
    made = dialect.sent_message(RECORD, ({"text": "just so"},))
    found = made if dialect is A2A_03 else made["message"]
    assert found["contextId"] == "ctx_1"
    assert "taskId" not in found
    assert found["role"] == ("agent" if dialect is A2A_03 else "ROLE_AGENT")


def test_a_page_has_all_its_members_and_artifacts_when_asked() -> None:
    """The token is empty at the end."""
    page = Page((RECORD,), ListQuery(page_size=1, history_length=0), "", 7)
    found = A2A_10.listing(page)
    assert (found["nextPageToken"], found["pageSize"], found["totalSize"]) == ("", 1, 7)
    assert not {"artifacts", "history"} & found["tasks"][0].keys()
    asked = Page((RECORD,), ListQuery(include_artifacts=True), "t", 7)
    assert "artifacts" in A2A_10.listing(asked)["tasks"][0]


# --- what streams show


def event(kind: EventKind, data: dict[str, Any]) -> Event:
    """Make an event of a task."""
    return Event(5, 5, "tsk_1", "ctx_1", kind, data, 1.5)


def text(piece: str, **more: Any) -> Event:
    """Make a piece of the reply."""
    return event(EventKind.TEXT, {"text": piece, "final": False, **more})


def update(dialect: Dialect, made: Event, *, begun: bool) -> dict[str, Any]:
    """Return the one update of an artifact that an event makes."""
    (found,) = dialect.event_results(made, begun=begun)
    inner: dict[str, Any] = found if dialect is A2A_03 else found["artifactUpdate"]
    return inner


@VERSIONS
def test_pieces_of_text_are_updates_of_one_artifact(dialect: Dialect) -> None:
    """The first of a turn begins it anew, the last closes it; a reply in one piece does both."""
    first, next_one = update(dialect, text("a"), begun=False), update(dialect, text("b"), begun=True)
    assert (first["append"], first["lastChunk"]) == (False, False)
    assert (next_one["append"], next_one["lastChunk"]) == (True, False)
    assert first["artifact"]["artifactId"] == next_one["artifact"]["artifactId"] == response_id("tsk_1")
    assert first["artifact"]["name"] == "response"
    last = update(dialect, text("", final=True), begun=True)
    assert (last["append"], last["lastChunk"], last["artifact"]["parts"][0]["text"]) == (True, True, "")
    whole = update(dialect, text("all", final=True), begun=False)
    assert (whole["append"], whole["lastChunk"]) == (False, True)
    assert dialect.event_results(text("", final=True), begun=False) == []


@VERSIONS
def test_a_reply_that_is_another_text_than_its_pieces_takes_their_place(dialect: Dialect) -> None:
    """So that the artifact of the stream is the one of the finished task."""
    found = update(dialect, text("", final=True, whole="this"), begun=True)
    assert (found["append"], found["lastChunk"], found["artifact"]["parts"][0]["text"]) == (
        False,
        True,
        "this",
    )


@VERSIONS
def test_artifacts_of_workers_keep_their_ids(dialect: Dialect) -> None:
    """And say themselves whether they go on."""
    made = event(
        EventKind.ARTIFACT,
        {"name": "n", "artifact_id": "a", "parts": [{"data": {"x": 1}}], "append": True, "last": True},
    )
    found = update(dialect, made, begun=False)
    assert (found["append"], found["lastChunk"]) == (True, True)
    assert (found["artifact"]["artifactId"], found["artifact"]["name"]) == ("a", "n")
    assert found["artifact"]["parts"][0]["data"] == {"x": 1}


@VERSIONS
def test_what_only_murmur_shows_is_left_out(dialect: Dialect) -> None:
    """Reasoning, tools, later turns, input, and the message that is the whole answer."""
    for kind, data in (
        (EventKind.THINKING, {"text": "hm"}),
        (EventKind.TOOL, {"name": "bash"}),
        (EventKind.INPUT, {}),
        (EventKind.REPLY, {"parts": [], "first": True}),
        (EventKind.STATUS, {"state": TaskState.WORKING, "message": "inference turn 2", "turn": 2}),
    ):
        assert dialect.event_results(event(kind, data), begun=True) == []


@pytest.mark.parametrize("state", TaskState)
def test_the_states_that_close_a_stream(state: TaskState) -> None:
    """0.3 says `final`, at a question too; 1.0 says nothing, and stays open there."""
    made = event(EventKind.STATUS, {"state": state, "message": "so"})
    (older,), (newer,) = (dialect.event_results(made, begun=False) for dialect in (A2A_03, A2A_10))
    assert older["final"] is A2A_03.closes(state) is interrupted(state)
    assert newer["statusUpdate"].keys() == {"taskId", "contextId", "status"}
    assert A2A_10.closes(state) is state.terminal
    assert older["status"]["message"]["messageId"] == newer["statusUpdate"]["status"]["message"]["messageId"]


@given(events())
def test_streams_show_each_event_in_both_versions_or_in_neither(pair: tuple[Event, bool]) -> None:
    """One member tells the kind of a frame in 1.0, `kind` in 0.3."""
    made, begun = pair
    older, newer = (dialect.event_results(made, begun=begun) for dialect in (A2A_03, A2A_10))
    assert len(older) == len(newer) <= 1
    kinds = {"statusUpdate": "status-update", "artifactUpdate": "artifact-update"}
    assert [one["kind"] for one in older] == [kinds[member] for other in newer for member in other]


@given(records())
def test_clients_read_what_the_server_writes(record: Record) -> None:
    """Our own client halves find the same task in both."""
    older = a2a03.read_task(A2A_03.task(record))
    newer = a2a10.read_task(A2A_10.task(record))
    assert (older.id, older.context_id, older.state) == (newer.id, newer.context_id, newer.state)
    assert older.state == record.task.state
    assert [each.id for each in older.artifacts] == [each.id for each in record.artifacts]
