"""What the public conformance kits of A2A check, over the capsule that they are run against (README.md)."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from tests.support.a2a_clients import CONFIG, picture, story
from tests.support.crashing import free_port
from tests.support.spawned import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.spawned import Spawned

    Post = Callable[..., Any]

V10 = {"A2A-Version": "1.0"}
MESSAGE_03 = {
    "kind": "message",
    "messageId": "m",
    "role": "user",
    "parts": [{"kind": "text", "text": "hello"}],
}
MESSAGE_10 = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
OUTPUT = {"filename": "output.txt", "mediaType": "text/plain"}


def post(url: str, body: bytes | dict[str, Any], headers: dict[str, str] | None = None) -> Any:
    """Post a body and return what comes: a document, or the documents of a stream."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **(headers or {})}
    with urlopen(Request(url, data=data, headers=sent), timeout=20) as answer:
        assert answer.status == 200
        kind, got = answer.headers["Content-Type"].partition(";")[0], answer.read()
    if kind == "text/event-stream":
        return [json.loads(line[6:]) for line in got.splitlines() if line.startswith(b"data: ")]
    assert kind == "application/json"
    return json.loads(got)


def call(method: str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a request."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}, **more}


ROOT = free_port()


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spawned]:
    """A sidecar that serves the capsules of these tests, one of them at a second port too."""
    env = {"SIDECAR_CAPSULES__conformance__A2A_PORT": str(ROOT)}
    with running(["--config", str(CONFIG)], state=tmp_path_factory.mktemp("state"), env=env) as spawned:
        yield spawned


@pytest.fixture(scope="module")
def base(sidecar: Spawned) -> tuple[str, str]:
    """Where the capsule is: its own port, and the one that speaks A2A at its root."""
    return f"http://localhost:{sidecar.port('conformance')}", f"http://localhost:{ROOT}"


@pytest.fixture(params=["/a2a/v0.3", "/a2a", "root"])
def v03(request: pytest.FixtureRequest, base: tuple[str, str]) -> Post:
    """How to post what is 0.3, at each place that takes it."""
    return partial(post, base[1] + "/" if request.param == "root" else base[0] + request.param)


@pytest.fixture(params=["/a2a/v1", "/a2a", "root"])
def v10(request: pytest.FixtureRequest, base: tuple[str, str]) -> Post:
    """How to post what is 1.0, at each place that takes it."""
    url = base[1] + "/" if request.param == "root" else base[0] + request.param
    return lambda body, headers=None: post(url, body, V10 | (headers or {}))


MALFORMED: list[tuple[str, bytes | dict[str, Any], int, object]] = [
    ("not closed", b'{"jsonrpc": "2.0", "method": "message/send", "params": {"a": 1}', -32700, None),
    ("no protocol", {"jsonrpc": "aaa", "method": "message/send", "params": {}}, -32600, None),
    ("an older protocol", call("message/send", {"message": MESSAGE_03}, jsonrpc="1.0", id="i"), -32600, "i"),
    ("no method", {"jsonrpc": "2.0", "params": {}, "id": "i"}, -32600, "i"),
    ("an unknown method", call("nonexistent/method", id="i"), -32601, "i"),
    ("an unknown method without an id", {"jsonrpc": "2.0", "method": "message/ssend"}, -32601, None),
    ("an id that is an object", call("message/send", id={"bad": "type"}), -32600, None),
]


@pytest.mark.parametrize(("body", "code", "echo"), [c[1:] for c in MALFORMED], ids=[c[0] for c in MALFORMED])
def test_an_envelope_that_is_wrong_is_refused(
    v03: Post, body: bytes | dict[str, Any], code: int, echo: object
) -> None:
    """With the code of JSON-RPC for it, status 200, and the request's id where it has one."""
    answer = v03(body)
    assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", echo, code)
    assert answer["error"]["message"]


