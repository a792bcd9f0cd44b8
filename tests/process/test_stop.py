"""Stopping: one budget, whatever clients do, and signals that come too late."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.support.spawned import running, sidecar, start
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.spawned import Spawned

HEAD = "POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
UNFINISHED = (
    "Content-Length: 1000\r\n\r\n[",
    "Transfer-Encoding: chunked\r\n\r\n",
    "Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
)
FOR_EVER = {
    "SIDECAR_LIMITS__DRAIN": "10m",
    "SIDECAR_LIMITS__BODY_TIMEOUT": "10m",
    "SIDECAR_LIMITS__IDLE": "10m",
}


def begin(port: int, target: str, rest: str, more: str = "") -> socket.socket:
    """Send a request that does not end."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall((HEAD.format(target=target, more=more) + rest).encode())
    return connection


def desk_port(spawned: Spawned) -> int:
    """Return the port of the desk."""
    port = urlsplit(spawned.desk).port
    assert port is not None
    return port


def answer_of(connection: socket.socket) -> bytes:
    """Read to the end."""
    received = b""
    with connection:
        while chunk := connection.recv(65536):
            received += chunk
    return received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")


def test_unfinished_requests_hold_nothing_up(root: Path, tmp_path: Path) -> None:
    """With limits of minutes the stop takes a moment: bodies that do not come, at a capsule and at the desk, get 503."""
    with running(["--root", str(root)], state=tmp_path / "state", env=FOR_EVER) as spawned:
        token = (spawned.state / "admin.token").read_text().strip()
        mine = f"Authorization: Bearer {token}\r\n"
        begun = [begin(spawned.port("a"), "/", rest) for rest in UNFINISHED]
        begun += [begin(desk_port(spawned), "/api/capsules/a/messages", rest, mine) for rest in UNFINISHED]
        spawned.api("/api/capsules")  # what was sent before is being waited for now
        spawned.signal(signal.SIGTERM)
        assert spawned.wait(within=30) == 0
        for connection in begun:
            assert answer_of(connection).startswith(b"HTTP/1.1 503 ")


def test_signals_after_the_end_change_nothing(root: Path, tmp_path: Path) -> None:
    """Once `stopped` is said, whoever asks for it again, or for a reload, gets exit status 0."""
    spawned = start(["--root", str(root)], state=tmp_path / "state")
    spawned.event("ready")
    spawned.signal(signal.SIGTERM)
    until_sync(lambda: spawned.events("stopped"), what="the end")
    while spawned.process.poll() is None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with contextlib.suppress(ProcessLookupError):
                spawned.signal(number)
    assert spawned.wait() == 0
    assert not spawned.events("stop_forced")


def test_health_gives_up_on_a_sidecar_that_hangs(root: Path, tmp_path: Path) -> None:
    """The check has its answer before the container engine loses its patience, and says what is wrong."""
    with running(["--root", str(root)], state=tmp_path / "state") as spawned:
        assert sidecar("health", "--state", str(spawned.state)).returncode == 0
        spawned.signal(signal.SIGSTOP)
        try:
            done = sidecar("health", "--state", str(spawned.state))
        finally:
            spawned.signal(signal.SIGCONT)
        assert done.returncode == 1
        assert "does not answer: nothing came for 3 s" in done.stderr
        assert (
            json.loads(sidecar("health", "--state", str(spawned.state), "--json").stdout)["status"] == "ready"
        )
