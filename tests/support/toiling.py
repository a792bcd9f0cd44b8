"""A process that hands in tasks, works on them, asks and answers, and prints what was acknowledged, until it is killed.

Run as `python -m tests.support.toiling DIRECTORY`. Lines: `submitted ID`, `said ID TEXT` (a piece of its reply),
`answered ID`, `completed ID REPLY`, and `frame NUMBER DIGEST` for each frame that a watcher saw.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from sidecar.tasks.said import Completed, Text, Turn
from tests.support.sessions import MESSAGE, capsule, session
from tests.support.working import work

if TYPE_CHECKING:
    from tests.support.sessions import Session

WORKERS = 6
QUEUED = 20


async def main(directory: Path) -> None:
    """Work for ever; first take up again what the process before this one left."""
    served = capsule(queue_depth=QUEUED, concurrency=WORKERS)
    async with session(directory, served) as s, asyncio.TaskGroup() as group:
        for task in s.engine.interrupted():
            await s.engine.release(task.id)
        group.create_task(watch(s))
        for _ in range(WORKERS):
            group.create_task(hand_in(s))
            group.create_task(toil(s))


async def hand_in(s: Session) -> None:
    """Send whenever there is room; what waits for input is answered by that."""
    while True:
        result = (await s.call("message/send", MESSAGE))["result"]
        state = result["status"]["state"]
        if state == "rejected":
            await asyncio.sleep(0.001)
        else:
            say("submitted" if state == "submitted" else "answered", result["id"])


async def toil(s: Session) -> None:
    """Do one task after another."""
    while True:
        working = await work(s.engine)
        orders = working.orders
        if len(working.claim.inputs) == 1 and random.random() < 0.3:
            await working.ask("Which?")
            if random.random() < 0.5:
                await s.engine.release(working.id)
                continue
            await orders.wait()
        await working.say(Turn())
        for _ in range(random.randrange(4)):
            piece = f"{random.randrange(10)}"
            await working.say(Text(piece))
            say("said", working.id, piece)
        task = await working.say(Text("."), Completed())
        say("completed", working.id, task.output or "")


async def watch(s: Session) -> None:
    """Note every frame, byte for byte."""
    stream = await s.stream("stream/watch", None, str(s.engine.feed.head))
    while (chunk := await stream.next()) is not None:
        for frame in chunk.removesuffix(b"\n\n").split(b"\n\n"):
            if frame.startswith(b"id: "):
                number = frame.split(b"\n", 1)[0].removeprefix(b"id: ").decode()
                say("frame", number, sha256(frame).hexdigest()[:16])


def say(*words: str) -> None:
    """Write a line at once and in one piece."""
    os.write(1, f"{' '.join(words)}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
