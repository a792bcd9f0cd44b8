"""The service manager's watchdog: it hears from the pipeline, and from nothing else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from tests.support.spawned import Spawned, environment, write_capsule

PROJECT = Path(__file__).parents[2]
LIMIT = 0.4
QUIET = 5 * LIMIT


def fed(manager: socket.socket) -> bool:
    """Wait for the watchdog's next notice; False when none comes for much longer than its limit."""
    try:
        while manager.recv(4096) != b"WATCHDOG=1":
            pass
    except TimeoutError:
        return False
    return True


def test_a_pipeline_that_stands_still_starves_the_watchdog(root: Path, tmp_path: Path) -> None:
    """While the loop lives and the desk answers: a disk that takes no commit holds a turn up, and the notices with it."""
    held, state = tmp_path / "held", tmp_path / "state"
    address = f"sidecar-test-watchdog-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + address)
        manager.settimeout(20)
        settings = {
            "NOTIFY_SOCKET": "@" + address,
            "WATCHDOG_USEC": str(int(LIMIT * 1e6)),
            "SIDECAR_DESK__PORT": "0",
            "SIDECAR_LOG__FORMAT": "json",
        }
        command = [sys.executable, "-m", "tests.support.held", str(held), "run"]
        process = subprocess.Popen(
            [*command, "--state", str(state), "--root", str(root)],
            cwd=PROJECT,
            env=environment(**settings),
            stderr=subprocess.PIPE,
        )
        sidecar = Spawned(process, state)
        sidecar.follow()
        try:
            sidecar.event("ready")
            assert fed(manager)
            held.touch()
            write_capsule(root / "b")
            manager.settimeout(QUIET)
            while fed(manager):
                pass
            with urlopen(f"{sidecar.desk}/healthz", timeout=10) as answer:
                assert answer.status == 200
            held.unlink()
            manager.settimeout(20)
            assert fed(manager)
            sidecar.event("capsule_bound", capsule="b")
        finally:
            held.unlink(missing_ok=True)
            assert sidecar.stop() == 0
