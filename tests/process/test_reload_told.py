"""What a reload tells: those who asked for it, the log, the service manager; and what it does about a busy desk port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.spawned import environment, running, sidecar
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.spawned import Spawned

ASKED = {"SIDECAR_DESK__PORT": "", "SIDECAR_WATCH__TICK": "10m", "SIDECAR_WATCH__FORCE_TICK": "true"}
"""Changes are found by the tick alone, which does not come: only who asks gets a reload."""


@pytest.fixture
def config(root: Path, tmp_path: Path) -> Path:
    """A configuration file for the root; the desk is on any port."""
    path = tmp_path / "config.yaml"
    path.write_text(f"roots:\n  - path: {root}\ndesk:\n  port: 0\n")
    return path


def reload(spawned: Spawned) -> tuple[int, str, str]:
    """Run `sidecar reload`; return its exit status, and what it printed."""
    done = sidecar("reload", "--state", str(spawned.state))
    return done.returncode, done.stdout, done.stderr


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def test_nothing_changed_is_said_with_the_time(config: Path, tmp_path: Path) -> None:
    """A signal leaves a line in the log, the command names when the configuration in force was read."""
    with running(["--config", str(config)], state=tmp_path / "state") as spawned:
        spawned.signal(signal.SIGHUP)
        assert spawned.event("config_unchanged")["level"] == "info"
        status, said, _ = reload(spawned)
        assert status == 0
        assert said.startswith("nothing changed since ")
        assert said.endswith(", when it was read last\n")


def test_a_reload_that_moves_the_desk_is_told_to_who_asked(config: Path, tmp_path: Path) -> None:
    """The command succeeds, and the next one finds the desk at its new place."""
    with running(["--config", str(config)], state=tmp_path / "state", env=ASKED) as spawned:
        for port in (free_port(), free_port()):
            config.write_text(f"roots:\n  - path: {tmp_path / 'capsules'}\ndesk:\n  port: {port}\n")
            status, said, wrong = reload(spawned)
            assert (status, wrong) == (0, "")
            # a busy machine may have seen the file change by itself before it was asked
            assert said == "reloaded\n" or said.startswith("nothing changed since ")
            assert spawned.desk.endswith(f":{port}")


@pytest.mark.machine
def test_a_service_that_sees_its_own_processes_alone_can_ask(config: Path, tmp_path: Path) -> None:
    """As the unit's ExecReload does: in a user namespace of its own, with a /proc that hides all but what is in there."""
    hidden = 'mount -t proc -o hidepid=ptraceable proc /proc && exec unshare --user --map-root-user "$@"'
    with running(["--config", str(config)], state=tmp_path / "state", env=ASKED) as spawned:
        command = [sys.executable, "-m", "sidecar", "reload", "--state", str(spawned.state)]
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", hidden, "sh", *command],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("nothing changed since ")


def test_a_busy_desk_port_is_named_and_tried_again(config: Path, root: Path, tmp_path: Path) -> None:
    """The whole configuration waits for it: said once with code and place, shown, and taken when the port is free."""
    address = "\0sidecar-test-told-" + str(os.getpid())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(20)
        env = {"SIDECAR_DESK__PORT": "", "NOTIFY_SOCKET": "@" + address[1:]}
        with running(["--config", str(config)], state=tmp_path / "state", env=env) as spawned:
            with socket.create_server(("127.0.0.1", 0)) as busy:
                port = busy.getsockname()[1]
                config.write_text(f"roots:\n  - path: {root}\ndesk:\n  port: {port}\ncard: reference\n")
                refused = spawned.event("config_refused")
                assert (
                    f"{config.name}:4:9: E-CFG-015 desk.port: the desk cannot listen"
                    in refused["problems"][0]
                )
                while "configuration refused: " not in manager.recv(4096).decode():
                    pass
                status, _, said = reload(spawned)
                assert status == 2
                assert "E-CFG-015 desk.port" in said
                assert "description" in spawned.card("a")
            spawned.event("config_mended")
            until_sync(lambda: "description" not in spawned.card("a"))
            assert spawned.desk.endswith(f":{port}")
            assert len(spawned.events("config_refused")) == 1
            while "configuration refused: " in manager.recv(4096).decode():
                pass


def test_the_service_manager_is_shown_what_needs_a_look(root: Path, tmp_path: Path) -> None:
    """Last good manifests and roots that cannot be read are counted in the status line, until they are mended."""
    address = "\0sidecar-test-look-" + str(os.getpid())
    other = tmp_path / "other"
    other.mkdir()
    manifest = root / "a" / "murmur.yaml"
    good = manifest.read_text()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(20)

        def until_status(text: str) -> None:
            while text not in manager.recv(4096).decode():
                pass

        arguments = ["--root", str(root), "--root", str(other)]
        with running(
            arguments, state=tmp_path / "state", env={"NOTIFY_SOCKET": "@" + address[1:]}
        ) as spawned:
            until_status(f"STATUS=1 serving; desk at {spawned.desk}")
            manifest.write_text("name: [")
            until_status("STATUS=1 serving; 1 by the last good manifest; desk at")
            other.rename(tmp_path / "away")
            until_status("STATUS=1 serving; 1 by the last good manifest; 1 root not read; desk at")
            (tmp_path / "away").rename(other)
            manifest.write_text(good)
            until_status(f"STATUS=1 serving; desk at {spawned.desk}")
            spawned.signal(signal.SIGTERM)
            until_status("STATUS=stopping")
            until_status("STATUS=stopped")
