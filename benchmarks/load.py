"""The client: many keep-alive connections that send one prepared request again and again, from a process of its own.

`python -m benchmarks.load PORT COUNT CONNECTIONS` takes the request's bytes on standard input and prints JSON:
seconds, count, p50 and p99 in milliseconds, answers by status, and the first body. Loopback only; ends by itself.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

DEADLINE = 120.0


class Client(asyncio.Protocol):
    """One connection: sends, waits for the whole answer, sends again."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.buffer = b""
        self.sent = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.send()

    def send(self) -> None:
        """Send the next request, or leave when all are taken."""
        assert self.transport is not None
        if self.load.left <= 0:
            self.transport.close()
            return
        self.load.left -= 1
        self.sent = time.perf_counter()
        self.transport.write(self.load.request)

    def data_received(self, data: bytes) -> None:
        """Take an answer apart as far as needed: status and Content-Length."""
        self.buffer += data
        head_end = self.buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = self.buffer[:head_end].lower()
        at = head.find(b"content-length:")
        length = (
            int(head[at + 15 : head.find(b"\r", at) if head.find(b"\r", at) > 0 else None]) if at > 0 else 0
        )
        if len(self.buffer) < head_end + 4 + length:
            return
        self.load.note(int(head[9:12]), time.perf_counter() - self.sent, self.buffer[head_end + 4 :])
        self.buffer = b""
        self.send()

    def connection_lost(self, _error: Exception | None) -> None:
        """Count down the open connections."""
        self.load.ended()


class Load:
    """What all connections share."""

    def __init__(self, request: bytes, count: int, connections: int) -> None:
        self.request = request
        self.left = count
        self.open = connections
        self.statuses: dict[int, int] = {}
        self.latencies: list[float] = []
        self.first = b""
        self.done = asyncio.Event()

    def note(self, status: int, latency: float, body: bytes) -> None:
        """Note one answer."""
        if not self.latencies:
            self.first = body
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.latencies.append(latency)

    def ended(self) -> None:
        """Note the end of one connection."""
        self.open -= 1
        if self.open == 0:
            self.done.set()


async def run(port: int, count: int, connections: int, request: bytes) -> dict[str, object]:
    """Put the load on and return the figures."""
    load = Load(request, count, connections)
    loop = asyncio.get_running_loop()
    begun = time.perf_counter()
    async with asyncio.timeout(DEADLINE):
        for _ in range(connections):
            await loop.create_connection(lambda: Client(load), "127.0.0.1", port)
        await load.done.wait()
    seconds = time.perf_counter() - begun
    ordered = sorted(load.latencies)
    return {
        "count": len(ordered),
        "seconds": seconds,
        "p50": ordered[len(ordered) // 2] * 1000,
        "p99": ordered[len(ordered) * 99 // 100] * 1000,
        "statuses": load.statuses,
        "first": load.first.decode(errors="replace"),
    }


if __name__ == "__main__":
    figures = run(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.stdin.buffer.read())
    print(json.dumps(asyncio.run(figures)))
