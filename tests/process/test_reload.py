"""Reload and stop: nobody who was not concerned notices. Reports are named by their public number."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.sockets import ESTABLISHED, listener, table
from tests.support.spawned import replace_capsule, running, start, write_capsule
from tests.support.spawned import sidecar as command
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.spawned import Spawned

WATCH = b'{"jsonrpc":"2.0","id":1,"method":"stream/watch"}'


class Stream:
    """A raw connection that watches a session."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(WATCH)}\r\n\r\n"
        self.socket.sendall(head.encode() + WATCH)
        self.seen = b""
        self.read_until(b"connection-ack")

    def read_until(self, text: bytes) -> None:
        """Read until this text was seen."""
        while text not in self.seen:
            chunk = self.socket.recv(65536)
            assert chunk, f"stream ended: {self.seen!r}"
            self.seen += chunk

    def read_to_end(self) -> bytes:
        """Read until the other side closes."""
        while chunk := self.socket.recv(65536):
            self.seen += chunk
        return self.seen

    def close(self) -> None:
        """Leave."""
        self.socket.close()


@pytest.fixture
def config(root: Path, tmp_path: Path) -> Path:
    """A configuration file for the root."""
    path = tmp_path / "config.yaml"
    path.write_text(f"roots:\n  - path: {root}\n")
    return path


@pytest.fixture
def configured(config: Path, tmp_path: Path) -> Iterator[Spawned]:
    """A sidecar that was started with the configuration file."""
    with running(["--config", str(config)], state=tmp_path / "state") as spawned:
        yield spawned


def test_a_broken_configuration_is_refused_and_the_old_one_serves(configured: Spawned, config: Path) -> None:
    """B13 apollographql/apollo-mcp-server#718: said once in the log, shown by the desk, and mended by a good one."""
    good = config.read_text()
    config.write_text("roots: [\n")
    configured.event("config_refused")
    configured.signal(signal.SIGHUP)
    assert configured.card("a")["version"] == "1"
    document = configured.api("/api/capsules")
    assert "config.yaml:" in document["config"]["last_error"]["message"]
    assert configured.api("/readyz")["config"]["last_error"]
    config.write_text(good)
    until_sync(lambda: configured.api("/api/capsules")["config"]["last_error"] is None)
    assert len(configured.events("config_refused")) == 1


def test_a_configuration_that_fails_validation_leaves_the_old_values(
    configured: Spawned, config: Path
) -> None:
    """B14 raphamorim/rio#1758: well-formed YAML with a wrong value replaces nothing, and defaults do not creep in."""
    config.write_text(config.read_text() + "card: reference\n")
    until_sync(lambda: "description" not in configured.card("a"))
    config.write_text(config.read_text() + "limits: {body: lots}\n")
    configured.event("config_refused")
    assert "description" not in configured.card("a")
    done = command("reload", "--state", str(configured.state), env={"SIDECAR_DESK__PORT": "0"})
    assert done.returncode == 2
    assert "limits.body" in done.stderr


def test_an_unrelated_change_keeps_streams_and_sockets(configured: Spawned, root: Path, config: Path) -> None:
    """B16 caddyserver/caddy#7222: a's stream stays open, byte for byte, and its socket is the same one."""
    port = configured.port("a")
    before = listener(port)
    stream = Stream(port)
    try:
        write_capsule(root / "b")
        configured.port("b")
        replace_capsule(root / "b", version="2")
        configured.until_version("b", "2")
        config.write_text(config.read_text() + "heartbeat: {murmur: 20s}\n")
        configured.event("config_reloaded")
        assert before is not None
        assert listener(port) == before
        seen = stream.seen
        assert (
            post(port, {"method": "message/send", "params": MESSAGE})["result"]["status"]["state"]
            == "submitted"
        )
        post(port, {"method": "session/stop"})
        stream.read_until(b'"canceled"')
        assert stream.seen.startswith(seen)
    finally:
        stream.close()


