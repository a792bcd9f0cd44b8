"""How the processes of the backend `command` end: at a cancel, a time limit, a stop; and that nothing outlives them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from sidecar.events import EventKind, TaskState
from sidecar.ops import proc
from sidecar.tasks.backends import command as command_module
from sidecar.tasks.backends import processes as processes_module
from sidecar.tasks.backends import run as run_module
from sidecar.tasks.backends.records import Records
from tests.support.commands import PYTHON, alive, bench, message
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.commands import Bench

STUBBORN = "trap '' TERM; echo $$ > pid; while :; do sleep 0.02; done"
ASKS = (
    PYTHON
    + """import json, os, sys
sys.stdin.readline()
open("pid", "w").write(str(os.getpid()))
print(json.dumps({"type": "input-required", "prompt": "?"}), flush=True)
sys.stdin.readline()
print(json.dumps({"type": "completed", "response": "thanks"}), flush=True)
"""
)

# A process that has left its group and its parent, under each disguise; it writes its pid when it is on its own.
ESCAPE = (
    PYTHON
    + """import os, sys, time
def daemon(env):
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for fd in (0, 1, 2):
        os.close(fd)
    code = "import os, sys, time; open('new', 'w').write(str(os.getpid())); os.rename('new', sys.argv[1]); time.sleep(1000)"
    os.execve(sys.executable, [sys.executable, "-S", "-c", code, sys.argv[2]], env)
