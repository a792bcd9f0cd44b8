"""One daemon thread that does jobs in turn, for file I/O that may hang."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

Job = tuple["Callable[[], Any]", "asyncio.Future[Any]"]

PATIENCE: Final = 1.0


class OwnThread:
    """A thread of its owner's own. Jobs run one at a time, in the order they came.

    It is a daemon because a thread in a hung system call can be ended by nothing: the process must be able to
    exit without it. It starts with the first job. All methods belong to one event loop.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in the thread and return what it returns; raises what it raises."""
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._main, args=(loop,), name=self._name, daemon=True)
            self._thread.start()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((lambda: work(*args, **kwargs), future))
        return await future

    async def aclose(self, patience: float = PATIENCE) -> bool:
        """End the thread after the jobs it has; return False where it hangs and was left behind."""
        if self._thread is None:
            return True
        last = asyncio.get_running_loop().create_future()
        self._jobs.put((lambda: None, last))
        self._jobs.put(None)
        try:
            async with asyncio.timeout(patience):
                await last
        except TimeoutError:
            return False
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        while (job := self._jobs.get()) is not None:
            work, future = job
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 - the boundary of the thread: it goes to the caller
                error = raised
            # The loop may be gone when a job that hung comes back.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, future, result, error)
            del job, work, future, result, error


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
