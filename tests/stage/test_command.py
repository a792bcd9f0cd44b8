"""The backend `command` with real processes: what they are given, and what becomes of what they say."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from sidecar import store as store_module
from sidecar.events import EventKind, TaskState
from sidecar.model import CommandSettings
from sidecar.tasks.backends import framing
from sidecar.tasks.backends import run as run_module
from tests.support.commands import PYTHON, agent, alive, bench, changed, message, served
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.events import Event


def texts(events: list[Event]) -> list[str]:
    """Return the pieces of a reply."""
    return [
        event.data["text"] for event in events if event.kind is EventKind.TEXT and not event.data["final"]
    ]


def lines(*objects: dict[str, Any]) -> str:
    """Return a shell agent that writes these lines."""
    return "".join(f"echo '{json.dumps(each)}'\n" for each in objects)


# text


async def test_the_message_is_read_on_stdin_and_the_reply_is_stdout(tmp_path: Path) -> None:
    """Exit 0 completes the task with what was written, to the byte."""
    async with bench(tmp_path, "cat; printf ' and\\n more'") as b:
        task = await b.do("hällo\nyou")
        assert (task.state, task.output) == (TaskState.COMPLETED, "hällo\nyou and\n more")
        kinds = [(event.kind, event.data.get("message")) for event in await b.events(task.id)]
        assert kinds[0] == (EventKind.STATUS, "inference turn 1")
        assert kinds[-1] == (EventKind.STATUS, "session ended")
        await b.gone()


async def test_a_command_that_says_nothing_completes_with_an_empty_reply(tmp_path: Path) -> None:
    """`/bin/true` is a whole agent."""
    async with bench(tmp_path, argv=("true",)) as b:
        task = await b.do()
        assert (task.state, task.output) == (TaskState.COMPLETED, "")


async def test_another_exit_status_fails_with_the_end_of_standard_error(tmp_path: Path) -> None:
    """What was written on stdout has been streamed all the same."""
    async with bench(tmp_path, "echo part; echo oh no >&2; exit 3") as b:
        task = await b.do()
        assert task.state is TaskState.FAILED
        assert task.status == "the command ended with exit status 3: oh no"
        assert texts(await b.events(task.id)) == ["part\n"]


async def test_a_signal_that_ends_a_command_is_named(tmp_path: Path) -> None:
    """An agent that is killed from outside has failed."""
    async with bench(tmp_path, "kill -KILL $$") as b:
        task = await b.do()
        assert (task.state, task.status) == (TaskState.FAILED, "the command was ended by SIGKILL")


async def test_a_flood_on_standard_error_blocks_nobody_and_its_end_is_kept(tmp_path: Path) -> None:
    """Two megabytes are read away; the message has the last lines, whole ones."""
    async with bench(tmp_path, "yes 0123456789 | head -c 2200000 >&2; echo last words >&2; exit 1") as b:
        task = await b.do()
        how, _, tail = (task.status or "").partition(": ")
        assert how == "the command ended with exit status 1"
        assert tail.startswith("…0123456789\n")
        assert tail.endswith("\nlast words")
        assert len(tail) <= run_module.KEPT_ERRORS + 1


async def test_standard_error_is_no_part_of_the_reply(tmp_path: Path) -> None:
    """Warnings of a program that succeeds are dropped."""
    async with bench(tmp_path, "echo warning >&2; echo fine; echo more >&2") as b:
        assert (await b.do()).output == "fine\n"


async def test_pieces_are_streamed_as_they_come(tmp_path: Path) -> None:
    """The first is an event before the second is written."""
    async with bench(tmp_path, "echo one; while [ ! -e go ]; do sleep 0.01; done; echo two") as b:
        task_id = await b.send()
        await until(lambda: b.engine.feed.head == 2)
        assert texts(await b.events(task_id)) == ["one\n"]
        (tmp_path / "go").touch()
        assert (await b.ended(task_id)).output == "one\ntwo\n"
        assert texts(await b.events(task_id)) == ["one\n", "two\n"]


async def test_single_bytes_are_gathered(tmp_path: Path) -> None:
    """A program that writes byte by byte makes no event of each."""
    program = PYTHON + "import os\nfor _ in range(2000): os.write(1, b'x')\n"
    async with bench(tmp_path, program) as b:
        task = await b.do()
        assert task.output == "x" * 2000
        assert len(texts(await b.events(task.id))) < 200


async def test_a_character_that_is_split_between_reads_is_one(tmp_path: Path) -> None:
    """And what is no UTF-8 is replaced, not dropped."""
    program = (
        PYTHON
        + "import os, time\nfor b in 'a\\u20acb'.encode() + b'\\xff!\\xe2': os.write(1, bytes([b])); time.sleep(0.02)\n"
    )
    async with bench(tmp_path, program) as b:
        task = await b.do()
        assert task.output == "a€b�!�"
        assert len(texts(await b.events(task.id))) > 2


async def test_output_that_is_huge_but_allowed_arrives_whole(tmp_path: Path) -> None:
    """In events of at most one pipe each."""
    async with bench(tmp_path, "yes 0123456 | head -c 4000000", output=4_000_000) as b:
        task = await b.do()
        assert task.state is TaskState.COMPLETED
        assert task.output == ("0123456\n" * 500_000)
        pieces = texts(await b.events(task.id))
        assert all(len(piece) <= 65536 for piece in pieces)
        assert len(pieces) < 4_000_000 / 4096


async def test_output_over_the_limit_fails_the_task_and_ends_the_process(tmp_path: Path) -> None:
    """What fits was streamed."""
    async with bench(tmp_path, "echo $$ > pid; yes", output=1000) as b:
        task = await b.do()
        assert task.state is TaskState.FAILED
        assert task.status == "the output of the command is over the limit of 1000 bytes"
        assert sum(len(piece) for piece in texts(await b.events(task.id))) == 1000
        await b.gone()
        assert not alive(int((tmp_path / "pid").read_text()))


async def test_a_command_that_reads_nothing_is_fine(tmp_path: Path) -> None:
    """A message that nobody takes is no error, however long it is."""
    async with bench(tmp_path, argv=("echo", "done")) as b:
        task = await b.do("x" * 500_000)
        assert (task.state, task.output) == (TaskState.COMPLETED, "done\n")


async def test_a_long_message_arrives_whole(tmp_path: Path) -> None:
    """It is written as the program takes it, while its reply is read."""
    async with bench(tmp_path, "cat") as b:
        assert (await b.do("0123456789" * 50_000)).output == "0123456789" * 50_000


async def test_a_command_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    """Its exit status counts."""
    async with bench(tmp_path, "echo hi; exec >&- 2>&-; while [ ! -e go ]; do sleep 0.01; done; exit 4") as b:
        task_id = await b.send()
        await until(lambda: b.engine.feed.head == 2)
        assert (await b.task(task_id)).state is TaskState.WORKING
        (tmp_path / "go").touch()
        assert (await b.ended(task_id)).status == "the command ended with exit status 4"


async def test_output_that_a_helper_finishes_is_part_of_the_reply(tmp_path: Path) -> None:
    """What a process leaves to a filter of its own still counts; one that never ends does not hold the task up."""
    async with bench(tmp_path, "#!/bin/bash\necho piped > >(sleep 0.03; cat)\n") as b:
        assert (await b.do()).output == "piped\n"
    async with bench(tmp_path, "echo hi; sleep 1000 &") as b:
        assert (await b.do()).output == "hi\n"
        await b.gone()


# what a process is given


async def test_a_command_gets_its_workspace_its_words_and_a_small_environment(tmp_path: Path) -> None:
    """PATH, HOME, LANG and TZ where they are set, what `env` names, and five variables that say what it works on."""
    program = (
        PYTHON + "import json,os,sys\nprint(json.dumps([os.getcwd(), sys.argv[1:], dict(os.environ)]))\n"
    )
    environ = {"PATH": "/usr/bin:/bin", "TZ": "UTC", "KEY": "k", "OTHER": "o", "SIDECAR_TASK_ID": "mine"}
    argv = (agent(tmp_path, program), "{dir}/x", "$HOME *", "{id}")
    capsule = served(tmp_path, argv, env=("KEY", "UNSET", "SIDECAR_TASK_ID"))
    async with bench(tmp_path, capsule=capsule, environ=environ) as b:
        task = await b.do(contextId="ctx é")
        cwd, words, env = json.loads(task.output or "")
    env.pop("LC_CTYPE", None)  # the interpreter's own doing
    assert cwd == str(tmp_path)
    assert words == [f"{tmp_path}/x", "$HOME *", "{id}"]
    assert env == {
        "PATH": "/usr/bin:/bin",
        "TZ": "UTC",
        "KEY": "k",
        "SIDECAR_CAPSULE": "hello",
        "SIDECAR_CAPSULE_DIR": str(tmp_path),
        "SIDECAR_SESSION_ID": capsule.session_id,
        "SIDECAR_TASK_ID": task.id,
        "SIDECAR_CONTEXT_ID": "ctx é",
    }


async def test_a_process_has_three_descriptors_its_own_session_and_plain_signals(tmp_path: Path) -> None:
    """Nothing of the sidecar's is left in it."""
    program = (
        PYTHON
        + "import os\nprint(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1], os.getsid(0) == os.getpid(),"
        "os.getpgrp() == os.getpid(), [l.split()[1] for l in open('/proc/self/status') if l[:6] in ('SigBlk', 'ShdPnd')])\n"
    )
    read, write = os.pipe()
    os.set_inheritable(read, True)
    try:
        async with bench(tmp_path, program) as b:
            output = (await b.do()).output
    finally:
        os.close(read)
        os.close(write)
    assert output == "[0, 1, 2] True True ['0000000000000000', '0000000000000000']\n"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("missing", "missing: No such file or directory"),
        ("./plain", "plain: Permission denied (is it executable?)"),
        ("./odd", "odd: Exec format error (does it begin with a #! line?)"),
        ("./x\0y", "embedded null byte"),
    ],
)
async def test_a_program_that_cannot_be_started_fails_the_task_and_says_why(
    tmp_path: Path, program: str, why: str
) -> None:
    """No path of the machine is in the message; the log has the whole of it, and the next task is tried again."""
    (tmp_path / "plain").write_text("x")
    agent(tmp_path, "#!", "odd")
    (tmp_path / "odd").write_text("no first line\n")
    async with bench(tmp_path, argv=(program,)) as b:
        with structlog.testing.capture_logs() as log:
            task = await b.do()
        assert (task.state, task.status) == (TaskState.FAILED, f"the command cannot be started: {why}")
        assert [line["event"] for line in log] == ["command_not_started"]
        b.backend.reconfigure(changed(b.capsule, command=CommandSettings(("true",))))
        assert (await b.do()).state is TaskState.COMPLETED