@pytest.mark.parametrize(
    "params",
    [
        {"": "not_a_dict"},
        {"message": {"parts": "invalid"}},
        {"message": {"kind": "message"}},
        {"message": {**MESSAGE_03, "parts": []}},
        {"message": {key: value for key, value in MESSAGE_03.items() if key != "messageId"}},
        {"message": {key: value for key, value in MESSAGE_03.items() if key != "role"}},
    ],
    ids=["no message", "parts of text", "nothing in it", "no part", "no id", "no role"],
)
def test_parameters_that_are_wrong_are_refused(v03: Post, v10: Post, params: dict[str, Any]) -> None:
    """A message needs an id, a role and parts, in either version, whether it streams or not."""
    for answer in (
        v03(call("message/send", params)),
        v03(call("message/stream", params)),
        v10(call("SendMessage", params)),
        v10(call("SendStreamingMessage", params)),
    ):
        assert (answer["id"], answer["error"]["code"]) == (1, -32602)


def test_one_id_can_be_used_twice(v03: Post) -> None:
    """Ids are the client's own affair."""
    answers = [v03(call("message/send", {"message": MESSAGE_03}, id="twice")) for _ in range(2)]
    assert [answer["id"] for answer in answers] == ["twice", "twice"]
    assert len({answer["result"]["id"] for answer in answers}) == 2


def test_tasks_park_for_the_older_kit(v03: Post) -> None:
    """They wait for input, take any number of messages, show as much history as is asked for, and can be canceled."""
    task = v03(call("message/send", {"message": MESSAGE_03}))["result"]
    assert picture(task)["state"] == "input-required"
    for number in range(3):
        more = {**MESSAGE_03, "messageId": f"more-{number}", "taskId": task["id"]}
        assert v03(call("message/send", {"message": more}))["result"]["id"] == task["id"]
    whole = v03(call("tasks/get", {"id": task["id"]}))["result"]
    assert [role for role, _ in picture(whole)["history"]] == ["user", "agent"] * 3 + ["user"]
    part = v03(call("tasks/get", {"id": task["id"], "historyLength": 2}))["result"]
    assert part["history"] == whole["history"][-2:]
    assert v03(call("tasks/cancel", {"id": task["id"]}))["result"]["status"]["state"] == "canceled"
    assert v03(call("tasks/cancel", {"id": task["id"]}))["error"]["code"] == -32002
    assert v03(call("tasks/get", {"id": "nonexistent"}))["error"]["code"] == -32001
    assert v03(call("tasks/cancel", {"id": "nonexistent"}))["error"]["code"] == -32001


@pytest.mark.parametrize(
    ("prefix", "artifact"),
    [
        ("text", {"text": "Generated text content"}),
        ("file", {"raw": "dGNr", **OUTPUT}),
        ("file-url", {"url": "https://example.com/output.txt", **OUTPUT}),
        ("data", {"data": {"key": "value", "count": 42}}),
    ],
)
def test_artifacts_of_all_kinds_for_the_newer_kit(v10: Post, prefix: str, artifact: dict[str, Any]) -> None:
    """What a message's id asks for is the only artifact of its task."""
    task = v10(call("SendMessage", {"message": {**MESSAGE_10, "messageId": f"tck-artifact-{prefix}-1"}}))
    (made,) = task["result"]["task"]["artifacts"]
    assert made["parts"] == [artifact]
    assert made["artifactId"]


def test_states_and_messages_for_the_newer_kit(v10: Post) -> None:
    """A task is completed, rejected, waits, or is a message, as the id of its message asks for."""
    sent = {
        prefix: v10(call("SendMessage", {"message": {**MESSAGE_10, "messageId": f"tck-{prefix}-1"}}))[
            "result"
        ]
        for prefix in ("complete-task", "reject-task", "input-required", "anything", "message-response")
    }
    (message,) = sent.pop("message-response").values()
    assert (message["role"], message["parts"]) == ("ROLE_AGENT", [{"text": "Direct message response"}])
    assert {prefix: result["task"]["status"]["state"] for prefix, result in sent.items()} == {
        "complete-task": "TASK_STATE_COMPLETED",
        "reject-task": "TASK_STATE_REJECTED",
        "input-required": "TASK_STATE_INPUT_REQUIRED",
        "anything": "TASK_STATE_COMPLETED",
    }
    waits = sent["input-required"]["task"]["id"]
    told = {**MESSAGE_10, "messageId": "tck-complete-task-2", "taskId": waits}
    assert picture(v10(call("SendMessage", {"message": told}))["result"])["state"] == "completed"


