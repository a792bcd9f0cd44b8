"""Hostile days that need more of a machine: clocks that are set, ten thousand clients, a mounted file."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import time
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from tests.support.hostile import descriptors, resident, troubles, undisturbed, until_back
from tests.support.spawned import replace_capsule, running, write_capsule
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.machine
MIB = 2**20
CLIENTS = 10_000
HOUR, DAY = 3600, 86_400


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with the neighbour and with the capsule that everything happens to."""
    for name in ("calm", "struck"):
        write_capsule(tmp_path / "capsules" / name)
    return tmp_path / "capsules"


def faketime() -> str:
    """Return the library that gives a process a clock of its own."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    assert found, "the package faketime is not installed"
    return str(found[0])


def test_a_clock_that_is_set_disturbs_nobody(root: Path, tmp_path: Path) -> None:
    """An hour forwards, two days back, and forwards again: streams, changes, tasks, keys and the stop are as ever."""
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    prefix = [
        "env",
        f"LD_PRELOAD={faketime()}",
        f"FAKETIME_TIMESTAMP_FILE={clock}",
        "FAKETIME_NO_CACHE=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "DONT_FAKE_MONOTONIC=1",
        "NO_FAKE_STAT=1",
    ]
    with running(["--root", str(root)], state=tmp_path / "state", prefix=prefix) as sidecar:
        with undisturbed(sidecar):
            sessions = {name: row["session_id"] for name, row in sidecar.capsules().items()}
            for version, offset in enumerate((HOUR, -2 * DAY, 3 * DAY, 0), 2):
                new = tmp_path / "new-clock"
                new.write_text(f"{offset:+d}\n")
                new.rename(clock)
                until_sync(partial(is_off_by, offset, sidecar.port("calm")))
                replace_capsule(root / "struck", version=str(version))
                sidecar.until_version("struck", str(version))
                task = sidecar.api("/api/capsules/struck/messages", body={"text": "go"})["id"]
                cancelled = sidecar.api(f"/api/capsules/struck/tasks/{task}/cancel", body={})
                assert cancelled["status"]["state"] == "canceled"
            assert {name: row["session_id"] for name, row in sidecar.capsules().items()} == sessions
        tasks = sidecar.api("/api/capsules/struck/tasks")["tasks"]
        assert len(tasks) == 4
        assert not troubles(sidecar)
        sidecar.process.terminate()
        assert sidecar.wait(within=3 * 8) == 0


def is_off_by(offset: int, port: int) -> bool:
    """Whether the answers of a port say that it is so many seconds later than it is."""
    with urlopen(f"http://127.0.0.1:{port}/.well-known/agent-card.json", timeout=10) as answer:
        told = parsedate_to_datetime(answer.headers["Date"]).timestamp()
    return abs(told - time.time() - offset) < 30


@pytest.fixture
def many_descriptors() -> Iterator[int]:
    """Let this process have as many descriptors as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_ten_thousand_connections_that_are_left_open_disturb_nobody(
    many_descriptors: int, root: Path, tmp_path: Path
) -> None:
    """One capsule takes as many as its limit allows, the others are turned away; when they go, all comes back."""
    count = min(CLIENTS, many_descriptors - 500)
    with running(["--root", str(root)], state=tmp_path / "state") as sidecar:
        pid = sidecar.process.pid
        with undisturbed(sidecar):
            before = descriptors(pid), resident(pid)
            port = sidecar.port("struck")
            clients = []
            try:
                for _ in range(count):
                    clients.append(socket.create_connection(("127.0.0.1", port), 30))  # noqa: PERF401 - what is open is closed
                until_sync(lambda: 2000 < descriptors(pid) - before[0] < 2048 + 16, within=60)
                assert sidecar.capsules()["struck"]["state"] == "serving"
            finally:
                for client in clients:
                    client.close()
            until_back(pid, before[0], within=60)
            assert sidecar.card("struck")["version"] == "1"
            assert resident(pid) < before[1] + 64 * MIB
        assert len(sidecar.log) < 200
        assert not troubles(sidecar)


def test_a_mounted_file_that_was_replaced_outside_is_said(root: Path, tmp_path: Path) -> None:
    """B07 traefik/traefik#5589: the mount keeps the old file; the API and one line name it and what to do."""
    outside = write_capsule(tmp_path / "outside", name="struck", version="1") / "murmur.yaml"
    inside = root / "struck" / "murmur.yaml"
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    prefix = ["unshare", "--mount", "sh", "-c", script, "sh", str(outside), str(inside)]
    with running(["--root", str(root)], state=tmp_path / "state", prefix=prefix) as sidecar:  # noqa: SIM117 - the order
        with undisturbed(sidecar):
            new = write_capsule(tmp_path / "new", name="struck", version="2") / "murmur.yaml"
            new.rename(outside)
            told = until_sync(lambda: sidecar.capsules()["struck"]["warnings"], within=20)
            assert "mount" in json.dumps(told)
            assert sidecar.card("struck")["version"] == "1"
            told = [r for r in sidecar.events("manifest_warnings") if "mount" in json.dumps(r)]
            assert [record["capsule"] for record in told] == ["struck"]
    assert (
        "Mount directories, never a single `murmur.yaml`"
        in (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    )


def test_a_container_s_inner_address_is_on_no_card(root: Path, tmp_path: Path) -> None:
    """B35 a2aproject/A2A#1599: in a network of its own, listening on all addresses, cards say what `advertise` says."""
    setting = {"SIDECAR_LISTEN__HOST": "0.0.0.0", "SIDECAR_LISTEN__ADVERTISE": "agents.example"}
    prefix = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    with running(["--root", str(root)], state=tmp_path / "state", env=setting, prefix=prefix) as sidecar:
        enter = ["nsenter", "--target", str(sidecar.process.pid), "--net"]
        log = sidecar.event("capsule_bound", capsule="struck")
        port = log["url"].rpartition(":")[2]
        for path in ("agent-card.json", "agent.json"):
            address = f"http://127.0.0.1:{port}/.well-known/{path}"
            done = subprocess.run(
                [*enter, "curl", "-sf", address], capture_output=True, text=True, check=True
            )
            assert f"http://agents.example:{port}" in done.stdout
            assert "0.0.0.0" not in done.stdout
            assert "127.0.0.1" not in done.stdout
