"""Notices as a service manager gets them."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

import pytest

from sidecar.ops.notify import Notifier

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """Return the address and the socket of a manager, in the file system or in the abstract namespace."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@sidecar-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address if request.param == "path" else "\0" + address[1:])
        listener.settimeout(5)
        yield address, listener


def test_b53_a_manager_is_told_ready_on_any_kind_of_socket(manager: tuple[str, socket.socket]) -> None:
    """B53 READY is never sent: READY=1 arrives as one datagram, on a path and on an abstract `@` socket."""
    address, listener = manager
    assert Notifier.from_environ({"NOTIFY_SOCKET": address}).ready("serving 3 capsules")
    assert listener.recv(4096) == b"READY=1\nSTATUS=serving 3 capsules"


def test_a_reload_is_announced_with_its_monotonic_time(manager: tuple[str, socket.socket]) -> None:
    """RELOADING=1 carries MONOTONIC_USEC in the same datagram, on the clock that the manager compares with."""
    address, listener = manager
    before = time.monotonic_ns() // 1000
    assert Notifier(address).reloading()
    reloading, _, stamp = listener.recv(4096).decode().partition("\nMONOTONIC_USEC=")
    assert reloading == "RELOADING=1"
    assert before <= int(stamp) <= time.monotonic_ns() // 1000


def test_the_stop_and_the_status_are_told(manager: tuple[str, socket.socket]) -> None:
    """STOPPING=1 and STATUS= arrive; a status is one line of printable text, cut where it is long."""
    address, listener = manager
    notifier = Notifier(address)
    assert notifier.stopping()
    assert notifier.status("one\nREADY=1\x1b" + "x" * 500)
    assert listener.recv(4096) == b"STOPPING=1"
    status = listener.recv(4096)
    assert status.startswith(b"STATUS=one?READY=1?xxx")
    assert len(status) < 220


def test_the_watchdog_hears_from_us(manager: tuple[str, socket.socket]) -> None:
    """WATCHDOG=1 arrives for each call."""
    address, listener = manager
    assert Notifier(address).watchdog()
    assert listener.recv(64) == b"WATCHDOG=1"


def test_a_manager_that_does_not_read_blocks_nobody(manager: tuple[str, socket.socket]) -> None:
    """A full socket drops the notice instead of stopping the event loop."""
    address, _ = manager
    notifier = Notifier(address)
    assert not all(notifier.watchdog() for _ in range(10_000))
