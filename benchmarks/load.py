"""The client: many keep-alive connections that send one prepared request again and again, from a process of its own.

`python -m benchmarks.load PORT COUNT CONNECTIONS` takes the request's bytes on standard input and prints JSON:
seconds, count, p50 and p99 in milliseconds, answers by status, and the first body. Plain sockets and epoll, so that
the client costs less than the servers that it measures. Loopback only; ends by itself.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import sys
import time
from collections import Counter

DEADLINE = 120.0
HEAD_END = b"\r\n\r\n"
LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: *(\d+)\r\n")


class Connection:
    """One connection: what has come of the answer under way, and when its request was sent."""

    __slots__ = ("buffer", "sent", "socket", "whole")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.buffer = b""
        self.sent = 0.0
        self.whole = 0

    def send(self, request: bytes) -> None:
        """Send a request; it fits the socket's buffer."""
        self.buffer = b""
        self.whole = 0
        self.sent = time.perf_counter()
        self.socket.send(request)

    def take(self) -> bytes | None:
        """Return a whole answer, or None while there is more to come."""
        data = self.socket.recv(262_144)
        if not data:
            raise ConnectionError("the server closed a connection")
        self.buffer = self.buffer + data if self.buffer else data
        if not self.whole:
            self.whole = _length(self.buffer)
        return self.buffer if self.whole and len(self.buffer) >= self.whole else None


def _length(answer: bytes) -> int:
    """Return how long an answer is with its head; 0 while that is not known."""
    end = answer.find(HEAD_END)
    if end < 0:
        return 0
    length = LENGTH.search(answer, 0, end + 2)
    return end + 4 + (int(length[1]) if length else 0)


def run(port: int, count: int, connections: int, request: bytes) -> dict[str, object]:
    """Put the load on and return the figures."""
    count = max(count, connections)
    statuses: Counter[bytes] = Counter()
    latencies: list[float] = []
    first = b""
    with contextlib.ExitStack() as stack:
        poll = stack.enter_context(select.epoll())
        clients = {}
        for _ in range(connections):
            client = Connection(port)
            stack.callback(client.socket.close)
            clients[client.socket.fileno()] = client
            poll.register(client.socket.fileno(), select.EPOLLIN)
        begun = time.perf_counter()
        for client in clients.values():
            client.send(request)
        left = count - connections
        while len(latencies) < count:
            if time.perf_counter() - begun > DEADLINE:
                raise TimeoutError(f"{len(latencies)} of {count} answers after {DEADLINE} s")
            for descriptor, _ in poll.poll(1.0):
                client = clients[descriptor]
                answer = client.take()
                if answer is None:
                    continue
                latencies.append(time.perf_counter() - client.sent)
                statuses[answer[9:12]] += 1
                first = first or answer[answer.find(HEAD_END) + 4 :]
                if left > 0:
                    left -= 1
                    client.send(request)
        seconds = time.perf_counter() - begun
    latencies.sort()
    return {
        "count": count,
        "seconds": seconds,
        "p50": latencies[count // 2] * 1000,
        "p99": latencies[count * 99 // 100] * 1000,
        "statuses": {status.decode(): count for status, count in statuses.items()},
        "first": first.decode(errors="replace"),
    }


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.stdin.buffer.read())))