MESSAGE = {"message": {"messageId": "m1", "role": "user", "parts": [{"text": "hello"}]}}


def post(port: int, call: dict[str, object]) -> dict[str, dict[str, dict[str, str]]]:
    """Call a method of the door and return the answer."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, **call}).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        head = "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    document: dict[str, dict[str, dict[str, str]]] = json.loads(received.partition(b"\r\n\r\n")[2])
    return document


def test_sigterm_ends_an_open_stream_with_its_last_frame(root: Path, tmp_path: Path) -> None:
    """B17 caddyserver/caddy#3818, B26, B27: an open stream holds nothing up; it ends with `capsule-closed`."""
    with running(["--root", str(root)], state=tmp_path / "state") as sidecar:
        streams = [Stream(sidecar.port("a")) for _ in range(100)]
        sidecar.signal(signal.SIGTERM)
        assert sidecar.wait(within=3 * 8) == 0
        for stream in streams:
            assert b"event: capsule-closed" in stream.read_to_end()
            stream.close()


def test_a_client_that_does_not_read_holds_nothing_up(root: Path, tmp_path: Path) -> None:
    """A watcher whose window is full is cut off, and the sidecar stops within its budget."""
    with running(["--root", str(root)], state=tmp_path / "state") as sidecar:
        stream = Stream(sidecar.port("a"))
        sidecar.signal(signal.SIGTERM)
        assert sidecar.wait(within=3 * 8) == 0
        stream.close()


def test_a_busy_port_leaves_that_capsule_unbound_and_the_others_alone(
    config: Path, root: Path, tmp_path: Path
) -> None:
    """B18 tempesta-tech/tempesta#2043 and B19 processone/ejabberd#3850: said with reason, bound once it is free."""
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        config.write_text(config.read_text() + f"capsules:\n  b:\n    port: {port}\n")
        with running(["--config", str(config)], state=tmp_path / "state") as sidecar:
            stream = Stream(sidecar.port("a"))
            write_capsule(root / "b")
            row = until_sync(lambda: sidecar.capsules().get("b"))
            assert row is not None
            row = until_sync(lambda: (r := sidecar.capsules()["b"])["last_error"] and r)
            assert row["state"] == "unbound"
            assert str(port) in row["last_error"]["message"]
            assert "b" in json.dumps(sidecar.api("/readyz"))
            busy.close()
            assert sidecar.port("b") == port
            stream.close()


def test_a_changed_host_rebinds_the_same_port(config: Path, configured: Spawned) -> None:
    """B21 nginx/unit#20: from loopback to all addresses and back, on the same port."""
    port = configured.port("a")
    text = config.read_text()
    for host, shown in (("0.0.0.0", "00000000"), ("127.0.0.1", "0100007F")):
        config.write_text(text + f"listen: {{host: {host}, allowed_hosts: [localhost]}}\n")

        def listens(shown: str = shown) -> bool:
            row = listener(port)
            return row is not None and row.address == shown

        until_sync(listens, what=f"listening on {host}")
        assert configured.port("a") == port
        assert configured.card("a")["version"] == "1"


def test_a_restart_in_place_has_the_same_ports_and_sessions(root: Path, tmp_path: Path) -> None:
    """B22 vectordotdev/vector#2011: its own closing connections are in nobody's way."""
    seen = set()
    for _ in range(3):
        with running(["--root", str(root)], state=tmp_path / "state") as sidecar:
            card = sidecar.card("a")
            streams = [Stream(sidecar.port("a")) for _ in range(10)]
            seen.add((card["url"], card["session_id"]))
        for stream in streams:
            stream.close()
    assert len(seen) == 1


def test_a_range_inside_the_ephemeral_one_is_warned_about(root: Path, tmp_path: Path) -> None:
    """B25 emqx/emqx#18036: an outgoing connection may take such a port; the default range lies below."""
    done = command("check", "--root", str(root), env={"SIDECAR_LISTEN__PORTS": "40000-40100"})
    assert done.returncode == 0
    assert "ip_local_port_range" in done.stdout
    assert "ip_local_port_range" not in command("check", "--root", str(root)).stdout


