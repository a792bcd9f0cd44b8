#!/usr/bin/env python3
"""A worker for the capsule hello. Start it beside the sidecar, as the same user: it finds the way by itself."""

import asyncio

from sidecar.worker import Task, Worker


async def greet(task: Task) -> None:
    """Do one task."""
    name = task.prompt or await task.ask("What is your name?")
    for word in ("Hello", " ", name, "!"):
        await task.text(word)


asyncio.run(Worker("hello").run(greet))
