"""A spawned sidecar whose capsules are done by commands, through its sockets: stop, kill -9, restart."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from tests.support.commands import agent, alive
from tests.support.spawned import Spawned, running, start, write_capsule
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from pathlib import Path

HOLDS = (
    "read text; trap 'echo > asked; exit 0' TERM; echo $$ > pid.new; mv pid.new pid; echo began\n"
    "[ -e go ] || while :; do sleep 0.02; done; echo did $text"
)


def call(sidecar: Spawned, method: str, **params: Any) -> Any:
    """Call a method of the capsule's door and return the result."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    request = Request(
        f"http://127.0.0.1:{sidecar.port('a')}/", body, headers={"content-type": "application/json"}
    )
    with urlopen(request, timeout=10) as answer:
        return json.load(answer)["result"]


def send(sidecar: Spawned, text: str) -> str:
    """Hand in a task and return its id."""
    task = call(sidecar, "message/send", messageId="m", role="user", parts=[{"text": text}])
    assert task["status"]["state"] == "submitted"
    return str(task["id"])


def ended(sidecar: Spawned, task_id: str) -> dict[str, Any]:
    """Wait until a task is over and return it."""

    def over() -> dict[str, Any] | None:
        task: dict[str, Any] = call(sidecar, "tasks/get", id=task_id)
        return task if task["status"]["state"] not in ("submitted", "working") else None

    task = until_sync(over, within=30, what="the task over")
    assert task is not None
    return task


def pid_in(file: Path) -> int:
    """Wait for a file, which appears whole, and return the pid in it."""
    until_sync(file.exists, within=30, what=str(file))
    return int(file.read_text())


@pytest.fixture
def capsule(tmp_path: Path) -> Path:
    """The directory of a capsule, with its program."""
    directory = write_capsule(tmp_path / "capsules" / "a")
    agent(directory, HOLDS, "agent.sh")
    return directory


def arguments(capsule: Path) -> list[str]:
    """Return what `sidecar run` is given."""
    return ["--root", str(capsule.parent), "--command", "./agent.sh"]


def test_a_script_of_a_few_lines_is_an_agent(capsule: Path, tmp_path: Path) -> None:
    """`sidecar run --root . --command ./agent.sh`: the reply is what it prints."""
    (capsule / "go").touch()
    with running(arguments(capsule), state=tmp_path / "state") as sidecar:
        task = ended(sidecar, send(sidecar, "this\n"))
        assert task["status"]["state"] == "completed"
        assert task["artifacts"] == [{"name": "response", "parts": [{"text": "began\ndid this\n"}]}]


@pytest.mark.parametrize("how", ["fail", "rerun"])
def test_a_stop_asks_the_command_and_the_next_start_decides(capsule: Path, tmp_path: Path, how: str) -> None:
    """The process has gone when the sidecar has; `on_restart` says what becomes of its task."""
    env = {"SIDECAR_TASKS__ON_RESTART": how}
    with running(arguments(capsule), state=tmp_path / "state", env=env) as sidecar:
        task_id, behind = send(sidecar, "this\n"), send(sidecar, "that\n")
        pid = pid_in(capsule / "pid")
        assert sidecar.stop() == 0
        assert (capsule / "asked").exists()
        assert not alive(pid)
    (capsule / "go").touch()
    with running(arguments(capsule), state=tmp_path / "state", env=env) as sidecar:
        task = ended(sidecar, task_id)
        if how == "fail":
            assert task["status"]["state"] == "failed"
            text = task["status"]["message"]["parts"][0]["text"]
            assert text == "the sidecar stopped while this task ran"
        else:
            assert task["artifacts"][0]["parts"] == [{"text": "began\ndid this\n"}]
        assert ended(sidecar, behind)["artifacts"][0]["parts"] == [{"text": "began\ndid that\n"}]


def test_a_command_that_ignores_the_stop_is_killed_within_the_budget(capsule: Path, tmp_path: Path) -> None:
    """`limits.stop_grace`, not the manifest's own, which may be longer than a stop can take."""
    agent(
        capsule, "trap '' TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.02; done", "agent.sh"
    )
    write_capsule(capsule, name="a", more="  shell_grace_secs: 1000\n")
    env = {"SIDECAR_LIMITS__STOP_GRACE": "200ms"}
    with running(arguments(capsule), state=tmp_path / "state", env=env) as sidecar:
        send(sidecar, "x")
        pid = pid_in(capsule / "pid")
        sidecar.signal(signal.SIGTERM)
        assert sidecar.wait(within=3 * 8.0) == 0
        assert not alive(pid)


