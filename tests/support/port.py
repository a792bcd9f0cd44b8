"""One capsule on a port of its own, and clients of it that show every byte: listener, door, engine and SQLite are real."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sidecar.model import Lifecycle, Manifest, TaskAcceptance
from tests.support import working
from tests.support.rawhttp import Answer, exchange, get, request_bytes
from tests.support.serving import Bench, bench
from tests.support.sessions import frames_in
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from sidecar.tasks.engine import Engine
    from tests.support.sessions import Frame

CARD = "/.well-known/agent-card.json"
ACK = b'event: connection-ack\ndata: {"role":"observer","conversation_mode":"stateless"}\n\n'
CLOSED = b"event: capsule-closed\ndata: {}\n\n"
QUEUE = Lifecycle(task_acceptance=TaskAcceptance.QUEUE, queue_depth=5)
MESSAGE = {"messageId": "m", "role": "user", "parts": [{"text": "hello"}]}
BOUND = 10.0
"""Seconds that anything may take here: several times what the protocol's cases allow."""


def message(text: str, **more: Any) -> dict[str, Any]:
    """Return the parameters of a call that sends a text."""
    return {"message": {"messageId": f"m-{text}", "role": "user", "parts": [{"text": text}], **more}}


def call_bytes(method: str, params: Any = None, *, close: bool = True, **headers: str) -> bytes:
    """Make a JSON-RPC call; names of headers are written with underscores."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    fields = {"Content-Type": "application/json", "Connection": "close" if close else "keep-alive"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    return request_bytes("POST", "/", headers=fields, body=body)


@dataclass
class Port:
    """A served capsule; its tasks are worked on by whoever calls `work`."""

    bench: Bench
    number: int
    streams: list[Stream] = field(default_factory=list)

    async def get(self, target: str, method: str = "GET", **headers: str) -> Answer:
        """Send a bodiless request."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return await get(self.number, target, method=method, headers=fields)

    async def card(self) -> dict[str, Any]:
        """Return the card."""
        found: dict[str, Any] = json.loads((await self.get(CARD)).body)
        return found

    async def call(self, method: str, params: Any = None) -> dict[str, Any]:
        """Call a method of the door, and return the JSON answer."""
        answer = await exchange(self.number, call_bytes(method, params), within=BOUND)
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        found: dict[str, Any] = json.loads(answer.body)
        return found

    async def result(self, method: str, params: Any = None) -> dict[str, Any]:
        """Call a method that has a result, and return that."""
        answer = await self.call(method, params)
        assert list(answer) == ["jsonrpc", "id", "result"], answer
        result: dict[str, Any] = answer["result"]
        return result

    async def error(self, method: str, params: Any = None) -> dict[str, Any]:
        """Call a method that has an error, and return that."""
        answer = await self.call(method, params)
        assert list(answer) == ["jsonrpc", "id", "error"], answer
        error: dict[str, Any] = answer["error"]
        return error

    async def send(self, text: str = "hello") -> str:
        """Hand in a task that is taken, and return its id."""
        task = await self.result("message/send", message(text))
        assert task["status"]["state"] == "submitted"
        task_id: str = task["id"]
        return task_id

    async def task(self, task_id: str) -> dict[str, Any]:
        """Return a task as the door shows it."""
        return await self.result("tasks/get", {"id": task_id})

    async def state(self, task_id: str) -> str:
        """Return the state that the door shows of a task."""
        state: str = (await self.task(task_id))["status"]["state"]
        return state

    async def cancel(self, task_id: str) -> dict[str, Any]:
        """Cancel a task, and return it."""
        return await self.result("tasks/cancel", {"id": task_id})

    async def engine(self) -> Engine:
        """Return the engine behind the door."""
        return await self.bench.engine("a")

    async def work(self) -> working.Working:
        """Begin with the next task, as a worker does."""
        async with asyncio.timeout(BOUND):
            return await working.work(await self.engine())

    async def idle(self) -> None:
        """Make sure that there is nothing to begin with."""
        assert await (await self.engine()).claim() is None

    async def stream(self, params: Any = MESSAGE, last: str | None = None) -> Stream:
        """Open `message/stream`."""
        return await self._open("message/stream", params, last)

    async def watch(self, last: str | None = None) -> Stream:
        """Open `stream/watch`, and read its acknowledgement."""
        stream = await self._open("stream/watch", None, last)
        await stream.ack()
        return stream

    async def _open(self, method: str, params: Any, last: str | None) -> Stream:
        more: dict[str, Any] = {} if last is None else {"Last_Event_ID": last}
        stream = await Stream.open(self.number, call_bytes(method, params, **more))
        self.streams.append(stream)
        return stream


@asynccontextmanager
async def served(root: Path, manifest: Manifest | None = None, **more: Any) -> AsyncIterator[Port]:
    """Serve one capsule called `a`; streams are left at the end."""
    settings = more.pop("settings", {})
    async with bench(root, **more) as made:
        await made.serve(made.want("a", manifest=manifest, **settings))
        port = Port(made, made.port("a"))
        try:
            yield port
        finally:
            for stream in port.streams:
                await stream.close()


def taking(acceptance: TaskAcceptance = TaskAcceptance.QUEUE, **lifecycle: Any) -> Manifest:
    """Return the manifest of a capsule that takes tasks in this way."""
    return Manifest("a", "1", lifecycle=Lifecycle(task_acceptance=acceptance, **lifecycle))


class Stream:
    """A client of an event stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head = b""
        self._waiting = b""

    @classmethod
    async def open(cls, port: int, request: bytes) -> Stream:
        """Send a call and read the head of the answer."""
        stream = cls(*await asyncio.open_connection("127.0.0.1", port))
        stream.writer.write(request)
        async with asyncio.timeout(BOUND):
            stream.head = await stream.reader.readuntil(b"\r\n\r\n")
        return stream

    async def chunk(self) -> bytes:
        """Return the next chunk, b"" at the end of the stream."""
        async with asyncio.timeout(BOUND):
            size = int(await self.reader.readline(), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def frame(self) -> bytes:
        """Return the bytes of the next frame or comment, blank line included."""
        while b"\n\n" not in self._waiting:
            chunk = await self.chunk()
            assert chunk, f"the stream ended behind {self._waiting!r}"
            self._waiting += chunk
        frame, _, self._waiting = self._waiting.partition(b"\n\n")
        return frame + b"\n\n"

    async def ack(self) -> None:
        """Read the acknowledgement of a watch."""
        assert await self.frame() == ACK

    async def frames(self, count: int) -> list[Frame]:
        """Return the next frames, as a client parses them."""
        return [frames_in(await self.frame())[0] for _ in range(count)]

    async def rest(self) -> bytes:
        """Return all bytes until the end of the stream."""
        return self._waiting + b"".join([chunk async for chunk in self._chunks()])

    async def to_eof(self) -> bytes:
        """Return all bytes until the end of the stream, which must be that of the connection too."""
        rest = await self.rest()
        async with asyncio.timeout(BOUND):
            assert await self.reader.read() == b""
        return rest

    async def frames_to_eof(self) -> list[Frame]:
        """Return all frames until the end of the connection, as a client parses them."""
        return frames_in(await self.to_eof())

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self.chunk():
            yield chunk

    async def close(self) -> None:
        """Leave."""
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


async def until_open(port: Port, count: int) -> None:
    """Wait until so many streams are open."""
    await until(lambda: port.bench.pool.open_streams == count)
