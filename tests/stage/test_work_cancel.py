"""Canceling and stopping tasks that are worked on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sidecar.events import TaskState
from sidecar.tasks.said import Completed
from tests.support.gates import Gate
from tests.support.sessions import session
from tests.support.working import work

if TYPE_CHECKING:
    from pathlib import Path


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
