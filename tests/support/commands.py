"""A command backend over a real engine: agents are real processes, written as scripts."""

from __future__ import annotations

import json
import os
import stat
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sidecar.model import Capsule, CommandSettings, Lifecycle, Manifest, Settings, TaskAcceptance
from sidecar.ops import proc, subreaper
from sidecar.store import Store
from sidecar.tasks.backends.command import CommandBackend
from sidecar.tasks.backends.processes import Processes
from sidecar.tasks.backends.records import Records
from sidecar.tasks.engines import Engines
from sidecar.tasks.model import Input, Rules
from tests.support.sessions import SESSION
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from sidecar.events import Event, Task
    from sidecar.tasks.engine import Engine

PYTHON = f"#!{sys.executable} -S\n"
SHELL = "#!/bin/sh\n"
ENVIRON = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


def message(text: str = "hello", **more: Any) -> Input:
    """Return a message as a client sends it."""
    return Input(text, json.dumps({"messageId": "m1", "role": "user", "parts": [{"text": text}], **more}))


def agent(directory: Path, text: str, name: str = "agent") -> str:
    """Write a program and return its path; without a first line of its own it is a shell script."""
    file = directory / name
    file.write_text(text if text.startswith("#!") else SHELL + text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


@dataclass
class Bench:
    """One capsule whose tasks a command does."""

    directory: Path
    store: Store
    engine: Engine
    engines: Engines
    processes: Processes
    backend: CommandBackend
    capsule: Capsule

    async def send(self, text: str = "hello", **more: Any) -> str:
        """Hand in a task and return its id."""
        task = await self.engine.send(
            message(text, **more), context_id=more.get("contextId"), owner="someone"
        )
        assert not task.state.terminal
        return task.id

    async def task(self, task_id: str) -> Task:
        """Return a task as it is."""
        task = await self.engine.get(task_id)
        assert task is not None
        return task

    async def state(self, task_id: str, *states: str, within: float = 10.0) -> Task:
        """Wait until a task is in one of these states and return it."""

        async def found() -> Task | None:
            task = await self.task(task_id)
            return task if task.state in states else None

        task = await until(found, within=within, what=f"{task_id} {states}")
        assert task is not None
        return task

    async def ended(self, task_id: str, within: float = 10.0) -> Task:
        """Wait until a task is over, and return it."""

        async def found() -> Task | None:
            task = await self.task(task_id)
            return task if task.state.terminal else None

        task = await until(found, within=within, what=f"{task_id} over")
        assert task is not None
        return task

    async def do(self, text: str = "hello", **more: Any) -> Task:
        """Hand in a task and return it once it is over."""
        return await self.ended(await self.send(text, **more))

    async def events(self, task_id: str) -> list[Event]:
        """Return the numbered events of a task."""
        found: list[Event] = []
        after = 0
        while True:
            page = await self.engine._log.page(self.engine.session_id, after, sys.maxsize)  # noqa: SLF001 - the log is the truth
            if not page.events:
                return [event for event in found if event.task_id == task_id]
            found += page.events
            after = page.events[-1].frame or after

    async def gone(self) -> None:
        """Wait until no process of the capsule is left."""
        await until(lambda: not len(self.processes), what="no process")


def served(
    directory: Path,
    argv: tuple[str, ...],
    *,
    protocol: str = "text",
    concurrency: int = 1,
    grace: int = 1,
    on_restart: str = "fail",
    input_timeout: int | None = None,
    **command: Any,
) -> Capsule:
    """Return a capsule that lies in a directory, which is its workspace, and whose tasks this command does."""
    lifecycle = Lifecycle(
        task_acceptance=TaskAcceptance.QUEUE,
        queue_depth=100,
        shell_grace_secs=grace,
        input_timeout_secs=input_timeout,
    )
    settings = Settings(
        backend="command",
        command=CommandSettings(argv, protocol, **command),
        concurrency=concurrency,
        on_restart=on_restart,
    )
    return Capsule(
        "hello",
        str(directory),
        SESSION,
        Manifest("hello", "1", lifecycle=lifecycle),
        settings,
        str(directory),
        0.0,
    )


@asynccontextmanager
async def bench(
    directory: Path,
    text: str | None = None,
    *,
    capsule: Capsule | None = None,
    environ: Mapping[str, str] = ENVIRON,
    stop: float = 1.0,
    argv: tuple[str, ...] = (),
    **how: Any,
) -> AsyncIterator[Bench]:
    """Open a capsule with the program `text`, or `argv`; everything is closed at the end."""
    if capsule is None:
        capsule = served(directory, argv or (agent(directory, text or "exit 0"),), **how)
    assert subreaper.claim()
    store = Store.open(str(directory / "sidecar.db"))
    try:
        engines = Engines(store, keep_events=100_000, keep_tasks=3600.0)
        processes = Processes(Records(directory / "processes"))
        processes.open(stop)
        engine = await engines.open(capsule.session_id, Rules.of(capsule, max_live=1000))
        backend = CommandBackend(processes, environ=environ)
        backend.start(engine, capsule)
        try:
            yield Bench(directory, store, engine, engines, processes, backend, capsule)
        finally:
            await backend.aclose(stop)
            await processes.aclose()
            await engines.aclose()
    finally:
        store.close()
        subreaper.claim(on=False)


def alive(pid: int) -> bool:
    """Whether a process runs."""
    seen = proc.look(pid)
    return seen is not None and seen.lives


def changed(capsule: Capsule, **settings: Any) -> Capsule:
    """Return a capsule with other settings."""
    return replace(capsule, settings=replace(capsule.settings, **settings))