def test_a_watcher_that_leaves_is_no_error(sidecar: Spawned) -> None:
    """B30 aio-libs/aiohttp#3966: a routine disconnect leaves no error line and no open stream."""
    streams = [Stream(sidecar.port("a")) for _ in range(5)]
    for stream in streams:
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        stream.close()
    port = sidecar.port("a")

    def connections() -> int:
        return sum(row.port == port and row.state == ESTABLISHED for row in table())

    until_sync(lambda: connections() == 0, within=30)
    assert not [r for r in sidecar.log if r.get("level") in ("error", "critical", "warning")]


def test_sigterm_as_the_first_process_ends_it(root: Path, tmp_path: Path) -> None:
    """B51 python/cpython#125688: SIGTERM is handled explicitly, also right after the start."""
    spawned = start(["--root", str(root)], state=tmp_path / "state")
    spawned.event("ready")
    spawned.signal(signal.SIGTERM)
    assert spawned.wait(within=3 * 2) == 0


@pytest.mark.machine
def test_sigterm_ends_it_as_pid_1(root: Path, tmp_path: Path) -> None:
    """B51 OHF-Voice/wyoming-piper#47: as PID 1 of a namespace, where signals have no default action."""
    prefix = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    spawned = start(["--root", str(root)], state=tmp_path / "state", prefix=prefix)
    spawned.event("ready")
    pid = spawned.process.pid
    inner = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    os.kill(inner, signal.SIGTERM)
    assert spawned.wait(within=3 * 2) == 0


def test_a_second_signal_forces_the_end(root: Path, tmp_path: Path) -> None:
    """Two SIGTERMs in a row end the process at once, still without a traceback."""
    spawned = start(["--root", str(root)], state=tmp_path / "state")
    spawned.event("ready")
    stream = Stream(spawned.port("a"))
    spawned.signal(signal.SIGTERM)
    spawned.signal(signal.SIGTERM)
    spawned.wait(within=3 * 8)
    stream.close()
    assert not [line for line in spawned.raw if "Traceback" in line]


def test_the_service_manager_is_told(root: Path, tmp_path: Path) -> None:
    """B53 benoitc/gunicorn#2165: READY when ready, RELOADING and READY at a reload, STOPPING at the end."""
    config = tmp_path / "config.yaml"
    config.write_text(f"roots:\n  - path: {root}\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0sidecar-test-notify-" + str(os.getpid()))
        manager.settimeout(20)
        heard: list[str] = []

        def hear(text: str) -> None:
            deadline = time.monotonic() + 20
            while not any(text in message for message in heard):
                assert time.monotonic() < deadline, f"no {text} in {heard}"
                heard.append(manager.recv(4096).decode())

        env = {"NOTIFY_SOCKET": "@" + manager.getsockname()[1:].decode(), "WATCHDOG_USEC": "3000000"}
        with running(["--config", str(config)], state=tmp_path / "state", env=env) as sidecar:
            hear("READY=1")
            hear("WATCHDOG=1")
            heard.clear()
            sidecar.signal(signal.SIGHUP)
            hear("MONOTONIC_USEC=")
            hear("READY=1")
            assert "RELOADING=1" in "\n".join(heard)
            sidecar.signal(signal.SIGTERM)
            hear("STOPPING=1")


def test_ready_is_said_with_no_capsule_at_all(tmp_path: Path) -> None:
    """B53 vllm-project/vllm#57637: an empty root is ready too."""
    (tmp_path / "capsules").mkdir()
    with running(["--root", str(tmp_path / "capsules")], state=tmp_path / "state") as sidecar:
        assert sidecar.capsules() == {}
        assert command("health", "--state", str(sidecar.state)).returncode == 0