"""
)


async def pid_of(file: Path) -> int:
    """Wait for a file with a pid and return that."""

    def found() -> int:
        try:
            return int(file.read_text() or 0)
        except OSError:
            return 0

    return await until(found, what=f"a pid in {file.name}")


async def canceled(b: Bench, task_id: str) -> None:
    """Cancel a task, and see that it is so at once and for good."""
    task = await b.engine.cancel(task_id)
    assert task is not None
    assert task.state is TaskState.CANCELED


# cancel, in every phase


async def test_a_cancel_ends_the_process_by_sigterm(tmp_path: Path) -> None:
    """It is answered at once; what the process says from then on is not heard."""
    program = "trap 'echo late; echo bye > bye; exit 0' TERM; echo $$ > pid; while :; do sleep 0.01; done"
    async with bench(tmp_path, program, grace=1000) as b:
        task_id = await b.send()
        pid = await pid_of(tmp_path / "pid")
        await canceled(b, task_id)
        await b.gone()
        assert (tmp_path / "bye").exists()
        assert not alive(pid)
        task = await b.task(task_id)
        assert (task.state, task.output) == (TaskState.CANCELED, None)
        events = await b.events(task_id)
        assert [event.data["state"] for event in events if event.final] == ["canceled"]
        assert not [event for event in events if event.kind is EventKind.TEXT]
        assert b.engine.residue() == ()


async def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    """The next task does not wait for that."""
    async with bench(tmp_path, f"cat > said; [ $(cat said) = go ] && exit 0; {STUBBORN}", grace=1) as b:
        task_id = await b.send("stay")
        pid = await pid_of(tmp_path / "pid")
        await canceled(b, task_id)
        assert (await b.do("go")).state is TaskState.COMPLETED
        assert alive(pid)
        await b.gone()
        assert not alive(pid)


async def test_without_a_grace_it_is_killed_at_once(tmp_path: Path) -> None:
    """`shell_grace_secs: 0`."""
    async with bench(tmp_path, STUBBORN, grace=0) as b:
        task_id = await b.send()
        await pid_of(tmp_path / "pid")
        await canceled(b, task_id)
        await b.gone()


async def test_a_stopped_process_is_ended_too(tmp_path: Path) -> None:
    """SIGTERM reaches one that was suspended."""
    async with bench(tmp_path, "echo $$ > pid; kill -STOP $$", grace=1000) as b:
        task_id = await b.send()
        pid = await pid_of(tmp_path / "pid")

        def suspended() -> bool:
            seen = proc.look(pid)
            return seen is not None and seen.state == "T"

        await until(suspended)
        await canceled(b, task_id)
        await b.gone()


async def test_a_queued_task_that_is_canceled_never_reaches_a_process(tmp_path: Path) -> None:
    """The running one completes."""
    program = 'echo "$SIDECAR_TASK_ID" >> ran; while [ ! -e go ]; do sleep 0.01; done'
    async with bench(tmp_path, program) as b:
        first, second = await b.send(), await b.send()
        await until((tmp_path / "ran").exists)
        await canceled(b, second)
        (tmp_path / "go").touch()
        assert (await b.ended(first)).state is TaskState.COMPLETED
        await b.gone()
        assert (tmp_path / "ran").read_text().split() == [first]


async def test_a_cancel_at_any_moment_leaves_one_final_event_and_no_process(tmp_path: Path) -> None:
    """Before the claim, while it is committed, while the process starts, writes, ends: whatever is hit."""
    async with bench(tmp_path, "cat; echo done", concurrency=2, grace=5) as b:
        for turns in range(60):
            task_id = await b.send("x" * (turns * 1000))
            for _ in range(turns):
                await asyncio.sleep(0.0003)
            await b.engine.cancel(task_id)
            task = await b.ended(task_id)
            assert task.state in (TaskState.CANCELED, TaskState.COMPLETED)
            events = await b.events(task_id)
            assert [event.final for event in events].count(True) == 1
            assert events[-1].final
        await b.gone()
        assert not Records(tmp_path / "processes").left()


async def test_a_cancel_while_the_message_is_not_read_ends_the_process(tmp_path: Path) -> None:
    """What was to be written is dropped."""
    async with bench(tmp_path, "echo $$ > pid; sleep 1000") as b:
        task_id = await b.send("x" * 500_000)
        await pid_of(tmp_path / "pid")
        await canceled(b, task_id)
        await b.gone()


async def test_a_cancel_while_it_floods_its_output_ends_the_process(tmp_path: Path) -> None:
    """Nothing of what comes after is kept."""
    async with bench(tmp_path, "yes", output=1 << 40) as b:
        task_id = await b.send()
        await until(lambda: b.engine.feed.head > 3)
        await canceled(b, task_id)
        head = b.engine.feed.head
        await b.gone()
        assert b.engine.feed.head == head


async def test_a_cancel_while_it_waits_for_input_ends_the_process(tmp_path: Path) -> None:
    """Canceled, not failed."""
    async with bench(tmp_path, ASKS, protocol="jsonl") as b:
        task_id = await b.send()
        await b.state(task_id, "input-required")
        await canceled(b, task_id)
        await b.gone()
        assert (await b.task(task_id)).state is TaskState.CANCELED


async def test_a_stop_of_the_session_ends_every_process(tmp_path: Path) -> None:
    """Those that wait for a slot never start."""
    async with bench(tmp_path, STUBBORN.replace("pid", '"$SIDECAR_TASK_ID"'), concurrency=2, grace=0) as b:
        ids = [await b.send() for _ in range(3)]
        for task_id in ids[:2]:
            await pid_of(tmp_path / task_id)
        assert [task.id for task in await b.engine.stop()] == ids
        await b.gone()
        assert not (tmp_path / ids[2]).exists()
        assert b.engine.residue() == ()


# time limits


async def test_a_task_that_takes_too_long_fails_and_its_process_ends(tmp_path: Path) -> None:
    """`command.timeout`."""
    async with bench(tmp_path, "echo part; " + STUBBORN, timeout=0.2, grace=0) as b:
        task = await b.do()
        assert (task.state, task.status) == (TaskState.FAILED, "the command took longer than 0.2 s")
        await b.gone()


async def test_the_time_for_which_a_task_waits_for_input_is_not_counted(tmp_path: Path) -> None:
    """A limit of the program is none of the people who answer it."""
    async with bench(tmp_path, ASKS, protocol="jsonl", timeout=1.0) as b:
        task_id = await b.send()
        await b.state(task_id, "input-required")
        began = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() - began > 1.2)
        assert await b.engine.deliver(message()) is not None
        assert (await b.ended(task_id)).output == "thanks"


async def test_input_that_never_comes_ends_the_process(tmp_path: Path) -> None:
    """`input_timeout_secs` fails the task, and the worker is stopped."""
    async with bench(tmp_path, ASKS, protocol="jsonl", input_timeout=1) as b:
        task = await b.do()
        assert (task.state, task.status) == (TaskState.FAILED, "input-timeout")
        await b.gone()
        assert not alive(await pid_of(tmp_path / "pid"))


# descendants


def escaping(tmp_path: Path, how: str, then: str = "") -> str:
    """Return an agent that sets a daemon free with this environment, and then goes on."""
    return ESCAPE.replace("sys.argv[2]", repr(str(tmp_path / "daemon"))) + f"daemon({how})\n{then}\n"


WAIT = "while not os.path.exists('daemon'): time.sleep(0.01)"
DISGUISES = ["dict(os.environ)", "{}", "{'SIDECAR_TASK_ID': 'tsk_of_another'}"]


@pytest.mark.parametrize("disguise", DISGUISES)
async def test_a_descendant_that_left_ends_with_its_task(tmp_path: Path, disguise: str) -> None:
    """Forked twice, in a session of its own, its environment wiped: it has come to us, and nobody else can have sent it."""
    async with bench(tmp_path, escaping(tmp_path, disguise, WAIT)) as b:
        task = await b.do()
        assert task.state is TaskState.COMPLETED
        pid = await pid_of(tmp_path / "daemon")
        await b.gone()
        assert not alive(pid)
        assert pid not in proc.children(os.getpid())


@pytest.mark.parametrize("disguise", DISGUISES)
async def test_a_descendant_that_left_ends_with_a_cancel(tmp_path: Path, disguise: str) -> None:
    """While its maker lives, it is let be; with the task, both go."""
    async with bench(tmp_path, escaping(tmp_path, disguise, "time.sleep(1000)")) as b:
        task_id = await b.send()
        pid = await pid_of(tmp_path / "daemon")
        assert alive(pid)
        await canceled(b, task_id)
        await b.gone()
        assert not alive(pid)


async def test_descendants_are_ended_with_their_own_task_and_not_with_another(tmp_path: Path) -> None:
    """Two tasks run; one ends, and what the other set free lives on with it."""
    program = (
        PYTHON
        + """import os, sys, time
