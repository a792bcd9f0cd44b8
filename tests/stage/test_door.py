"""The murmur door without streams: bytes in, bytes out, over a real engine and a real database."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.model import METHODS, TaskAcceptance, served_methods
from tests.support.sessions import MESSAGE, SESSION, capsule, request, session

if TYPE_CHECKING:
    from pathlib import Path

ID = re.compile(r"(tsk|ctx)_[0-9a-f]{12}7[0-9a-f]{19}")


@pytest.mark.parametrize("acceptance", list(TaskAcceptance))
async def test_exactly_the_methods_of_the_card_are_served(tmp_path: Path, acceptance: TaskAcceptance) -> None:
    """B36 (adk-python#6672, spring-ai-ascend#229): one table; what is not in it is -32601, as plain JSON."""
    served = {method.name for method in served_methods(acceptance)}
    async with session(tmp_path, capsule(acceptance)) as s:
        for method in METHODS:
            answer = await s.door.call(request(method.name, MESSAGE))
            if not isinstance(answer, bytes):
                s.streams.append(answer)
            refused = isinstance(answer, bytes) and json.loads(answer).get("error", {}).get("code") == -32601
            assert refused == (method.name not in served)


@pytest.mark.parametrize(
    "method",
    ["tasks/list", "", "message/send ", "Message/Send", "message/send\x00", "SendMessage", "__init__"],
)
async def test_method_names_match_byte_for_byte(tmp_path: Path, method: str) -> None:
    """Everything else is -32601 with the id echoed, whatever its parameters."""
    async with session(tmp_path) as s:
        for body in (request(method, {}, 99), request(method, [1], 99)):
            answer = await s.raw(body)
            assert answer == {
                "jsonrpc": "2.0",
                "id": 99,
                "error": {"code": -32601, "message": "Method not found"},
            }
        assert set(s.counted) == {(method, "-32601")}


async def test_what_is_no_json_is_answered_with_a_null_id(tmp_path: Path) -> None:
    """B33 (gemstone#38, sansio-jsonrpc#2): -32700 `Parse error`, and `id` is there."""
    async with session(tmp_path) as s:
        for body in (b"{", b"{bad", b""):
            assert (
                await s.door.call(body)
                == b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}'
            )
        assert s.counted == [("other", "-32700")] * 3


async def test_what_is_no_request_is_answered_as_such(tmp_path: Path) -> None:
    """No id, an object id, a batch, another version: -32600."""
    async with session(tmp_path) as s:
        for body in (
            b'{"jsonrpc":"2.0","method":"session/stop"}',
            b'{"jsonrpc":"2.0","id":{},"method":"session/stop"}',
            b'[{"jsonrpc":"2.0","id":1,"method":"session/stop"}]',
            b'{"jsonrpc":"1.0","id":1,"method":"session/stop"}',
        ):
            assert (await s.raw(body))["error"]["code"] == -32600


@pytest.mark.parametrize("request_id", ["1", "", 1, 0, -1, 2**64 - 1])
async def test_the_id_comes_back_equal_and_of_the_same_type(tmp_path: Path, request_id: str | int) -> None:
    """B32 (python-sdk#961, codebase-memory-mcp#253): in results and in errors."""
    async with session(tmp_path) as s:
        for method in ("tasks/get", "session/stop", "nothing", "tasks/cancel"):
            answer = await s.raw(request(method, None, request_id))
            assert (type(answer["id"]), answer["id"]) == (type(request_id), request_id)


async def test_missing_params_are_an_empty_object(tmp_path: Path) -> None:
    """Absent and null, and members beside the four are ignored."""
    async with session(tmp_path) as s:
        for body in (
            b'{"jsonrpc":"2.0","id":1,"method":"session/stop"}',
            b'{"jsonrpc":"2.0","id":1,"method":"session/stop","params":null}',
            b'{"jsonrpc":"2.0","id":1,"method":"session/stop","params":{},"more":[1]}',
        ):
            assert (await s.raw(body))["result"] == {"session_id": SESSION, "canceled": [], "residue": []}


@pytest.mark.parametrize("method", [method.name for method in METHODS if method.name != "stream/watch"])
async def test_params_that_are_no_object_are_invalid(tmp_path: Path, method: str) -> None:
    """-32602, as plain JSON, for every method that looks at them."""
    async with session(tmp_path) as s:
        answer = await s.call(method, [1])
        assert answer["error"]["code"] == -32602
        assert answer["error"]["message"].startswith("Invalid params: ")
        assert s.engine.open_streams == 0


async def test_a_send_to_an_idle_capsule_is_submitted(tmp_path: Path) -> None:
    """It answers with the task; without a context it gets one."""
    async with session(tmp_path, capsule(TaskAcceptance.SINGLE)) as s:
        answer = await s.call("message/send", {"message": MESSAGE})
        assert list(answer) == ["jsonrpc", "id", "result"]
        assert list(answer["result"]) == ["id", "contextId", "status"]
        assert ID.fullmatch(answer["result"]["id"])
        assert ID.fullmatch(answer["result"]["contextId"])
        assert answer["result"]["status"] == {"state": "submitted"}
        assert s.counted == [("message/send", "ok")]


