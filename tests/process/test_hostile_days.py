"""Hostile days that need no special machine: the others do not notice, everything comes back, one clear line says so."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.hostile import descriptors, resident, troubles, undisturbed, until_back
from tests.support.spawned import replace_capsule, running, write_capsule
from tests.support.waiting import until_sync

MIB = 2**20
COUNT = 2_000
TRICKLES = 200
SOCKETS = 192


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with the neighbour and with the capsule that everything happens to."""
    for name in ("calm", "struck"):
        write_capsule(tmp_path / "capsules" / name)
    return tmp_path / "capsules"


def test_a_manifest_that_flaps_disturbs_nobody_and_its_last_word_counts(root: Path, tmp_path: Path) -> None:
    """Every 50 ms it is good, bad, gone or another one; a line at most for each, and in the end what is there is served."""
    manifest = root / "struck" / "murmur.yaml"
    good = manifest.read_text()
    texts = itertools.cycle((good.replace('"1"', '"2"'), "name: [", None, good, ""))
    with running(["--root", str(root)], state=tmp_path / "state") as sidecar, undisturbed(sidecar):
        session = sidecar.card("struck")["session_id"]
        before = descriptors(sidecar.process.pid)
        ended, turn = time.monotonic() + 3.0, threading.Event()
        changes = 0
        while time.monotonic() < ended:
            text = next(texts)
            manifest.unlink(missing_ok=True)
            if text is not None:
                manifest.write_text(text)
            changes += 1
            turn.wait(0.05)
        write_capsule(root / "struck", version="3")
        sidecar.until_version("struck", "3")
        assert sidecar.card("struck")["session_id"] == session
        until_sync(lambda: sidecar.capsules()["struck"]["last_error"] is None)
        told = [r for r in sidecar.log if "struck" in str(r.get("path", "")) + str(r.get("capsule", ""))]
        assert len(told) <= changes + 10
        until_back(sidecar.process.pid, before)
        assert not troubles(sidecar)


@pytest.mark.machine
def test_two_thousand_capsules_that_come_and_go_at_once_disturb_nobody(root: Path, tmp_path: Path) -> None:
    """All are served; when they have gone, so have their descriptors and most of their memory, and a change is live."""
    many = tmp_path / "many"
    for number in range(COUNT):
        write_capsule(many / f"c{number:04}")
    roots = ["--root", str(root), "--root", str(tmp_path / "other")]
    ports = {"SIDECAR_LISTEN__PORTS": "20000-31999"}
    with running(roots, state=tmp_path / "state", env=ports) as sidecar, undisturbed(sidecar):
        before = descriptors(sidecar.process.pid), resident(sidecar.process.pid)
        many.rename(tmp_path / "other")
        until_sync(lambda: sidecar.api("/readyz")["capsules"].get("serving") == COUNT + 2, within=120)
        shutil.rmtree(tmp_path / "other")
        until_sync(lambda: len(sidecar.capsules()) == 2, within=120)
        until_back(sidecar.process.pid, before[0], within=60)
        replace_capsule(root / "struck", version="2")
        sidecar.until_version("struck", "2", within=30)
        assert resident(sidecar.process.pid) < before[1] + 64 * MIB
        assert not troubles(sidecar)


def test_a_worker_that_floods_costs_its_own_task(root: Path, tmp_path: Path) -> None:
    """It fails for its output, with the limit named; memory and descriptors come back, and the process has ended."""
    config = tmp_path / "config.yaml"
    argv = [sys.executable, "-c", "import os\nwhile True: os.write(1, b'y' * 65536)"]
    settings = {"backend": "command", "command": {"argv": argv}}
    config.write_text(json.dumps({"roots": [{"path": str(root)}], "capsules": {"struck": settings}}))
    with running(["--config", str(config)], state=tmp_path / "state") as sidecar, undisturbed(sidecar):
        pid = sidecar.process.pid
        before = resident(pid), descriptors(pid)
        for _ in range(8):
            task = sidecar.api("/api/capsules/struck/messages", body={"text": "go"})["id"]

            def status(path: str = f"/api/capsules/struck/tasks/{task}") -> dict[str, str] | None:
                found: dict[str, str] = sidecar.api(path)["status"]
                return found if found["state"] == "failed" else None

            told = until_sync(status, within=60)
            assert told is not None
            assert "over the limit" in str(told["message"])
        until_back(pid, before[1])
        assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""
        # the database's statements hold on to the largest reply that they wrote, 16 MiB here, and no more of them
        assert resident(pid) < before[0] + 128 * MIB
        assert not troubles(sidecar)


