"""What one manifest change and one request cost as capsules grow in number: flat is what is wanted.

Sidecars with few and with many capsules run side by side and are measured in turns, so that a noisy machine does the
same to all of them. A change is the rename of a manifest and all that follows from it, to the card that is served. The
tick is left out, for looking at everything now and then is what `idle` measures; nobody asks for a card before the last
change is in, for what the asking costs is another row; and the same number of capsules changes everywhere, since the
first change of each costs more.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from typing import TYPE_CHECKING

from benchmarks.harness import Server, compare, cpu_seconds, get, post
from benchmarks.requests import CARD, SEND, call, rpc
from benchmarks.scale import capsules, version_served
from benchmarks.table import Row
from tests.support.spawned import MANIFEST

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.spawned import Spawned

FEW = 10
MANY = (1_000, 5_000)
ROUNDS = 12
SETTLED = 0.2
"""Seconds after which a change is in: a step of the watcher, the settle window, and time to spare."""
FLAT = 1.25
"""What counts as flat: more memory is more cache misses, and no machine is quiet."""
HIDDEN = ".murmur.yaml.new"


class Grown:
    """A sidecar with so many capsules, of which the first `FEW` are changed and asked."""

    def __init__(self, spawned: Spawned, root: Path) -> None:
        self.pid = spawned.process.pid
        self.changed = sorted(root.iterdir())[:FEW]
        rows = spawned.capsules()
        self.ports = [int(rows[directory.name]["port"]) for directory in self.changed]
        self.version = 1
        self.costs: list[float] = []

    def change(self) -> None:
        """Change each manifest once, one after the other, and note the CPU milliseconds that one took."""
        self.version += 1
        before = cpu_seconds(self.pid)
        for directory in self.changed:
            text = MANIFEST.format(name=directory.name, version=self.version, acceptance="queue")
            (directory / HIDDEN).write_text(text)
            (directory / HIDDEN).rename(directory / "murmur.yaml")
            time.sleep(SETTLED)
        self.costs.append((cpu_seconds(self.pid) - before) / len(self.changed) * 1000)
        if late := [port for port in self.ports if version_served(port) != f"{self.version}"]:
            raise SystemExit(f"growth: not in after {SETTLED} s: {len(late)} changes")


def growth() -> list[Row]:
    """Compare the cost of a change, of a card, and of a task's state."""
    with contextlib.ExitStack() as stack:
        grown = {
            count: Grown(*stack.enter_context(capsules(count, {"SIDECAR_WATCH__TICK": "1h"})))
            for count in (FEW, *MANY)
        }
        for _ in range(ROUNDS):
            for one in grown.values():
                one.change()
        changes = {count: statistics.median(one.costs) for count, one in grown.items()}
        cards = _requests({count: (one, get(CARD)) for count, one in grown.items()})
        tasks = {count: call(one.ports[-1], SEND)["result"]["id"] for count, one in grown.items()}
        gets = _requests(
            {count: (one, post(rpc("tasks/get", {"id": tasks[count]}))) for count, one in grown.items()}
        )
    return [
        Row(f"{what}, {count:,} capsules", costs[count], unit, f"with {FEW}", costs[FEW], most=FLAT)
        for what, costs, unit in (
            ("CPU a change", changes, "ms"),
            ("CPU a card", cards, "µs"),
            ("CPU a tasks/get", gets, "µs"),
        )
        for count in MANY
    ]


def _requests(asked: dict[int, tuple[Grown, bytes]]) -> dict[int, float]:
    """Return the CPU microseconds a request, by number of capsules."""
    servers = [
        (Server(f"{count}", one.pid, one.ports[-1]), request) for count, (one, request) in asked.items()
    ]
    costs = compare(servers)
    for name, cost in costs.items():
        if set(cost.statuses) != {"200"} or "error" in json.loads(
            cost.first.partition("\r\n\r\n")[2] or "{}"
        ):
            raise SystemExit(f"growth: {name} capsules answered {cost.statuses}: {cost.first}")
    return {count: costs[f"{count}"].cpu for count in asked}
