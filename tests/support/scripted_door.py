"""A murmur door of version 0.4 whose capsule does what a test says, with every way of going wrong.

Written from the murmur reference alone: streams tell of the whole session, ids are the session's, the last 512
numbered frames are replayed, a restart is another session.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

KEPT = 512
TERMINAL = ("completed", "failed", "rejected", "canceled")


@dataclass
class Work:
    """A task of the door, as its script sees it."""

    door: ScriptedDoor
    id: str
    context_id: str
    text: str
    state: str = "submitted"
    message: str = ""
    output: str = ""
    inputs: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    running: asyncio.Task[None] | None = None

    def status(self, state: str, message: str, **more: object) -> None:
        """Come to a state, with a numbered frame."""
        if self.state in TERMINAL:
            return
        self.state, self.message = state, message
        status = {"state": state, "message": message, **more}
        final = state in TERMINAL
        self.door.emit(
            "status", {"id": self.id, "context_id": self.context_id, "status": status, "final": final}
        )

    def turn(self, number: int = 1) -> None:
        """Begin a turn."""
        self.status("working", f"inference turn {number}")

    def say(self, text: str, *, final: bool = False) -> None:
        """Say a piece of the reply."""
        self.door.emit("text", {"id": self.id, "text": text, "final": final})

    def think(self, text: str) -> None:
        """Say a piece of the reasoning."""
        self.door.emit("thinking", {"id": self.id, "text": text, "final": False})

    def tool(self, name: str, content: str, **more: object) -> None:
        """Call a tool."""
        artifact = {
            "tool_name": name,
            "content": content,
            "fence_source": None,
            "tool_call_id": None,
            "is_error": False,
            "duration_ms": None,
            "exit_code": None,
            "truncated": False,
            **more,
        }
        self.door.emit("artifact", {"id": self.id, "artifact": artifact})

    async def ask(self, prompt: str) -> str:
        """Wait for input and return it."""
        self.output = prompt
        self.status("input-required", prompt)
        given = await self.inputs.get()
        self.output = ""
        return given

    def complete(self, response: str) -> None:
        """Be done."""
        self.output = response
        self.status("completed", "session ended", response=response)

    def object(self) -> dict[str, Any]:
        """Return it as `tasks/get` does."""
        status: dict[str, Any] = {"state": self.state}
        if self.state in TERMINAL:
            parts = [{"text": self.message}]
            status["message"] = {"messageId": f"msg_{self.id}_status", "role": "agent", "parts": parts}
        shown: dict[str, Any] = {"id": self.id, "contextId": self.context_id, "status": status}
        name = {"input-required": "prompt", "completed": "response"}.get(self.state)
        if name and self.output:
            shown["artifacts"] = [{"name": name, "parts": [{"text": self.output}]}]
        return shown


async def echo(work: Work) -> None:
    """Say the text back, in one piece."""
    work.turn()
    work.say(work.text, final=True)
    work.complete(work.text)


@dataclass
class Call:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    rpc: str = ""
    params: dict[str, Any] = field(default_factory=dict)


class ScriptedDoor:
    """One capsule's port. `fault`, if set, may answer a request instead; it returns whether it did."""

    def __init__(self, script: Callable[[Work], Awaitable[None]] = echo) -> None:
        self.script = script
        self.session = "ses_0000"
        self.depth = 8
        self.planes: list[str] = []
        self.calls: list[Call] = []
        self.fault: Callable[[Call, asyncio.StreamWriter], Awaitable[bool]] | None = None
        self.heartbeat = 15.0
        self.port = 0
        self.refuses_cancel = False
        self.streamss = 0
        self._server: asyncio.Server | None = None
        self._group: asyncio.TaskGroup | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._forget()

    def _forget(self) -> None:
        self.streamss += 1
        self.session = f"ses_{self.streamss:04}"
        self.tasks: dict[str, Work] = {}
        self.frames: list[tuple[int, bytes]] = []
        self.head = 0
        self.streams: set[asyncio.Queue[bytes | None]] = set()

    # life

    async def start(self, group: asyncio.TaskGroup | None = None) -> None:
        """Listen: on a free port at first, later on the same one. `group` owns what runs here, from the first start."""
        self._group = group or self._group
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, reuse_address=True)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, and cut every connection off; the capsule goes on."""
        if self._server is not None:
            self._server.close()
            self.cut()
            await self._server.wait_closed()
            self._server = None

    async def die(self) -> None:
        """End with all tasks; the next start is another session."""
        await self.stop()
        for work in self.tasks.values():
            if work.running is not None:
                work.running.cancel()
        self._forget()

    def cut(self) -> None:
        """Cut every connection off."""
        for writer in self._clients:
            writer.transport.abort()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://localhost:{self.port}"

    def asked(self, rpc: str) -> list[Call]:
        """Return the calls of one method."""
        return [call for call in self.calls if call.rpc == rpc]

    # frames

    def emit(self, event: str, data: dict[str, Any]) -> None:
        """Number a frame, keep it and send it to every stream."""
        self.head += 1
        text = f"id: {self.head}\nevent: {event}\ndata: {json.dumps(data)}\n\n".encode()
        self.frames = [*self.frames[-KEPT + 1 :], (self.head, text)]
        for queue in self.streams:
            queue.put_nowait(text)

    def lag(self, missed: int) -> None:
        """Leave out the next frames of every open stream, and say so."""
        before, self.streams = self.streams, set()
        for queue in before:
            queue.put_nowait(f'event: lagged\ndata: {{"missed":{missed}}}\n\n'.encode())
        self._lagging = before

    def catch_up(self) -> None:
        """Go on with the streams that lagged."""
        self.streams |= self._lagging

    # requests

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            call = await self._read(reader)
            self.calls.append(call)
            if self.fault is None or not await self.fault(call, writer):
                await self._answer(call, reader, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._clients.discard(writer)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> Call:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        call = Call(method, target, headers)
        if length := int(headers.get("content-length", 0)):
            body = json.loads(await reader.readexactly(length))
            call.rpc, call.params = body["method"], body["params"]
            call.params["__id"] = body["id"]
        return call

    async def _answer(self, call: Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if call.method == "GET":
            if call.target == "/.well-known/agent-card.json":
                send(writer, 200, json.dumps(self.card()).encode())
            else:
                send(writer, 404, b'{"error":"not_found","message":""}')
            return
        request_id = call.params.pop("__id")
        if call.rpc in ("message/stream", "stream/watch"):
            await self._stream(call, reader, writer)
            return
        result = self._call(call)
        answer = {"jsonrpc": "2.0", "id": request_id, **result}
        send(writer, 200, json.dumps(answer).encode())

    def card(self) -> dict[str, Any]:
        """Return the six keys of the card."""
        return {
            "name": "scripted",
            "version": "0.4.0",
            "url": f"localhost:{self.port}",
            "session_id": self.session,
            "capabilities": {"tools": [], "shell": False, "network": False, "streaming": True},
            "serves": {"methods": ["message/send", "message/stream"], "planes": self.planes},
        }

    def _call(self, call: Call) -> dict[str, Any]:
        params = call.params
        if call.rpc == "message/send":
            waiting = next((w for w in self.tasks.values() if w.state == "input-required"), None)
            message = params.get("message", params)
            text = "\n".join(p["text"] for p in message["parts"] if "text" in p)
            if waiting is None:
                return {"result": self.take(text, message.get("contextId")).object()}
            waiting.status("working", "resumed")
            waiting.inputs.put_nowait(text)
            return {"result": waiting.object()}
        if call.rpc == "tasks/get" and "id" not in params:
            live = [w for w in self.tasks.values() if w.state not in TERMINAL]
            running = [w for w in live if w.state != "submitted"]
            found = next(iter(running or live or list(self.tasks.values())[-1:]), None)
        else:
            found = self.tasks.get(params.get("id", ""))
        if found is None:
            return {"error": {"code": -32001, "message": "Task not found"}}
        if call.rpc == "tasks/cancel" and self.refuses_cancel:
            return {"error": {"code": -32603, "message": "it does not want to"}}
        if call.rpc == "tasks/cancel" and found.state not in TERMINAL:
            found.status("canceled", "task canceled")
            if found.running is not None:
                found.running.cancel()
        return {"result": found.object()}

    def take(self, text: str, context_id: str | None) -> Work:
        """Take a task, and run it once those before it are over."""
        number = len(self.tasks) + 1
        work = Work(self, f"tsk_{self.session[4:]}{number:028}", context_id or f"ctx_{number:032}", text)
        self.tasks[work.id] = work
        assert self._group is not None
        work.running = self._group.create_task(self._run(work))
        return work

    async def _run(self, work: Work) -> None:
        for other in list(self.tasks.values()):
            if other is work:
                break
            if other.running is not None:
                await asyncio.wait((other.running,))
        if work.state == "submitted":
            await self.script(work)

    async def _stream(self, call: Call, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n\r\n"
        writer.write(head)
        watches = call.rpc == "stream/watch"
        after = call.headers.get("last-event-id")
        if watches:
            writer.write(
                b'event: connection-ack\ndata: {"role":"observer","conversation_mode":"stateless"}\n\n'
            )
            self._replay(int(after or 0), writer)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        work: Work | None = None
        if not watches:
            live = sum(w.state not in TERMINAL for w in self.tasks.values())
            message = call.params.get("message", call.params)
            context_id = message.get("contextId")
            if live >= self.depth:
                status = {"state": "rejected", "message": "task rejected: capsule is busy"}
                told = {"id": "tsk_none", "context_id": context_id, "status": status, "final": True}
                writer.write(f"event: status\ndata: {json.dumps(told)}\n\n".encode())
                return
            self.streams.add(queue)
            text = "\n".join(p["text"] for p in message["parts"] if "text" in p)
            work = self.take(text, context_id)
        self.streams.add(queue)
        assert self._group is not None
        leaving = self._group.create_task(_until_it_leaves(reader, queue))
        try:
            while True:
                try:
                    async with asyncio.timeout(self.heartbeat):
                        frame = await queue.get()
                except TimeoutError:
                    frame = b":heartbeat\n\n"
                if frame is None:
                    return
                writer.write(frame)
                await writer.drain()
                if work is not None and work.state in TERMINAL and queue.empty():
                    return
        finally:
            leaving.cancel()
            self.streams.discard(queue)

    def _replay(self, after: int, writer: asyncio.StreamWriter) -> None:
        if self.frames and (after > self.head or after < self.frames[0][0] - 1):
            writer.write(f'event: gap\ndata: {{"first_available_id":{self.frames[0][0]}}}\n\n'.encode())
            after = 0
        for number, frame in self.frames:
            if number > after:
                writer.write(frame)


async def _until_it_leaves(reader: asyncio.StreamReader, queue: asyncio.Queue[bytes | None]) -> None:
    with suppress(ConnectionError):
        await reader.read()
    queue.put_nowait(None)


def send(
    writer: asyncio.StreamWriter, status: int, body: bytes, kind: str = "application/json", *headers: str
) -> None:
    """Write a whole answer."""
    lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", f"content-length: {len(body)}", *headers]
    writer.write("\r\n".join(lines).encode() + b"\r\nconnection: close\r\n\r\n" + body)


@asynccontextmanager
async def scripted_door(
    script: Callable[[Work], Awaitable[None]] = echo, door: ScriptedDoor | None = None
) -> AsyncIterator[ScriptedDoor]:
    """Run a door until the end of the block."""
    door = door or ScriptedDoor(script)
    async with asyncio.TaskGroup() as group:
        await door.start(group)
        try:
            yield door
        finally:
            await door.die()
