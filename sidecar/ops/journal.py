"""Log lines with their fields, to systemd's journal, in its native protocol (systemd, "Native Journal Protocol").

A service's standard error leads to the journal, but a line there is text of one priority. Over the journal's own socket it
has its level as `PRIORITY`, and each field by itself, to select by: `journalctl -p warning SIDECAR_CAPSULE=hello`.
"""

from __future__ import annotations

import os
import re
import socket
from typing import IO, TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET: Final = "/run/systemd/journal/socket"
PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
PREFIX: Final = "SIDECAR_"
LONGEST_NAME: Final = 64
WITHIN: Final = frozenset({"timestamp", "level"})
"""What an entry has already, as its time and its priority."""


def leads_there(stream: IO[bytes], environ: Mapping[str, str]) -> bool:
    """Tell whether a stream is the one that the service manager connected to the journal (`JOURNAL_STREAM`)."""
    device, _, inode = environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


def entry(line: Mapping[str, object], message: bytes) -> bytes:
    """Return a finished line as an entry of the journal: `message` for its readers, and a field for each of its values."""
    fields = [
        _field("MESSAGE", message),
        _field("PRIORITY", str(PRIORITIES.get(str(line["level"]), 3)).encode()),
        _field("SYSLOG_IDENTIFIER", b"sidecar"),
    ]
    fields += [_field(_name(key), _value(value)) for key, value in line.items() if key not in WITHIN]
    return b"".join(fields)


def _name(key: str) -> str:
    return (PREFIX + re.sub(r"[^A-Z0-9]", "_", key.upper()))[:LONGEST_NAME]


def _value(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


def _field(name: str, value: bytes) -> bytes:
    if b"\n" not in value:
        return name.encode() + b"=" + value + b"\n"
    return name.encode() + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"


def write(entry: bytes, path: str) -> bool:
    """Hand an entry over without waiting. False where it cannot be: no journal, one that does not keep up, one line too long.

    A socket for each, as lines are few: a journal that was started again is found, and there is none to look after.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.setblocking(False)
            channel.sendto(entry, path)
    except OSError:
        return False
    return True
