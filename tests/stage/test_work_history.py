"""Any history of tasks that are worked on, failing commits and restarts included, against a simple model."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sidecar.errors import StoreError
from sidecar.events import TERMINAL
from sidecar.model import TaskAcceptance
from sidecar.tasks.model import Rules
from sidecar.tasks.said import Completed, Failed, InputRequired, Rejected, Status, Text, Thinking, Turn
from tests.support.gates import Gate, poison
from tests.support.sessions import capsule, session
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sidecar.tasks.said import Said
    from tests.support.sessions import Session

PICKS = st.integers(0, 1000)
LINES = st.lists(
    st.sampled_from(
        [
            Text("a"),
            Text("b"),
            Thinking("c"),
            Turn(),
            Status("s"),
            InputRequired("?"),
            Completed(),
            Completed("r"),
            Failed("f"),
            Rejected("j"),
        ]
    ),
    max_size=4,
)
OVER = {state.value for state in TERMINAL}


@dataclass
class Modelled:
    """What a task should be."""

    inputs: list[str]
    state: str = "submitted"
    turn: int = 0
    attempt: int = 0
    fresh: bool = False
    text: str = ""
    reply: str | None = None
    held: bool = False
    again: str = ""  # why it waits for another worker: "given back" or "answered"
    heard: int = 0
    frames: int = field(default=0)

    def begin_turn(self) -> None:
        """Go on in the next turn."""
        self.state, self.text = "working", ""
        self.turn += 1
        self.frames += 1

    def hear(self, line: Said) -> None:
        """Follow one line of its worker."""
        if self.state in OVER:
            return
        match line:
            case Turn():
                if not self.fresh:
                    self.begin_turn()
                return
            case Text(text):
                self.text += text
                self.frames += 1
            case Thinking():
                self.frames += 1
            case Status():
                self.state = "working"
                self.frames += 1
            case InputRequired():
                self.state = "input-required"
                self.frames += 1
            case Completed(response):
                self.frames += 1
                self.end("completed", self.text if response is None else response)
            case Failed():
                self.end("failed")
            case _:
                self.end("rejected")
        self.fresh = False

    def end(self, state: str, reply: str | None = None) -> None:
        """End it."""
        self.state, self.reply, self.held, self.again = state, reply, False, ""
        self.frames += 1


class Work(RuleBasedStateMachine):
    """The model: tasks in order of arrival, those that wait for input and for another worker in theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name)
        self.tasks: dict[str, Modelled] = {}
        self.waiting: list[str] = []
        self.given_back: list[str] = []
        self.messages = 0

    @initialize(single=st.booleans(), depth=st.integers(0, 3), concurrency=st.integers(1, 3))
    def begin(self, single: bool, depth: int, concurrency: int) -> None:  # noqa: FBT001 - drawn by hypothesis
        """Open a session on an empty file."""
        acceptance = TaskAcceptance.SINGLE if single else TaskAcceptance.QUEUE
        self.limits = Rules(acceptance, depth, concurrency)
        self.capsule = capsule(acceptance, queue_depth=depth, concurrency=concurrency)
        self.open()

    @rule()
    def send(self) -> None:
        """A message answers the task that has waited longest, else it is a task, if there is room."""
        self.messages += 1
        text = f"message {self.messages}"
        message = {"messageId": "m", "role": "user", "parts": [{"text": text}]}
        result = self.do(self.s.call("message/send", message))["result"]
        task_id, state = result["id"], result["status"]["state"]
        if self.waiting:
            assert (task_id, state) == (self.waiting[0], "working")
            task = self.tasks[task_id]
            task.state = "working"
            task.inputs.append(text)
            task.frames += 1
            if not task.held:
                task.again = "answered"
                self.given_back.append(task_id)
        elif self.has_room():
            assert state == "submitted"
            self.tasks[task_id] = Modelled([text])
        else:
            assert state == "rejected"
        self.sort(task_id)

    @rule()
    def claim(self) -> None:
        """Who waits for another worker goes before who is queued."""
        claim = self.do(self.s.engine.claim())
        queued = [task_id for task_id, task in self.tasks.items() if task.state == "submitted"]
        if self.given_back:
            expected: str | None = self.given_back.pop(0)
        else:
            expected = queued[0] if queued and self.running() < self.limits.slots else None
        assert (claim.task.id if claim is not None else None) == expected
        if expected is None:
            return
        task = self.tasks[expected]
        task.attempt += task.again != "answered"
        task.held, task.again, task.fresh = True, "", True
        task.begin_turn()
        task.heard = len(task.inputs)
        assert [given.text for given in claim.inputs] == task.inputs
        assert (claim.attempt, claim.task.turn) == (task.attempt, task.turn)

    @rule(pick=PICKS, lines=LINES, fails=st.sampled_from([False, False, False, True]))
    def report(self, pick: int, lines: list[Said], fails: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        """A worker says something, also of a task that is over or was interrupted; some of it is not committed."""
        started = [task_id for task_id, task in self.tasks.items() if task.turn]
        if not started:
            return
        task_id = started[pick % len(started)]
        if fails and self.tasks[task_id].state not in OVER and lines not in ([], [Turn()]):
            self.do(self.fail_to_report(task_id, lines))
            return
        told = self.do(self.s.engine.report(task_id, lines))
        task = self.tasks[task_id]
        for line in lines:
            task.hear(line)
        self.sort(task_id)
        assert told.state == task.state

    async def fail_to_report(self, task_id: str, lines: list[Said]) -> None:
        """Report into a group that is not committed."""
        gate = Gate(self.s.store)
        await gate.reached()
        reporting = asyncio.ensure_future(self.s.engine.report(task_id, lines))
        for _ in range(5):
            await asyncio.sleep(0)
        failing = poison(self.s.store)
        gate.open()
        await asyncio.wait((reporting, failing))
        failing.exception()
        if reporting.exception() is not None:
            with pytest.raises(StoreError):
                reporting.result()
        else:  # there was nothing to commit
            assert not lines[1:] or set(map(type, lines)) <= {Turn}

    @rule(pick=PICKS)
    def cancel(self, pick: int) -> None:
        """Any task can be canceled in any state, any number of times."""
        if not self.tasks:
            return
        task_id = list(self.tasks)[pick % len(self.tasks)]
        result = self.do(self.s.call("tasks/cancel", {"id": task_id}))["result"]
        if self.tasks[task_id].state not in OVER:
            self.tasks[task_id].end("canceled")
            self.sort(task_id)
        assert result["status"]["state"] == self.tasks[task_id].state
        assert self.s.engine.orders(task_id).canceled

    @rule()
    def stop(self) -> None:
        """Every live task is canceled."""
        live = [task_id for task_id, task in self.tasks.items() if task.state not in OVER]
        assert self.do(self.s.call("session/stop"))["result"]["canceled"] == sorted(live)
        for task_id in live:
            self.tasks[task_id].end("canceled")
            self.sort(task_id)

    @rule(pick=PICKS, failed=st.sampled_from([None, None, "worker lost"]))
    def release(self, pick: int, failed: str | None) -> None:
        """A worker is lost: its task waits for another, keeps its place, or fails."""
        started = [task_id for task_id, task in self.tasks.items() if task.turn]
        if not started:
            return
        task_id = started[pick % len(started)]
        task = self.tasks[task_id]
        self.do(self.s.engine.release(task_id, failed=failed))
        if task.state in OVER:
            return
        if failed is not None:
            task.end("failed")
        else:
            task.held = False
            if task.state == "working":
                task.again = "given back"
                if task_id in self.given_back:
                    self.given_back.remove(task_id)
                self.given_back.append(task_id)
        self.sort(task_id)

    @rule()
    def lose_patience(self) -> None:
        """Every task that waits for input fails, in the order in which they asked."""
        self.do(self.let_time_pass())
        for task_id in tuple(self.waiting):
            self.tasks[task_id].end("failed")
            self.sort(task_id)
            assert self.s.engine.orders(task_id).canceled

    async def let_time_pass(self) -> None:
        """Set a limit that was over long ago, and take it back."""
        self.s.engine.reconfigure(replace(self.limits, input_timeout=0.0))
        await until(lambda: not self.s.engine.counts().get("input-required"))
        for task_id in self.waiting:
            await self.s.engine.get(task_id)
        self.s.engine.reconfigure(self.limits)

    @rule(pick=PICKS)
    def hear(self, pick: int) -> None:
        """A worker hears each input once."""
        held = [task_id for task_id, task in self.tasks.items() if task.held]
        if not held:
            return
        task = self.tasks[task_id := held[pick % len(held)]]
        orders = self.s.engine.orders(task_id)
        assert [given.text for given in orders.take()] == task.inputs[task.heard :]
        assert not orders.canceled
        task.heard = len(task.inputs)

    @rule(pick=PICKS)
    def resume(self, pick: int) -> None:
        """A task that was interrupted is taken up as it stands."""
        interrupted = self.do_interrupted()
        if not interrupted:
            return
        task_id = interrupted[pick % len(interrupted)]
        claim = self.do(self.s.engine.resume(task_id))
        task = self.tasks[task_id]
        task.held, task.heard = True, len(task.inputs)
        assert [given.text for given in claim.inputs] == task.inputs
        assert (claim.task.turn, claim.attempt) == (task.turn, task.attempt)

    @rule(goes=st.sampled_from(["restart", "backend"]))
    def lose_all_workers(self, goes: str) -> None:
        """With a restart, or with the backend: what had started is interrupted, the rest is as it was."""
        if goes == "backend":
            self.s.engine.let_go()
        else:
            self.do(self.stack.aclose())
            self.open()
        for task in self.tasks.values():
            task.held, task.again = False, ""
        self.given_back.clear()

    @invariant()
    def agrees(self) -> None:
        """What the door says is what the model says."""
        if not hasattr(self, "s"):
            return
        for task_id, task in self.tasks.items():
            shown = self.do(self.s.call("tasks/get", {"id": task_id}))["result"]
            assert shown["status"]["state"] == task.state
            if task.state == "completed":
                response = shown.get("artifacts", [{"parts": [{"text": ""}]}])[0]["parts"][0]["text"]
                assert response == task.reply
        assert self.s.engine.feed.head == sum(task.frames for task in self.tasks.values())
        assert list(self.s.engine._ledger.state.waiting) == self.waiting  # noqa: SLF001 - nothing shows it all
        assert self.do_interrupted() == [
            task_id
            for task_id, task in self.tasks.items()
            if task.turn and task.state not in OVER and not task.held and not task.again
        ]

    def teardown(self) -> None:
        """The file says the same: dense numbers, one final frame per ended task, nothing of it after that."""
        if hasattr(self, "s"):
            self.do(self.stack.aclose())
            with closing(sqlite3.connect(self.path / "sidecar.db")) as file:
                assert dict(file.execute("SELECT id, state FROM tasks")) == {
                    task_id: task.state for task_id, task in self.tasks.items()
                }
                events = file.execute("SELECT seq, frame, task_id, data FROM events ORDER BY seq").fetchall()
            assert [seq for seq, *_ in events] == list(range(1, len(events) + 1))
            numbered = [frame for _, frame, *_ in events if frame is not None]
            assert numbered == list(range(1, len(numbered) + 1))
            over: set[str] = set()
            for _, _, task_id, data in events:
                assert task_id not in over
                if json.loads(data).get("state") in OVER:
                    over.add(task_id)
            assert over == {task_id for task_id, task in self.tasks.items() if task.state in OVER}
        self.runner.close()
        self.directory.cleanup()

    def has_room(self) -> bool:
        """Whether one more task is taken."""
        states = [task.state for task in self.tasks.values() if task.state not in OVER]
        if self.limits.acceptance is TaskAcceptance.SINGLE:
            return not states
        free = max(0, self.limits.concurrency - states.count("working"))
        return self.limits.queue_depth > 0 and states.count("submitted") < free + self.limits.queue_depth

    def running(self) -> int:
        """Count the tasks that run."""
        return [task.state for task in self.tasks.values()].count("working")

    def sort(self, task_id: str) -> None:
        """Put a task into the lines that it belongs to, or take it out."""
        task = self.tasks.get(task_id)
        state = task.state if task is not None else ""
        if state == "input-required" and task_id not in self.waiting:
            self.waiting.append(task_id)
        if state != "input-required" and task_id in self.waiting:
            self.waiting.remove(task_id)
        if state != "working" and task_id in self.given_back:
            self.given_back.remove(task_id)

    def do_interrupted(self) -> list[str]:
        """Return what the engine calls interrupted, in order of arrival."""
        found = {task.id for task in self.s.engine.interrupted()}
        return [task_id for task_id in self.tasks if task_id in found]

    def open(self) -> None:
        """Open the session."""
        self.stack = AsyncExitStack()
        self.s: Session = self.do(self.stack.enter_async_context(session(self.path, self.capsule)))

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run one piece of work on the machine's loop."""
        return self.runner.run(work)


TestWork = Work.TestCase
TestWork.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
