"""The murmur door without streams: bytes in, bytes out, over a real engine and a real database."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sidecar.model import METHODS, TaskAcceptance
from tests.support.sessions import MESSAGE, SESSION, capsule, request, session

if TYPE_CHECKING:
    from pathlib import Path

ID = re.compile(r"(tsk|ctx)_[0-9a-f]{12}7[0-9a-f]{19}")


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


async def test_an_accepted_task_is_in_the_file_when_it_is_answered(tmp_path: Path) -> None:
    """Another connection sees it, with the message as it came."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        with closing(sqlite3.connect(tmp_path / "sidecar.db")) as other:
            ((state, message),) = other.execute("SELECT state, request FROM tasks WHERE id = ?", (task_id,))
    assert (state, json.loads(message)) == ("submitted", MESSAGE)


async def test_tasks_over_the_limit_are_rejected(tmp_path: Path) -> None:
    """However deep the queue."""
    async with session(tmp_path, capsule(queue_depth=50), max_live=2) as s:
        await s.send()
        await s.send()
        assert (await s.call("message/send", MESSAGE))["result"]["status"]["state"] == "rejected"


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


async def test_a_task_of_another_session_is_not_found(tmp_path: Path) -> None:
    """Though it is in the same file."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        ended = await s.send_then_cancel()
    async with session(tmp_path, capsule(session_id="ses_other")) as s:
        for each in (task_id, ended):
            assert (await s.call("tasks/get", {"id": each}))["error"]["code"] == -32001
            assert (await s.call("tasks/cancel", {"id": each}))["error"]["code"] == -32001


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
