"""What goes on beside one sidecar of a life: checks, the load, the end of all work."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

import aiohttp

from sidecar.ops import proc
from sidecar.tasks.backends.command import INTERRUPTED
from tests.support.crash_load import SENDERS, Load, toil, until_gone
from tests.support.crash_model import COMMAND, INBOX, live_tasks
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sidecar.ops.proc import Seen
    from tests.support.crashing import Life
    from tests.support.spawned import Spawned


class Beside:
    """What goes on beside one sidecar that is up: a client, its streams, a worker."""

    def __init__(self, life: Life, spawned: Spawned) -> None:
        self.life = life
        self.spawned = spawned
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Wait until it is ready, on the ports and with the sessions of before."""
        spawned, life = self.spawned, self.life
        await asyncio.to_thread(spawned.event, "ready")
        http = await self._stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=20)
            )
        )
        rows = (await asyncio.to_thread(spawned.capsules)).values()
        for row in rows:
            known = life.known[row["id"]]
            assert row["state"] == "serving", row
            assert (known.port or row["port"], known.session_id or row["session_id"]) == (
                row["port"],
                row["session_id"],
            )
            known.port, known.session_id = row["port"], row["session_id"]
        self.load = Load(http, life.known, life.rng, life.texts)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._stack.aclose()
        for task in self._tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def check(self) -> None:
        """Hold what this sidecar shows against what is known of those before it."""
        command = self.life.known[COMMAND]
        began = set(command.started)  # before this sidecar: what catching up shows may be of its own
        for known in self.life.known.values():
            await self.load.catch_up(known)
            await self.load.settle(known)
        ran = {task_id: command.submitted.get(task_id) for task_id in began - command.settled.keys()}

        async def failed() -> bool:
            await self.load.settle(command)
            return all(task_id in command.settled for task_id in ran)

        strays = self.life.strays(self.spawned)
        await until(lambda: not any(map(alive, strays)), what="no process of an earlier sidecar")
        if not self.life.reruns:
            await until(failed, what=f"the failure of {ran}")
        for task_id in ran:
            status = command.settled.get(task_id, {}).get("status", {})
            if status.get("state") == "failed":
                assert not self.life.reruns
                assert status["message"]["parts"] == [{"text": INTERRUPTED}]

    def work(self) -> None:
        """Begin to put load on."""
        for known in self.life.known.values():
            self._begin(self.load.watch(known, known.base))
            self._begin(self.load.watch(known, self.life.rng.randrange(known.base + 1)))
            for _ in range(SENDERS):
                self._begin(self.load.send(known))
        self._tasks.append(asyncio.create_task(toil(self.life.state), name="worker"))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(until_gone(work), name="load"))

    async def over(self) -> None:
        """Wait for the end of the sidecar; kill it when it takes too long to reach its last commit."""
        ended = asyncio.create_task(asyncio.to_thread(self.spawned.process.wait), name="wait")
        await asyncio.wait({ended}, timeout=5)
        if not ended.done():
            self.spawned.signal(signal.SIGKILL)
        await ended
        work = [task for task in self._tasks if task.get_name() == "load"]
        await asyncio.wait(work, timeout=10)
        assert all(task.done() for task in work)

    async def drain(self) -> None:
        """Work on everything that is left; answer what asks, cancel what takes too long."""
        worker = asyncio.create_task(toil(self.life.state), name="worker")
        self._tasks.append(worker)
        await until(self._drained, within=30, what="the end of all tasks")

    async def _drained(self) -> bool:
        rows = await asyncio.to_thread(self.spawned.capsules)
        inbox = self.life.known[INBOX]
        if rows[INBOX]["tasks"].get("input-required"):
            text = f"{next(self.life.texts)} answer"
            message = {"messageId": text, "role": "user", "parts": [{"text": text}]}
            result = await self.load.call(inbox, "message/send", {"message": message})
            if result["status"]["state"] == "working":
                inbox.answered[text] = result["id"]
            else:
                inbox.submitted[result["id"]] = text
        command = self.life.known[COMMAND]
        for task_id, text in live_tasks(self.life.state / "sidecar.db", command).items():
            if text.endswith("long"):
                self.load.note_canceled(
                    command, await self.load.call(command, "tasks/cancel", {"id": task_id})
                )
        return not any(any(row["tasks"].values()) for row in rows.values())


def alive(process: Seen) -> bool:
    """Whether this very process still runs."""
    seen = proc.again(process)
    return seen is not None and seen.lives
