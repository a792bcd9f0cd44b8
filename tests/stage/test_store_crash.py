"""What survives a kill -9 at any moment: everything that was acknowledged, and numbers without a hole."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.support.killing import killed_after
from tests.support.sessions import SESSION, session

if TYPE_CHECKING:
    from pathlib import Path

TOLD_BY = "tests.support.acknowledging"
ROUNDS = 4


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path, seed: int) -> None:
    """Round after round on one file: each task is there in its state, each frame that was seen has its number."""
    rng = random.Random(seed)
    tasks: dict[str, str] = {}
    frames: dict[int, str] = {}
    states: dict[str, str] = {}
    for _ in range(ROUNDS):
        for what, task_id, *number in map(str.split, killed_after(rng.randrange(1, 400), TOLD_BY, tmp_path)):
            if what == "frame":
                assert frames.setdefault(int(number[0]), task_id) == task_id
            elif what == "submitted":
                tasks[task_id] = "submitted"
            else:
                tasks[task_id] = "canceled"
        with closing(sqlite3.connect(tmp_path / "sidecar.db")) as file:
            states = dict(file.execute("SELECT id, state FROM tasks"))
            events = file.execute("SELECT frame, seq, task_id FROM events ORDER BY seq").fetchall()
        assert [seq for _, seq, _ in events] == list(range(1, len(events) + 1))
        events = [event for event in events if event[0] is not None]
        assert [number for number, *_ in events] == list(range(1, len(events) + 1))
        assert frames.items() <= {number: task_id for number, _, task_id in events}.items()
        assert len({task_id for *_, task_id in events}) == len(events)
        for task_id, state in tasks.items():
            assert states[task_id] in {state, "canceled"}
        canceled = {task_id for task_id, state in states.items() if state == "canceled"}
        assert canceled == {task_id for *_, task_id in events}
    async with session(tmp_path) as s:
        assert s.engine.counts()["submitted"] == sum(state == "submitted" for state in states.values())
        assert (await s.call("session/stop"))["result"]["session_id"] == SESSION
        assert s.engine.feed.head == len(states)
