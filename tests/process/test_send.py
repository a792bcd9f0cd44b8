"""Tasks from the operator's terminal: `sidecar send` and `sidecar tasks`, against a spawned sidecar with real agents."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

import pytest

from tests.support.spawned import Spawned, environment, running, write_capsule
from tests.support.spawned import sidecar as command
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ECHO = """#!/bin/sh
read line
echo "you said: $line"
case "$line" in
  fail*) echo "no such luck" >&2; exit 3 ;;
  sleep*) sleep 600 ;;
esac
"""

SLOW = """#!/bin/sh
printf once
sleep 0.4
printf ' upon'
sleep 0.4
"""

ASKING = """
import json, sys
def say(**line):
    print(json.dumps(line), flush=True)
first = json.loads(sys.stdin.readline())
say(type="text", text="thinking about " + first["text"])
say(type="input-required", prompt="which colour?")
answer = json.loads(sys.stdin.readline())
say(type="turn")
say(type="text", text="it is ")
say(type="text", text=answer["text"])
say(type="completed")
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with an agent that echoes and one that asks."""
    path = tmp_path / "capsules"
    write_capsule(path / "echo")
    script = path / "echo" / "agent.sh"
    script.write_text(ECHO)
    script.chmod(0o755)
    write_capsule(path / "slow")
    (path / "slow" / "agent.sh").write_text(SLOW)
    (path / "slow" / "agent.sh").chmod(0o755)
    write_capsule(path / "asking")
    (path / "asking" / "agent.py").write_text(ASKING)
    return path


@pytest.fixture
def config(root: Path, tmp_path: Path) -> Path:
    """A configuration that names their commands."""
    path = tmp_path / "config.yaml"
    python = json.dumps(sys.executable)
    path.write_text(
        f"roots:\n  - path: {root}\n"
        "capsules:\n"
        f"  echo: {{backend: command, path: {root}/echo, command: {{argv: ['{{dir}}/agent.sh']}}}}\n"
        f"  slow: {{backend: command, path: {root}/slow, command: {{argv: ['{{dir}}/agent.sh']}}}}\n"
        f"  asking: {{backend: command, path: {root}/asking,"
        f" command: {{argv: [{python}, '{{dir}}/agent.py'], protocol: jsonl}}}}\n"
    )
    return path


@pytest.fixture
def agents(config: Path, tmp_path: Path) -> Iterator[Spawned]:
    """A sidecar that serves both."""
    with running(["--config", str(config)], state=tmp_path / "state") as spawned:
        spawned.port("echo")
        spawned.port("asking")
        spawned.port("slow")
        yield spawned


def test_a_reply_goes_to_standard_output_and_its_status_elsewhere(agents: Spawned) -> None:
    """The reply can be piped on; what became of the task is on standard error and in the exit status."""
    done = command("send", "echo", "hello", "there", "--state", str(agents.state))
    assert (done.returncode, done.stdout) == (0, "you said: hello there\n")
    assert "working: inference turn 1" in done.stderr
    assert done.stderr.endswith("completed: session ended\n")


def test_a_failed_task_is_exit_status_1(agents: Spawned) -> None:
    """A worker that fails makes the command fail, with the worker's own words."""
    done = command("send", "echo", "fail please", "--state", str(agents.state))
    assert done.returncode == 1
    assert "failed: " in done.stderr
    assert "no such luck" in done.stderr


def test_without_waiting_the_id_is_printed_and_the_task_can_be_read(agents: Spawned) -> None:
    """`--no-wait` prints the task's id; list, get and watch show what came of it."""
    state = str(agents.state)
    sent = command("send", "echo", "--no-wait", "hi", "--state", state)
    task = sent.stdout.strip()
    assert task.startswith("tsk_")
    watched = command("tasks", "watch", "echo", task, "--state", state)
    assert (watched.returncode, watched.stdout) == (0, "you said: hi\n")
    shown = command("tasks", "get", "echo", task, "--state", state)
    assert "you said: hi" in shown.stdout
    listed = json.loads(command("tasks", "list", "echo", "--json", "--state", state).stdout)
    assert [(row["id"], row["state"]) for row in listed["tasks"]] == [(task, "completed")]