async def test_a_missing_workspace_fails_the_task(tmp_path: Path) -> None:
    """It is tried anew for each task."""
    async with bench(tmp_path, argv=("pwd",)) as b:
        gone = tmp_path / "gone"
        b.backend.reconfigure(changed(b.capsule))
        object.__setattr__(b.capsule, "workspace", str(gone))
        b.backend.reconfigure(b.capsule)
        why = "the command cannot be started: the capsule's workspace: No such file or directory"
        assert (await b.do()).status == why
        gone.mkdir()
        assert (await b.do()).output == f"{gone}\n"


@pytest.mark.parametrize("context", ["a\0b", "x" * 200_000])
async def test_a_context_that_no_program_can_be_given_costs_its_own_task(
    tmp_path: Path, context: str
) -> None:
    """The others go on."""
    async with bench(tmp_path, argv=("true",)) as b:
        task = await b.do(contextId=context)
        assert task.state is TaskState.FAILED
        assert (task.status or "").startswith("the command cannot be started: ")
        assert (await b.do()).state is TaskState.COMPLETED


async def test_twenty_tasks_run_four_at_a_time(tmp_path: Path) -> None:
    """Each is done once, and no more processes run than may."""
    program = (
        'mkdir running.$$; ls -d running.* | wc -l; sleep 0.05; rmdir running.$$; echo "$SIDECAR_TASK_ID"'
    )
    async with bench(tmp_path, program, concurrency=4) as b:
        ids = [await b.send() for _ in range(20)]
        done = [await b.ended(task_id, within=30) for task_id in ids]
        counts, said = zip(*((task.output or "").split() for task in done), strict=True)
        assert list(said) == ids
        assert set(map(int, counts)) <= {1, 2, 3, 4}
        await b.gone()
        await until(lambda: b.backend.workers == 0)


