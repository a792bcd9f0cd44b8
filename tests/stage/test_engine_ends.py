"""What the engines say of tasks that end, over a real database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.store import Store
from sidecar.tasks.engines import Engines
from sidecar.tasks.model import Input, Rules
from tests.support.sessions import SESSION, capsule

if TYPE_CHECKING:
    from pathlib import Path


async def test_each_task_that_ends_is_told_once_with_its_final_state(tmp_path: Path) -> None:
    """A task without room never began, so it ends as nothing; cancelling twice is one end."""
    ended: list[str] = []
    store = Store.open(str(tmp_path / "sidecar.db"))
    engines = Engines(store, keep_events=1000, keep_tasks=3600.0, on_end=ended.append)
    try:
        engine = await engines.open(SESSION, Rules.of(capsule(), max_live=2))
        tasks = [await engine.send(Input("x", "{}"), context_id=None, owner="operator") for _ in range(3)]
        assert tasks[2].state == "rejected"
        await engine.claim()
        assert ended == []
        await engine.release(tasks[0].id, failed="no")
        await engine.cancel(tasks[1].id)
        await engine.cancel(tasks[1].id)
        assert ended == ["failed", "canceled"]
    finally:
        await engines.aclose()
        store.close()