def test_frames_are_printed_as_json_lines(agents: Spawned) -> None:
    """`--json` prints each frame's data, for programs, and what kind it is: text and thinking look alike else."""
    done = command("send", "echo", "--json", "hi", "--state", str(agents.state))
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert frames[0] == {
        "event": "connection-ack",
        "role": "observer",
        "conversation_mode": "stateless",
    }
    assert [frame["event"] for frame in frames[1:]] == ["status", "text", "text", "status"]
    assert frames[-1]["status"] == {
        "state": "completed",
        "message": "session ended",
        "response": "you said: hi\n",
    }


def test_a_cancelled_task_ends_its_watcher_with_1(agents: Spawned) -> None:
    """Cancel reaches the worker, and whoever watches."""
    state = str(agents.state)
    task = command("send", "echo", "--no-wait", "sleep", "--state", state).stdout.strip()
    watcher = subprocess.Popen(
        [sys.executable, "-m", "sidecar", "tasks", "watch", "echo", task, "--state", state],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == "you said: sleep\n"
    assert command("tasks", "cancel", "echo", task, "--state", state).stdout == f"{task} canceled\n"
    _, said = watcher.communicate(timeout=20)
    assert watcher.returncode == 1
    assert "canceled: task canceled" in said


def test_a_question_without_a_terminal_says_how_to_answer(agents: Spawned) -> None:
    """Where nobody can be asked, the command ends with how to go on; the answer then completes the task."""
    state = str(agents.state)
    asked = command("send", "asking", "paint", "--state", state)
    assert asked.returncode == 1
    assert "which colour?" in asked.stderr
    task = asked.stderr.split("--task ")[1].split()[0]
    done = command("send", "asking", "--task", task, "red", "--state", state)
    assert done.returncode == 0
    assert done.stdout.endswith("it is red\n")
    refused = command("send", "asking", "--task", task, "again", "--state", state)
    assert refused.returncode == 1
    assert "does not wait for input: it is completed" in refused.stderr


class Shown:
    """A command on a terminal of its own, and what that is sent."""

    def __init__(self, *arguments: str, stdout: int | None = None) -> None:
        self._keyboard, terminal = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sidecar", *arguments],
            stdin=terminal,
            stdout=terminal if stdout is None else stdout,
            stderr=terminal,
            env=environment(),
        )
        os.close(terminal)
        self.seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._keyboard)

    def until(self, text: bytes) -> None:
        """Read until it was sent that."""
        deadline = time.monotonic() + 20
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            assert self._read(), self.seen

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._keyboard, keys)

    def ended(self) -> int:
        """Read the rest, and return the exit status."""
        while self._read():
            pass
        return self._process.wait(20)

    def lines(self) -> list[str]:
        """Return what stands on it in the end, line by line."""
        lines = self.seen.decode(errors="replace").split("\n")
        return [line.removesuffix("\r").rpartition("\r\x1b[K")[2].rstrip("\r") for line in lines]

    def _read(self) -> bool:
        if select.select([self._keyboard], [], [], 20)[0]:
            try:
                self.seen += os.read(self._keyboard, 65536)
            except OSError:  # the other side of a terminal is gone
                return False
        return True


def test_a_question_is_asked_on_a_terminal(agents: Spawned) -> None:
    """On a terminal the prompt is shown and the answer read there; what is no UTF-8 is asked for again."""
    with Shown("send", "asking", "paint", "--state", str(agents.state)) as shown:
        shown.until(b"which colour?")
        shown.until(b"> ")
        shown.type(b"\xff\n")
        shown.until(b"write it again")
        shown.type(b"blue\n")
        assert shown.ended() == 0
        assert "it is blue" in shown.lines()


def test_a_reply_without_an_end_of_line_stays_on_the_terminal(agents: Spawned) -> None:
    """What moves while nothing comes keeps off the line that the reply has begun."""
    with Shown("send", "slow", "hi", "--state", str(agents.state)) as shown:
        assert shown.ended() == 0, shown.seen
        assert [line for line in shown.lines() if line] == [
            "working: inference turn 1",
            "once upon",
            "completed: session ended",
        ]