# jsonl


async def test_a_jsonl_agent_says_everything_in_the_vocabulary(tmp_path: Path) -> None:
    """One event per line, in their order."""
    said = lines(
        {"type": "thinking", "text": "hm"},
        {"type": "text", "text": "a"},
        {"type": "turn"},
        {"type": "tool", "name": "grep", "content": "found", "exit_code": 0},
        {"type": "artifact", "name": "plan", "parts": [{"text": "p"}], "last": True},
        {"type": "status", "message": "nearly"},
        {"type": "text", "text": "b"},
        {"type": "completed"},
        {"type": "text", "text": "ignored"},
    )
    async with bench(tmp_path, said, protocol="jsonl") as b:
        task = await b.do()
        assert (task.state, task.output, task.turn) == (TaskState.COMPLETED, "b", 2)
        kinds = [str(event.kind) for event in await b.events(task.id)]
        assert kinds == [
            "status",
            "thinking",
            "text",
            "status",
            "tool",
            "artifact",
            "status",
            "text",
            "text",
            "status",
        ]


async def test_a_jsonl_agent_reads_input_lines_and_its_stdin_stays_open(tmp_path: Path) -> None:
    """The message as one object; the answer to a question comes as another, to the same process."""
    program = (
        PYTHON
        + """import json, sys
def say(**line): print(json.dumps(line), flush=True)
first = json.loads(sys.stdin.readline())
say(type="input-required", prompt="which?")
second = json.loads(sys.stdin.readline())
say(type="completed", response=json.dumps([first, second]))
"""
    )
    async with bench(tmp_path, program, protocol="jsonl") as b:
        task_id = await b.send("plan", metadata={"k": 1})
        task = await b.state(task_id, "input-required")
        assert task.output == "which?"
        assert await b.engine.deliver(message("that one")) is not None
        task = await b.ended(task_id)
        first, second = json.loads(task.output or "")
        assert first == {
            "type": "message",
            "text": "plan",
            "messageId": "m1",
            "taskId": task_id,
            "contextId": task.context_id,
            "parts": [{"text": "plan"}],
            "metadata": {"k": 1},
        }
        assert second["text"] == "that one"
        statuses = [e.data["message"] for e in await b.events(task_id) if e.kind is EventKind.STATUS]
        assert statuses == ["inference turn 1", "which?", "resumed", "session ended"]


