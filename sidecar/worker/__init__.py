"""A small client for workers: takes tasks from the inbox of a capsule and says what comes of them.

    async def answer(task):
        name = await task.ask("What is your name?")
        await task.text(f"Hello {name}!")

    asyncio.run(Worker("hello").run(answer))

It keeps the lease in the background, says again what may have been lost on the way, waits while the sidecar is away,
and cancels a handler whose task is over. It needs aiohttp and nothing else of the sidecar (docs/workers.md).
"""

from sidecar.worker.errors import TaskOverError, WorkerError
from sidecar.worker.task import Task
from sidecar.worker.worker import Worker

__all__ = ["Task", "TaskOverError", "Worker", "WorkerError"]
