"""Many watchers of one session in one process, on raw sockets, some of which read nothing until they are told to.

Run as `python -m tests.support.soaking PORT WATCHERS SLOW`. It prints `open` once every stream has begun. Of the lines
that it takes, `until N` is answered with `reached N` when all that read have frame N, and `wake N` has the slow ones
read up to frame N too and prints, as JSON, what each of them saw: `{"frames", "missed", "lags"}`. Frames that do not
follow each other, and jumps that `lagged` does not account for, end it with an error.
"""

from __future__ import annotations

import json
import re
import resource
import select
import socket
import sys
import time
from typing import Final

DEADLINE: Final = 30.0
BODY: Final = b'{"jsonrpc":"2.0","id":1,"method":"stream/watch"}'
REQUEST: Final = (
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    % (len(BODY), BODY)
)
TOLD: Final = re.compile(rb'\nid: ([0-9]+)\n|\nevent: lagged\ndata: \{"missed":([0-9]+)\}\n')
SMALL: Final = 4096
SEGMENT: Final = 536


class Watcher:
    """One connection: the last number it saw, how many frames, and what it was told that it missed."""

    def __init__(self, port: int, *, slow: bool) -> None:
        self.socket = socket.socket()
        if slow:  # small buffers on both sides, or the kernel would hold all that it does not read
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(REQUEST)
        self.socket.setblocking(False)
        self.rest = b""
        self.cursor = 0
        self.frames = 0
        self.owed = 0
        self.missed = 0
        self.lags = 0

    def read(self) -> None:
        """Take in what has come."""
        data = self.socket.recv(1 << 18)
        assert data, f"the stream ended at {self.cursor}"
        data = self.rest + data
        end = data.rfind(b"\n\n") + 1
        self.rest = data[end:]
        for number, missed in TOLD.findall(data[:end] + b"\n"):
            if missed:
                self.owed += int(missed)
                self.lags += 1
            else:
                assert int(number) == self.cursor + 1 + self.owed, (self.cursor, self.owed, number)
                self.missed += self.owed
                self.cursor, self.owed = int(number), 0
                self.frames += 1


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def read_until(watchers: list[Watcher], number: int) -> None:
    """Read on all of these until each has this frame."""
    deadline = time.monotonic() + DEADLINE
    by_descriptor = {watcher.socket.fileno(): watcher for watcher in watchers}
    behind = sum(watcher.cursor < number for watcher in watchers)
    with select.epoll() as poll:
        for descriptor in by_descriptor:
            poll.register(descriptor, select.EPOLLIN)
        while behind:
            assert time.monotonic() < deadline, f"{behind} of {len(watchers)} did not get frame {number}"
            for descriptor, _ in poll.poll(1.0):
                watcher = by_descriptor[descriptor]
                was_behind = watcher.cursor < number
                watcher.read()
                behind -= was_behind and watcher.cursor >= number


def until_begun(watchers: list[Watcher]) -> None:
    """Wait until something has come for each of these, without reading it."""
    for watcher in watchers:
        assert select.select([watcher.socket], [], [], DEADLINE)[0], "a stream does not begin"


def main(port: int, count: int, slow_count: int) -> None:
    """Watch until standard input ends."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    slow = [Watcher(port, slow=True) for _ in range(slow_count)]
    fast = [Watcher(port, slow=False) for _ in range(count - slow_count)]
    until_begun(slow + fast)
    say("open")
    for line in sys.stdin:
        what, number = line.split()
        if what == "until":
            read_until(fast, int(number))
            assert all(watcher.missed == 0 for watcher in fast)
            say(f"reached {number}")
        else:
            read_until(slow, int(number))
            say(json.dumps([{"frames": w.frames, "missed": w.missed, "lags": w.lags} for w in slow]))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
