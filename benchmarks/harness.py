"""Servers as processes, load from another process, and what both cost."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROUNDS = 5
ROUND_SECONDS = 1.0
CONNECTIONS = 64
PEER_ENVIRONMENT = Path(".venv-bench")
PEER_PACKAGES = ("a2a-sdk[http-server]==1.3.0", "uvicorn")
OLDER_ENVIRONMENT = Path(".venv-bench-0.3")
OLDER_PACKAGES = ("a2a-sdk[http-server]==0.3.26", "uvicorn")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: its name in the table, its process and port."""

    name: str
    pid: int
    port: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians over the rounds: CPU microseconds a request, requests a second, latencies in milliseconds."""

    cpu: float
    rate: float
    p50: float
    p99: float
    count: int
    statuses: dict[str, int]
    first: str


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, to the nanosecond."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def family_cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its children (nginx works in a child)."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_seconds(pid) + sum(cpu_seconds(int(child)) for child in children)


def rss_kib(pid: int) -> int:
    """Return the resident memory of a process in KiB."""
    match = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) if match else 0


def load(port: int, count: int, request: bytes, connections: int = CONNECTIONS) -> dict[str, Any]:
    """Put one round of load on a server and return the client's figures."""
    command = [sys.executable, "-m", "benchmarks.load", str(port), str(count), str(connections)]
    done = subprocess.run(command, input=request, capture_output=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def compare(servers: Sequence[tuple[Server, bytes]], *, warm_up: int = 300) -> dict[str, Cost]:
    """Measure the servers in turns, round by round, and return the medians by name.

    A round is as many requests as take a server about `ROUND_SECONDS`.
    """
    rounds: dict[str, list[Cost]] = {server.name: [] for server, _ in servers}
    counts = {}
    for server, request in servers:
        figures = load(server.port, warm_up, request)
        counts[server.name] = max(warm_up, int(ROUND_SECONDS * warm_up / figures["seconds"]))
    for _ in range(ROUNDS):
        for server, request in servers:
            before = family_cpu_seconds(server.pid)
            figures = load(server.port, counts[server.name], request)
            spent = family_cpu_seconds(server.pid) - before
            rounds[server.name].append(
                Cost(
                    cpu=spent / figures["count"] * 1e6,
                    rate=figures["count"] / figures["seconds"],
                    p50=figures["p50"],
                    p99=figures["p99"],
                    count=figures["count"],
                    statuses=figures["statuses"],
                    first=figures["first"],
                )
            )
    return {name: median(costs) for name, costs in rounds.items()}


def median(costs: Sequence[Cost]) -> Cost:
    """Return the median of each figure over the rounds; counts are summed."""
    statuses: dict[str, int] = {}
    for cost in costs:
        for status, count in cost.statuses.items():
            statuses[status] = statuses.get(status, 0) + count
    return Cost(
        cpu=statistics.median(c.cpu for c in costs),
        rate=statistics.median(c.rate for c in costs),
        p50=statistics.median(c.p50 for c in costs),
        p99=statistics.median(c.p99 for c in costs),
        count=sum(c.count for c in costs),
        statuses=statuses,
        first=costs[0].first,
    )


@contextlib.contextmanager
def process(name: str, command: Sequence[str]) -> Iterator[Server]:
    """Run a server that prints its port first, and end it afterwards."""
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        yield Server(name, running.pid, int(running.stdout.readline()))
    finally:
        running.terminate()
        running.wait(10)
        running.stdout.close()


def baseline(name: str, kind: str, argument: str) -> contextlib.AbstractContextManager[Server]:
    """Run one of the baselines."""
    return process(name, [sys.executable, "-m", "benchmarks.baselines", kind, argument])


def a2a_peer() -> contextlib.AbstractContextManager[Server]:
    """Run the official SDK's server."""
    return _peer("a2a-sdk 1.3", PEER_ENVIRONMENT, PEER_PACKAGES, "benchmarks/a2a_peer.py")


def a2a_peer_03() -> contextlib.AbstractContextManager[Server]:
    """Run the official SDK's server for A2A 0.3."""
    return _peer("a2a-sdk 0.3", OLDER_ENVIRONMENT, OLDER_PACKAGES, "benchmarks/a2a_peer_03.py")


@contextlib.contextmanager
def _peer(name: str, environment: Path, packages: Sequence[str], script: str) -> Iterator[Server]:
    """Run a server in an environment of its own that is made at first need."""
    python = environment / "bin" / "python"
    made = environment / ".installed"
    if not made.exists():
        print(f"making {environment} with {', '.join(packages)} …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        made.touch()
    with process(name, [str(python), script]) as server:
        yield server


@contextlib.contextmanager
def nginx(directory: Path) -> Iterator[Server | None]:
    """Run nginx with one worker on a directory; None where it is not installed."""
    binary = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if binary is None:
        print("nginx is not installed: its rows are left out", file=sys.stderr)
        yield None
        return
    with tempfile.TemporaryDirectory() as scratch:
        port = free_port()
        settings = (
            f"daemon off; worker_processes 1; pid {scratch}/pid; error_log {scratch}/error.log; user root;"
            f"events {{ worker_connections 1024; }} http {{ access_log off; keepalive_requests 10000000;"
            f"server {{ listen 127.0.0.1:{port}; root {directory}; etag on; }} }}"
        )
        Path(scratch, "nginx.conf").write_text(settings)
        command = [binary, "-p", scratch, "-c", f"{scratch}/nginx.conf", "-e", f"{scratch}/error.log"]
        running = subprocess.Popen(command)
        try:
            wait_for_port(port)
            yield Server("nginx", running.pid, port)
        finally:
            running.terminate()
            running.wait(10)


def free_port() -> int:
    """Return a port that was free a moment ago."""
    import socket  # noqa: PLC0415 - for this alone

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_port(port: int) -> None:
    """Wait until something listens."""
    import socket  # noqa: PLC0415 - for this alone
    import time  # noqa: PLC0415

    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise TimeoutError(f"nothing listens on port {port}")


def get(path: str) -> bytes:
    """Make the bytes of a GET."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".encode()


def post(document: dict[str, Any], path: str = "/", **headers: str) -> bytes:
    """Make the bytes of a JSON POST."""
    body = json.dumps(document).encode()
    fields = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **headers,
    }
    head = "".join(f"{k}: {v}\r\n" for k, v in fields.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body
