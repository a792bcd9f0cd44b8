"""What work costs: a frame to many watchers, and whole tasks, through a worker and through a command.

`python -m benchmarks.tasks STATE CONCURRENCY` is the worker: it completes every task at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Server, a2a_peer, baseline, cpu_seconds, get, load, post, rss_kib
from benchmarks.requests import CARD, PEER_SEND, SEND, VERSION, call, fetched
from benchmarks.table import Row
from sidecar.worker import Worker
from tests.support.spawned import Spawned, environment, running, write_capsule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sidecar.worker import Task

CAPSULE = "bench"
WATCHERS = 1_000
FRAMES = 25
ROUNDS = 3
SLOTS = 64
WORKERS = 32
"""Tasks that the worker does at once."""
PROCESSES = 4
"""Commands that run at once."""
TASKS = 1_000
COMMANDS = 200
PIECE = "a piece of the reply, as a model says it"
WHOLE_SEND = {**PEER_SEND, "params": {"message": PEER_SEND["params"]["message"]}}
REFERENCE_CARD = 30.7
"""CPU microseconds of a bare GET on the machine that the budgets are for."""
REFERENCE_FRAME = 22.0


@contextlib.contextmanager
def capsule(*arguments: str, concurrency: int, **more: str) -> Iterator[tuple[Spawned, Server]]:
    """Run a sidecar with one capsule that takes every task; `more` is for its environment."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = write_capsule(Path(scratch, "capsules", CAPSULE))
        manifest = directory / "murmur.yaml"
        manifest.write_text(manifest.read_text().replace("queue_depth: 20", "queue_depth: 1000000"))
        env = {"SIDECAR_LIMITS__TASKS": "10000000", "SIDECAR_TASKS__CONCURRENCY": str(concurrency), **more}
        started = ["--root", str(directory.parent), *arguments]
        with running(started, state=Path(scratch, "state"), env=env) as spawned:
            yield spawned, Server("sidecar", spawned.process.pid, spawned.port(CAPSULE))


class Watchers:
    """A process with a thousand watchers on one port."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "tests.support.soaking", str(port), str(WATCHERS), "0"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._hear("open")

    def until(self, number: int) -> None:
        """Wait until all of them have this frame."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"until {number}\n")
        self._process.stdin.flush()
        self._hear(f"reached {number}")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def _hear(self, line: str) -> None:
        assert self._process.stdout is not None
        if (heard := self._process.stdout.readline().rstrip("\n")) != line:
            raise SystemExit(f"watchers: {heard!r} instead of {line!r}")


class Hand:
    """A worker that says one line at a time, on one connection."""

    def __init__(self, spawned: Spawned) -> None:
        self._http = http.client.HTTPConnection(spawned.desk.removeprefix("http://"), timeout=30)
        token = (spawned.state / "admin.token").read_text().strip()
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/jsonl"}
        given = self._post(f"/workers/{CAPSULE}/next?wait=10", b"")
        self._events = f"/workers/{CAPSULE}/tasks/{given['task']['id']}/events"
        self._headers["x-sidecar-lease"] = given["lease"]

    def say(self, _number: int) -> None:
        """Say a piece of the reply; it is on disk then, and on its way."""
        self._post(self._events, json.dumps({"type": "text", "text": PIECE}).encode())

    def close(self) -> None:
        """Leave."""
        self._http.close()

    def _post(self, path: str, body: bytes) -> Any:
        self._http.request("POST", path, body, self._headers)
        answer = self._http.getresponse()
        document = json.loads(answer.read())
        if answer.status != 200:
            raise SystemExit(f"worker: {answer.status} {document}")
        return document


def frame_of(port: int) -> bytes:
    """Return the bytes of a piece of text as watchers get them, numbered 1."""
    data = {"id": call(port, SEND)["result"]["id"], "text": PIECE, "final": False}
    return b"id: 1\nevent: text\ndata: %b\n\n" % json.dumps(data, separators=(",", ":")).encode()