def test_streams_for_the_newer_kit(v10: Post) -> None:
    """Every frame is an answer with the request's id and exactly one member in its result."""
    prefix = "tck-stream-artifact-chunked-1"
    frames = v10(call("SendStreamingMessage", {"message": {**MESSAGE_10, "messageId": prefix}}))
    assert {(frame["jsonrpc"], frame["id"], len(frame["result"])) for frame in frames} == {("2.0", 1, 1)}
    told = story(frame["result"] for frame in frames)
    assert told == [["task", ""], ["output", "chunk-1 chunk-2"], ["completed", ""]]


@pytest.mark.parametrize(
    ("request_of_it", "headers", "code", "reason"),
    [
        (call("GetTask", {"id": "none"}), {}, -32001, "TASK_NOT_FOUND"),
        (call("CancelTask", {"id": "none"}), {}, -32001, "TASK_NOT_FOUND"),
        (call("SubscribeToTask", {"id": "none"}), {}, -32001, "TASK_NOT_FOUND"),
        (call("SendMessage", {"message": {**MESSAGE_10, "taskId": "none"}}), {}, -32001, "TASK_NOT_FOUND"),
        (
            call("CreateTaskPushNotificationConfig", {"taskId": "none", "url": "https://example.com"}),
            {},
            -32003,
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        (call("GetExtendedAgentCard"), {}, -32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
        (
            call("SendMessage", {"message": MESSAGE_10}),
            {"A2A-Version": "99.0"},
            -32009,
            "VERSION_NOT_SUPPORTED",
        ),
        (call("SendMessage", {"message": MESSAGE_10}), {"A2A-Version": ""}, -32009, "VERSION_NOT_SUPPORTED"),
        (
            str(call("SendMessage", {"message": MESSAGE_10})).encode(),
            {"Content-Type": "text/plain"},
            -32005,
            "CONTENT_TYPE_NOT_SUPPORTED",
        ),
    ],
    ids=[
        "get",
        "cancel",
        "subscribe",
        "send",
        "push",
        "extended card",
        "version",
        "no version",
        "content type",
    ],
)
def test_errors_carry_details_in_the_newer_version(
    v10: Post, request_of_it: Any, headers: dict[str, str], code: int, reason: str
) -> None:
    """The code of the specification, and an ErrorInfo that names it."""
    error = v10(request_of_it, headers)["error"]
    assert error["code"] == code
    assert error.keys() == {"code", "message", "data"}
    (info,) = error["data"]
    assert info["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"
    assert (info["reason"], info["domain"]) == (reason, "a2a-protocol.org")


def test_unknown_members_are_ignored(v10: Post) -> None:
    """Whatever else a request holds changes nothing."""
    message = {**MESSAGE_10, "messageId": "tck-complete-task-3", "unknown": "ignored"}
    assert "task" in v10(call("SendMessage", {"message": message, "extra": 42}))["result"]


def test_a_file_is_refused_where_a_capsule_takes_text(sidecar: Spawned) -> None:
    """By the code that says so, in both versions."""
    url = f"http://localhost:{sidecar.port('obedient')}/a2a"
    file_03 = {"kind": "file", "file": {"bytes": "dGNr", "mimeType": "application/octet-stream"}}
    for body, headers in (
        (call("message/send", {"message": {**MESSAGE_03, "parts": [file_03]}}), None),
        (call("SendMessage", {"message": {**MESSAGE_10, "parts": [{"raw": "dGNr", **OUTPUT}]}}), V10),
    ):
        assert post(url, body, headers)["error"]["code"] == -32005


def test_a_refused_stream_is_an_error_as_the_version_has_it(base: tuple[str, str]) -> None:
    """Clients of 1.0 take it for an answer, those of 0.3 want it as the stream's only event."""
    streams = {"Accept": "text/event-stream"}
    newer = post(base[0] + "/a2a", call("SubscribeToTask", {"id": "none"}), V10 | streams)
    assert newer["error"]["code"] == -32001
    (older,) = post(base[0] + "/a2a", call("tasks/resubscribe", {"id": "none"}), streams)
    assert older["error"]["code"] == -32001


def test_a_slash_behind_a_path_changes_nothing(base: tuple[str, str]) -> None:
    """Clients that put paths together leave one there."""
    for path, method in (("/a2a/v1/", "GetTask"), ("/a2a/v0.3/", "tasks/get"), ("/a2a/", "GetTask")):
        headers = V10 if method == "GetTask" else None
        assert post(base[0] + path, call(method, {"id": "none"}), headers)["error"]["code"] == -32001
