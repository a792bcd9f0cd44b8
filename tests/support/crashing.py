"""Rounds of a spawned sidecar that is killed under load, started again, and held against a model.

`python -m tests.support.crashing ROUNDS [SEED]` does so by hand. Rounds come in lives of 25 on one state directory; at
the end of a life everything is finished, the sidecar is stopped, and its file is read.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar.ops import proc
from tests.support.crash_beside import Beside
from tests.support.crash_model import COMMAND, INBOX, Known, check_file, newest_frame
from tests.support.launcher import POINTS, SIGNALS
from tests.support.spawned import Spawned, environment, write_capsule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.ops.proc import Seen

ROOT: Final = Path(__file__).parents[2]
LIFE: Final = 25
ANYWHERE, EARLY = "anywhere", "early"
KINDS: Final = (*POINTS, ANYWHERE, "within", "soon", EARLY)
"""How rounds end, in turn: at a point of a commit, at any moment, or at a commit of the start."""

AGENT: Final = """#!/bin/sh
read -r line
case "$line" in
  *long) trap "" TERM; setsid sleep 60 & sleep 60 ;;
  *slow) sleep 0.2 ;;
esac
echo "done: $line"
"""
CONFIG: Final = """
roots: [{{path: {root}}}]
tasks: {{concurrency: 6}}
limits: {{stop_grace: 200ms}}
command: {{argv: [{agent}]}}
capsules:
  command: {{backend: command, path: {root}/command, port: {command_port}}}
  inbox: {{port: {inbox_port}}}
"""


class Life:
    """One state directory, and all that is known of it."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.state = directory / "state"
        self.rng = rng
        self.known = {name: Known(name) for name in (COMMAND, INBOX)}
        self.texts = itertools.count(1)
        self.kills: Counter[str] = Counter()
        self.reruns = False
        self._next: tuple[Spawned, bool] | None = None
        self.root = directory / "capsules"
        for name in self.known:
            write_capsule(self.root / name, more="  shell_grace_secs: 0\n")
        agent = directory / "agent.sh"
        agent.write_text(AGENT)
        agent.chmod(0o755)
        self.config = directory / "config.yaml"
        ports = {f"{name}_port": free_port() for name in self.known}
        self.config.write_text(CONFIG.format(root=self.root, agent=json.dumps(str(agent)), **ports))

    def start(self) -> Spawned:
        """Start the sidecar, and have the next one begin to import what it needs."""
        spawned, self.reruns = self._next or self.prepare()
        self.tell(spawned, "go")
        self._next = self.prepare()
        return spawned

    def prepare(self) -> tuple[Spawned, bool]:
        """Return a sidecar that waits for its start, and whether it runs tasks again; its standard input is a leash."""
        reruns = self.rng.random() < 0.5
        arguments = ["run", "--state", str(self.state), "--config", str(self.config)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.launcher", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(
                SIDECAR_DESK__PORT="0",
                SIDECAR_LOG__FORMAT="json",
                SIDECAR_TASKS__ON_RESTART="rerun" if reruns else "fail",
            ),
        )
        spawned = Spawned(process, self.state)
        spawned.follow()
        return spawned, reruns

    def close(self) -> None:
        """End the sidecar that waits for its start."""
        if self._next is not None:
            self.end(self._next[0])

    async def round(self, kind: str) -> None:
        """Start, check, put load on, kill."""
        spawned = self.start()
        try:
            if kind == EARLY:
                self.arm(spawned, self.rng.choice(POINTS), self.rng.randrange(1, 4))
                await asyncio.to_thread(self.wait_for_start, spawned)
            else:
                async with Beside(self, spawned) as beside:
                    await beside.check()
                    if kind == ANYWHERE:
                        beside.work()
                        await asyncio.sleep(self.rng.uniform(0, 0.5))  # the moment is the point of it
                        spawned.signal(signal.SIGKILL)
                    else:
                        self.arm(spawned, kind, self.rng.randrange(1, 80))
                        beside.work()
                    await beside.over()
            self.kills[kind] += 1
        finally:
            self.end(spawned)
        assert -spawned.process.returncode in SIGNALS, "\n".join(spawned.raw)
        assert not [line for line in spawned.raw if "Traceback" in line], "\n".join(spawned.raw)

    async def finish(self) -> dict[str, Counter[str]]:
        """Have every task end, see the whole log, stop, and hold the file against what is known."""
        spawned = self.start()
        try:
            async with Beside(self, spawned) as beside:
                await beside.check()
                await beside.drain()
                for known in self.known.values():
                    known.base = 0
                    await beside.load.catch_up(known, newest_frame(self.state / "sidecar.db", known))
                await beside.check()
            status = await asyncio.to_thread(spawned.stop)
        finally:
            self.end(spawned)
        assert status == 0, "\n".join(spawned.raw)
        assert not list(self.marked())
        return {name: check_file(self.state / "sidecar.db", known) for name, known in self.known.items()}

    def arm(self, spawned: Spawned, point: str, count: int) -> None:
        """Say at which commit it ends; the delay is short or long, as commits are."""
        delay = int(10 ** self.rng.uniform(0.5, 3.7))
        self.tell(spawned, f"{point} {count} {delay}")

    def tell(self, spawned: Spawned, line: str) -> None:
        """Write a line to its standard input."""
        assert spawned.process.stdin is not None
        spawned.process.stdin.write(f"{line}\n".encode())
        spawned.process.stdin.flush()

    def wait_for_start(self, spawned: Spawned) -> None:
        """Wait for an end that comes with a commit of the start; a start that commits too little is killed."""
        with suppress(AssertionError):
            spawned.event("ready")
        with suppress(subprocess.TimeoutExpired):
            spawned.wait(within=0.2)

    def end(self, spawned: Spawned) -> None:
        """Be sure that it is gone."""
        if spawned.process.poll() is None:
            spawned.process.kill()
        spawned.wait()
        if spawned.process.stdin is not None:
            spawned.process.stdin.close()

    def marked(self) -> Iterator[Seen]:
        """Yield the living processes that were started for a task of this life, and their descendants."""
        for pid in proc.everybody():
            directory = proc.began_with(pid, "SIDECAR_CAPSULE_DIR")
            if directory and directory.startswith(f"{self.root}/"):
                seen = proc.look(pid)
                if seen is not None and seen.lives:
                    yield seen

    def strays(self, spawned: Spawned) -> list[Seen]:
        """Return the processes of tasks that are not below this sidecar: an earlier one left them."""
        return [seen for seen in self.marked() if spawned.process.pid not in ancestors(seen.pid)]