def fan_out() -> list[Row]:
    """One task, a thousand watchers, a frame at a time."""
    with contextlib.ExitStack() as stack:
        spawned, ours = stack.enter_context(capsule(concurrency=1))
        frame = frame_of(ours.port)
        bare = stack.enter_context(baseline("bare", "fanout", frame.decode()))
        headers, body = fetched(ours.port, CARD)
        card = stack.enter_context(
            baseline("card", "bytes", json.dumps({"headers": headers, "body": body.decode()}))
        )
        hand = Hand(spawned)
        stack.callback(hand.close)
        feeder = http.client.HTTPConnection(f"127.0.0.1:{bare.port}", timeout=30)
        stack.callback(feeder.close)

        def write(number: int) -> None:
            feeder.request("POST", "/frame", str(number).encode())
            feeder.getresponse().read()

        sides: list[tuple[Server, Callable[[int], None], int]] = [(ours, hand.say, 2), (bare, write, 1)]
        costs: dict[str, list[float]] = {ours.name: [], bare.name: [], card.name: []}
        without = rss_kib(ours.pid)
        watchers = {server.name: Watchers(server.port) for server, _, _ in sides}
        each_stream = (rss_kib(ours.pid) - without) / WATCHERS
        for each in watchers.values():
            stack.callback(each.close)
        for number in range(ROUNDS + 1):  # the first is not counted
            for server, say, first in sides:
                start = first + number * FRAMES
                before = cpu_seconds(server.pid)
                for n in range(start, start + FRAMES):
                    say(n)
                    watchers[server.name].until(n)
                spent = cpu_seconds(server.pid) - before
                costs[server.name].append(spent / FRAMES / WATCHERS * 1e6)
            before = cpu_seconds(card.pid)
            count = load(card.port, 4_000, get(CARD))["count"]
            costs[card.name].append((cpu_seconds(card.pid) - before) / count * 1e6)
    mine, theirs, bare_get = (statistics.median(found[1:]) for found in costs.values())
    work = "stream fan-out to 1,000 watchers, CPU a frame and watcher"
    return [
        Row(work, mine, "µs", "bare StreamResponse.write", theirs),
        Row(work, mine, "µs", "bare GET card", bare_get, most=REFERENCE_FRAME / REFERENCE_CARD),
        Row("memory, each idle stream", each_stream, "KiB", most=15e3 / 1024),
    ]


def ended(spawned: Spawned) -> bool:
    """Whether no task is live."""
    return not any(spawned.capsules()[CAPSULE]["tasks"].values())


def whole(spawned: Spawned, server: Server, count: int) -> float:
    """Hand in so many tasks from 64 connections and return how many a second were done."""
    begun = time.perf_counter()
    figures = load(server.port, count, post(SEND))
    while not ended(spawned):
        time.sleep(0.05)
    seconds = time.perf_counter() - begun
    if set(figures["statuses"]) != {"200"} or '"submitted"' not in figures["first"]:
        raise SystemExit(f"whole tasks: {figures['statuses']} {figures['first']}")
    return float(figures["count"] / seconds)


def whole_tasks() -> list[Row]:
    """Whole tasks a second, from the message to the end that is on disk."""
    with a2a_peer() as peer:
        request = post(WHOLE_SEND, **VERSION)
        load(peer.port, 200, request)
        figures = load(peer.port, TASKS, request)
        if "TASK_STATE_COMPLETED" not in figures["first"]:
            raise SystemExit(f"a2a-sdk: {figures['first']}")
        theirs = figures["count"] / figures["seconds"]
    with capsule(concurrency=SLOTS) as (spawned, ours):
        command = [sys.executable, "-m", "benchmarks.tasks", str(spawned.state), str(WORKERS)]
        worker = subprocess.Popen(command, env=environment())
        try:
            whole(spawned, ours, 200)
            through_worker = whole(spawned, ours, TASKS)
        finally:
            worker.kill()
            worker.wait()
    with capsule("--command", "/bin/true", concurrency=PROCESSES) as (spawned, ours):
        through_command = whole(spawned, ours, COMMANDS)
    against = "a2a-sdk 1.3, trivial executor, in memory"
    return [
        Row("whole tasks through an inbox worker, durable", through_worker, "/s", against, theirs),
        Row("whole tasks through a command (/bin/true), durable", through_command, "/s", against, theirs),
    ]


async def done(_task: Task) -> str:
    """Reply at once."""
    return "done"


if __name__ == "__main__":
    asyncio.run(Worker(CAPSULE, state=sys.argv[1]).run(done, concurrency=int(sys.argv[2])))
