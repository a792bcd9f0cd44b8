"""What A2A calls cost, beside both of the official SDK's servers in the same run.

`python -m benchmarks.a2a_calls STATE CONCURRENCY` is the worker: it completes every task at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Server, a2a_peer, a2a_peer_03, baseline, compare, load, post
from benchmarks.requests import PEER_SEND, VERSION, call, one_capsule, rpc
from benchmarks.table import Row
from benchmarks.tasks import CAPSULE, SLOTS, TASKS, WORKERS, capsule, done
from sidecar.worker import Worker
from tests.support.spawned import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

V1 = "/a2a/v1"
V03 = "/a2a/v0.3"
NEWER = "a2a-sdk 1.3"
OLDER = "a2a-sdk 0.3"
MESSAGE_03 = {
    "kind": "message",
    "messageId": "m1",
    "role": "user",
    "parts": [{"kind": "text", "text": "hello"}],
}
SEND_03 = rpc("message/send", {"message": MESSAGE_03, "configuration": {"blocking": False}})
WAIT = {**PEER_SEND, "params": {"message": PEER_SEND["params"]["message"]}}
WAIT_03 = rpc("message/send", {"message": MESSAGE_03, "configuration": {"blocking": True}})


@contextlib.contextmanager
def peers() -> Iterator[tuple[Server, Server]]:
    """Run both of the SDK's servers, the newer one first."""
    with a2a_peer() as newer, a2a_peer_03() as older:
        yield newer, older


def get_task() -> list[Row]:
    """`GetTask` of a task that has ended, the same one again and again."""
    with one_capsule() as (_, ours, _directory), peers() as (newer, older):
        task = call(ours.port, PEER_SEND, path=V1, **VERSION)["result"]["task"]["id"]
        call(ours.port, rpc("CancelTask", {"id": task}), path=V1, **VERSION)
        request = post(rpc("GetTask", {"id": task}), V1, **VERSION)
        answer = call(ours.port, rpc("GetTask", {"id": task}), path=V1, **VERSION)
        theirs = call(newer.port, PEER_SEND, **VERSION)["result"]["task"]["id"]
        elder = call(older.port, SEND_03)["result"]["id"]
        with baseline("bare", "parse", json.dumps(answer)) as bare:
            costs = compare(
                [
                    (ours, request),
                    (bare, request),
                    (newer, post(rpc("GetTask", {"id": theirs}), **VERSION)),
                    (older, post(rpc("tasks/get", {"id": elder}))),
                ]
            )
    mine = costs["sidecar"]
    work = "POST GetTask"
    return [
        Row(f"{work}, CPU a request", mine.cpu, "µs", "bare aiohttp", costs["bare"].cpu, most=1.5),
        Row(f"{work}, requests a second", mine.rate, "/s", NEWER, costs[NEWER].rate, least=4),
        Row(f"{work}, requests a second", mine.rate, "/s", OLDER, costs[OLDER].rate),
    ]


def send_message() -> list[Row]:
    """`SendMessage` that returns at once, durable."""
    with one_capsule(queue_depth=10_000_000) as (_, ours, _directory), peers() as (newer, older):
        answer = call(ours.port, PEER_SEND, path=V1, **VERSION)
        with baseline("bare", "parse", json.dumps(answer)) as bare:
            request = post(PEER_SEND, V1, **VERSION)
            costs = compare(
                [
                    (ours, request),
                    (bare, request),
                    (newer, post(PEER_SEND, **VERSION)),
                    (older, post(SEND_03)),
                ]
            )
        mine = costs["sidecar"]
        if set(mine.statuses) != {"200"} or "TASK_STATE_SUBMITTED" not in mine.first:
            raise SystemExit(f"SendMessage: {mine.statuses} {mine.first}")
    work = "POST SendMessage, at once, durable, a second"
    return [
        Row(work, mine.rate, "/s", "bare aiohttp", costs["bare"].rate, least=0.45),
        Row(work, mine.rate, "/s", NEWER, costs[NEWER].rate, least=12),
        Row(work, mine.rate, "/s", OLDER, costs[OLDER].rate),
        Row("POST SendMessage, at once, p99 over p50", mine.p99, "ms", "its p50", mine.p50, most=3),
    ]


def waiting_send() -> list[Row]:
    """`SendMessage` that waits for a trivial worker: a whole task a call, in either version."""
    with peers() as (newer, older):
        theirs = {
            NEWER: whole(newer, post(WAIT, **VERSION), "TASK_STATE_COMPLETED"),
            OLDER: whole(older, post(WAIT_03), '"completed"'),
        }
    # the client of these measures knows plain answers only
    with capsule(concurrency=SLOTS, SIDECAR_HEARTBEAT__A2A="100s") as (spawned, ours):
        command = [sys.executable, "-m", "benchmarks.a2a_calls", str(spawned.state), str(WORKERS)]
        worker = subprocess.Popen(command, env=environment())
        try:
            mine = {
                NEWER: whole(ours, post(WAIT, V1, **VERSION), "TASK_STATE_COMPLETED"),
                OLDER: whole(ours, post(WAIT_03, V03), '"completed"'),
            }
        finally:
            worker.kill()
            worker.wait()
    return [
        Row(f"{name}, waiting for a trivial worker, durable", mine[peer], "/s", peer, theirs[peer])
        for name, peer in (("POST SendMessage", NEWER), ("POST message/send of A2A 0.3", OLDER))
    ]


def whole(server: Server, request: bytes, ended: str) -> float:
    """Return how many such sends a second a server answers; each must show a task that has ended."""
    load(server.port, 200, request)
    figures: dict[str, Any] = load(server.port, TASKS, request)
    if set(figures["statuses"]) != {"200"} or ended not in figures["first"]:
        raise SystemExit(f"{server.name}: {figures['statuses']} {figures['first']}")
    return float(figures["count"] / figures["seconds"])


if __name__ == "__main__":
    asyncio.run(Worker(CAPSULE, state=sys.argv[1]).run(done, concurrency=int(sys.argv[2])))
