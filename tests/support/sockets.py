"""The kernel's own table of sockets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LISTEN, ESTABLISHED = "0A", "01"


@dataclass(frozen=True, slots=True)
class Row:
    """One IPv4 socket: its local address as the kernel writes it, port, state and inode."""

    address: str
    port: int
    state: str
    inode: str


def table() -> list[Row]:
    """Return all IPv4 TCP sockets of this network namespace."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [Row(r[1].partition(":")[0], int(r[1].partition(":")[2], 16), r[3], r[9]) for r in rows]


def listener(port: int) -> Row | None:
    """Return the socket that listens on a port."""
    return next((row for row in table() if row.port == port and row.state == LISTEN), None)
