"""The A2A door over real sockets: envelopes, versions, and what calls that do not last come to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.doors.a2a_asked import LABELS
from sidecar.model import TaskAcceptance
from sidecar.ops.metrics import A2A_REQUESTS, REQUESTS
from tests.support.a2a_port import METHODS, PATHS, V03, V10, Caller, document, state_of
from tests.support.port import BOUND, served, taking
from tests.support.rawhttp import exchange

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.port import Port

pytestmark = pytest.mark.parametrize("version", [V03, V10])

ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
MALFORMED: list[tuple[bytes, int, object]] = [
    (b"", -32700, None),
    (b"{", -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"x"}}', -32700, None),
    (b"\xff", -32700, None),
    (b"[]", -32600, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]', -32600, None),
    (b"null", -32600, None),
    (b'"text"', -32600, None),
    (b'{"id":1,"method":"GetTask"}', -32600, 1),
    (b'{"jsonrpc":"1.0","id":"a","method":"GetTask"}', -32600, "a"),
    (b'{"jsonrpc":2.0,"id":"a","method":"GetTask"}', -32600, "a"),
    (b'{"jsonrpc":"2.0","id":7}', -32600, 7),
    (b'{"jsonrpc":"2.0","id":7,"method":null}', -32600, 7),
    (b'{"jsonrpc":"2.0","id":7,"method":1}', -32600, 7),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"GetTask"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":true,"method":"GetTask"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":[1],"method":"GetTask"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":{"a":1},"method":"GetTask"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":1e400,"method":"GetTask"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":"x","method":"nothing/such"}', -32601, "x"),
    (b'{"jsonrpc":"2.0","id":"x","method":"stream/watch"}', -32601, "x"),
    (b'{"jsonrpc":"2.0","method":"nothing/such"}', -32601, None),
]


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[Port]:
    """A capsule with a queue."""
    async with served(tmp_path, taking(queue_depth=50), settings={"concurrency": 5}) as made:
        yield made


@pytest.fixture
def caller(port: Port, version: str) -> Caller:
    """A client of that capsule."""
    return Caller(port, version)


def reason(answer: dict[str, Any]) -> str | None:
    """Return the reason in the details of an error; 0.3 has none."""
    if "data" not in answer["error"]:
        return None
    (detail,) = answer["error"]["data"]
    assert (detail["@type"], detail["domain"]) == (ERROR_INFO, "a2a-protocol.org")
    found: str = detail["reason"]
    return found


async def test_an_envelope_that_is_none_is_an_error(caller: Caller) -> None:
    """At status 200, with the id of the request where it has a valid one, and details in 1.0."""
    for body, code, echo in MALFORMED:
        answer = await caller.raw(body)
        assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", echo, code), body
        assert (reason(answer) is None) == (caller.version == V03)


async def test_an_id_comes_back_as_it_is(caller: Caller) -> None:
    """Of the same type, in results, in errors and in the frames of streams."""
    for request_id in ("a", "", "ü", 0, -1, 2**63, "1"):
        sent = await caller.call("send", caller.params(blocking=False), request_id=request_id)
        failed = await caller.call("get", {"id": "none"}, request_id=request_id)
        stream = await caller.subscribe(caller.task(sent["result"])["id"], request_id=request_id)
        streamed = json.loads((await stream.frame()).removeprefix(b"data: "))
        await stream.close()
        for answer in (sent, failed, streamed):
            assert (answer["id"], type(answer["id"])) == (request_id, type(request_id))


@pytest.mark.parametrize("body", [{}, {"id": None}])
async def test_a_request_without_an_id_is_answered(caller: Caller, body: dict[str, Any]) -> None:
    """With null for one, and not with silence."""
    method = METHODS[caller.version][2]
    answer = await caller.raw(
        json.dumps({"jsonrpc": "2.0", "method": method, "params": {"id": "none"}, **body}).encode()
    )
    assert (answer["id"], answer["error"]["code"]) == (None, -32001)


async def test_parameters_that_are_none_are_an_error(caller: Caller) -> None:
    """Missing, null, of another type or empty."""
    wrong: tuple[Any, ...] = (None, [], "x", 1, {}, {"message": None}, {"message": []}, {"id": None})
    for params in wrong:
        for call in ("send", "stream", "get", "cancel", "subscribe"):
            answer = await caller.call(call, params)
            assert (answer["id"], answer["error"]["code"]) == (1, -32602)


async def test_a_method_goes_with_its_path_and_its_version(caller: Caller) -> None:
    """On the path of both, the header decides; nothing else does."""
    version = caller.version
    other = V10 if version == V03 else V03
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": METHODS[version][2], "params": {"id": "none"}}
    ).encode()

    async def code(path: str, **headers: str) -> int:
        answer = await caller.raw(body, path, **headers)
        assert (answer["error"]["code"] != -32009) or "A2A-Version" in answer["error"]["message"]
        assert (reason(answer) is None) == (version == V03)
        found: int = answer["error"]["code"]
        return found

    assert await code("/a2a") == -32001
    assert await code("/a2a", A2A_Version=f"{version}.7") == -32001
    assert await code("/a2a", A2A_Version=other) == -32009
    assert await code(PATHS[other]) == -32009
    assert await code(PATHS[other], A2A_Version=other) == -32009
    for unknown in ("2.0", "1", "1.1", "v1.0", "0.2", "x"):
        assert await code(PATHS[version], A2A_Version=unknown) == -32009
    without = -32001 if version == V03 else -32009
    assert await code(PATHS[version], A2A_Version="") == without


async def test_the_version_may_stand_in_the_query(caller: Caller) -> None:
    """Where there is no header."""
    method = METHODS[caller.version][2]
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": "none"}}).encode()
    for asked, expected in ((caller.version, -32001), ("9.0", -32009), ("", -32001)):
        request = caller.posted(body, f"/a2a?A2A-Version={asked}")
        request = request.replace(f"A2A-Version: {caller.version}\r\n".encode(), b"")
        answer = document(await exchange(caller.port.number, request, within=BOUND))
        if asked or caller.version == V03:
            assert answer["error"]["code"] == expected


async def test_a_body_of_another_type_is_an_error(caller: Caller) -> None:
    """That of content types, not a refusal."""
    answer = await caller.raw(b"{}", Content_Type="text/plain")
    assert (answer["id"], answer["error"]["code"]) == (None, -32005)


async def test_a_body_that_is_too_large_is_refused(caller: Caller) -> None:
    """As at every other path."""
    request = caller.posted(b" " * 1_100_000)
    assert (await exchange(caller.port.number, request, within=BOUND)).status == 413


async def test_other_methods_of_http_are_refused(caller: Caller) -> None:
    """The door takes calls."""
    assert (await caller.port.get(PATHS[caller.version])).status == 405


async def test_calls_for_tasks_that_there_are_not(caller: Caller) -> None:
    """Whatever is asked of them."""
    for call, params in (
        ("get", {"id": "none"}),
        ("cancel", {"id": "none"}),
        ("subscribe", {"id": "none"}),
        ("send", caller.params(taskId="none")),
        ("stream", caller.params(taskId="none")),
    ):
        assert await caller.code(call, params) == -32001


async def test_what_there_is_not(caller: Caller) -> None:
    """Push notifications and an extended card."""
    push = {
        V03: ["set", "get", "list", "delete"],
        V10: ["Create", "Get", "Delete"],
    }[caller.version]
    for each in push:
        method = (
            f"tasks/pushNotificationConfig/{each}"
            if caller.version == V03
            else f"{each}TaskPushNotificationConfig"
        )
        assert await caller.code(method, {"id": "none", "taskId": "none"}) == -32003
    card = "agent/getAuthenticatedExtendedCard" if caller.version == V03 else "GetExtendedAgentCard"
    assert await caller.code(card, {}) == -32007


async def test_a_task_is_sent_got_and_canceled(caller: Caller) -> None:
    """With its message as history, as much of it as is asked for."""
    task = await caller.send()
    assert state_of(task) == "submitted"
    assert [each["messageId"] for each in task["history"]] == ["m-hello"]
    assert await caller.get(task["id"]) == task
    assert "history" not in await caller.get(task["id"], historyLength=0)
    assert await caller.code("get", {"id": task["id"], "historyLength": -1}) == -32602
    canceled = await caller.result("cancel", {"id": task["id"]})
    assert state_of(canceled) == "canceled"
    assert await caller.get(task["id"]) == canceled
    assert await caller.code("cancel", {"id": task["id"]}) == -32002
    assert await caller.code("subscribe", {"id": task["id"]}) == -32004


async def test_input_goes_to_the_task_that_a_message_names(caller: Caller) -> None:
    """If it waits, and the message is of its context."""
    task = await caller.send()
    worker = await caller.port.work()
    named = {"taskId": task["id"], "blocking": False}
    assert await caller.code("send", caller.params(**named)) == -32004
    await worker.ask("Which?")
    assert state_of(await caller.get(task["id"])) == "input-required"
    assert await caller.code("send", caller.params(**named, contextId="ctx_other")) == -32602
    sent = await caller.send("that one", taskId=task["id"], contextId=task["contextId"])
    assert (sent["id"], state_of(sent)) == (task["id"], "working")
    assert [given.text for given in worker.orders.take()] == ["that one"]
    await worker.complete("done")
    found = await caller.get(task["id"])
    assert [each["parts"][0]["text"] for each in found["history"]] == ["hello", "Which?", "that one"]
    assert [each["parts"][0]["text"] for each in found["artifacts"]] == ["done"]
    assert len((await caller.get(task["id"], historyLength=2))["history"]) == 2
    assert await caller.code("send", caller.params(**named)) == -32004


async def test_a_context_that_is_named_is_the_new_tasks(caller: Caller) -> None:
    """Nothing else of it matters."""
    first = await caller.send(contextId="ctx_mine")
    second = await caller.send("again", contextId="ctx_mine")
    assert first["id"] != second["id"]
    assert first["contextId"] == second["contextId"] == "ctx_mine"


async def test_a_capsule_that_takes_no_tasks_takes_no_messages(tmp_path: Path, version: str) -> None:
    """Neither kind of send."""
    async with served(tmp_path, taking(TaskAcceptance.NONE)) as port:
        caller = Caller(port, version)
        for call in ("send", "stream"):
            assert await caller.code(call, caller.params()) == -32004
        assert await caller.code("get", {"id": "none"}) == -32001


async def test_a_task_without_room_is_rejected_and_not_kept(tmp_path: Path, version: str) -> None:
    """However it is sent."""
    async with served(tmp_path, taking(TaskAcceptance.SINGLE)) as port:
        caller = Caller(port, version)
        await caller.send()
        for blocking in (True, False):
            result = await caller.result("send", caller.params("more", blocking=blocking))
            task = caller.task(result)
            assert state_of(task) == "rejected"
            assert await caller.code("get", {"id": task["id"]}) == -32001


async def test_parts_that_a_capsule_does_not_take(tmp_path: Path, version: str) -> None:
    """Nothing but text where it takes text only; else what it names."""
    raw: dict[str, Any] = {"raw": "eA==", "mediaType": "image/png"}
    data: dict[str, Any] = {"data": {"a": 1}}
    if version == V03:
        raw = {"kind": "file", "file": {"bytes": "eA==", "mimeType": "image/png"}}
        data["kind"] = "data"
    for modes, takes_raw, takes_data in (
        (("text/plain",), False, False),
        (("text/plain", "image/*"), True, False),
        (("*/*",), True, True),
        (("text/plain", "application/json"), False, True),
    ):
        where = tmp_path / modes[-1].replace("/", "-").replace("*", "any")
        where.mkdir()
        async with served(where, taking(queue_depth=9), settings={"input_modes": modes}) as port:
            caller = Caller(port, version)
            for part, taken in ((raw, takes_raw), (data, takes_data)):
                params = caller.params(blocking=False)
                params["message"]["parts"].append(part)
                answer = await caller.call("send", params)
                assert ("result" in answer) == taken
                if not taken:
                    assert answer["error"]["code"] == -32005


async def test_murmur_and_a2a_show_the_same_tasks(caller: Caller) -> None:
    """Of callers without credentials: they count as one, whatever they speak; the murmur door answers its own methods."""
    task_id = await caller.port.send("from there")
    task = await caller.get(task_id)
    assert [each["parts"][0]["text"] for each in task["history"]] == ["from there"]
    ours = await caller.send()
    assert await caller.port.state(ours["id"]) == "submitted"
    for method in ("tasks/resubscribe", "SendMessage", "GetTask", "ListTasks", "SubscribeToTask"):
        assert (await caller.port.error(method, {"id": ours["id"]}))["code"] == -32601


def test_every_call_has_a_label_of_its_own(version: str) -> None:
    """And no other call is counted under a name of its own."""
    labels = set(LABELS.values())
    assert labels <= REQUESTS
    ours = {each for each in labels if each.startswith("a2a-")}
    assert ours == A2A_REQUESTS
    assert {each for each in ours if each.startswith(f"a2a-{version}/")}