name = sys.stdin.read()
if not os.fork():
    os.setsid()
    if os.fork(): os._exit(0)
    for fd in (0, 1, 2): os.close(fd)
    os.execve(sys.executable, [sys.executable, "-S", "-c", "import os, time; open('new' + %r, 'w').write(str(os.getpid())); os.rename('new' + %r, %r); time.sleep(1000)" % (name, name, name)], dict(os.environ) if name != "wiped" else {})
while not os.path.exists("end " + name): time.sleep(0.01)
"""
    )
    async with bench(tmp_path, program, concurrency=3) as b:
        ids = {name: await b.send(name) for name in ("a", "b", "wiped")}
        pids = {name: await pid_of(tmp_path / name) for name in ids}
        for name in ("wiped", "a"):
            (tmp_path / f"end {name}").touch()
            await b.ended(ids[name])
            await until(lambda: len(b.processes) < 3)
        await until(lambda: len(b.processes) == 1)
        assert not alive(pids["a"])
        assert alive(pids["b"])
        assert alive(pids["wiped"])  # whose it is cannot be told while another one runs that may have sent it
        (tmp_path / "end b").touch()
        await b.gone()
        assert not any(map(alive, pids.values()))


async def test_children_in_the_background_are_asked_and_then_killed(tmp_path: Path) -> None:
    """They get SIGTERM first, though the process itself ended well."""
    program = "(trap 'echo bye > bye; exit' TERM; echo > up; while :; do sleep 0.01; done) &\nwhile [ ! -e up ]; do sleep 0.01; done; echo hi"
    async with bench(tmp_path, program, grace=1000) as b:
        assert (await b.do()).output == "hi\n"
        await b.gone()
        assert (tmp_path / "bye").exists()


async def test_orphans_that_end_are_buried_while_the_task_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No dead process is left standing for as long as a task takes."""
    monkeypatch.setattr(processes_module, "TIDY", 0.02)
    program = (
        "for i in 1 2 3 4 5; do (setsid true &) ; done; echo > made; while [ ! -e go ]; do sleep 0.01; done"
    )
    before = set(proc.children(os.getpid()))  # fixtures of the whole session have some
    async with bench(tmp_path, program) as b:
        task_id = await b.send()
        await until((tmp_path / "made").exists)
        await until(lambda: len(set(proc.children(os.getpid())) - before) == 1)
        (tmp_path / "go").touch()
        await b.ended(task_id)
        await b.gone()


async def test_children_that_are_not_ours_to_end_are_left_alone(tmp_path: Path) -> None:
    """A child that something else in this process started meanwhile is neither ended nor buried."""
    async with bench(tmp_path, "echo > up; while [ ! -e go ]; do sleep 0.01; done") as b:
        task_id = await b.send()
        await until((tmp_path / "up").exists)
        other = await asyncio.create_subprocess_exec(
            "sh", "-c", "read x; exit 7", stdin=asyncio.subprocess.PIPE
        )
        try:
            (tmp_path / "go").touch()
            await b.ended(task_id)
            await b.gone()
            assert alive(other.pid)
        finally:
            await other.communicate(b"\n")
        assert other.returncode == 7


