"""A program that runs one command as a sidecar does, to be killed: `command_host.py DIRECTORY PROTOCOL TEXT`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.commands import bench, served


async def main(directory: Path, protocol: str, text: str) -> None:
    """Hand in a task, say its id, and go on for ever."""
    capsule = served(directory, (str(directory / "agent"),), protocol=protocol)
    async with bench(directory, capsule=capsule) as b:
        print(await b.send(text), flush=True)  # noqa: T201 - for whoever started it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
