"""The backend `command`: a process per task, of a program that the operator's configuration names."""

from __future__ import annotations

import asyncio
import errno
import os
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import structlog

from sidecar.errors import StoreError, visible
from sidecar.tasks.backends.process import Start
from sidecar.tasks.backends.processes import MARK
from sidecar.tasks.backends.run import LONGEST_RETRY, RETRY, Run
from sidecar.tracing import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.events import Task
    from sidecar.model import Capsule, CommandSettings, LastError
    from sidecar.tasks.backends.process import Process
    from sidecar.tasks.backends.processes import Processes
    from sidecar.tasks.engine import Engine
    from sidecar.tasks.orders import Claim

PASSED_ON: Final = ("PATH", "HOME", "LANG", "TZ")
"""Variables of the sidecar's environment that every command gets."""
DIRECTORY: Final = "{dir}"
"""Stands in `argv` for the capsule's directory."""
INTERRUPTED: Final = "the sidecar stopped while this task ran"
REMOVED: Final = "the capsule was removed while this task ran"
REPLACED: Final = "the capsule's backend was changed while this task ran"
NOT_STARTED: Final = "the command cannot be started: {}"
BROKE: Final = "internal error: the sidecar's log says more"
HINTS: Final = {
    errno.EACCES: " (is it executable?)",
    errno.ENOEXEC: " (does it begin with a #! line?)",
    errno.E2BIG: " (the context id is too long for a variable)",
}
"""What to look for where the system's own words do not say it."""
LAST: Final = 1.0
"""Seconds that processes have, at the end, to be gone after SIGKILL."""

_log = structlog.get_logger()


class CommandBackend:
    """Runs one capsule's command for each of its tasks, as many at once as the engine hands out.

    `environ` is the sidecar's own environment, of which commands get the few that are theirs. `interruption` is what
    is said of the tasks that it finds begun, where `on_restart` has them fail.
    """

    name = "command"
    trouble: LastError | None = None

    def __init__(self, processes: Processes, *, environ: Mapping[str, str]) -> None:
        self._processes = processes
        self._environ = environ
        self.interruption = INTERRUPTED
        self._engine: Engine | None = None
        self._capsule: Capsule | None = None
        self._closing = False
        self._puller: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._runs: dict[str, Run] = {}

    @property
    def workers(self) -> int:
        """How many processes run."""
        return len(self._runs)

    def start(self, engine: Engine, capsule: Capsule) -> None:
        """Begin to run tasks; those that ran when the sidecar ended fail or run again, as `on_restart` says."""
        self._engine, self._capsule = engine, capsule
        self._puller = asyncio.create_task(self._pull_for_ever(engine), name=f"command of {capsule.id}")

    def reconfigure(self, capsule: Capsule) -> None:
        """Take other settings for the tasks to come; processes that run keep theirs."""
        self._capsule = capsule

    async def aclose(self, grace: float) -> None:
        """End every process: SIGTERM, and SIGKILL after so many seconds. Their tasks stay as they are."""
        self._closing = True
        if self._puller is not None:
            self._puller.cancel()
            await asyncio.wait((self._puller,))
        for run in self._runs.values():
            run.stop(grace)
        if self._tasks:
            _, late = await asyncio.wait(tuple(self._tasks), timeout=grace + LAST)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        if self._engine is not None:
            self._engine.let_go()

    async def _pull_for_ever(self, engine: Engine) -> None:
        await self._processes.swept()
        while not engine.closed:
            try:
                await self._pull(engine)
            except Exception:  # noqa: BLE001 - boundary: an error of ours must not stop a capsule's work for good
                _log.exception("command_broke", capsule=self._served.id)
                await asyncio.sleep(LONGEST_RETRY)

    async def _pull(self, engine: Engine) -> None:
        if not await engine.ready():
            return
        for task in engine.interrupted():
            if self._served.settings.on_restart == "rerun":
                await engine.release(task.id)
            else:
                await _fail(engine, task.id, self.interruption)
        while await engine.claimable():
            if (claim := await engine.claim()) is not None:
                work = asyncio.create_task(self._work(engine, claim), name=f"work on {claim.task.id}")
                self._tasks.add(work)
                work.add_done_callback(self._tasks.discard)

    async def _work(self, engine: Engine, claim: Claim) -> None:
        """Do a task, from the start of its process to the end of its last descendant."""
        task_id, capsule = claim.task.id, self._served
        if self._closing or engine.orders(task_id).canceled:
            return
        try:
            process, settings = self._spawn(engine, capsule, claim)
        except (OSError, ValueError) as error:
            _log.warning("command_not_started", capsule=capsule.id, task=task_id, problem=str(error))
            await _fail(engine, task_id, NOT_STARTED.format(_reason(error, capsule)))
            return
        grace = float(capsule.manifest.lifecycle.shell_grace_secs)
        run = self._runs[task_id] = Run(engine, claim, self._processes, process, settings, grace)
        try:
            await run.go()
        except Exception:  # noqa: BLE001 - boundary: an error of ours costs this task, not the capsule
            _log.exception("command_broke", capsule=capsule.id, task=task_id)
            self._processes.end(process, grace)
            await _fail(engine, task_id, BROKE)
        finally:
            del self._runs[task_id]

    def _spawn(self, engine: Engine, capsule: Capsule, claim: Claim) -> tuple[Process, CommandSettings]:
        settings, task = capsule.settings.command, claim.task
        if settings is None:
            raise ValueError("no program is configured for this capsule")
        start = Start(
            argv=[word.replace(DIRECTORY, capsule.directory) for word in settings.argv],
            cwd=capsule.workspace,
            env=environment(self._environ, settings, capsule, task) | _traced(claim),
            task_id=task.id,
        )
        return self._processes.start(start, partial(engine.leave, task.id)), settings

    @property
    def _served(self) -> Capsule:
        if self._capsule is None:
            raise RuntimeError("the backend was not started")
        return self._capsule


def environment(
    environ: Mapping[str, str], settings: CommandSettings, capsule: Capsule, task: Task
) -> dict[str, str]:
    """Return the whole environment of a command (docs/commands.md): a few variables, those it is to get, and five."""
    names = (*PASSED_ON, *settings.env)
    return {
        **{name: environ[name] for name in names if name in environ},
        "SIDECAR_CAPSULE": capsule.id,
        "SIDECAR_CAPSULE_DIR": capsule.directory,
        "SIDECAR_SESSION_ID": capsule.session_id,
        MARK: task.id,
        "SIDECAR_CONTEXT_ID": task.context_id,
    }


def _traced(claim: Claim) -> dict[str, str]:
    """Return the variable that says which trace a task belongs to, where it belongs to one."""
    trace = claim.inputs[0].trace if claim.inputs else None
    return {} if trace is None else {VARIABLE: trace}


def _reason(error: OSError | ValueError, capsule: Capsule) -> str:
    """Say why a program did not start, to whoever sent the task: no path of this machine."""
    if isinstance(error, UnicodeError):
        return "the context id is no text that a program can be given"
    if not isinstance(error, OSError):
        return str(error)
    if error.filename == capsule.workspace:
        return f"the capsule's workspace: {error.strerror}"
    hint = HINTS.get(error.errno or 0, "")
    program = error.filename and PurePath(os.fsdecode(error.filename)).name
    return f"{visible(program)}: {error.strerror}{hint}" if program else f"{error.strerror}"


async def _fail(engine: Engine, task_id: str, message: str) -> None:
    """Have a task fail, as soon as the database takes it."""
    pause = RETRY
    while not engine.closed:
        try:
            await engine.release(task_id, failed=message)
        except StoreError:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_RETRY)
        else:
            return