def test_nothing_of_a_killed_sidecar_lives_once_the_next_one_works(capsule: Path, tmp_path: Path) -> None:
    """Kill -9: the orphan is gone before its task runs again, and the acknowledged ones behind it are done."""
    agent(
        capsule,
        "read text; if [ -e pid ]; then grep -qs '^State:.[^ZX]' /proc/$(cat pid)/status && echo both; echo $text; exit; fi\n"
        "trap '' TERM PIPE; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.02; done",
        "agent.sh",
    )
    env = {"SIDECAR_TASKS__ON_RESTART": "rerun", "SIDECAR_LIMITS__STOP_GRACE": "100ms"}
    killed = start(arguments(capsule), state=tmp_path / "state", env=env)
    killed.event("ready")
    ids = [send(killed, "this\n"), send(killed, "that\n")]
    pid = pid_in(capsule / "pid")
    killed.signal(signal.SIGKILL)
    killed.wait()
    assert alive(pid)
    with running(arguments(capsule), state=tmp_path / "state", env=env) as sidecar:
        replies = [ended(sidecar, task_id)["artifacts"][0]["parts"][0]["text"] for task_id in ids]
        assert replies == ["this\n", "that\n"]
        assert not alive(pid)


def test_a_cancel_is_answered_at_once_and_the_process_ends(capsule: Path, tmp_path: Path) -> None:
    """`canceled`, without residue, and so it stays."""
    with running(arguments(capsule), state=tmp_path / "state") as sidecar:
        task_id = send(sidecar, "this\n")
        pid = pid_in(capsule / "pid")
        result = call(sidecar, "tasks/cancel", id=task_id)
        assert result["status"]["state"] == "canceled"
        assert "artifacts" not in result
        until_sync(lambda: not alive(pid), what="the process gone")
        assert call(sidecar, "tasks/get", id=task_id)["status"]["state"] == "canceled"
        assert (capsule / "asked").exists()


def test_a_process_of_a_command_knows_nothing_of_the_sidecars_environment(
    capsule: Path, tmp_path: Path
) -> None:
    """Secrets of the sidecar are not passed on."""
    agent(capsule, "env", "agent.sh")
    with running(arguments(capsule), state=tmp_path / "state", env={"SECRET": "s3cret"}) as sidecar:
        text = ended(sidecar, send(sidecar, "x"))["artifacts"][0]["parts"][0]["text"]
        names = {line.partition("=")[0] for line in text.splitlines()} - {"PWD", "SHLVL", "_", "OLDPWD"}
        expected = {name for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
        assert names == expected | {
            "SIDECAR_CAPSULE",
            "SIDECAR_CAPSULE_DIR",
            "SIDECAR_SESSION_ID",
            "SIDECAR_TASK_ID",
            "SIDECAR_CONTEXT_ID",
        }


def test_a_task_of_a_capsule_that_was_removed_says_so(capsule: Path, tmp_path: Path) -> None:
    """Its process ends with the capsule; once that is back its task fails, and not because the sidecar stopped."""
    env = {"SIDECAR_WATCH__GRACE": "50ms"}
    with running(arguments(capsule), state=tmp_path / "state", env=env) as sidecar:
        task_id = send(sidecar, "this\n")
        pid = pid_in(capsule / "pid")
        aside = capsule.rename(tmp_path / "aside")
        sidecar.event("capsule_closed", capsule="a")
        until_sync(lambda: not alive(pid), what="the process gone")
        aside.rename(capsule)
        sidecar.event("capsule_returned", capsule="a")
        task = ended(sidecar, task_id)
        assert task["status"]["state"] == "failed"
        text = task["status"]["message"]["parts"][0]["text"]
        assert text == "the capsule was removed while this task ran"


def test_a_task_whose_backend_was_changed_says_so(capsule: Path, tmp_path: Path) -> None:
    """A worker had it when the configuration made it a command's: that one has not begun it, and does not."""
    config = tmp_path / "config.yaml"
    config.write_text("roots: [{path: capsules}]\n")
    with running(["--config", str(config)], state=tmp_path / "state") as sidecar:
        task_id = send(sidecar, "this\n")
        assert sidecar.api("/workers/a/next", method="POST")["task"]["id"] == task_id
        config.write_text("roots: [{path: capsules}]\nbackend: command\ncommand: {argv: [./agent.sh]}\n")
        task = ended(sidecar, task_id)
        assert task["status"]["state"] == "failed"
        text = task["status"]["message"]["parts"][0]["text"]
        assert text == "the capsule's backend was changed while this task ran"
