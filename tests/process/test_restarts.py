"""What goes on over restarts and reloads, and what is refused before anything begins."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from urllib.request import Request, urlopen

from tests.support.hostile import undisturbed
from tests.support.spawned import environment, replace_capsule, running, sidecar, start, write_capsule
from tests.support.waiting import until_sync

PROJECT = Path(__file__).parents[2]
SEND = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "message/send",
    "params": {"message": {"messageId": "m1", "role": "user", "parts": [{"text": "hello"}]}},
}


class Load:
    """A client that sends tasks as fast as they are taken, and remembers what was acknowledged."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.acknowledged: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, name="load")
        self._thread.start()

    def _send(self) -> None:
        while not self._ended.wait(0.005):
            request = Request(
                f"http://127.0.0.1:{self._port}/",
                json.dumps(SEND).encode(),
                {"Content-Type": "application/json"},
            )
            try:
                with urlopen(request, timeout=10) as answer:
                    task = json.load(answer)["result"]
            except (OSError, ValueError):  # between two runs nobody answers
                continue
            if task["status"]["state"] == "submitted":
                self.acknowledged.append(task["id"])

    def has_more_than(self, count: int) -> bool:
        """Whether more tasks were taken."""
        return len(self.acknowledged) > count

    def end(self) -> list[str]:
        """Stop, and return the ids of the tasks that were taken."""
        self._ended.set()
        self._thread.join()
        return self.acknowledged


def test_restarts_in_place_under_load_change_no_port_session_or_task(tmp_path: Path) -> None:
    """B22 FezVrasta/ha-rbac#27: three runs on one state while a client never stops sending; each task that it was told of is there."""
    root, state = tmp_path / "capsules", tmp_path / "state"
    names = [f"c{number}" for number in range(5)]
    for name in names:
        write_capsule(root / name).joinpath("murmur.yaml").write_text(
            f'name: {name}\nversion: "1"\nlifecycle:\n  task_acceptance: queue\n  queue_depth: 100000\n'
        )
    first = 25_000 + os.getpid() % 60 * 100  # or another test's sidecar would be at the port between two runs
    limits = {
        "SIDECAR_LIMITS__TASKS": "1000000",
        "SIDECAR_LISTEN__PORTS": f"{first}-{first + 99}",
    }
    seen, load = set(), None
    try:
        for _ in range(3):
            with running(["--root", str(root)], state=state, env=limits) as spawned:
                rows = {name: spawned.port(name) for name in names}
                sessions = {name: row["session_id"] for name, row in spawned.capsules().items()}
                seen.add(json.dumps([rows, sessions]))
                load = load or Load(rows["c0"])
                count = len(load.acknowledged)
                until_sync(partial(load.has_more_than, count + 20), within=60)
    finally:
        told = [] if load is None else load.end()
    assert len(seen) == 1
    with running(["--root", str(root)], state=state, env=limits) as spawned:
        for task in (told[0], told[-1], *told[:: max(1, len(told) // 50)]):
            assert spawned.api(f"/api/capsules/c0/tasks/{task}")["status"]["state"] == "submitted"


def test_a_stream_outlives_every_kind_of_reload(tmp_path: Path) -> None:
    """B16 caddyserver/caddy#5471: signals, commands, good, bad and further configurations, and capsules that come and go."""
    root, config = tmp_path / "capsules", tmp_path / "config.yaml"
    write_capsule(root / "calm")
    write_capsule(root / "other")
    good = f"roots: [{{path: {root}}}]\n"
    config.write_text(good)
    further = (
        "limits: {body: 2MiB}\n",
        "log: {level: debug}\n",
        "capsules: {other: {disabled: true}}\n",
        "tasks: {keep_events: 5000}\n",
        "roots: [",
        "limits: {body: lots}\n",
        "watch: {force_tick: true}\n",
        "",
    )
    with running(["--config", str(config)], state=tmp_path / "state") as spawned, undisturbed(spawned):
        port = spawned.port("calm")
        for more in further:
            aside = tmp_path / "aside"
            aside.write_text(more if more == "roots: [" else good + more)
            aside.rename(config)
            spawned.signal(signal.SIGHUP)
            done = sidecar("reload", "--state", str(spawned.state))
            assert done.returncode == (2 if "lots" in more or more == "roots: [" else 0), done.stderr
        write_capsule(root / "new")
        spawned.port("new")
        replace_capsule(root / "new", version="2")
        spawned.until_version("new", "2")
        assert spawned.port("calm") == port


def test_a_bad_configuration_ends_the_start_before_anything_is_bound(tmp_path: Path) -> None:
    """Exit status 2, and every problem with file, line and column; the port of the desk was not taken, nor the state made."""
    config = tmp_path / "config.yaml"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config.write_text(
        f"roots: [{{path: /nowhere}}]\ndesk: {{port: {port}, hots: x}}\nlimits: {{body: lots}}\n"
    )
    done = sidecar("run", "--config", str(config), "--state", str(tmp_path / "state"))
    assert done.returncode == 2
    places = re.findall(rf"{re.escape(str(config))}:(\d+):\d+", done.stderr)
    assert {"2", "3"} <= set(places)
    assert not (tmp_path / "state" / "run.json").exists()
    with socket.create_server(("127.0.0.1", port)):
        pass


def health_check() -> list[str]:
    """Return the command of the image's HEALTHCHECK."""
    text = (PROJECT / "Dockerfile").read_text()
    found = re.search(r"^HEALTHCHECK[^\[]*CMD (\[[^\]]*\])", text, re.MULTILINE)
    assert found is not None
    command: list[str] = json.loads(found[1])
    return command


def test_the_health_check_of_the_image_needs_no_other_program(tmp_path: Path) -> None:
    """B52 readur/readur#149: its own words, with an empty PATH, tell a sidecar that is ready from none, and from one that drains."""
    name, *words = health_check()
    assert name == "sidecar"
    write_capsule(tmp_path / "capsules" / "a")
    state = tmp_path / "state"
    ask = partial(
        subprocess.run,
        [sys.executable, "-m", "sidecar", *words],
        env={**environment(SIDECAR_STATE=str(state)), "PATH": "/nowhere"},
        check=False,
        capture_output=True,
        timeout=60,
    )
    assert ask().returncode == 1
    spawned = start(["--root", str(tmp_path / "capsules")], state=state)
    try:
        spawned.event("ready")
        assert ask().returncode == 0
    finally:
        assert spawned.stop() == 0
    assert ask().returncode == 1
