"""Notices to the service manager over its datagram socket (sd_notify(3)); without one, nothing happens.

A socket is opened for each notice: notices are rare, and a manager that was restarted is found again.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

STATUS_LENGTH: Final = 200


class Notifier:
    """Says to the service manager how the sidecar is doing. `address` None makes every call a no-op.

    An address is a path, or `@name` for the abstract namespace. Each method returns whether the notice was
    handed over; a failure is never more than that, since a sidecar without its manager still serves.
    """

    __slots__ = ("_address",)

    def __init__(self, address: str | None) -> None:
        self._address = address or None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Notifier:
        """Make the notifier of `NOTIFY_SOCKET`, where it is set."""
        return cls(environ.get("NOTIFY_SOCKET"))

    @property
    def active(self) -> bool:
        """Whether there is a manager to talk to."""
        return self._address is not None

    def ready(self, status: str = "") -> bool:
        """Say that the start, or a reload, is over."""
        return self._send("READY=1", *_status(status))

    def reloading(self) -> bool:
        """Say that a reload begins, with the time that systemd compares it by; `ready` ends it."""
        return self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str = "") -> bool:
        """Say that the stop has begun."""
        return self._send("STOPPING=1", *_status(status))

    def status(self, text: str) -> bool:
        """Set the line that `systemctl status` shows."""
        return self._send(*_status(text))

    def watchdog(self) -> bool:
        """Say that the event loop is alive."""
        return self._send("WATCHDOG=1")

    def _send(self, *assignments: str) -> bool:
        if self._address is None or not assignments:
            return False
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.sendto("\n".join(assignments).encode(errors="backslashreplace"), os.fsencode(address))
        except (OSError, ValueError):
            return False
        return True


def _status(text: str) -> tuple[str, ...]:
    """One assignment, whatever the text holds: a newline would begin another one."""
    shown = "".join(c if c.isprintable() else "?" for c in text[:STATUS_LENGTH])
    return (f"STATUS={shown}",) if shown else ()


def watchdog_interval(environ: Mapping[str, str], pid: int) -> float | None:
    """Return how often, in seconds, the watchdog wants to hear from this process: half of its limit.

    None when there is no watchdog, or it watches another process (`WATCHDOG_PID`), or the values make no sense.
    """
    limit, watched = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not (limit.isascii() and limit.isdigit() and int(limit) > 0):
        return None
    if watched and watched != str(pid):
        return None
    return int(limit) / 2_000_000
