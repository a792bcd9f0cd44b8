"""The planes under attack, on real ports: run as a program, prints JSON of what clients got and what was left over.

Arguments: a directory to work in, a resolver, seconds, and which neighbours attack besides the one of `swapper.py`
(`kinds`, `mounts`). With `mounts` it must run in a mount namespace of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import structlog

from sidecar.model import Containment, FilesExport
from sidecar.planes.memory import Memory
from sidecar.planes.routes import Planes
from tests.support import kinds, swapper
from tests.support.planes import RESOLVERS, SECRET, SECRET_SHA, capsule, contested, write
from tests.support.ports import served_on_a_port
from tests.support.rawhttp import read_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

HARD = b"shared by a hard link"
PATHS = (
    *("file", "dir/f", "deep/a/f", "link/f", "deep/a/up/dir/f", "outside/f", "f", "mfile", "mnt/f", "mnt"),
    *kinds.NAMES,
    *(f"{name}/f" for name in kinds.NAMES),
    "../outside/f",
    "%2e%2e/outside/f",
)
CLIENTS = 3


def prepare(place: Path) -> Path:
    """Make what everybody fights over, and a file that hard links lead to; returns the workspace."""
    workspace = contested(place)
    write(workspace / "outside/hard", HARD)
    return workspace


@contextlib.contextmanager
def attacked(workspace: Path, neighbours: list[str]) -> Iterator[None]:
    """Run the neighbours meanwhile; each must live to the end."""
    commands = [[swapper.__file__, str(workspace)]]
    commands += [[kinds.__file__, str(workspace / "root"), what] for what in neighbours]
    running = [subprocess.Popen([sys.executable, *c], stdin=subprocess.PIPE) for c in commands]
    try:
        yield
    finally:
        dead = [neighbour.args for neighbour in running if neighbour.poll() is not None]
        for neighbour in running:
            assert neighbour.stdin is not None
            neighbour.stdin.close()
            try:
                neighbour.wait(20)
            except subprocess.TimeoutExpired:
                neighbour.kill()
                dead.append(neighbour.args)
    assert not dead, f"ended before or after their time: {dead}"


async def client(port: int, deadline: float, seen: Counter[str]) -> None:
    """Read and list over one raw connection after the other until the time is over."""
    loop = asyncio.get_running_loop()
    while loop.time() < deadline:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for rest in ("", *(f"/{path}" for path in PATHS)):
            writer.write(f"GET /resources/files{rest} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            async with asyncio.timeout(20):
                answer = await read_answer(reader)
            if answer.status != 200:
                seen[orjson.loads(answer.body)["error"]] += 1
            elif rest:
                seen[answer.body.decode()] += 1
            else:
                seen["listed"] += 1
                for entry in orjson.loads(answer.body)["entries"]:
                    seen[entry["sha256"]] += 1
                    seen[f"name {entry['path']}"] += 1
            assert SECRET not in answer.body
            assert SECRET not in "".join(answer.headers.values()).encode()
            if SECRET_SHA in repr(answer):
                seen["SECRET HASH"] += 1
        writer.close()
        await writer.wait_closed()


async def look(workspace: Path, resolver: str, seconds: float) -> dict[str, Counter[str]]:
    """Serve the export in each of two classes, and let clients at it."""
    planes = Planes(resolver=RESOLVERS[resolver](), memory=Memory(now_ns=lambda: 2**62))
    found: dict[str, Counter[str]] = {}
    export = FilesExport("root", 1000)
    async with contextlib.AsyncExitStack() as stack:
        ports = {}
        for containment in (Containment.ADVISORY, Containment.SCOPED):
            served = capsule(workspace, files=export, containment=containment, session_id=containment)
            ports[containment] = await stack.enter_async_context(served_on_a_port(served, planes))
        deadline = asyncio.get_running_loop().time() + seconds
        async with asyncio.TaskGroup() as group:
            for containment, port in ports.items():
                found[containment] = Counter()
                for _ in range(CLIENTS):
                    group.create_task(client(port, deadline, found[containment]))
    found["left over"] = Counter(threads_stuck=await planes.aclose(within=5.0))
    return found


def open_files() -> int:
    """Return how many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def main(place: Path, resolver: str, seconds: float, neighbours: list[str]) -> None:
    """Attack and tell."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    workspace = prepare(place)
    before, threads = open_files(), threading.active_count()
    with attacked(workspace, neighbours):
        found = asyncio.run(look(workspace, resolver, seconds))
    found["left over"].update(descriptors=open_files() - before, threads=threading.active_count() - threads)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:])
