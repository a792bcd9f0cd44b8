"""A process that hands in and cancels tasks as fast as it can and prints what was acknowledged, until it is killed.

Run as `python -m tests.support.acknowledging DIRECTORY`; each line is `submitted ID` or `canceled ID FRAME`.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from tests.support.sessions import MESSAGE, capsule, frames_in, session

CALLERS = 16


async def main(directory: Path) -> None:
    """Work for ever."""
    async with (
        session(directory, capsule(queue_depth=1_000_000), max_live=1_000_000) as s,
        asyncio.TaskGroup() as group,
    ):

        async def call() -> None:
            while True:
                sent = await s.call("message/send", MESSAGE)
                say(f"submitted {sent['result']['id']}")
                if random.random() < 0.5:
                    canceled = await s.call("tasks/cancel", {"id": sent["result"]["id"]})
                    say(f"acknowledged {canceled['result']['id']}")

        async def watch() -> None:
            stream = await s.stream("stream/watch", None, str(s.engine.feed.head))
            while (chunk := await stream.next()) is not None:
                for frame in frames_in(chunk):
                    if frame.number is not None:
                        say(f"frame {frame.data['id']} {frame.number}")

        group.create_task(watch())
        for _ in range(CALLERS):
            group.create_task(call())


def say(line: str) -> None:
    """Write a line at once and in one piece."""
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
