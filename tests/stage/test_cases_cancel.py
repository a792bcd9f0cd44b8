"""Cases of cancel and stop, one test each, over the socket of a served capsule (murmur reference, The door)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from sidecar.model import TaskAcceptance
from sidecar.tasks.said import Completed, Failed, Text
from tests.support.port import served, taking

if TYPE_CHECKING:
    from pathlib import Path

SINGLE = taking(TaskAcceptance.SINGLE)


async def test_a_running_task_is_canceled_though_its_worker_is_busy(tmp_path: Path) -> None:
    """At once, without waiting for the worker, which is told to stop; no later outcome overwrites it."""
    async with served(tmp_path, SINGLE) as port:
        task_id = await port.send()
        working = await port.work()  # and does not look up
        orders = working.orders
        async with asyncio.timeout(9):
            canceled = await port.cancel(task_id)
        assert canceled["status"] == {
            "state": "canceled",
            "message": {
                "messageId": f"msg_{task_id}_status",
                "role": "agent",
                "parts": [{"text": "task canceled"}],
            },
        }
        assert orders.canceled
        for late in (Text("more"), Failed("no"), Completed("yes")):
            await working.say(late)
            assert await port.task(task_id) == canceled


async def test_a_completed_task_stays_completed_however_often_it_is_canceled(tmp_path: Path) -> None:
    """Twice a result, unchanged."""
    async with served(tmp_path, SINGLE) as port:
        task_id = await port.send()
        await (await port.work()).complete("done")
        task = await port.task(task_id)
        assert task["status"]["state"] == "completed"
        for _ in range(2):
            assert await port.cancel(task_id) == task


async def test_a_live_task_may_be_canceled_twice(tmp_path: Path) -> None:
    """Canceled, and no error the second time, also at the same moment."""
    async with served(tmp_path, taking(queue_depth=2)) as port:
        for task_id in (await port.send(), await port.send()):
            both = await asyncio.gather(port.cancel(task_id), port.cancel(task_id))
            assert both[0] == both[1] == await port.cancel(task_id)
            assert both[0]["status"]["state"] == "canceled"
        assert (await port.engine()).feed.head == 2


async def test_an_unknown_task_cannot_be_canceled(tmp_path: Path) -> None:
    """-32001 `Task not found`."""
    async with served(tmp_path, SINGLE) as port:
        assert await port.error("tasks/cancel", {"id": "tsk_0"}) == {
            "code": -32001,
            "message": "Task not found",
        }


@pytest.mark.parametrize("params", [{}, None, {"id": None}, {"id": 1}, {"id": ["a"]}])
async def test_a_cancel_needs_an_id(tmp_path: Path, params: object) -> None:
    """-32602; the task that runs is not meant."""
    async with served(tmp_path, SINGLE) as port:
        task_id = await port.send()
        error = await port.error("tasks/cancel", params)
        assert error["code"] == -32602
        assert error["message"].startswith("Invalid params: ")
        assert await port.state(task_id) == "submitted"


async def test_a_queued_task_that_is_canceled_never_starts(tmp_path: Path) -> None:
    """Its text never reaches a worker; the running one completes."""
    async with served(tmp_path, taking(queue_depth=2)) as port:
        running, queued = await port.send("running"), await port.send("never")
        working = await port.work()
        canceled = await port.cancel(queued)
        assert canceled["status"]["message"]["parts"] == [{"text": "task canceled before it started"}]
        await working.complete("done")
        await port.idle()
        assert working.texts() == ["running"]
        assert [await port.state(task_id) for task_id in (running, queued)] == ["completed", "canceled"]


async def test_with_nothing_left_running_there_is_no_artifacts_key(tmp_path: Path) -> None:
    """What is left is one `residue` item of cancel, and in the list of stop, until it is gone."""
    async with served(tmp_path, SINGLE) as port:
        task_id = await port.send()
        await port.work()
        assert "artifacts" not in await port.cancel(task_id)
        (await port.engine()).leave(task_id, "process 7 outlived SIGKILL")
        assert (await port.cancel(task_id))["artifacts"] == [
            {"name": "residue", "parts": [{"text": "process 7 outlived SIGKILL"}]}
        ]
        assert "artifacts" not in await port.task(task_id)
        assert (await port.result("session/stop"))["residue"] == ["process 7 outlived SIGKILL"]
        other = await port.send()
        assert "artifacts" not in await port.cancel(other)
        (await port.engine()).leave(task_id, None)
        assert (await port.result("session/stop"))["residue"] == []
        assert "artifacts" not in await port.cancel(task_id)


async def test_a_waiting_task_is_canceled_and_not_failed(tmp_path: Path) -> None:
    """Its prompt goes with it."""
    async with served(tmp_path, SINGLE) as port:
        task_id = await port.send()
        working = await port.work()
        orders = working.orders
        await working.ask("Which colour?")
        canceled = await port.cancel(task_id)
        assert (canceled["status"]["state"], "artifacts" in canceled) == ("canceled", False)
        assert orders.canceled
        assert await port.task(task_id) == canceled


async def test_the_stream_of_a_canceled_task_ends(tmp_path: Path) -> None:
    """The last status is canceled and final, then comes the end of the connection."""
    async with served(tmp_path, SINGLE) as port:
        stream = await port.stream()
        working = await port.work()
        await working.say(Text("half"))
        await port.cancel(working.id)
        last = (await stream.frames_to_eof())[-1]
        assert (last.event, last.data["status"], last.data["final"]) == (
            "status",
            {"state": "canceled", "message": "task canceled"},
            True,
        )


async def test_a_stop_of_an_idle_capsule_cancels_nothing(tmp_path: Path) -> None:
    """Exactly three keys, nothing canceled, no residue."""
    async with served(tmp_path, SINGLE) as port:
        result = await port.result("session/stop")
        assert list(result) == ["session_id", "canceled", "residue"]
        assert (result["canceled"], result["residue"]) == ([], [])


async def test_a_stop_names_the_session_of_the_card(tmp_path: Path) -> None:
    """With and without tasks."""
    async with served(tmp_path, SINGLE) as port:
        session = (await port.card())["session_id"]
        assert (await port.result("session/stop"))["session_id"] == session
        await port.send()
        assert (await port.result("session/stop", {}))["session_id"] == session


async def test_after_a_stop_the_door_still_answers(tmp_path: Path) -> None:
    """Running, waiting and queued tasks are canceled alike, sorted; what was over before is not among them."""
    async with served(tmp_path, taking(queue_depth=9), settings={"concurrency": 3}) as port:
        ended = await port.send()
        await (await port.work()).complete("done")
        live = [await port.send() for _ in range(4)]
        asking, running = await port.work(), await port.work()
        await asking.ask("Which?")
        both = [asking.orders, running.orders]
        result = await port.result("session/stop")
        assert result["canceled"] == sorted(live)
        assert all(orders.canceled for orders in both)
        assert {await port.state(task_id) for task_id in live} == {"canceled"}
        assert await port.state(ended) == "completed"
        await port.send("next")