async def test_what_is_no_line_of_the_vocabulary_is_text(tmp_path: Path) -> None:
    """As it stands: an agent that prints is heard."""
    program = 'echo hello; echo; echo \'{"type": "text", "text": 5}\'; printf \'no end\''
    async with bench(tmp_path, program, protocol="jsonl") as b:
        task = await b.do()
        assert (task.state, task.output) == (
            TaskState.COMPLETED,
            'hello\n\n{"type": "text", "text": 5}\nno end',
        )


@pytest.mark.parametrize(
    ("program", "state", "text"),
    [
        ("exit 0", "completed", ""),
        (
            lines({"type": "text", "text": "a"}, {"type": "turn"}, {"type": "text", "text": "b"}),
            "completed",
            "b",
        ),
        (lines({"type": "text", "text": "a"}) + "echo bad >&2; exit 2", "failed", "exit status 2: bad"),
        (lines({"type": "failed", "message": "no"}), "failed", "no"),
        (lines({"type": "rejected", "message": "not mine"}), "rejected", "not mine"),
        (lines({"type": "message", "parts": [{"text": "m"}]}), "completed", "m"),
        (lines({"type": "completed", "response": "r"}) + "exit 9", "completed", "r"),
        ('printf \'%s\' \'{"type": "completed", "response": "r"}\'; exit 1', "completed", "r"),
    ],
)
async def test_how_a_jsonl_agent_ends_decides_its_task(
    tmp_path: Path, program: str, state: str, text: str
) -> None:
    """A last line counts; without one, the exit status does."""
    async with bench(tmp_path, program, protocol="jsonl") as b:
        task = await b.do()
        assert task.state == state
        assert ((task.output if state == "completed" else task.status) or "").endswith(text)


async def test_after_its_last_line_a_process_is_ended(tmp_path: Path) -> None:
    """SIGTERM, which it may use; the task is over before that, and stays as it was said."""
    program = "trap 'echo bye > bye; exit 1' TERM\n" + lines({"type": "completed", "response": "r"})
    async with bench(tmp_path, program + "while :; do sleep 0.01; done", protocol="jsonl") as b:
        task = await b.do()
        await b.gone()
        assert (tmp_path / "bye").exists()
        assert (await b.task(task.id)).output == "r"


async def test_an_endless_line_fails_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no line may be long is not kept in memory."""
    monkeypatch.setattr(framing, "LONGEST_LINE", 100_000)
    async with bench(tmp_path, "cat /dev/zero", protocol="jsonl") as b:
        task = await b.do()
        assert (task.state, task.status) == (TaskState.FAILED, "a line of its output is over 100000 bytes")
        await b.gone()


# the database


async def test_a_database_that_takes_nothing_makes_the_process_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands in its pipe, and when the database is back, nothing was lost and nothing doubled."""
    monkeypatch.setattr(store_module, "BUSY_TIMEOUT", 0.02)
    monkeypatch.setattr(run_module, "RETRY", 0.01)
    count = 100_000
    program = (
        PYTHON
        + f"import sys\nprint('begin', flush=True)\nsys.stdin.read()\nfor i in range({count}): print(i)\n"
    )
    async with bench(tmp_path, program, argv=()) as b:
        task_id = await b.send()
        await until(lambda: b.engine.feed.head >= 2)
        with closing(sqlite3.connect(tmp_path / "sidecar.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with structlog.testing.capture_logs() as log:
                await until(lambda: any(line["event"] == "tasks_not_saved" for line in log))
            assert b.backend.workers == 1
            other.execute("COMMIT")
        task = await b.ended(task_id)
        assert task.output == "begin\n" + "".join(f"{i}\n" for i in range(count))
        assert sys.getsizeof(task.output) > 2 * 65536
