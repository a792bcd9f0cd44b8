"""A worker: takes one task after the other, or several at once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sidecar.worker.client import Client, Pause, state_directory
from sidecar.worker.errors import AwayError, LostError, WorkerError
from sidecar.worker.task import WAIT, Task

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

    Handler = Callable[[Task], Awaitable[str | None]]

LONGEST_PAUSE: Final = 5.0


class Worker:
    """A worker of one capsule; `run` or `tasks` sets it to work.

    - `capsule`: the capsule's id; None: `$SIDECAR_CAPSULE`
    - `url`, `token`: of the desk; None: `$SIDECAR_URL` and `$SIDECAR_TOKEN`
    - `state`: the sidecar's state directory, where both are found if no `url` is given; None: `$SIDECAR_STATE`, else
      the default of this user
    - `cafile`: the certificates in PEM that vouch for a desk at an https `url`; None: `$SSL_CERT_FILE`, else the system's

    Raises ValueError without a capsule, OSError for a `cafile` that cannot be read.
    """

    def __init__(
        self,
        capsule: str | None = None,
        *,
        url: str | None = None,
        token: str | None = None,
        state: str | os.PathLike[str] | None = None,
        cafile: str | os.PathLike[str] | None = None,
    ) -> None:
        capsule = capsule or os.environ.get("SIDECAR_CAPSULE")
        if not capsule:
            raise ValueError("say which capsule to work for: Worker('hello'), or set SIDECAR_CAPSULE")
        url = url or os.environ.get("SIDECAR_URL")
        token = token or os.environ.get("SIDECAR_TOKEN")
        # the token of this machine's own sidecar does not go elsewhere unless it is asked for
        known_by = None if url and state is None else state_directory(state)
        trusted = None if cafile is None else os.fspath(cafile)
        self._client = Client(capsule, url, token, known_by, trusted)

    async def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Do tasks for ever, so many at a time, each with one call of the handler.

        A text that the handler returns is the reply; without one the reply is what it said by `Task.text`. A handler
        whose task is over is cancelled. Its exception fails the task, is logged, and the worker goes on. SIGTERM ends
        it, unless the program has a handler of its own: tasks under way are given back. Raises WorkerError for a
        wrong token.
        """
        slots = asyncio.Semaphore(concurrency)
        with _until_sigterm():
            try:
                async with self._client.opened(), asyncio.TaskGroup() as group:
                    while True:
                        await slots.acquire()
                        task = await self._next()
                        group.create_task(_handle(task, handler, slots), name=task.id)
            except BaseExceptionGroup as errors:
                if len(errors.exceptions) == 1 and isinstance(errors.exceptions[0], WorkerError):
                    raise errors.exceptions[0] from None
                raise

    async def tasks(self) -> AsyncGenerator[Task, None]:
        """Yield one task after the other; whoever asks for the next has completed the one before.

        Work on each in `async with task:`, as `run` does: a task that is over ends the block and not the loop. Leave
        the loop through `contextlib.aclosing`. Raises WorkerError for a wrong token.
        """
        async with self._client.opened():
            while True:
                task = await self._next()
                try:
                    task.open()
                    yield task
                    if not task.over:
                        await task.complete()
                finally:
                    await task.aclose()

    async def _next(self) -> Task:
        pause = Pause(self._client, LONGEST_PAUSE)
        while True:
            try:
                document = await self._client.call("next", wait=WAIT)
            except AwayError as error:
                await pause.after(error)
                continue
            except LostError as error:
                raise WorkerError(f"this is none of a sidecar's answers: {error}") from None
            if document is not None:
                return Task(self._client, document)
            pause.reset()


@contextmanager
def _until_sigterm() -> Iterator[None]:
    """End the block, and no more, when SIGTERM comes and nobody else would hear of it."""
    block = asyncio.current_task()
    assert block is not None  # noqa: S101 - it is one that awaits this
    before, told = block.cancelling(), False

    def tell() -> None:
        nonlocal told
        told = block.cancel() or told

    loop = asyncio.get_running_loop()
    hears = threading.current_thread() is threading.main_thread()
    if not hears or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    try:
        loop.add_signal_handler(signal.SIGTERM, tell)
    except NotImplementedError:  # a loop without signals
        yield
        return
    try:
        yield
    except asyncio.CancelledError:
        if not told or block.uncancel() > before:
            raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def _handle(task: Task, handler: Handler, slots: asyncio.Semaphore) -> None:
    try:
        async with task:
            reply = await handler(task)
            if not task.over:
                await task.complete(reply)
    finally:
        slots.release()