def test_a_question_that_nobody_answers_leaves_the_task_waiting(agents: Spawned) -> None:
    """The end of the input, Ctrl-D, is no answer: the command says how to give one later."""
    with Shown("send", "asking", "paint", "--state", str(agents.state)) as shown:
        shown.until(b"> ")
        shown.type(b"\x04")
        assert shown.ended() == 1
        task = (
            shown.seen.decode().split("the task waits for input: sidecar send asking --task ")[1].split()[0]
        )
    done = command("send", "asking", "--task", task, "red", "--state", str(agents.state))
    assert (done.returncode, done.stdout) == (0, "it is red\n")


def test_a_prompt_is_no_part_of_a_reply_that_goes_elsewhere(agents: Spawned, tmp_path: Path) -> None:
    """With the reply in a file, the question is still asked on the terminal."""
    arguments = ("send", "asking", "paint", "--state", str(agents.state))
    with (tmp_path / "reply").open("wb") as reply, Shown(*arguments, stdout=reply.fileno()) as shown:
        shown.until(b"> ")
        shown.type(b"blue\n")
        assert shown.ended() == 0
    assert (tmp_path / "reply").read_text() == "thinking about paint\nit is blue\n"


def test_whoever_watches_a_sidecar_that_stops_for_good_hears_how_to_go_on(
    config: Path, tmp_path: Path
) -> None:
    """The task is kept, and its id is all that is needed."""
    state = tmp_path / "state"
    with running(["--config", str(config)], state=state) as sidecar:
        sidecar.port("echo")
        watcher = subprocess.Popen(
            [sys.executable, "-m", "sidecar", "send", "echo", "sleep", "--state", str(state)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == "you said: sleep\n"
    _, said = watcher.communicate(timeout=60)
    assert watcher.returncode == 1
    assert "sidecar tasks watch echo tsk_" in said.splitlines()[-1]
    assert "does not answer" in said.splitlines()[-1]


def test_a_capsule_that_is_not_there_is_said_plainly(agents: Spawned) -> None:
    """An unknown id is one line on standard error and exit status 1."""
    done = command("send", "nobody", "hi", "--state", str(agents.state))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "no capsule with this id" in done.stderr


def test_a_task_survives_a_kill_and_its_result_is_read_after_the_restart(
    config: Path, tmp_path: Path
) -> None:
    """A finished task is there after kill -9; one that ran is failed with a clear message."""
    state = tmp_path / "state"
    with running(["--config", str(config)], state=state) as sidecar:
        sidecar.port("echo")
        done = command("send", "echo", "--no-wait", "hi", "--state", str(state)).stdout.strip()
        until_sync(lambda: "completed" in command("tasks", "get", "echo", done, "--state", str(state)).stdout)
        ran = command("send", "echo", "--no-wait", "sleep", "--state", str(state)).stdout.strip()
        until_sync(lambda: "working" in command("tasks", "get", "echo", ran, "--state", str(state)).stdout)
        sidecar.signal(signal.SIGKILL)
        sidecar.wait()
    with running(["--config", str(config)], state=state) as sidecar:
        sidecar.port("echo")
        assert "you said: hi" in command("tasks", "get", "echo", done, "--state", str(state)).stdout
        shown = ""

        def failed() -> bool:
            nonlocal shown
            shown = command("tasks", "get", "echo", ran, "--state", str(state)).stdout
            return "failed" in shown

        until_sync(failed)
        assert "stopped" in shown


def test_one_command_for_all_capsules_needs_no_file(root: Path, tmp_path: Path) -> None:
    """`sidecar run --root DIR --command C` is a whole set-up."""
    arguments = ["--root", str(root), "--command", "./agent.sh"]
    with running(arguments, state=tmp_path / "state") as sidecar:
        sidecar.port("echo")
        done = command("send", "echo", "hello", "--state", str(sidecar.state))
        assert done.stdout == "you said: hello\n"