async def test_what_was_seen_below_a_process_is_its_own_whatever_it_hides(tmp_path: Path) -> None:
    """A child that ignores SIGTERM, in a session of its own and without environment, is killed while others run."""
    program = (
        "read name; [ $name = other ] && { echo > other; exec sleep 1000; }\n"
        "exec 3> /dev/null; setsid env -i sh -c \"trap '' TERM; echo \\$\\$ > new; mv new child; while :; do sleep 0.02; done\""
    )
    async with bench(tmp_path, program, concurrency=2, grace=0) as b:
        await b.send("other\n")
        task_id = await b.send("it\n")
        await until((tmp_path / "other").exists)
        await until((tmp_path / "child").exists)
        pid = await pid_of(tmp_path / "child")
        await canceled(b, task_id)
        await until(lambda: len(b.processes) == 1)
        assert not alive(pid)


async def test_what_outlives_sigkill_is_told_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process in an uninterruptible sleep does; here the signal is held back instead."""
    monkeypatch.setattr(processes_module, "OUTLIVED", 0.05)
    monkeypatch.setattr(processes_module, "RARELY", 0.02)
    real = os.killpg
    held = True

    def killpg(pid: int, number: int) -> None:
        if not held:
            real(pid, number)

    monkeypatch.setattr(os, "killpg", killpg)
    monkeypatch.setattr(proc, "send", lambda seen, _: None if held else os.kill(seen.pid, signal.SIGKILL))
    async with bench(tmp_path, STUBBORN, grace=0) as b:
        task_id = await b.send()
        pid = await pid_of(tmp_path / "pid")
        await canceled(b, task_id)
        await until(lambda: b.engine.residue(task_id))
        assert b.engine.residue(task_id) == (f"process {pid} outlived SIGKILL",)
        assert Records(tmp_path / "processes").left()
        held = False
        await b.gone()
        assert b.engine.residue() == ()


# stop


async def test_a_stop_asks_and_then_kills_and_leaves_the_task_as_it_is(tmp_path: Path) -> None:
    """What becomes of it is decided at the next start."""
    async with bench(tmp_path, "echo part; " + STUBBORN, grace=1000, stop=0.1) as b:
        task_id = await b.send()
        pid = await pid_of(tmp_path / "pid")
        await b.backend.aclose(0.1)
        assert not alive(pid)
        assert len(b.processes) == 0
        assert (await b.task(task_id)).state is TaskState.WORKING
        assert [task.id for task in b.engine.interrupted()] == [task_id]


async def test_an_exit_because_of_the_stop_decides_nothing(tmp_path: Path) -> None:
    """Neither 0 nor another one: nobody can tell whether the work was done."""
    program = "read how; trap 'exit $how' TERM; echo $$ > $how; while :; do sleep 0.01; done"
    async with bench(tmp_path, program, concurrency=2) as b:
        ids = [await b.send(f"{status}\n") for status in (0, 1)]
        for status in (0, 1):
            await pid_of(tmp_path / str(status))
        await b.backend.aclose(5.0)
        assert {(await b.task(task_id)).state for task_id in ids} == {TaskState.WORKING}


async def test_a_last_line_during_the_stop_counts(tmp_path: Path) -> None:
    """An agent that finishes in the time that it is given is done."""
    last = json.dumps({"type": "completed", "response": "just so"})
    program = f"trap 'echo '\\''{last}'\\''; exit' TERM; echo $$ > pid; while :; do sleep 0.01; done"
    async with bench(tmp_path, program, protocol="jsonl") as b:
        task_id = await b.send()
        await pid_of(tmp_path / "pid")
        await b.backend.aclose(5.0)
        assert (await b.task(task_id)).output == "just so"


async def test_a_task_that_comes_during_the_stop_stays_in_the_queue(tmp_path: Path) -> None:
    """It is not started any more."""
    async with bench(tmp_path, "echo hi") as b:
        await b.backend.aclose(1.0)
        task_id = await b.send()
        assert (await b.task(task_id)).state is TaskState.SUBMITTED
        assert b.backend.workers == 0


async def test_an_error_of_ours_costs_one_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails, its process ends, and the next one is done."""

    class Broken(run_module.Run):
        async def _listen(self) -> None:
            raise RuntimeError("as if")

    async with bench(tmp_path, "cat; sleep 1000") as b:
        with monkeypatch.context() as patch:
            patch.setattr(command_module, "Run", Broken)
            task = await b.do()
        assert (task.state, task.status) == (TaskState.FAILED, command_module.BROKE)
        await b.gone()
