"""A spawned sidecar and workers that are processes of their own: killed, stopped, restarted."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from tests.support.spawned import Spawned, environment, running, start, write_capsule
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "workers" / "hello.py"
WORKER = """
import asyncio, sys
from pathlib import Path
from sidecar.worker import Worker

async def answer(task):
    if not Path(sys.argv[1]).exists():
        await task.text("half")
        await task.flush()
        Path(sys.argv[1] + ".begun").touch()
        while not Path(sys.argv[1]).exists():
            await asyncio.sleep(0.01)
    return f"{sys.argv[2]} in attempt {task.attempt}"

asyncio.run(Worker("hello").run(answer))
"""
"""Holds its task until the file exists that it is called with, then says its name."""


@contextlib.contextmanager
def worker(*arguments: str, state: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker of the sidecar with this state, and end it."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, env=environment(SIDECAR_STATE=str(state), **env)) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait(timeout=10)


def send(sidecar: Spawned, text: str) -> str:
    """Hand in a task over the desk and return its id."""
    token = (sidecar.state / "admin.token").read_text().strip()
    request = Request(
        f"{sidecar.desk}/api/capsules/hello/messages",
        data=json.dumps({"text": text}).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urlopen(request, timeout=10) as answer:
        task_id: str = json.load(answer)["id"]
        return task_id


def finished(sidecar: Spawned, task_id: str) -> dict[str, Any]:
    """Wait until a task is over and return its object."""

    def over() -> dict[str, Any] | None:
        found: dict[str, Any] = sidecar.api(f"/api/capsules/hello/tasks/{task_id}")
        return found if found["status"]["state"] in ("completed", "failed") else None

    task = until_sync(over, within=20.0, what=f"the end of {task_id}")
    assert task is not None
    return task


def until_served(sidecar: Spawned) -> None:
    """Wait until the capsule is served."""
    assert sidecar.port("hello")


def test_the_example_does_tasks_and_is_shown(tmp_path: Path) -> None:
    """It is attached as one worker, and gone again when it is."""
    write_capsule(tmp_path / "root" / "hello")
    with running(["--root", str(tmp_path / "root")], state=tmp_path / "state") as sidecar:
        until_served(sidecar)
        with worker(str(EXAMPLE), state=sidecar.state):
            assert "Hello Ann!" in json.dumps(finished(sidecar, send(sidecar, "Ann")))
            assert sidecar.capsules()["hello"]["workers"] == 1
        until_sync(lambda: sidecar.capsules()["hello"]["workers"] == 0)


def test_a_task_outlives_a_kill_of_the_sidecar_in_the_middle_of_it(tmp_path: Path) -> None:
    """The same worker comes back and does it again, from its beginning; no worker was lost, so it is no attempt."""
    write_capsule(tmp_path / "root" / "hello")
    (tmp_path / "worker.py").write_text(WORKER)
    go = tmp_path / "go"
    arguments = ["--root", str(tmp_path / "root")]
    sidecar = start(arguments, state=tmp_path / "state")
    with worker(str(tmp_path / "worker.py"), str(go), "one", state=sidecar.state):
        try:
            sidecar.event("ready")
            until_served(sidecar)
            task_id = send(sidecar, "work")
            until_sync((tmp_path / "go.begun").exists)
        finally:
            sidecar.process.kill()
            sidecar.wait()
        go.touch()
        with running(arguments, state=tmp_path / "state") as again:
            until_served(again)
            assert "one in attempt 1" in json.dumps(finished(again, task_id))


def test_a_worker_that_is_stopped_loses_its_task_to_another(tmp_path: Path) -> None:
    """And works on once it goes on, on something else."""
    write_capsule(tmp_path / "root" / "hello")
    (tmp_path / "worker.py").write_text(WORKER)
    go = tmp_path / "go"
    env = {"SIDECAR_INBOX__LEASE": "1s"}
    with running(["--root", str(tmp_path / "root")], state=tmp_path / "state", env=env) as sidecar:
        until_served(sidecar)
        with worker(str(tmp_path / "worker.py"), str(go), "first", state=sidecar.state) as first:
            task_id = send(sidecar, "work")
            until_sync((tmp_path / "go.begun").exists)
            first.send_signal(signal.SIGSTOP)
            go.touch()
            with worker(str(tmp_path / "worker.py"), str(go), "second", state=sidecar.state):
                assert "second in attempt 2" in json.dumps(finished(sidecar, task_id))
            assert sidecar.event("worker_lost")["attempt"] == 1
            first.send_signal(signal.SIGCONT)
            assert "first in attempt 1" in json.dumps(finished(sidecar, send(sidecar, "more")))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_end_gives_its_task_back(tmp_path: Path, number: signal.Signals) -> None:
    """The next one has it at once, long before the lease runs out; SIGTERM is a good end."""
    write_capsule(tmp_path / "root" / "hello")
    (tmp_path / "worker.py").write_text(WORKER)
    go = tmp_path / "go"
    env = {"SIDECAR_INBOX__LEASE": "1h", "SIDECAR_INBOX__ATTEMPTS": "1"}
    with running(["--root", str(tmp_path / "root")], state=tmp_path / "state", env=env) as sidecar:
        until_served(sidecar)
        with worker(str(tmp_path / "worker.py"), str(go), "first", state=sidecar.state) as first:
            task_id = send(sidecar, "work")
            until_sync((tmp_path / "go.begun").exists)
            first.send_signal(number)
            status = first.wait(timeout=30)
            assert status == 0 if number is signal.SIGTERM else status != 0
        go.touch()
        with worker(str(tmp_path / "worker.py"), str(go), "second", state=sidecar.state):
            assert "second in attempt 1" in json.dumps(finished(sidecar, task_id))
        assert not sidecar.events("worker_lost")


def test_a_sidecar_that_stood_still_takes_no_task_from_its_workers(tmp_path: Path) -> None:
    """A machine that slept for longer than a lease is no worker that is lost."""
    write_capsule(tmp_path / "root" / "hello")
    (tmp_path / "worker.py").write_text(WORKER)
    go = tmp_path / "go"
    env = {"SIDECAR_INBOX__LEASE": "1s"}
    with running(["--root", str(tmp_path / "root")], state=tmp_path / "state", env=env) as sidecar:
        until_served(sidecar)
        with worker(str(tmp_path / "worker.py"), str(go), "one", state=sidecar.state):
            task_id = send(sidecar, "work")
            until_sync((tmp_path / "go.begun").exists)
            sidecar.signal(signal.SIGSTOP)
            slept = time.monotonic() + 2.5
            until_sync(lambda: time.monotonic() > slept)
            sidecar.signal(signal.SIGCONT)
            go.touch()
            assert "one in attempt 1" in json.dumps(finished(sidecar, task_id))
        assert not sidecar.events("worker_lost")


def test_a_sidecar_stops_at_once_though_workers_wait(tmp_path: Path) -> None:
    """Their requests are answered; with a token of their own they come back to the next one."""
    write_capsule(tmp_path / "root" / "hello")
    config = tmp_path / "config.yaml"
    config.write_text("roots: [{path: root}]\nauth: {worker_token: {env: THEIRS}}\n")
    port = {"SIDECAR_DESK__PORT": "0", "THEIRS": "w0rker-token"}
    with running(["--config", str(config)], state=tmp_path / "state", env=port) as sidecar:
        until_served(sidecar)
        url = sidecar.desk
        with worker(str(EXAMPLE), state=tmp_path / "nowhere", SIDECAR_URL=url, SIDECAR_TOKEN="w0rker-token"):
            until_sync(lambda: sidecar.capsules()["hello"]["workers"] == 1)
            sidecar.signal(signal.SIGTERM)
            assert sidecar.wait(within=8.0) == 0
            port["SIDECAR_DESK__PORT"] = url.rpartition(":")[2]
            with running(["--config", str(config)], state=tmp_path / "state", env=port) as again:
                until_served(again)
                assert "Hello Ann!" in json.dumps(finished(again, send(again, "Ann")))
