"""Cases of send, get and acceptance, one test each, over the socket of a served capsule (murmur reference, The door)."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from sidecar.model import AfterTask, TaskAcceptance
from tests.support.port import MESSAGE, message, served, taking

if TYPE_CHECKING:
    from pathlib import Path

SINGLE = taking(TaskAcceptance.SINGLE)


async def test_a_send_to_an_idle_single_capsule_is_submitted(tmp_path: Path) -> None:
    """JSON-RPC 2.0, no error, an id, `submitted`."""
    async with served(tmp_path, SINGLE) as port:
        answer = await port.call("message/send", {"message": MESSAGE})
        assert (answer["jsonrpc"], list(answer)) == ("2.0", ["jsonrpc", "id", "result"])
        assert list(answer["result"]) == ["id", "contextId", "status"]
        assert re.fullmatch(r"tsk_[0-9a-f]{12}7[0-9a-f]{19}", answer["result"]["id"])
        assert answer["result"]["status"] == {"state": "submitted"}
        assert await port.task(answer["result"]["id"]) == answer["result"]


async def test_a_second_send_to_a_single_capsule_is_a_result_that_is_rejected(tmp_path: Path) -> None:
    """It is no error, and says why."""
    async with served(tmp_path, SINGLE) as port:
        await port.send()
        await port.work()
        rejected = await port.result("message/send", message("second"))
        assert rejected["status"] == {
            "state": "rejected",
            "message": {
                "messageId": f"msg_{rejected['id']}_status",
                "role": "agent",
                "parts": [{"text": "task rejected: capsule is busy"}],
            },
        }


async def test_the_id_of_a_rejected_task_is_not_kept(tmp_path: Path) -> None:
    """A later get, or cancel, does not find it."""
    async with served(tmp_path, SINGLE) as port:
        await port.send()
        rejected = await port.result("message/send", message("second"))
        for method in ("tasks/get", "tasks/cancel"):
            assert (await port.error(method, {"id": rejected["id"]}))["code"] == -32001


async def test_two_quick_sends_to_a_queue_both_run_in_order(tmp_path: Path) -> None:
    """Both are submitted; the second starts once the first is over."""
    async with served(tmp_path, taking(queue_depth=2)) as port:
        ids = list(await asyncio.gather(port.send("one"), port.send("two")))
        first = await port.work()
        assert first.id in ids
        await port.idle()
        ids.remove(first.id)
        assert await port.state(ids[0]) == "submitted"
        await first.complete("done")
        second = await port.work()
        assert second.id == ids[0]
        await second.complete("too")
        for working, reply in ((first, "done"), (second, "too")):
            task = await port.task(working.id)
            assert task["status"]["state"] == "completed"
            assert task["artifacts"] == [{"name": "response", "parts": [{"text": reply}]}]


@pytest.mark.parametrize(
    ("acceptance", "depth", "holds"),
    [("single", 3, 1), ("queue", 0, 0), ("queue", 1, 2), ("queue", 3, 4)],
)
async def test_a_registry_holds_so_many(tmp_path: Path, acceptance: str, depth: int, holds: int) -> None:
    """`single` one, a queue one more than its depth, one of depth 0 nothing; sent at once or one by one."""
    async with served(tmp_path, taking(TaskAcceptance(acceptance), queue_depth=depth)) as port:
        sends = [port.result("message/send", message(str(number))) for number in range(holds + 3)]
        states = [task["status"]["state"] for task in await asyncio.gather(*sends)]
        assert sorted(states) == ["rejected"] * 3 + ["submitted"] * holds
        one_more = await port.result("message/send", message("more"))
        assert one_more["status"]["state"] == "rejected"


async def test_none_holds_nothing(tmp_path: Path) -> None:
    """The methods that start tasks are not served; get answers, though not that."""
    async with served(tmp_path, taking(TaskAcceptance.NONE)) as port:
        for method in ("message/send", "message/stream"):
            assert await port.error(method, message("x")) == {"code": -32601, "message": "Method not found"}
        assert (await port.error("tasks/get", {"id": "tsk_0"}))["code"] == -32001


async def test_a_cancel_of_a_pending_task_makes_room(tmp_path: Path) -> None:
    """A queue of depth 2 with two pending beside the running one is full."""
    async with served(tmp_path, taking(queue_depth=2)) as port:
        await port.send()
        await port.work()
        pending = [await port.send(), await port.send()]
        assert (await port.result("message/send", message("x")))["status"]["state"] == "rejected"
        await port.cancel(pending[0])
        await port.send()
        assert (await port.result("message/send", message("x")))["status"]["state"] == "rejected"


async def test_states_are_spelled_as_in_the_reference(tmp_path: Path) -> None:
    """As they go by; `rejected` is above."""
    async with served(tmp_path, taking(queue_depth=5)) as port:
        asking, canceled, failing = [await port.send(text) for text in ("a", "b", "c")]
        seen = [await port.state(asking)]
        working = await port.work()
        seen.append(await port.state(asking))
        await working.ask("Which?")
        seen.append(await port.state(asking))
        seen.append((await port.cancel(canceled))["status"]["state"])
        assert (await port.work()).id == failing
        await (await port.engine()).release(failing, failed="no")
        seen.append(await port.state(failing))
        await port.result("message/send", message("red"))
        await working.complete("done")
        seen.append(await port.state(asking))
        assert seen == ["submitted", "working", "input-required", "canceled", "failed", "completed"]


@pytest.mark.parametrize("context", ["ctx_mine", "any text", ""])
async def test_a_context_that_was_sent_is_echoed(tmp_path: Path, context: str) -> None:
    """Verbatim, also from tasks/get."""
    async with served(tmp_path, SINGLE) as port:
        sent = await port.result("message/send", message("x", contextId=context))
        assert sent["contextId"] == context
        assert (await port.task(sent["id"]))["contextId"] == context


@pytest.mark.parametrize("more", [{}, {"contextId": None}])
async def test_without_a_context_the_task_gets_one(tmp_path: Path, more: dict[str, None]) -> None:
    """`ctx_` and 32 hex digits."""
    async with served(tmp_path, SINGLE) as port:
        sent = await port.result("message/send", message("x", **more))
        assert re.fullmatch("ctx_[0-9a-f]{32}", sent["contextId"])


async def test_params_without_the_wrapper_are_the_message(tmp_path: Path) -> None:
    """Its text reaches the worker."""
    async with served(tmp_path, SINGLE) as port:
        assert (await port.result("message/send", MESSAGE))["status"]["state"] == "submitted"
        assert (await port.work()).texts() == ["hello"]


@pytest.mark.parametrize("missing", ["messageId", "role", "parts"])
async def test_a_message_that_misses_something_is_invalid(tmp_path: Path, missing: str) -> None:
    """-32602 `Invalid params: …`, with and without the wrapper; nothing is kept of it."""
    bad = {key: value for key, value in MESSAGE.items() if key != missing}
    async with served(tmp_path, SINGLE) as port:
        for params in (bad, {"message": bad}):
            error = await port.error("message/send", params)
            assert error == {"code": -32602, "message": f"Invalid params: {missing} is missing"}
        assert (await port.error("tasks/get", {}))["code"] == -32001


async def test_get_without_an_id_is_the_task_that_runs(tmp_path: Path) -> None:
    """Before any task -32001; while one runs that one, though others wait; then the last."""
    async with served(tmp_path, taking(queue_depth=5)) as port:
        assert await port.error("tasks/get", {}) == {"code": -32001, "message": "Task not found"}
        task_id, queued = await port.send(), await port.send()
        working = await port.work()
        task = await port.result("tasks/get", {})
        assert (task["id"], task["status"]) == (task_id, {"state": "working"})
        await port.cancel(queued)
        await working.complete("done")
        assert (await port.result("tasks/get", {}))["id"] == task_id


@pytest.mark.parametrize("task_id", ["tsk_0", "", "tsk_" + "0" * 32, "\x00", "' OR 1=1 --", "ü" * 1000])
async def test_an_unknown_task_is_not_found(tmp_path: Path, task_id: str) -> None:
    """-32001 `Task not found`, whatever it looks like."""
    async with served(tmp_path, SINGLE) as port:
        await port.send()
        assert await port.error("tasks/get", {"id": task_id}) == {"code": -32001, "message": "Task not found"}


async def test_a_queue_that_sleeps_stays_open_and_its_finished_tasks_readable(tmp_path: Path) -> None:
    """Also when nothing has been asked of it for a while, and of a `single` capsule that would exit."""
    for after, acceptance in (
        (AfterTask.SLEEP, TaskAcceptance.QUEUE),
        (AfterTask.EXIT, TaskAcceptance.SINGLE),
    ):
        root = tmp_path / after
        root.mkdir()
        async with served(root, taking(acceptance, after_task=after, queue_depth=2), idle=0.1) as port:
            task_id = await port.send()
            await (await port.work()).complete("done")
            reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
            async with asyncio.timeout(10):
                assert await reader.read() == b""  # nothing was asked for as long as a connection may be idle
            writer.close()
            await writer.wait_closed()
            assert (await port.task(task_id))["artifacts"][0]["parts"] == [{"text": "done"}]
            await port.send("next")


async def test_the_door_answers_while_a_turn_blocks(tmp_path: Path) -> None:
    """Get says working, a second send is submitted, a watch is acknowledged: none of them waits for the worker."""
    async with served(tmp_path, taking(queue_depth=2)) as port:
        task_id = await port.send()
        await port.work()  # and says nothing ever
        async with asyncio.timeout(6):
            assert await port.state(task_id) == "working"
        async with asyncio.timeout(6):
            await port.send("second")
        async with asyncio.timeout(6):
            await port.watch()
