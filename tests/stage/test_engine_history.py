"""Any history of sends, cancels, stops, failing commits and restarts, against a model of a few lines."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sidecar.model import TaskAcceptance
from tests.support.gates import Gate, poison
from tests.support.sessions import MESSAGE, capsule, session

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from tests.support.sessions import Session

PICKS = st.integers(0, 1000)


class History(RuleBasedStateMachine):
    """The model: ids of tasks in order of arrival with their states, and ids in the order in which they ended."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name)
        self.tasks: dict[str, str] = {}
        self.ended: list[str] = []
        self.taken: set[str] = set()

    @initialize(
        acceptance=st.sampled_from([TaskAcceptance.SINGLE, TaskAcceptance.QUEUE]), depth=st.integers(0, 3)
    )
    def begin(self, acceptance: TaskAcceptance, depth: int) -> None:
        """Open a session on an empty file."""
        self.capsule = capsule(acceptance, queue_depth=depth)
        single = acceptance is TaskAcceptance.SINGLE
        self.room = 1 if single else depth + 1 if depth else 0
        self.open()

    @rule()
    def send(self) -> None:
        """A task is taken while there is room."""
        result = self.do(self.s.call("message/send", MESSAGE))["result"]
        if len(self.live()) < self.room:
            assert result["status"]["state"] == "submitted"
            self.tasks[result["id"]] = "submitted"
        else:
            assert result["status"]["state"] == "rejected"
        assert result["id"] not in self.taken
        self.taken.add(result["id"])

    @rule(pick=PICKS)
    def cancel(self, pick: int) -> None:
        """Any task that was ever taken can be canceled, any number of times."""
        if not self.tasks:
            return
        task_id = list(self.tasks)[pick % len(self.tasks)]
        result = self.do(self.s.call("tasks/cancel", {"id": task_id}))["result"]
        assert result["status"]["state"] == "canceled"
        self.end(task_id)

    @rule()
    def stop(self) -> None:
        """Every live task is canceled."""
        result = self.do(self.s.call("session/stop"))["result"]
        assert result["canceled"] == sorted(self.live())
        for task_id in self.live():
            self.end(task_id)

    @rule(pick=PICKS, before=st.booleans())
    def fail(self, pick: int, before: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        """A group of changes that is not committed leaves everything as it was."""
        self.do(self.fail_together(pick, before=before))

    async def fail_together(self, pick: int, *, before: bool) -> None:
        """Hold the writer, queue changes and one that fails them all, and let go."""
        gate = Gate(self.s.store)
        await gate.reached()
        failing = [poison(self.s.store)] if before else []
        calls = [asyncio.ensure_future(self.s.call("message/send", MESSAGE)) for _ in range(pick % 3)]
        calls += [asyncio.ensure_future(self.s.call("session/stop"))]
        for _ in range(pick % 5):
            await asyncio.sleep(0)
        failing.append(poison(self.s.store))
        gate.open()
        done = await asyncio.gather(*calls)
        await asyncio.gather(*failing, return_exceptions=True)
        for answer in done:
            self.take(answer)

    def take(self, answer: dict[str, Any]) -> None:
        """Follow what a call was answered: an error changed nothing."""
        result = answer.get("result")
        if result is None:
            assert answer["error"]["code"] == -32603
        elif "canceled" in result:
            for task_id in sorted(result["canceled"], key=list(self.tasks).index):
                self.end(task_id)
        elif result["status"]["state"] == "submitted":
            self.tasks[result["id"]] = "submitted"

    @rule()
    def restart(self) -> None:
        """Everything is as it was."""
        self.do(self.stack.aclose())
        self.open()

    @invariant()
    def agrees(self) -> None:
        """What the door says is what the model says."""
        if not hasattr(self, "s"):
            return
        for task_id, state in self.tasks.items():
            assert self.do(self.s.call("tasks/get", {"id": task_id}))["result"]["status"]["state"] == state
        assert self.s.engine.counts().get("submitted", 0) == len(self.live())
        current = self.do(self.s.call("tasks/get"))
        expected = next(iter(self.live()), self.ended[-1] if self.ended else None)
        assert current.get("result", {}).get("id") == expected

    def teardown(self) -> None:
        """What is in the file is what the model says: nothing lost, nothing more, numbers dense."""
        if hasattr(self, "s"):
            self.do(self.stack.aclose())
            with closing(sqlite3.connect(self.path / "sidecar.db")) as file:
                assert dict(file.execute("SELECT id, state FROM tasks")) == self.tasks
                events = file.execute(
                    "SELECT frame, task_id FROM events WHERE frame > 0 ORDER BY frame"
                ).fetchall()
            assert events == [(n, task_id) for n, task_id in enumerate(self.ended, 1)]
        self.runner.close()
        self.directory.cleanup()

    def open(self) -> None:
        """Open the session."""
        self.stack = AsyncExitStack()
        self.s: Session = self.do(self.stack.enter_async_context(session(self.path, self.capsule)))

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run one piece of work on the machine's loop."""
        return self.runner.run(work)

    def live(self) -> list[str]:
        """Return the ids of the tasks that live."""
        return [task_id for task_id, state in self.tasks.items() if state == "submitted"]

    def end(self, task_id: str) -> None:
        """Note that a task is canceled, if it was not before."""
        if self.tasks[task_id] != "canceled":
            self.tasks[task_id] = "canceled"
            self.ended.append(task_id)


TestHistory = History.TestCase
TestHistory.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