def trickling(port: int, start: bytes, ended: threading.Event) -> None:
    """Open connections that say the start and then a byte now and then, until each of them was ended."""
    with contextlib.ExitStack() as stack:
        ours = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(TRICKLES)
        ]
        for one in ours:
            one.sendall(start)
        while ours and not ended.wait(0.1):
            left = []
            for one in ours:
                with contextlib.suppress(OSError):
                    one.sendall(b"x")
                    one.setblocking(False)
                    try:
                        over = one.recv(65536) == b""
                    except BlockingIOError:
                        over = False
                    if not over:
                        left.append(one)
            ours = left


HEAD = b"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
BODY = (
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
)


@pytest.mark.parametrize("start", [HEAD, BODY], ids=["header", "body"])
def test_slow_requests_are_ended_and_cost_nobody_else(start: bytes, root: Path, tmp_path: Path) -> None:
    """Hundreds of clients that trickle a head or a body are let go at the deadline, which no byte puts off."""
    limits = {"SIDECAR_LIMITS__IDLE": "1s", "SIDECAR_LIMITS__BODY_TIMEOUT": "1s"}
    with running(["--root", str(root)], state=tmp_path / "state", env=limits) as sidecar:
        with undisturbed(sidecar):
            port, before = sidecar.port("struck"), descriptors(sidecar.process.pid)
            ended = threading.Event()
            thread = threading.Thread(target=trickling, args=(port, start, ended), name="trickles")
            thread.start()
            try:
                until_sync(lambda: descriptors(sidecar.process.pid) >= before + TRICKLES // 2)
                until_sync(lambda: not thread.is_alive(), within=30)
            finally:
                ended.set()
                thread.join()
            until_back(sidecar.process.pid, before)
        assert len(sidecar.log) < 100
        assert not troubles(sidecar)


def test_capsules_and_clients_over_the_descriptor_limit_are_refused_and_nobody_else(
    root: Path, tmp_path: Path
) -> None:
    """With few descriptors, the capsules that fit are served, the others say why; clients beyond are turned away, too."""
    for number in range(SOCKETS):
        write_capsule(root / f"e{number:03}")
    prefix = ["prlimit", f"--nofile={SOCKETS}:{SOCKETS}"]
    with running(["--root", str(root)], state=tmp_path / "state", prefix=prefix) as sidecar:
        with undisturbed(sidecar):
            budget = sidecar.event("descriptor_budget")["listeners"]
            rows = sidecar.capsules()
            served = [name for name, row in rows.items() if row["state"] == "serving"]
            unbound = [row for row in rows.values() if row["state"] == "unbound"]
            assert 0 < len(served) <= budget
            assert len(served) + len(unbound) == SOCKETS + 2
            assert all("LimitNOFILE" in row["last_error"]["message"] for row in unbound)
            before = descriptors(sidecar.process.pid)
            clients = []
            try:
                for name in served:
                    address = ("127.0.0.1", rows[name]["port"])
                    clients += [socket.create_connection(address, 10) for _ in range(3)]
                    assert descriptors(sidecar.process.pid) < SOCKETS
                    assert sidecar.api("/healthz")
            finally:
                for client in clients:
                    client.close()
            until_back(sidecar.process.pid, before)
            assert sidecar.card(served[-1])["name"] == served[-1]
            shutil.rmtree(root / "e000")
            until_sync(lambda: "e000" not in sidecar.capsules(), within=20)
            until_sync(
                lambda: sum(row["state"] == "serving" for row in sidecar.capsules().values()) == len(served),
                within=20,
                what="the next one has its place",
            )
        assert not troubles(sidecar)
