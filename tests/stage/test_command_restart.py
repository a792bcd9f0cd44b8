"""What a stop or a kill -9 leaves of running commands, and what the next start makes of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import structlog

from sidecar.events import EventKind, TaskState
from sidecar.ops import proc
from sidecar.tasks.backends import command as command_module
from sidecar.tasks.backends import processes as processes_module
from sidecar.tasks.backends.records import Records
from tests.support import command_host
from tests.support.commands import PYTHON, agent, alive, bench, message, served
from tests.support.waiting import until, until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLDS = "read text; echo $$ > pid.new; mv pid.new pid; [ -e go ] || sleep 1000; echo did $text"
ASKS = (
    PYTHON
    + """import json, sys
first = json.loads(sys.stdin.readline())["text"]
print(json.dumps({"type": "input-required", "prompt": "?"}), flush=True)
second = json.loads(sys.stdin.readline())["text"]
print(json.dumps({"type": "completed", "response": f"{first} {second}"}), flush=True)
"""
)


def pid_in(file: Path) -> int:
    """Wait for a file, which appears whole, and return the pid in it."""
    until_sync(file.exists, what=file.name)
    return int(file.read_text())


@contextmanager
def host(directory: Path, program: str, *, protocol: str = "text", text: str = "it\n") -> Iterator[str]:
    """Run a command in a process of its own, which is killed at the end; yields the task's id."""
    agent(directory, program)
    process = subprocess.Popen(
        [sys.executable, command_host.__file__, str(directory), protocol, text],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("how", ["fail", "rerun"])
async def test_a_task_that_ran_when_the_sidecar_stopped_fails_or_runs_again(tmp_path: Path, how: str) -> None:
    """As `on_restart` says; the one that waited behind it is done in any case."""
    capsule = served(tmp_path, (agent(tmp_path, HOLDS),))
    async with bench(tmp_path, capsule=capsule, stop=0.0) as b:
        task_id, behind = await b.send("it\n"), await b.send("next\n")
        await until((tmp_path / "pid").exists)
    (tmp_path / "go").touch()
    async with bench(tmp_path, capsule=served(tmp_path, capsule.settings.command.argv, on_restart=how)) as b:  # type: ignore[union-attr]  # it is set above
        task = await b.ended(task_id)
        if how == "fail":
            assert (task.state, task.status) == (TaskState.FAILED, command_module.INTERRUPTED)
        else:
            assert (task.output, task.turn, task.attempt) == ("did it\n", 2, 2)
        assert (await b.ended(behind)).output == "did next\n"
        statuses = [e.data["message"] for e in await b.events(task_id) if e.kind is EventKind.STATUS]
        turns = ["inference turn 1"] + (["inference turn 2"] if how == "rerun" else [])
        assert statuses[:-1] == turns


async def test_a_task_that_waited_for_input_fails(tmp_path: Path) -> None:
    """Its process is gone, and with it what the question was about."""
    async with bench(tmp_path, ASKS, protocol="jsonl") as b:
        task_id = await b.send("a")
        await b.state(task_id, "input-required")
    async with bench(tmp_path, ASKS, protocol="jsonl") as b:
        assert (await b.ended(task_id)).status == command_module.INTERRUPTED


async def test_a_task_that_waited_for_input_runs_again_once_that_comes(tmp_path: Path) -> None:
    """With `rerun`; the new process is given every message."""
    async with bench(tmp_path, ASKS, protocol="jsonl") as b:
        task_id = await b.send("a")
        await b.state(task_id, "input-required")
    async with bench(tmp_path, ASKS, protocol="jsonl", on_restart="rerun") as b:
        assert (await b.state(task_id, "input-required")).output == "?"
        assert len(b.processes) == 0
        assert await b.engine.deliver(message("b")) is not None
        assert (await b.ended(task_id)).output == "a b"


async def test_a_process_that_a_kill_left_is_ended_before_anything_runs_again(tmp_path: Path) -> None:
    """Found by its record; the second run looks for the first and does not find it."""
    program = (
        "read text; if [ -e pid ]; then grep -qs '^State:.[^ZX]' /proc/$(cat pid)/status && echo both; echo $text; exit; fi\n"
        "trap '' TERM PIPE HUP; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.02; done"
    )
    with host(tmp_path, program) as task_id:
        pid = pid_in(tmp_path / "pid")
    assert alive(pid)
    capsule = served(tmp_path, (str(tmp_path / "agent"),), on_restart="rerun")
    with structlog.testing.capture_logs() as log:
        async with bench(tmp_path, capsule=capsule, stop=0.1) as b:
            assert (await b.ended(task_id)).output == "it\n"
            assert not alive(pid)
            await b.gone()
            assert not Records(tmp_path / "processes").left()
    (found,) = [line["pids"] for line in log if line["event"] == "processes_of_an_earlier_run"]
    assert pid in found


async def test_a_process_that_a_kill_left_is_asked_first(tmp_path: Path) -> None:
    """It may put away what it has begun."""
    program = "exec 2> /dev/null; trap 'echo bye > bye; exit' TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.01; done"
    with host(tmp_path, program) as task_id:
        pid = pid_in(tmp_path / "pid")
    async with bench(tmp_path, capsule=served(tmp_path, (str(tmp_path / "agent"),)), stop=1000) as b:
        assert (await b.ended(task_id)).status == command_module.INTERRUPTED
        assert (tmp_path / "bye").exists()
        assert not alive(pid)
        await b.backend.aclose(0.0)


DAEMON = (
    PYTHON
    + """import os, sys, time
sys.stdin.readline()
if not os.fork():
    os.setsid()
    if os.fork(): os._exit(0)
    for fd in (0, 1, 2): os.close(fd)
    code = "import os, time; open('new', 'w').write(str(os.getpid())); os.rename('new', 'daemon'); time.sleep(1000)"
    os.execve(sys.executable, [sys.executable, "-S", "-c", code], ENVIRON)
THEN
"""
)


@pytest.mark.parametrize("then", ["os.kill(os.getppid(), 9)", "time.sleep(1000)"])
async def test_a_descendant_that_left_and_that_a_kill_left_is_ended(tmp_path: Path, then: str) -> None:
    """Found by its environment, though the process on record is gone by then."""
    program = DAEMON.replace("ENVIRON", "dict(os.environ)").replace(
        "THEN", "while not os.path.exists('daemon'): time.sleep(0.01)\n" + then
    )
    with host(tmp_path, program):
        pid = pid_in(tmp_path / "daemon")
    assert alive(pid)
    async with bench(tmp_path, capsule=served(tmp_path, (str(tmp_path / "agent"),)), stop=1.0) as b:
        await b.processes.swept()
        assert not alive(pid)


async def test_an_orphan_that_hides_is_on_record_for_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its environment says nothing, and its parents are gone: it was seen while it was our child."""
    monkeypatch.setattr(processes_module, "TIDY", 0.01)
    program = DAEMON.replace("ENVIRON", "{}").replace("THEN", "time.sleep(1000)")
    async with bench(tmp_path, program) as b:
        await b.send("x\n")
        await until((tmp_path / "daemon").exists)
        pid = pid_in(tmp_path / "daemon")
        records = Records(tmp_path / "processes")
        await until(lambda: pid in {record.pid for record in records.left()})
        await b.backend.aclose(0.0)
        assert not alive(pid)
        await until(lambda: not records.left())


def test_records_are_lines_that_are_freed_and_used_again(tmp_path: Path) -> None:
    """A second look, by whoever starts next, finds what was not struck out, and does not write over it."""
    first = Records(tmp_path / "processes")
    lines = [first.begin(f"tsk_{number}") for number in range(3)]
    assert lines == [0, 1, 2]
    first.fill(2, "tsk_2", 12, 34)
    first.strike(0)
    first.close()
    second = Records(tmp_path / "processes")
    assert [(r.line, r.task_id, r.pid, r.start) for r in second.left()] == [
        (1, "tsk_1", 0, 0),
        (2, "tsk_2", 12, 34),
    ]
    assert [second.begin("x"), second.begin("y")] == [0, 3]
    second.strike(2)
    assert second.begin("z") == 2
    second.close()
    assert [record.task_id for record in Records(tmp_path / "processes").left()] == ["x", "tsk_1", "z", "y"]
    assert (tmp_path / "processes").stat().st_mode & 0o777 == 0o600


def test_records_of_before_the_machine_started_are_none(tmp_path: Path) -> None:
    """Whoever has the pid today is somebody else; what is no record is none either."""
    lines = (
        "another-boot tsk_1 1 1",
        "junk",
        f"{proc.boot_id()} tsk_3 12 34",
        "",
        f"{proc.boot_id()} tsk_4 x 1",
    )
    (tmp_path / "processes").write_text("".join(line.ljust(127) + "\n" for line in lines) + "cut")
    records = Records(tmp_path / "processes")
    assert [(record.task_id, record.pid, record.start) for record in records.left()] == [("tsk_3", 12, 34)]
    assert records.begin("new") == 0
    records.close()


async def test_a_pid_that_is_somebody_elses_by_now_is_left_alone(tmp_path: Path) -> None:
    """The start time tells them apart."""
    other = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
    try:
        seen = proc.look(other.pid)
        assert seen is not None
        records = Records(tmp_path / "processes")
        records.fill(records.begin("tsk_1"), "tsk_1", other.pid, seen.start - 1)
        records.close()
        async with bench(tmp_path, "true") as b:
            await b.processes.swept()
            assert alive(other.pid)
            assert not Records(tmp_path / "processes").left()
    finally:
        other.kill()
        await other.wait()


async def test_records_that_cannot_be_written_are_no_reason_not_to_work(tmp_path: Path) -> None:
    """It is warned about; the environment of a process still tells whose it is."""
    (tmp_path / "processes").mkdir()
    async with bench(tmp_path, "echo hi") as b:
        with structlog.testing.capture_logs() as log:
            assert (await b.do()).output == "hi\n"
        assert "process_not_recorded" in {line["event"] for line in log}


def test_the_host_of_these_tests_says_what_it_runs(tmp_path: Path) -> None:
    """The records name the task and the process."""
    with host(tmp_path, "echo $$ > pid.new; mv pid.new pid; sleep 1000") as task_id:
        pid = pid_in(tmp_path / "pid")
        (record,) = Records(tmp_path / "processes").left()
        assert (record.task_id, record.pid) == (task_id, pid)
    os.kill(pid, 9)
