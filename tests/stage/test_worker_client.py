"""The client for workers, against an inbox on a real desk."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from sidecar.events import TaskState
from sidecar.worker import Task, TaskOverError, Worker, WorkerError
from tests.support.flaky import flaky
from tests.support.waiting import until
from tests.support.workplace import ADMIN, WORKER, given, served, workplace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from sidecar.events import Task as Told
    from tests.support.workplace import Workplace

pytestmark = pytest.mark.usefixtures("no_environment")


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have nothing of whoever runs the tests."""
    for name in ("SIDECAR_URL", "SIDECAR_TOKEN", "SIDECAR_STATE", "SIDECAR_CAPSULE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def worker_of(place: Workplace, port: int | None = None) -> Worker:
    """Return a worker that knows the way."""
    return Worker("hello", url=f"http://127.0.0.1:{port or place.port}", token=WORKER)


@asynccontextmanager
async def working(
    worker: Worker, handler: Callable[[Task], Awaitable[str | None]], *, concurrency: int = 1
) -> AsyncIterator[asyncio.Task[None]]:
    """Have a worker at work, and end it."""
    running = asyncio.ensure_future(worker.run(handler, concurrency=concurrency))
    try:
        yield running
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def found_by(state: Path, place: Workplace) -> None:
    """Write what a running sidecar leaves in its state directory."""
    (state / "admin.token").write_text(f"{ADMIN}\n")
    (state / "run.json").write_text(json.dumps({"desk": {"url": f"http://127.0.0.1:{place.port}"}}))


async def ended(place: Workplace, task_id: str) -> Told:
    """Wait for a task's end and return it."""

    async def over() -> bool:
        return (await place.task(task_id)).state.terminal

    await until(over, what=f"the end of {task_id}")
    return await place.task(task_id)


async def in_state(place: Workplace, task_id: str, state: TaskState) -> None:
    """Wait until a task is in this state."""

    async def so() -> bool:
        return (await place.task(task_id)).state is state

    await until(so, what=str(state))


async def test_a_worker_of_a_few_lines_does_one_task_after_the_other(tmp_path: Path) -> None:
    """What it streams is the reply, and so is what it returns."""

    async def answer(task: Task) -> str | None:
        if task.prompt == "whole":
            return "in one piece"
        await task.text("You said ")
        await task.text(task.prompt)
        return None

    async with workplace(tmp_path) as place, working(worker_of(place), answer):
        first, second = await place.send("hello"), await place.send("whole")
        assert (await ended(place, first)).output == "You said hello"
        assert (await ended(place, second)).output == "in one piece"


async def test_everything_that_can_be_said_arrives_in_order(tmp_path: Path) -> None:
    """One event for each line of the vocabulary."""

    async def answer(task: Task) -> None:
        await task.status("looking")
        await task.thinking("hm")
        await task.tool("grep", "nothing", exit_code=1, is_error=True)
        await task.artifact("a.txt", {"text": "x"}, last=True)
        await task.text("a")
        await task.turn()
        await task.text("b")

    async with workplace(tmp_path) as place, working(worker_of(place), answer):
        task_id = await place.send()
        assert (await ended(place, task_id)).output == "b"
        kinds = [kind for kind, _ in place.events(task_id)]
        assert kinds == [
            "status",
            "status",
            "thinking",
            "tool",
            "artifact",
            "text",
            "status",
            "text",
            "text",
            "status",
        ]


@pytest.mark.parametrize(
    ("how", "state", "status"),
    [
        (lambda task: task.fail("no luck"), TaskState.FAILED, "no luck"),
        (lambda task: task.reject("not mine"), TaskState.REJECTED, "not mine"),
        (lambda task: task.reply({"text": "hi"}), TaskState.COMPLETED, "session ended"),
        (lambda task: task.complete("done"), TaskState.COMPLETED, "session ended"),
    ],
)
async def test_a_task_ends_as_its_worker_says(
    tmp_path: Path, how: Callable[[Task], Awaitable[None]], state: TaskState, status: str
) -> None:
    """Nothing is said after a last line, and a later one is an error."""
    told: list[str] = []

    async def answer(task: Task) -> None:
        await how(task)
        try:
            await task.text("late")
        except TaskOverError as error:
            told.append(str(error))

    async with workplace(tmp_path) as place, working(worker_of(place), answer):
        task = await ended(place, await place.send())
        assert (task.state, task.status) == (state, status)
        await until(lambda: told)
        assert told[0].endswith("its last line was said")


async def test_ten_thousand_pieces_arrive_whole(tmp_path: Path) -> None:
    """They go many at a time, no faster than they are taken in."""

    async def answer(task: Task) -> None:
        for number in range(10_000):
            await task.text(f"{number} ")

    async with workplace(tmp_path) as place, working(worker_of(place), answer):
        task = await ended(place, await place.send())
        assert task.output == "".join(f"{number} " for number in range(10_000))


async def test_a_text_longer_than_a_request_arrives_whole(tmp_path: Path) -> None:
    """It is cut in pieces."""
    text = "äöü" * 300_000

    async def answer(task: Task) -> None:
        await task.text(text)

    async with workplace(tmp_path) as place, working(worker_of(place), answer):
        assert (await ended(place, await place.send())).output == text


async def test_a_question_is_answered(tmp_path: Path) -> None:
    """`ask` returns the text of the input; the whole of it is among the inputs."""
    seen: list[object] = []

    async def answer(task: Task) -> None:
        name = await task.ask("Your name?")
        town = await task.ask("Your town?")
        seen.append([line["text"] for line in task.inputs])
        await task.text(f"{name} of {town}")

    async with workplace(tmp_path) as place, working(worker_of(place), answer):
        task_id = await place.send()
        for text in ("Ann", "York"):
            await in_state(place, task_id, TaskState.INPUT_REQUIRED)
            await place.engine.deliver(given(text))
        assert (await ended(place, task_id)).output == "Ann of York"
        assert seen == [["Ann", "York"]]


async def test_a_task_that_is_handed_out_again_is_not_asked_twice(tmp_path: Path) -> None:
    """Its worker died while it waited: the next one begins anew, and the question has its answer."""

    async def answer(task: Task) -> None:
        name = await task.ask("Your name?")
        town = await task.ask("Your town?")
        await task.text(f"{name} of {town}")

    async with workplace(tmp_path, served(lease=0.4)) as place:
        task_id = await place.send()
        async with working(worker_of(place), answer):
            await in_state(place, task_id, TaskState.INPUT_REQUIRED)
        await until(lambda: not place.leases)
        await place.engine.deliver(given("Ann"))
        async with working(worker_of(place), answer):
            await in_state(place, task_id, TaskState.INPUT_REQUIRED)
            assert (await place.task(task_id)).status == "Your town?"
            await place.engine.deliver(given("York"))
            assert (await ended(place, task_id)).output == "Ann of York"


async def test_a_failing_handler_fails_its_task_and_the_worker_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The exception's text is the reason, the log has all of it."""

    async def answer(task: Task) -> str:
        if task.prompt == "bad":
            raise ValueError("cannot do that")
        return "fine"

    async with workplace(tmp_path) as place, working(worker_of(place), answer):
        bad, good = await place.send("bad"), await place.send("good")
        assert (await ended(place, good)).output == "fine"
        assert ((await place.task(bad)).state, (await place.task(bad)).status) == (
            TaskState.FAILED,
            "cannot do that",
        )
    assert "cannot do that" in caplog.text


async def test_a_line_that_the_sidecar_refuses_fails_the_task_with_the_reason(tmp_path: Path) -> None:
    """Nothing hangs, and the next task is done."""

    async def answer(task: Task) -> str:
        if task.prompt == "bad":
            await task.text("before")
            await task.flush()
            await task.artifact("a", {"raw": "no base64!"})
        return "fine"

    async with workplace(tmp_path) as place, working(worker_of(place), answer):
        bad, good = await place.send("bad"), await place.send("good")
        assert (await ended(place, good)).output == "fine"
        task = await place.task(bad)
        assert (task.state, task.status) == (TaskState.FAILED, "Line 1: parts[0].raw must be base64.")


async def test_a_cancellation_is_raised_in_the_handler_within_a_second(tmp_path: Path) -> None:
    """Also where it waits for something else; it can clean up, and the worker goes on."""
    heard: list[str] = []

    async def answer(task: Task) -> str:
        if task.prompt == "long":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                with suppress(TaskOverError):
                    await task.text("too late")
                heard.append(task.id)
                raise
        return "fine"

    async with workplace(tmp_path) as place, working(worker_of(place), answer):
        task_id = await place.send("long")
        await in_state(place, task_id, TaskState.WORKING)
        await place.engine.cancel(task_id)
        await until(lambda: heard == [task_id], within=1.0)
        assert (await ended(place, await place.send("short"))).output == "fine"


async def test_a_worker_outlives_a_restart_of_the_sidecar(tmp_path: Path) -> None:
    """Its lease is gone: the handler is cancelled, and the same worker begins the task anew, which is no attempt."""
    begun: list[int] = []
    stopped: list[int] = []

    async def answer(task: Task) -> str | None:
        begun.append(task.attempt)
        if len(begun) == 1:
            await task.text("half")
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(task.attempt)
        return "whole"

    state = tmp_path / "state"
    state.mkdir()
    async with working(Worker("hello", state=state), answer):
        async with workplace(tmp_path) as place:
            found_by(state, place)
            task_id = await place.send()
            await until(lambda: "text" in dict(place.events(task_id)))
        async with workplace(tmp_path) as place:
            found_by(state, place)
            assert (await ended(place, task_id)).output == "whole"
    assert (begun, stopped) == ([1, 1], [1])


@pytest.mark.parametrize("every", [2, 3])
async def test_answers_that_get_lost_cost_nothing_and_double_nothing(tmp_path: Path, every: int) -> None:
    """Every second or third answer is swallowed on its way, of reports and of heartbeats with input."""
    counter = itertools.count(1)

    async def answer(task: Task) -> None:
        for number in range(20):
            await task.text(f"{number} ")
            if number % 5 == 0:
                await task.flush()
        await task.text(await task.ask("And?"))

    def swallow(path: str) -> bool:
        return "/tasks/" in path and next(counter) % every == 0

    async with workplace(tmp_path) as place, flaky(place.port, swallow) as proxy:
        async with working(worker_of(place, proxy.port), answer):
            task_id = await place.send()
            await in_state(place, task_id, TaskState.INPUT_REQUIRED)
            await place.engine.deliver(given("ready"))
            task = await ended(place, task_id)
            assert task.output == "".join(f"{number} " for number in range(20)) + "ready"
        assert proxy.swallowed > 0
        assert task.attempt == 1


async def test_several_tasks_at_once(tmp_path: Path) -> None:
    """As many as the worker says, and the inbox hands out."""
    together: set[str] = set()
    go = asyncio.Event()

    async def answer(task: Task) -> str:
        together.add(task.id)
        await go.wait()
        return task.prompt

    async with (
        workplace(tmp_path, served(concurrency=5)) as place,
        working(worker_of(place), answer, concurrency=3),
    ):
        ids = [await place.send(str(number)) for number in range(5)]
        await until(lambda: len(together) == 3)
        assert place.engine.counts() == {"working": 3, "submitted": 2}
        assert place.inbox.workers == 1
        go.set()
        assert [(await ended(place, task_id)).output for task_id in ids] == list("01234")


async def test_tasks_can_be_worked_on_in_a_loop(tmp_path: Path) -> None:
    """Whoever asks for the next task has completed the one before; leaving the loop gives the task back."""
    async with workplace(tmp_path, served(lease=3600.0)) as place:
        ids = [await place.send(text) for text in ("a", "b", "c")]
        async with aclosing(worker_of(place).tasks()) as tasks:
            async for task in tasks:
                if task.id == ids[2]:
                    break
                await task.text(task.prompt.upper())
        assert [(await place.task(task_id)).output for task_id in ids] == ["A", "B", None]
        taken = (await place.take("?wait=0")).document
        assert (taken["task"]["id"], taken["attempt"]) == (ids[2], 1)


async def test_the_block_of_a_task_that_is_over_ends_and_the_loop_goes_on(tmp_path: Path) -> None:
    """`async with task:` does in a loop what `run` does around a handler."""
    async with workplace(tmp_path) as place:
        ids = [await place.send(text) for text in ("canceled", "bad", "good")]
        async with aclosing(worker_of(place).tasks()) as tasks:
            async for task in tasks:
                async with task:
                    if task.prompt == "canceled":
                        await place.engine.cancel(task.id)
                        await asyncio.Event().wait()
                    if task.prompt == "bad":
                        raise ValueError("no")
                    await task.text("yes")
                if task.id == ids[2]:
                    break
        told = [await place.task(task_id) for task_id in ids]
        assert [task.state for task in told] == [
            TaskState.CANCELED,
            TaskState.FAILED,
            TaskState.COMPLETED,
        ]


async def test_a_foreign_cancellation_stays_one(tmp_path: Path) -> None:
    """It ends the block and whatever is around it, also when the task was canceled at the same moment."""
    async with workplace(tmp_path) as place:
        await place.send()
        inside = asyncio.Event()

        async def work() -> None:
            async with aclosing(worker_of(place).tasks()) as tasks:
                async for task in tasks:
                    async with task:
                        inside.set()
                        await asyncio.Event().wait()

        running = asyncio.ensure_future(work())
        await inside.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert running.cancelled()


@pytest.mark.parametrize("loop", [False, True])
async def test_a_worker_that_ends_gives_its_tasks_back(tmp_path: Path, *, loop: bool) -> None:
    """Another one has them at once, however long a lease is, and they are no attempts."""
    async with workplace(tmp_path, served(lease=3600.0, attempts=1, concurrency=2)) as place:
        ids = {await place.send() for _ in range(1 if loop else 2)}
        begun: set[str] = set()

        async def hold(task: Task) -> None:
            await task.text("half")
            begun.add(task.id)
            await asyncio.Event().wait()

        async def work() -> None:
            async with aclosing(worker_of(place).tasks()) as tasks:
                async for task in tasks:
                    await hold(task)

        if loop:
            running = asyncio.ensure_future(work())
        else:
            running = asyncio.ensure_future(worker_of(place).run(hold, concurrency=2))
        await until(lambda: begun == ids)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert running.cancelled()
        again = [(await place.take("?wait=0")).document for _ in ids]
        assert {(each["task"]["id"], each["attempt"]) for each in again} == {(task_id, 1) for task_id in ids}


async def test_a_worker_that_is_cancelled_while_it_ends_a_task_ends_it(tmp_path: Path) -> None:
    """The last line is sent rather than the task given back."""
    async with workplace(tmp_path) as place:
        task_id = await place.send()
        go = asyncio.Event()
        begun: list[Task] = []

        async def work() -> None:
            async with aclosing(worker_of(place).tasks()) as tasks:
                async for task in tasks:
                    async with task:
                        begun.append(task)
                        await go.wait()
                        await task.complete("done")

        running = asyncio.ensure_future(work())
        await until(lambda: begun)
        writer = await place.hold_writer()
        go.set()
        await until(lambda: begun[0].over)
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        writer.open()
        with suppress(asyncio.CancelledError):
            await running
        assert running.cancelled()
        assert (await ended(place, task_id)).state is TaskState.COMPLETED


async def test_a_wrong_token_ends_the_worker_with_what_to_do(tmp_path: Path) -> None:
    """Trying again would not help."""
    async with workplace(tmp_path) as place:
        worker = Worker("hello", url=f"http://127.0.0.1:{place.port}/", token="wrong")
        with pytest.raises(WorkerError, match=r"auth\.worker_token"):
            await worker.run(_nothing)
        with pytest.raises(WorkerError, match=r"auth\.worker_token"):
            async for _ in worker.tasks():
                pass


async def test_a_worker_waits_for_a_sidecar_and_a_capsule_that_are_not_there_yet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line in the log when it is away, one when it is back."""
    caplog.set_level("INFO", "sidecar.worker")
    state = tmp_path / "state"
    state.mkdir()
    async with working(Worker("hello", state=state), _echo):
        await until(lambda: "no sidecar is known by" in caplog.text)
        async with workplace(tmp_path) as place:
            found_by(state, place)
            assert (await ended(place, await place.send("hi"))).output == "hi"
            assert [record.getMessage()[:14] for record in caplog.records] == [
                "no sidecar is ",
                "the sidecar is",
            ]
        async with workplace(tmp_path) as place:
            found_by(state, place)
            assert (await ended(place, await place.send("again"))).output == "again"


async def test_a_worker_whose_sidecar_is_not_there_says_so_in_plain_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where it looked and why nothing came, without words about the means."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with working(Worker("hello", url=url, token=WORKER), _echo):
            await until(lambda: bool(caplog.records))
    assert caplog.records[0].getMessage() == f"{url} does not answer: Connection refused; it is tried again"


async def test_the_environment_says_where_and_for_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`SIDECAR_CAPSULE`, `SIDECAR_URL` and `SIDECAR_TOKEN`."""
    with pytest.raises(ValueError, match="SIDECAR_CAPSULE"):
        Worker()
    async with workplace(tmp_path) as place:
        monkeypatch.setenv("SIDECAR_CAPSULE", "hello")
        monkeypatch.setenv("SIDECAR_URL", f"http://127.0.0.1:{place.port}")
        monkeypatch.setenv("SIDECAR_TOKEN", WORKER)
        async with working(Worker(), _echo):
            assert (await ended(place, await place.send("hi"))).output == "hi"


async def test_the_admin_token_of_this_machine_goes_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a url of its own a worker shows the token of a state directory only where that is named, too."""
    (tmp_path / "admin.token").write_text(ADMIN)
    monkeypatch.setenv("SIDECAR_STATE", str(tmp_path))
    async with workplace(tmp_path) as place:
        url = f"http://127.0.0.1:{place.port}"
        with pytest.raises(WorkerError, match="Send the admin token"):
            await Worker("hello", url=url).run(_nothing)
        async with working(Worker("hello", url=url, state=tmp_path), _echo):
            assert (await ended(place, await place.send("hi"))).output == "hi"


async def test_a_worker_works_once_at_a_time(tmp_path: Path) -> None:
    """A second `run` beside the first is a mistake, and says so."""
    async with workplace(tmp_path) as place:
        worker = worker_of(place)
        async with working(worker, _echo):
            await until(lambda: place.waits == 1)
            with pytest.raises(RuntimeError, match="at work already"):
                await worker.run(_echo)


async def _echo(task: Task) -> str:
    return task.prompt


async def _nothing(task: Task) -> None:
    pass