async def test_an_accepted_task_is_in_the_file_when_it_is_answered(tmp_path: Path) -> None:
    """Another connection sees it, with the message as it came."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        with closing(sqlite3.connect(tmp_path / "sidecar.db")) as other:
            ((state, message),) = other.execute("SELECT state, request FROM tasks WHERE id = ?", (task_id,))
    assert (state, json.loads(message)) == ("submitted", MESSAGE)


@pytest.mark.parametrize("context", ["ctx_mine", "any text", ""])
async def test_a_context_that_was_sent_comes_back(tmp_path: Path, context: str) -> None:
    """Verbatim, also from tasks/get."""
    async with session(tmp_path) as s:
        sent = (await s.call("message/send", {**MESSAGE, "contextId": context}))["result"]
        assert sent["contextId"] == context
        assert (await s.call("tasks/get", {"id": sent["id"]}))["result"]["contextId"] == context


@pytest.mark.parametrize("missing", ["messageId", "role", "parts"])
async def test_a_bad_message_is_refused_and_nothing_is_kept_of_it(tmp_path: Path, missing: str) -> None:
    """-32602 `Invalid params: …`, with and without the wrapper."""
    bad = {k: v for k, v in MESSAGE.items() if k != missing}
    async with session(tmp_path) as s:
        for params in (bad, {"message": bad}):
            error = (await s.call("message/send", params))["error"]
            assert error == {"code": -32602, "message": f"Invalid params: {missing} is missing"}
        assert (await s.call("tasks/get"))["error"]["code"] == -32001


async def test_a_send_to_a_busy_single_capsule_is_rejected(tmp_path: Path) -> None:
    """A result, not an error; its id is not kept."""
    async with session(tmp_path, capsule(TaskAcceptance.SINGLE)) as s:
        await s.send()
        rejected = (await s.call("message/send", MESSAGE))["result"]
        assert rejected["status"]["state"] == "rejected"
        assert rejected["status"]["message"] == {
            "messageId": f"msg_{rejected['id']}_status",
            "role": "agent",
            "parts": [{"text": "task rejected: capsule is busy"}],
        }
        assert s.counted[-1] == ("message/send", "rejected")
        got = await s.call("tasks/get", {"id": rejected["id"]})
        assert got["error"] == {"code": -32001, "message": "Task not found"}
        canceled = await s.call("tasks/cancel", {"id": rejected["id"]})
        assert canceled["error"]["code"] == -32001


async def test_a_single_capsule_takes_the_next_task_when_the_first_ended(tmp_path: Path) -> None:
    """The sidecar stays."""
    async with session(tmp_path, capsule(TaskAcceptance.SINGLE)) as s:
        await s.send_and_cancel(2)
        await s.send()


async def test_a_queue_takes_its_depth_and_the_running_one(tmp_path: Path) -> None:
    """Depth 2 holds three; one that ends makes room."""
    async with session(tmp_path, capsule(queue_depth=2)) as s:
        first, *_ = [await s.send() for _ in range(3)]
        assert (await s.call("message/send", MESSAGE))["result"]["status"]["state"] == "rejected"
        await s.call("tasks/cancel", {"id": first})
        await s.send()
        assert (await s.call("message/send", MESSAGE))["result"]["status"]["state"] == "rejected"


async def test_tasks_over_the_limit_are_rejected(tmp_path: Path) -> None:
    """However deep the queue."""
    async with session(tmp_path, capsule(queue_depth=50), max_live=2) as s:
        await s.send()
        await s.send()
        assert (await s.call("message/send", MESSAGE))["result"]["status"]["state"] == "rejected"


async def test_sends_at_the_same_moment_take_no_more_room_than_there_is(tmp_path: Path) -> None:
    """Room is decided before anything is waited for."""
    async with session(tmp_path, capsule(queue_depth=3)) as s:
        answers = await asyncio.gather(*(s.call("message/send", MESSAGE) for _ in range(20)))
        states = [answer["result"]["status"]["state"] for answer in answers]
        assert sorted(states) == ["rejected"] * 16 + ["submitted"] * 4
        assert s.engine.counts() == {"submitted": 4}


async def test_get_without_an_id_is_the_active_task_or_the_last(tmp_path: Path) -> None:
    """-32001 before any task; an id that is no string counts as none."""
    async with session(tmp_path) as s:
        assert (await s.call("tasks/get", {}))["error"]["code"] == -32001
        first, second = await s.send(), await s.send()
        for params in ({}, {"id": None}, {"id": 1}, {"id": [second]}):
            assert (await s.call("tasks/get", params))["result"]["id"] == first
        for task_id in (second, first):
            await s.call("tasks/cancel", {"id": task_id})
        last = (await s.call("tasks/get"))["result"]
        assert (last["id"], last["status"]["state"]) == (first, "canceled")


@pytest.mark.parametrize("task_id", ["tsk_0", "", "tsk_" + "0" * 32, "\x00", "' OR 1=1 --", "ü" * 1000])
async def test_an_unknown_task_is_not_found(tmp_path: Path, task_id: str) -> None:
    """By get and by cancel."""
    async with session(tmp_path) as s:
        await s.send()
        for method in ("tasks/get", "tasks/cancel"):
            error = (await s.call(method, {"id": task_id}))["error"]
            assert error == {"code": -32001, "message": "Task not found"}


async def test_a_task_of_another_session_is_not_found(tmp_path: Path) -> None:
    """Though it is in the same file."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        ended = await s.send_then_cancel()
    async with session(tmp_path, capsule(session_id="ses_other")) as s:
        for each in (task_id, ended):
            assert (await s.call("tasks/get", {"id": each}))["error"]["code"] == -32001
            assert (await s.call("tasks/cancel", {"id": each}))["error"]["code"] == -32001


