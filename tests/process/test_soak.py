"""A thousand watchers of one session: who reads misses nothing, who does not is told so, and costs next to nothing."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

from sidecar.worker import Worker
from tests.support.spawned import environment, running, write_capsule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[2]
WATCHERS, SLOW = 1_000, 50
BURSTS, BURST = 12, 50
PIECE = "x" * 500
GROWTH = 40_000_000
WITHIN = 60.0


class Watchers:
    """The process that watches."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def tell(self, line: str) -> None:
        """Say what to wait for."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    async def hear(self) -> str:
        """Return the next line that it prints."""
        assert self._process.stdout is not None
        async with asyncio.timeout(WITHIN):
            return (await self._process.stdout.readline()).decode().rstrip("\n")


@asynccontextmanager
async def watching(port: int) -> AsyncIterator[Watchers]:
    """Have all watchers open."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.soaking",
        *map(str, (port, WATCHERS, SLOW)),
        cwd=ROOT,
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )
    try:
        watchers = Watchers(process)
        assert await watchers.hear() == "open"
        yield watchers
    finally:
        process.kill()
        await process.communicate()


def kib(pid: int, what: str) -> int:
    """Return a figure of a process's memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:"))


async def test_a_thousand_watchers_and_fifty_that_do_not_read(tmp_path: Path) -> None:
    """Those that read get every frame, the others `lagged` with exact counts, for less than 40 MB at the peak."""
    write_capsule(tmp_path / "capsules" / "soak")
    with running(["--root", str(tmp_path / "capsules")], state=tmp_path / "state") as sidecar:
        port, pid = await asyncio.to_thread(sidecar.port, "soak"), sidecar.process.pid
        idle = kib(pid, "VmRSS")
        async with watching(port) as watchers, aclosing(Worker("soak", state=sidecar.state).tasks()) as tasks:
            last = 1  # the status with which the task begins
            await asyncio.to_thread(send, port)
            async for task in tasks:
                for _ in range(BURSTS):
                    for _ in range(BURST):
                        await task.text(PIECE)
                    await task.flush()
                    last += BURST
                    await watchers.tell(f"until {last}")
                    assert await watchers.hear() == f"reached {last}"
                await task.complete("done")
                break
            last += 2  # the end of the text, and of the task
            await watchers.tell(f"until {last}")
            assert await watchers.hear() == f"reached {last}"
            await watchers.tell(f"wake {last}")
            slow = json.loads(await watchers.hear())
        grown = (kib(pid, "VmHWM") - idle) * 1024
    assert len(slow) == SLOW
    for seen in slow:
        assert seen["frames"] + seen["missed"] == last
        assert seen["lags"] >= 1
        assert seen["missed"] >= 1
    assert grown < GROWTH


def send(port: int) -> None:
    """Hand in the task."""
    message = {"messageId": "m1", "role": "user", "parts": [{"text": "go"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    headers = {"Content-Type": "application/json"}
    with urlopen(
        Request(f"http://127.0.0.1:{port}/", json.dumps(call).encode(), headers), timeout=10
    ) as answer:
        assert json.load(answer)["result"]["status"]["state"] == "submitted"
