"""Canceling and stopping tasks that are worked on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sidecar.events import TaskState
from sidecar.tasks.said import Completed, Failed, Text
from tests.support.gates import Gate
from tests.support.sessions import SESSION, capsule, session
from tests.support.working import work

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_running_task_is_canceled_without_waiting_for_its_worker(tmp_path: Path) -> None:
    """It is canceled at once, for good, and nothing is left of it; its worker is told."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        working = await work(s.engine)
        orders = working.orders
        canceled = (await s.call("tasks/cancel", {"id": task_id}))["result"]
        assert canceled["status"]["state"] == "canceled"
        assert canceled["status"]["message"]["parts"] == [{"text": "task canceled"}]
        assert "artifacts" not in canceled
        assert orders.canceled
        for late in (Text("more"), Failed("no"), Completed("yes")):
            assert (await working.say(late)).state is TaskState.CANCELED
        assert (await s.call("tasks/get", {"id": task_id}))["result"] == canceled
        assert (await s.call("tasks/cancel", {"id": task_id}))["result"] == canceled
        assert s.engine.generation == 1


async def test_a_completed_task_stays_completed(tmp_path: Path) -> None:
    """Canceling it is a result, unchanged, as often as one likes."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        await (await work(s.engine)).complete("done")
        shown = (await s.call("tasks/get", {"id": task_id}))["result"]
        for _ in range(2):
            assert (await s.call("tasks/cancel", {"id": task_id}))["result"] == shown
        assert shown["status"]["state"] == "completed"
        assert shown["artifacts"] == [{"name": "response", "parts": [{"text": "done"}]}]


async def test_a_queued_task_that_is_canceled_never_starts(tmp_path: Path) -> None:
    """Its text reaches no worker; the running one completes."""
    async with session(tmp_path) as s:
        running, queued = await s.send(), await s.send()
        working = await work(s.engine)
        await s.call("tasks/cancel", {"id": queued})
        await working.complete("done")
        assert (await s.call("tasks/get", {"id": running}))["result"]["status"]["state"] == "completed"
        assert await s.engine.claim() is None


async def test_a_task_that_is_canceled_while_it_is_claimed_is_over_for_its_worker(tmp_path: Path) -> None:
    """Whichever is committed first."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        gate = Gate(s.store)
        await gate.reached()
        claiming = asyncio.ensure_future(s.engine.claim())
        await asyncio.sleep(0)
        canceling = asyncio.ensure_future(s.call("tasks/cancel", {"id": task_id}))
        await asyncio.sleep(0)
        gate.open()
        claim = await claiming
        assert claim is not None
        await canceling
        assert s.engine.orders(task_id).canceled
        assert s.engine.feed.head == 2


async def test_a_final_report_and_a_cancel_at_the_same_moment_end_the_task_once(tmp_path: Path) -> None:
    """The first decision counts, for both."""
    for reported_first in (True, False):
        directory = tmp_path / str(reported_first)
        directory.mkdir()
        async with session(directory) as s:
            task_id = await s.send()
            working = await work(s.engine)
            jobs = [working.say(Completed("done")), s.engine.cancel(task_id)]
            tasks = await asyncio.gather(*(jobs if reported_first else reversed(jobs)))
            expected = TaskState.COMPLETED if reported_first else TaskState.CANCELED
            assert {task.state for task in tasks if task is not None} == {expected}
            assert s.engine.feed.head == (3 if reported_first else 2)


async def test_what_outlives_its_task_is_shown_until_it_is_gone(tmp_path: Path) -> None:
    """As one `residue` item by cancel, in the list by stop, and nowhere else."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        await work(s.engine)
        await s.call("tasks/cancel", {"id": task_id})
        s.engine.leave(task_id, "process 7 outlived SIGKILL")
        canceled = (await s.call("tasks/cancel", {"id": task_id}))["result"]
        assert canceled["artifacts"] == [
            {"name": "residue", "parts": [{"text": "process 7 outlived SIGKILL"}]}
        ]
        assert "artifacts" not in (await s.call("tasks/get", {"id": task_id}))["result"]
        other = await s.send()
        assert "artifacts" not in (await s.call("tasks/cancel", {"id": other}))["result"]
        assert (await s.call("session/stop"))["result"] == {
            "session_id": SESSION,
            "canceled": [],
            "residue": ["process 7 outlived SIGKILL"],
        }
        s.engine.leave(task_id, None)
        s.engine.leave(task_id, None)
        assert (await s.call("session/stop"))["result"]["residue"] == []
        assert "artifacts" not in (await s.call("tasks/cancel", {"id": task_id}))["result"]


async def test_stop_ends_running_waiting_and_queued_tasks_alike(tmp_path: Path) -> None:
    """All workers are told; the door stays open."""
    async with session(tmp_path, capsule(queue_depth=9, concurrency=2)) as s:
        ids = [await s.send() for _ in range(4)]
        asking, running = await work(s.engine), await work(s.engine)
        await asking.ask("Which?")
        both = [asking.orders, running.orders]
        result = (await s.call("session/stop"))["result"]
        assert result == {"session_id": SESSION, "canceled": sorted(ids), "residue": []}
        assert all(orders.canceled for orders in both)
        assert s.engine.generation == 2
        for task_id in ids:
            assert (await s.call("tasks/get", {"id": task_id}))["result"]["status"]["state"] == "canceled"
        task_id = await s.send()
        assert (await work(s.engine)).id == task_id


async def test_a_cancel_that_cannot_be_committed_cancels_nothing(tmp_path: Path) -> None:
    """The worker goes on."""
    async with session(tmp_path) as s:
        task_id = await s.send()
        working = await work(s.engine)
        await s.store.write(lambda c: c.execute("ALTER TABLE events RENAME TO hidden"))
        assert (await s.call("tasks/cancel", {"id": task_id}))["error"]["code"] == -32603
        await s.store.write(lambda c: c.execute("ALTER TABLE hidden RENAME TO events"))
        assert not working.orders.canceled
        assert (await working.complete("done")).state is TaskState.COMPLETED