@pytest.mark.parametrize("params", [{}, None, {"id": None}, {"id": 1}, {"id": ["a"]}])
async def test_a_cancel_needs_an_id(tmp_path: Path, params: object) -> None:
    """-32602: it never cancels the active task by itself."""
    async with session(tmp_path) as s:
        await s.send()
        error = (await s.call("tasks/cancel", params))["error"]
        assert error["code"] == -32602
        assert error["message"].startswith("Invalid params: ")
        assert s.engine.counts() == {"submitted": 1}


async def test_a_canceled_task_stays_canceled(tmp_path: Path) -> None:
    """Canceling it again is a result, unchanged, and makes no second frame."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        first = (await s.call("tasks/cancel", {"id": task_id}))["result"]
        assert first["status"] == {
            "state": "canceled",
            "message": {
                "messageId": f"msg_{task_id}_status",
                "role": "agent",
                "parts": [{"text": "task canceled before it started"}],
            },
        }
        assert "artifacts" not in first
        assert (await s.call("tasks/cancel", {"id": task_id}))["result"] == first
        assert (await s.call("tasks/get", {"id": task_id}))["result"] == first
        assert s.engine.feed.head == 1


async def test_cancels_at_the_same_moment_end_a_task_once(tmp_path: Path) -> None:
    """All of them answer alike."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        answers = await asyncio.gather(*(s.call("tasks/cancel", {"id": task_id}) for _ in range(10)))
        assert len({json.dumps(answer) for answer in answers}) == 1
        assert s.engine.feed.head == 1


async def test_stop_cancels_every_live_task(tmp_path: Path) -> None:
    """Its result has exactly its three keys; the door stays open."""
    async with session(tmp_path) as s:
        ended = await s.send_then_cancel()
        live = [await s.send() for _ in range(3)]
        result: dict[str, Any] = (await s.call("session/stop"))["result"]
        assert result == {"session_id": SESSION, "canceled": sorted(live), "residue": []}
        assert list(result) == ["session_id", "canceled", "residue"]
        assert ended not in result["canceled"]
        for task_id in live:
            assert (await s.call("tasks/get", {"id": task_id}))["result"]["status"]["state"] == "canceled"
        assert (await s.call("session/stop"))["result"]["canceled"] == []
        await s.send()


async def test_tasks_outlive_a_restart(tmp_path: Path) -> None:
    """Live and ended ones, what is active, and how much room is left."""
    async with session(tmp_path, capsule(queue_depth=1)) as s:
        ended = await s.send_then_cancel()
        shown = (await s.call("tasks/get", {"id": ended}))["result"]
        first, second = await s.send(), await s.send()
    async with session(tmp_path, capsule(queue_depth=1)) as s:
        assert (await s.call("tasks/get", {"id": ended}))["result"] == shown
        assert (await s.call("tasks/get"))["result"]["id"] == first
        assert s.engine.counts() == {"submitted": 2}
        assert (await s.call("message/send", MESSAGE))["result"]["status"]["state"] == "rejected"
        assert (await s.call("session/stop"))["result"]["canceled"] == sorted([first, second])
    async with session(tmp_path) as s:
        assert (await s.call("tasks/get"))["result"]["id"] == second


async def test_more_ended_tasks_than_are_remembered_are_read_from_the_file(tmp_path: Path) -> None:
    """All of them stay readable."""
    async with session(tmp_path, capsule(queue_depth=100)) as s:
        await asyncio.gather(*(s.send() for _ in range(80)))
        ids = (await s.call("session/stop"))["result"]["canceled"]
        assert len(ids) == 80
        for task_id in ids:
            assert (await s.call("tasks/get", {"id": task_id}))["result"]["id"] == task_id


async def test_none_serves_what_was_taken_before(tmp_path: Path) -> None:
    """A manifest that changes to `none` starts nothing more; its tasks can still be read and canceled."""
    async with session(tmp_path) as s:
        task_id = await s.send()
    async with session(tmp_path, capsule(TaskAcceptance.NONE)) as s:
        assert (await s.call("message/send", MESSAGE))["error"]["code"] == -32601
        assert (await s.call("tasks/get", {"id": "tsk_0"}))["error"]["code"] == -32001
        assert (await s.call("tasks/cancel", {"id": task_id}))["result"]["status"]["state"] == "canceled"
