"""The agents of `examples/capsules` do what they say."""

from __future__ import annotations

import os
from pathlib import Path

from sidecar.events import EventKind, TaskState
from tests.support.commands import bench, message, served

EXAMPLES = Path(__file__).parents[2] / "examples" / "capsules"
ENVIRON = {"PATH": os.environ["PATH"]}


async def test_the_greeter_streams_its_greeting(tmp_path: Path) -> None:
    """A shell script; the second line comes while the first one is out."""
    capsule = served(EXAMPLES / "greeter", ("./agent.sh",))
    async with bench(tmp_path, capsule=capsule, environ=ENVIRON) as b:
        task = await b.do("Ada")
        assert task.output == f"Hello, Ada.\nThis is task {task.id} of hello.\n"
        pieces = [e.data["text"] for e in await b.events(task.id) if e.kind is EventKind.TEXT]
        assert pieces == ["Hello, Ada.\n", f"This is task {task.id} of hello.\n", ""]
        failed = await b.do("")
        assert (failed.state, failed.status) == (
            TaskState.FAILED,
            "the command ended with exit status 1: say who is to be greeted",
        )


async def test_the_planner_asks_and_makes_a_plan(tmp_path: Path) -> None:
    """It thinks, calls a tool, asks, streams, and leaves an artifact."""
    capsule = served(EXAMPLES / "planner", ("python3", "agent.py"), protocol="jsonl")
    async with bench(tmp_path, capsule=capsule, environ=ENVIRON) as b:
        task_id = await b.send("water, earth, seeds")
        task = await b.state(task_id, "input-required")
        assert task.output == "What should come first: water, earth, seeds?"
        assert await b.engine.deliver(message("earth")) is not None
        task = await b.ended(task_id)
        assert (task.state, task.output) == (TaskState.COMPLETED, "1. earth\n2. water\n3. seeds\n")
        events = await b.events(task_id)
        assert [str(e.kind) for e in events if e.kind is not EventKind.STATUS] == [
            "thinking",
            "tool",
            "text",
            "text",
            "text",
            "artifact",
            "text",
        ]
        (artifact,) = [e.data for e in events if e.kind is EventKind.ARTIFACT]
        assert artifact["parts"][0]["text"] == "- [ ] earth\n- [ ] water\n- [ ] seeds\n"


async def test_the_planner_says_what_it_wants(tmp_path: Path) -> None:
    """Nothing to plan is no success."""
    capsule = served(EXAMPLES / "planner", ("python3", "agent.py"), protocol="jsonl")
    async with bench(tmp_path, capsule=capsule, environ=ENVIRON) as b:
        task = await b.do(" , ")
        assert task.state is TaskState.FAILED
        assert (task.status or "").startswith("there is nothing to plan: ")
