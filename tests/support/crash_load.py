"""The load on a sidecar that is about to be killed: messages, cancels, stops, a worker, and streams that are watched."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import aiohttp

from sidecar.worker import Worker
from tests.support.crash_model import INBOX, Known, Place

if TYPE_CHECKING:
    import itertools
    import random
    from collections.abc import Coroutine
    from pathlib import Path

    from sidecar.worker import Task

SENDERS = 5
GONE = (aiohttp.ClientError, OSError, TimeoutError, EOFError)
"""What a client sees of a sidecar that was killed."""


class Load:
    """Everything that goes on from outside while one sidecar lives. `http` is closed by its owner."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        known: dict[str, Known],
        rng: random.Random,
        texts: itertools.count[int],
    ) -> None:
        self.http = http
        self.known = known
        self.rng = rng
        self.texts = texts

    async def call(self, known: Known, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Call a method of a capsule and return the result, which every call here has."""
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self.http.post(f"http://127.0.0.1:{known.port}/", json=call) as answer:
            document = json.loads(await answer.read())
        assert "result" in document, (call, document)
        result: dict[str, Any] = document["result"]
        return result

    async def watch(self, known: Known, after: int) -> None:
        """Follow the session's stream from behind a frame, and record every whole frame of it."""
        place = Place(known, after)
        call = {"jsonrpc": "2.0", "id": 1, "method": "stream/watch"}
        headers = {"Last-Event-ID": str(after)}
        timeout = aiohttp.ClientTimeout(total=None)
        url = f"http://127.0.0.1:{known.port}/"
        async with self.http.post(url, json=call, headers=headers, timeout=timeout) as answer:
            rest = b""
            async for data in answer.content.iter_any():
                *frames, rest = (rest + data).split(b"\n\n")
                for frame in frames:
                    place.take(frame)

    async def send(self, known: Known) -> None:
        """Send messages, one after the other; cancel some of the tasks, and now and then stop all of them."""
        while True:
            text = f"{next(self.texts)} {self.mood(known)}"
            message = {"messageId": text, "role": "user", "parts": [{"text": text}]}
            result = await self.call(known, "message/send", {"message": message})
            match result["status"]["state"]:
                case "submitted":
                    assert result["id"] not in known.submitted
                    known.submitted[result["id"]] = text
                case "working":
                    known.answered[text] = result["id"]
                case "rejected":
                    await asyncio.sleep(self.rng.uniform(0.002, 0.01))
                case state:
                    raise AssertionError(f"{state}: {result}")
            await self.interfere(known, result["id"])

    def mood(self, known: Known) -> str:
        """Return what the next task is to be like."""
        chance = self.rng.random()
        if known.id == INBOX:
            return "ask" if chance < 0.3 else "tell"
        if chance < 0.1:
            return "long"
        return "slow" if chance < 0.3 else "quick"

    async def interfere(self, known: Known, task_id: str) -> None:
        """Cancel a task, all of them, or, mostly, none."""
        chance = self.rng.random()
        if chance < 0.15 and task_id in known.submitted:
            self.note_canceled(known, await self.call(known, "tasks/cancel", {"id": task_id}))
        elif chance > 0.995:
            known.canceled.update((await self.call(known, "session/stop", {}))["canceled"])

    def note_canceled(self, known: Known, result: dict[str, Any]) -> None:
        """Take in what a cancel came to: the task may have been over."""
        if result["status"]["state"] == "canceled":
            known.canceled.add(result["id"])

    async def settle(self, known: Known) -> None:
        """Ask for every task that may still change, and hold the answers against what is known."""
        for task_id in known.unsettled():
            known.hold(task_id, await self.call(known, "tasks/get", {"id": task_id}))

    async def catch_up(self, known: Known, head: int = 0) -> None:
        """Read the stream from the base up to the newest frame that was ever seen, or to the head."""
        newest, place = max(known.newest, head), Place(known, known.base)
        if newest == known.base:
            return
        call = {"jsonrpc": "2.0", "id": 1, "method": "stream/watch"}
        headers = {"Last-Event-ID": str(known.base)}
        async with (
            asyncio.timeout(20),
            self.http.post(f"http://127.0.0.1:{known.port}/", json=call, headers=headers) as answer,
        ):
            rest = b""
            while place.cursor < newest:
                *frames, rest = (rest + await answer.content.readany()).split(b"\n\n")
                for frame in frames:
                    place.take(frame)
        known.base = newest


async def toil(state: Path) -> None:
    """Work for the inbox until cancelled."""
    with suppress(*GONE):
        await Worker(INBOX, state=state).run(do, concurrency=3)


async def do(task: Task) -> str | None:
    """Do one task: its reply is its own text, and behind that the answer where it asks for one."""
    await task.text(task.prompt)
    if "ask" in task.prompt:
        answer = await task.ask("Which?")
        await task.text(f" {answer}")
        return None
    return task.prompt if "7" in task.prompt else None


async def until_gone(work: Coroutine[Any, Any, None]) -> None:
    """Do something until the sidecar is gone."""
    with suppress(*GONE):
        await work
