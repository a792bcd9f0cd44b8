"""One run of a command: what its process is given and says, from its start until nothing of it lives."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import orjson

from sidecar.errors import StoreError
from sidecar.events import TaskState
from sidecar.tasks.backends.framing import TooLongError, framing
from sidecar.tasks.backends.pipes import CHUNK
from sidecar.tasks.model import input_line
from sidecar.tasks.said import Completed, Failed, InputRequired, NotSaidError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sidecar.model import CommandSettings
    from sidecar.tasks.backends.process import Process
    from sidecar.tasks.backends.processes import Processes
    from sidecar.tasks.engine import Engine
    from sidecar.tasks.model import Input
    from sidecar.tasks.orders import Claim
    from sidecar.tasks.said import Said

TOGETHER: Final = 0.005
"""Seconds for which pieces of text are gathered into one event."""
KEPT_ERRORS: Final = 2048
"""Bytes of standard error that are kept, the last ones."""
SLOW: Final = 0.01
"""Seconds of rest after a full read: a flood must not keep the loop busy (docs/commands.md says so)."""
RETRY, LONGEST_RETRY = 0.25, 5.0
"""Seconds before what the database refused is said again."""


class Run:
    """A task in the hands of a process. `grace` is the seconds between SIGTERM and SIGKILL once the task is over."""

    def __init__(
        self,
        engine: Engine,
        claim: Claim,
        processes: Processes,
        process: Process,
        settings: CommandSettings,
        grace: float,
    ) -> None:
        self._engine = engine
        self._claim = claim
        self._orders = engine.orders(claim.task.id)
        self._processes = processes
        self._process = process
        self._settings = settings
        self._grace = grace
        self._jsonl = settings.protocol == "jsonl"
        self._framing = framing(settings.protocol)
        self._errors = b""
        self._stopping = False
        self._at_work, self._waiting = asyncio.Event(), asyncio.Event()
        self._at_work.set()

    async def go(self) -> None:
        """See the process through to its end, and its descendants to theirs."""
        self._give(self._claim.inputs)
        if not self._jsonl:
            self._process.stdin.end()
        async with asyncio.TaskGroup() as group:
            errors = group.create_task(self._keep_errors(), name="standard error")
            beside = [group.create_task(self._obey(), name="orders")]
            if self._settings.timeout is not None:
                beside.append(group.create_task(self._time(self._settings.timeout), name="time limit"))
            try:
                await self._listen()
                await self._process.exited.wait()
                self._process.stderr.finish()
                await errors
                await self._conclude()
            finally:
                for task in beside:
                    task.cancel()
        await asyncio.wait((self._processes.end(self._process, self._grace),))

    def stop(self, grace: float) -> None:
        """End the process; its task stays as it is, unless the process itself says how it ends."""
        self._stopping = True
        self._processes.end(self._process, grace)

    @property
    def _over(self) -> bool:
        return self._orders.canceled

    def _give(self, inputs: Iterable[Input]) -> None:
        if self._jsonl:
            lines = (orjson.dumps(input_line(self._claim.task, each)) + b"\n" for each in inputs)
            self._process.stdin.write(b"".join(lines))
        else:
            self._process.stdin.write("\n".join(each.text for each in inputs).encode("utf-8", "replace"))

    # Beside each other

    async def _obey(self) -> None:
        """Pass input on, and end the process once its task is over, whoever ended that."""
        while await self._orders.wait():
            if self._over:
                self._processes.end(self._process, self._grace)
                return
            self._give(self._orders.take())
            self._waiting.clear()
            self._at_work.set()

    async def _time(self, limit: float) -> None:
        """Fail a task that takes longer, the time for which it waits for input left out."""
        loop = asyncio.get_running_loop()
        left = limit
        while left > 0:
            await self._at_work.wait()
            began = loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._waiting.wait()
            left -= loop.time() - began
        await self._say([Failed(f"the command took longer than {limit:g} s")])

    async def _keep_errors(self) -> None:
        stderr = self._process.stderr
        while data := await stderr.read(CHUNK):
            self._errors = (self._errors + data)[-KEPT_ERRORS - 1 :]
            if len(data) == CHUNK:
                await asyncio.sleep(SLOW)

    # What it says

    async def _listen(self) -> None:
        """Report what comes until the output ends; each report waits for its commit, and the process for that."""
        heard = 0
        limit = self._settings.output
        while data := await self._hear():
            if len(data) == CHUNK:
                await asyncio.sleep(SLOW)
            if self._over:
                continue
            room = limit - heard
            heard += len(data)
            try:
                said = self._framing.feed(data[:room])
            except TooLongError as error:
                said = [Failed(str(error))]
            if heard > limit:
                said.append(Failed(f"the output of the command is over the limit of {limit} bytes"))
            if said:
                await self._say(said)

    async def _hear(self) -> bytes:
        """Return the next of what the process writes; of text, what it writes within a few milliseconds."""
        stdout = self._process.stdout
        data = await stdout.read(CHUNK) or b""
        if self._jsonl or not data:
            return data
        loop = asyncio.get_running_loop()
        until = loop.time() + TOGETHER
        while len(data) < CHUNK and (left := until - loop.time()) > 0:
            more = await stdout.read(CHUNK - len(data), within=left)
            if not more:
                break
            data += more
        return data

    async def _conclude(self) -> None:
        """Say what the end of the process means for its task, where it did not say so itself."""
        said = self._framing.end()
        status = self._process.status
        if not self._stopping:
            said.append(Completed() if status == 0 else Failed(_why(status, self._errors)))
        if said:
            await self._say(said)

    async def _say(self, said: Sequence[Said]) -> None:
        """Report, as often as it takes; what comes for a task that is over is dropped."""
        pause = RETRY
        while not self._over:
            try:
                task = await self._engine.report(self._claim.task.id, said)
            except NotSaidError as error:
                said = [Failed(f"the command said what cannot be kept: {error}")]
            except StoreError:
                if self._stopping or self._engine.closed:
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_RETRY)
            else:
                if task.state is TaskState.INPUT_REQUIRED and isinstance(said[-1], InputRequired):
                    self._at_work.clear()
                    self._waiting.set()
                else:
                    self._waiting.clear()
                    self._at_work.set()
                return


def _why(status: int | None, errors: bytes) -> str:
    """Say how a process failed, with the end of what it wrote on standard error."""
    if status is not None and status < 0:
        with suppress(ValueError):
            how = f"the command was ended by {signal.Signals(-status).name}"
            return _with_errors(how, errors)
    return _with_errors(f"the command ended with exit status {status}", errors)


def _with_errors(how: str, errors: bytes) -> str:
    text = errors[-KEPT_ERRORS:].decode("utf-8", "replace").strip()
    if len(errors) > KEPT_ERRORS:
        _, newline, rest = text.partition("\n")
        text = "…" + (rest if newline else text)
    return f"{how}: {text}" if text else how
