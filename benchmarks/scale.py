"""What many capsules cost: changes, starts, memory, idling, stopping."""

from __future__ import annotations

import compileall
import contextlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import cpu_seconds, post, rss_kib
from benchmarks.table import Row
from tests.support.spawned import (
    Spawned,
    environment,
    replace_capsule,
    running,
    write_capsule,
)
from tests.support.spawned import (
    start as start_sidecar,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHANGES = 60
IDLE_SECONDS = 20.0
STREAMS = 100
FIRST_STARTS = 3
STARTS_AGAIN = 2
IMPORTS = "import aiohttp, watchfiles, yaml, structlog, orjson, prometheus_client, sqlite3, hashlib"
PORTS = {"SIDECAR_LISTEN__PORTS": "20000-31999"}


@contextlib.contextmanager
def capsules(count: int, env: Mapping[str, str] | None = None) -> Iterator[tuple[Spawned, Path]]:
    """Run a sidecar with so many capsules."""
    with (
        many(count) as (root, state),
        running(["--root", str(root)], state=state, env={**PORTS, **(env or {})}, within=120) as it,
    ):
        yield it, root


@contextlib.contextmanager
def many(count: int) -> Iterator[tuple[Path, Path]]:
    """Write so many capsules; yields the root and a state directory that is not there yet."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "capsules")
        for i in range(count):
            write_capsule(root / f"c{i:05}")
        yield root, Path(scratch, "state")


def version_served(port: int) -> str:
    """Return the version on a card, read in the cheapest way."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/.well-known/agent-card.json") as answer:
        body = answer.read()
    at = body.index(b'"version":"') + 11
    return str(body[at : body.index(b'"', at)].decode())


def latencies(spawned: Spawned, root: Path, changes: int) -> list[float]:
    """Replace manifests one after the other; return the milliseconds until each was served, sorted."""
    names = sorted(path.name for path in root.iterdir())
    ports = {row["id"]: row["port"] for row in spawned.api("/api/capsules")["capsules"]}
    took = []
    for i in range(changes):
        name = names[i * 7 % len(names)]
        wanted = f"{i + 2}"
        replace_capsule(root / name, version=wanted)
        begun = time.perf_counter()
        while version_served(ports[name]) != wanted:
            time.sleep(0.004)
        took.append((time.perf_counter() - begun) * 1000)
    return sorted(took)


def change() -> list[Row]:
    """From the rename of a manifest to the new card."""
    with capsules(1_000) as (spawned, root):
        took = latencies(spawned, root, CHANGES)
    with capsules(1_000, {"SIDECAR_WATCH__FORCE_TICK": "true"}) as (spawned, root):
        worst = latencies(spawned, root, 5)[-1]
    return [
        Row("rename → new card, 1,000 capsules, p50", took[len(took) // 2], "ms", most=100),
        Row("rename → new card, 1,000 capsules, p99", took[len(took) * 99 // 100], "ms", most=200),
        Row("rename → new card, force_tick, worst", worst, "ms", most=2_040 + 200),
    ]


def start() -> list[Row]:
    """From the start of the process to ready, beside the imports alone, which are timed around each start.

    Bytecode is there before the first: an installation by pip compiles what it installs, and `make` does too.
    """
    compileall.compile_dir("sidecar", quiet=1)
    rows = []
    for count, most in ((1, 2), (1_000, 4)):
        first: list[float] = []
        again: list[float] = []
        imports = [_timed_imports()]
        for _ in range(FIRST_STARTS):
            with many(count) as (root, state):
                for took in (first, *[again] * STARTS_AGAIN):
                    took.append(_timed_start(root, state))
                    imports.append(_timed_imports())
        rows += [
            Row(
                f"{what}, {count:,} capsules",
                statistics.median(took) * 1000,
                "ms",
                "imports",
                statistics.median(imports) * 1000,
                most=most,
            )
            for what, took in (("first start to ready", first), ("start to ready again", again))
        ]
    return rows


def _timed_start(root: Path, state: Path) -> float:
    begun = time.perf_counter()
    spawned = start_sidecar(["--root", str(root)], state=state, env=PORTS)
    spawned.event("ready", within=120)
    took = time.perf_counter() - begun
    spawned.stop()
    return took


def _timed_imports() -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, env=environment())
    return time.perf_counter() - begun


def memory() -> list[Row]:
    """Resident memory with one capsule, and for each further one."""
    sizes = {}
    for count in (1, 1_000, 5_000):
        with capsules(count) as (spawned, _root):
            spawned.api("/api/capsules")
            with urllib.request.urlopen(f"{spawned.desk}/metrics") as answer:
                answer.read()
            sizes[count] = rss_kib(spawned.process.pid)
    each = (sizes[5_000] - sizes[1]) / 4_999
    return [
        Row("memory, 1 capsule", sizes[1] / 1024, "MiB", most=55e6 / 2**20),
        Row("memory, each further capsule", each, "KiB", most=14e3 / 1024),
        Row("memory, 5,000 capsules", sizes[5_000] / 1024, "MiB", most=125e6 / 2**20),
    ]


def idle() -> list[Row]:
    """CPU of doing nothing."""
    with capsules(1_000) as (spawned, _root):
        time.sleep(3)  # let the start settle
        before = cpu_seconds(spawned.process.pid)
        time.sleep(IDLE_SECONDS)
        spent = cpu_seconds(spawned.process.pid) - before
    return [Row("idle CPU, 1,000 capsules", spent / IDLE_SECONDS * 100, "% of a core", most=1)]


def stop() -> list[Row]:
    """SIGTERM with open streams."""
    watch = post({"jsonrpc": "2.0", "id": 1, "method": "stream/watch"})
    with many(1) as (root, state):
        spawned = start_sidecar(["--root", str(root)], state=state, env=PORTS)
        spawned.event("ready")
        port = spawned.port("c00000")
        streams = [socket.create_connection(("127.0.0.1", port)) for _ in range(STREAMS)]
        for stream in streams:
            stream.sendall(watch)
        for stream in streams:
            stream.recv(65536)
        begun = time.perf_counter()
        spawned.signal(signal.SIGTERM)
        status = spawned.wait()
        took = (time.perf_counter() - begun) * 1000
        for stream in streams:
            stream.close()
    if status != 0:
        raise SystemExit(f"stop: exit status {status}")
    return [Row(f"SIGTERM with {STREAMS} open streams → exit", took, "ms", most=1000)]
