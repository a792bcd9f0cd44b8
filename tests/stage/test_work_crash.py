"""What survives a kill -9 in the middle of work."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from sidecar.events import TERMINAL
from tests.support.killing import killed_after
from tests.support.sessions import capsule, session

if TYPE_CHECKING:
    from pathlib import Path

TOLD_BY = "tests.support.toiling"
ROUNDS = 5


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_work_that_was_acknowledged_is_lost_by_a_kill(tmp_path: Path, seed: int) -> None:
    """Round after round on one file: tasks, answers, replies and frames are there, once, in dense numbers."""
    rng = random.Random(seed)
    submitted: set[str] = set()
    answers: dict[str, int] = {}
    replies: dict[str, str] = {}
    frames: dict[int, str] = {}
    for _ in range(ROUNDS):
        for line in killed_after(rng.randrange(1, 600), TOLD_BY, tmp_path):
            what, name, *rest = line.split(" ")
            if what == "submitted":
                submitted.add(name)
            elif what == "answered":
                answers[name] = answers.get(name, 0) + 1
            elif what == "completed":
                replies[name] = rest[0]
            elif what == "frame":
                assert frames.setdefault(int(name), rest[0]) == rest[0]
        check_file(tmp_path / "sidecar.db", submitted, answers, replies)
    async with session(tmp_path, capsule(queue_depth=99)) as s:
        assert await s.engine.ready()
        live = s.engine.counts()
        assert len(s.engine.interrupted()) == live.get("working", 0) + live.get("input-required", 0)
        stream = await s.stream("stream/watch")
        seen: dict[int, str] = {}
        while s.engine.feed.head > max(seen, default=0):
            for frame in (await stream.next() or b"").removesuffix(b"\n\n").split(b"\n\n"):
                if frame.startswith(b"id: "):
                    number = int(frame.split(b"\n", 1)[0].removeprefix(b"id: "))
                    seen[number] = sha256(frame).hexdigest()[:16]
        assert list(seen) == list(range(1, s.engine.feed.head + 1))
        assert frames.items() <= seen.items()


def check_file(path: Path, submitted: set[str], answers: dict[str, int], replies: dict[str, str]) -> None:
    """Hold the file against what was acknowledged, and against itself."""
    with closing(sqlite3.connect(path)) as file:
        tasks = {row[0]: row[1:] for row in file.execute("SELECT id, state, output FROM tasks")}
        inputs = dict(file.execute("SELECT task_id, count(*) FROM inputs GROUP BY task_id"))
        events = file.execute("SELECT seq, frame, task_id, kind, data FROM events ORDER BY seq").fetchall()
    assert submitted <= tasks.keys()
    assert all(inputs.get(task_id, 0) >= count for task_id, count in answers.items())
    assert {task_id: tasks[task_id] for task_id in replies} == {
        task_id: ("completed", reply) for task_id, reply in replies.items()
    }
    assert [seq for seq, *_ in events] == list(range(1, len(events) + 1))
    numbered = [frame for _, frame, *_ in events if frame is not None]
    assert numbered == list(range(1, len(numbered) + 1))
    over: set[str] = set()
    texts: dict[str, str] = {}
    for _, _, task_id, kind, text in events:
        data = json.loads(text)
        assert task_id not in over
        if kind == "text":
            texts[task_id] = texts.get(task_id, "") + data["text"]
        elif data.get("message", "").startswith("inference turn"):
            texts[task_id] = ""
        elif data.get("state") in TERMINAL:
            over.add(task_id)
            assert data.get("response") == texts[task_id] == tasks[task_id][1]
    assert over == {task_id for task_id, (state, _) in tasks.items() if state in TERMINAL}
