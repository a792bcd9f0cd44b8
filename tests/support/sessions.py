"""A murmur door over a real engine on a real database: bytes in, bytes out."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from sidecar.doors.murmur import FrameStream, MurmurDoor
from sidecar.model import Capsule, Conversation, Lifecycle, Manifest, Settings, TaskAcceptance
from sidecar.store import Store
from sidecar.tasks.engines import Engines
from sidecar.tasks.model import Rules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from sidecar.tasks.engine import Engine

SESSION = "ses_01a22c7d92367f3e97e3141062a3f0b4"
MESSAGE = {"messageId": "m1", "role": "user", "parts": [{"text": "hello"}]}


def capsule(
    acceptance: TaskAcceptance = TaskAcceptance.QUEUE,
    *,
    queue_depth: int = 2,
    conversation: Conversation = Conversation.STATELESS,
    session_id: str = SESSION,
    concurrency: int = 1,
) -> Capsule:
    """Return a capsule that takes tasks in this way."""
    lifecycle = Lifecycle(task_acceptance=acceptance, queue_depth=queue_depth, conversation=conversation)
    manifest = Manifest("hello", "1.0", lifecycle=lifecycle)
    return Capsule("hello", "/c", session_id, manifest, Settings(concurrency=concurrency), "/c", 0.0)


@dataclass
class Session:
    """One open session, with its door."""

    store: Store
    engines: Engines
    engine: Engine
    door: MurmurDoor
    counted: list[tuple[str, str]]
    streams: list[FrameStream] = field(default_factory=list)

    async def raw(self, body: bytes, last_event_id: str | None = None) -> dict[str, Any]:
        """Post bytes and return the JSON answer."""
        answer = await self.door.call(body, last_event_id)
        assert isinstance(answer, bytes)
        parsed: dict[str, Any] = json.loads(answer)
        return parsed

    async def call(self, method: str, params: object = None) -> dict[str, Any]:
        """Call a method and return the JSON answer."""
        return await self.raw(request(method, params))

    async def stream(
        self, method: str, params: object = None, last_event_id: str | None = None
    ) -> FrameStream:
        """Open a stream; it is closed with the session."""
        answer = await self.door.call(request(method, params), last_event_id)
        assert isinstance(answer, FrameStream)
        self.streams.append(answer)
        return answer

    async def send(self) -> str:
        """Hand in a task that is taken and return its id."""
        result = (await self.call("message/send", MESSAGE))["result"]
        assert result["status"]["state"] == "submitted"
        task_id: str = result["id"]
        return task_id

    async def send_and_cancel(self, times: int = 1) -> list[str]:
        """Make numbered frames: one per task that is handed in and canceled."""
        ids = [await self.send_then_cancel() for _ in range(times)]
        assert self.engine.feed.head >= times
        return ids

    async def send_then_cancel(self) -> str:
        """Hand in a task and cancel it."""
        task_id = await self.send()
        await self.call("tasks/cancel", {"id": task_id})
        return task_id


@asynccontextmanager
async def session(
    directory: Path,
    served: Capsule | None = None,
    *,
    heartbeat: float = 60.0,
    streams: int = 16,
    max_live: int = 1000,
    keep_events: int = 100_000,
) -> AsyncIterator[Session]:
    """Open a session on `sidecar.db` in a directory; everything is closed at the end."""
    served = served or capsule()
    store = Store.open(str(directory / "sidecar.db"))
    engines = Engines(store, keep_events=keep_events, keep_tasks=3600.0)
    counted: list[tuple[str, str]] = []
    try:
        engine = await engines.open(served.session_id, Rules.of(served, max_live=max_live))
        door = MurmurDoor(
            engine,
            served,
            heartbeat=heartbeat,
            streams=streams,
            count=lambda what, how: counted.append((what, how)),
        )
        opened = Session(store, engines, engine, door, counted)
        try:
            yield opened
        finally:
            for stream in opened.streams:
                stream.close()
    finally:
        await engines.aclose()
        store.close()


def request(method: str, params: object = None, request_id: object = 1) -> bytes:
    """Return the bytes of a request."""
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


@dataclass(frozen=True)
class Frame:
    """A frame as a client parses it; a comment has the event `comment`."""

    number: int | None
    event: str
    data: Any


def frames_in(chunk: bytes) -> list[Frame]:
    """Parse whole frames."""
    assert chunk.endswith(b"\n\n")
    return [_frame(text) for text in chunk.decode().removesuffix("\n\n").split("\n\n")]


def _frame(text: str) -> Frame:
    if text.startswith(":"):
        return Frame(None, "comment", text[1:])
    fields = dict(line.split(": ", 1) for line in text.split("\n"))
    number = fields.get("id")
    return Frame(None if number is None else int(number), fields["event"], json.loads(fields["data"]))


async def frames_of(stream: FrameStream, count: int) -> list[Frame]:
    """Read chunks until so many frames have come; return them all."""
    found: list[Frame] = []
    while len(found) < count:
        chunk = await stream.next()
        assert chunk is not None, f"the stream ended after {found}"
        found += frames_in(chunk)
    return found


async def rest_of(stream: FrameStream) -> list[Frame]:
    """Read a stream to its end."""
    found: list[Frame] = []
    while (chunk := await stream.next()) is not None:
        found += frames_in(chunk)
    return found