def free_port() -> int:
    """Return a port that was free a moment ago, beyond those that sidecars choose and the kernel gives to clients."""
    low, high = 61_001, 65_535
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(low, high)))
            port: int = probe.getsockname()[1]
            return port


def ancestors(pid: int) -> set[int]:
    """Return the pids above a process."""
    line: set[int] = set()
    while (seen := proc.look(pid)) is not None and seen.parent > 0 and seen.parent not in line:
        pid = seen.parent
        line.add(pid)
    return line


async def life(directory: Path, rounds: int, seed: int) -> tuple[Counter[str], dict[str, Counter[str]]]:
    """Live through so many rounds; return how the sidecars ended, and how the tasks of each capsule did."""
    log = logging.getLogger("sidecar.worker")
    level = log.level
    log.setLevel(logging.CRITICAL)  # that the sidecar is away is the point here
    of = Life(directory, random.Random(seed))
    try:
        for number in range(rounds):
            await of.round(KINDS[number % len(KINDS)])
        return of.kills, await of.finish()
    finally:
        of.close()
        log.setLevel(level)


def main(rounds: int, seed: int) -> None:
    """Do rounds by hand and print what came of them."""
    kills: Counter[str] = Counter()
    while rounds > 0:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as directory:
            killed, ended = asyncio.run(life(Path(directory), min(rounds, LIFE), seed))
        kills += killed
        os.write(1, f"seed {seed}, {time.monotonic() - begun:.0f} s: {dict(killed)} {ended}\n".encode())
        rounds -= LIFE
        seed += 1
    os.write(1, f"{kills.total()} kills: {dict(kills)}: nothing lost, nothing twice\n".encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30))
