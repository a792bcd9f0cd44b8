"""The murmur door: what `POST /` of a capsule's port answers, as bytes or as a stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sidecar.auth.caller import OPERATOR
from sidecar.dialects import jsonrpc, murmur, sse
from sidecar.dialects.jsonrpc import RpcError
from sidecar.errors import RefusedError, StoreError, refusal
from sidecar.events import TaskState
from sidecar.model import TaskAcceptance, served_methods
from sidecar.tasks.model import Input

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sidecar.dialects.jsonrpc import Request
    from sidecar.events import Task
    from sidecar.model import Capsule
    from sidecar.tasks.engine import Engine
    from sidecar.tasks.feed import Frame, Subscription

    Handler = Callable[["MurmurDoor", Request, int | None], Awaitable["bytes | FrameStream"]]
    Count = Callable[[str, str], None]

UNKNOWN: Final = "other"
"""What a request without a method is counted as."""


class FrameStream:
    """An open stream, pulled by whoever writes it to the socket, at that one's pace."""

    __slots__ = ("_heartbeat", "_last", "_live", "_over", "_subscription", "_timer", "_waiting")

    def __init__(self, subscription: Subscription, *, heartbeat: float, first: bytes = b"") -> None:
        """Take over a subscription; `first` goes out before anything else, `heartbeat` is in seconds."""
        self._subscription = subscription
        self._heartbeat = heartbeat
        self._waiting = first
        self._last: bytes | None = None
        self._live = not subscription.behind
        self._over = False
        if self._live:
            subscription.go_live()
        self._timer = asyncio.get_running_loop().call_later(heartbeat, self._beat)

    def follow(self, task_id: str) -> None:
        """Of what is new show this task alone, and end with its final status."""
        self._subscription.follow(task_id)

    def narrow(self, task_id: str) -> None:
        """Show this task alone, of the past too, and end with its final status."""
        self._subscription.narrow(task_id)

    def finish_with(self, frame: bytes) -> None:
        """Show what was asked for of the past, then this frame, and end."""
        self._last = frame

    async def next(self) -> bytes | None:
        """Return the next whole frames or a heartbeat as soon as there is something; None at the end."""
        while not self._over:
            if self._waiting:
                waiting, self._waiting = self._waiting, b""
                return waiting
            if not self._live and self._subscription.behind and not self._subscription.ending:
                chunk = await self._read()
            elif self._last is not None:
                chunk, self._over = self._last, True
            else:
                chunk = await self._listen()
            if chunk:
                return chunk
        return None

    def end(self) -> None:
        """Have the stream end with its closing frame, behind what already waits."""
        self._subscription.end()

    def close(self) -> None:
        """Let go of everything; the stream is over. To be called whatever happened; a second call does nothing."""
        self._over = True
        self._timer.cancel()
        self._subscription.close()
        self._subscription.wake()

    async def _read(self) -> bytes:
        """Return the next part of the past. If that fails the stream ends: the caller comes back with its last id."""
        try:
            gap, frames = await self._subscription.read()
        except StoreError:
            self._over = True
            return b""
        return (b"" if gap is None else murmur.gap_frame(gap)) + self._joined(frames)

    async def _listen(self) -> bytes:
        """Return what is new, or nothing when woken for something else."""
        if not self._live:
            self._live = True
            self._subscription.go_live()
        await self._subscription.wait()
        missed, frames = self._subscription.take()
        chunk = (murmur.lagged_frame(missed) if missed else b"") + self._joined(frames)
        if self._subscription.ended and not self._over:
            self._over = True
            chunk += murmur.CAPSULE_CLOSED
        return chunk

    def _joined(self, frames: list[Frame]) -> bytes:
        followed = self._subscription.task_id
        for count, frame in enumerate(frames, 1):
            if frame.final and frame.task_id == followed:
                self._over = True
                return b"".join(frame.data for frame in frames[:count])
        return b"".join(frame.data for frame in frames)

    def _beat(self) -> None:
        if not self._waiting.endswith(murmur.HEARTBEAT):
            self._waiting += murmur.HEARTBEAT
        self._timer = asyncio.get_running_loop().call_later(self._heartbeat, self._beat)
        self._subscription.wake()


def _message_of(params: Mapping[str, Any]) -> murmur.Message:
    try:
        return murmur.read_message(params)
    except murmur.InvalidMessageError as error:
        raise RpcError(jsonrpc.INVALID_PARAMS, f"Invalid params: {error}") from None


def _found(task: Task | None) -> Task:
    if task is None:
        raise RpcError(jsonrpc.TASK_NOT_FOUND, "Task not found")
    return task


def _served(handlers: Mapping[str, Handler]) -> Mapping[TaskAcceptance, Mapping[str, Handler]]:
    """Return what dispatches under each acceptance, from the table that the card is derived from.

    A row without a handler raises KeyError, when this module is imported.
    """
    return {a: {method.name: handlers[method.name] for method in served_methods(a)} for a in TaskAcceptance}


class MurmurDoor:
    """One capsule's door as it is served now: cheap, made anew at each reload, over an engine that stays.

    `heartbeat` is the seconds between two comments on a stream, `streams` how many may be open on the capsule.
    `count` is called once per request with the method, as it came, and the outcome: `ok`, `stream`, `rejected`,
    `unavailable` or the code of the error.
    """

    __slots__ = ("_ack", "_count", "_engine", "_handlers", "_heartbeat", "_session_id", "_streams")

    def __init__(
        self, engine: Engine, capsule: Capsule, *, heartbeat: float, streams: int, count: Count | None = None
    ) -> None:
        lifecycle = capsule.manifest.lifecycle
        self._engine = engine
        self._session_id = capsule.session_id
        self._ack = murmur.ack_frame(lifecycle.conversation)
        self._handlers = self._SERVED[lifecycle.task_acceptance]
        self._heartbeat = heartbeat
        self._streams = streams
        self._count = count

    async def call(self, body: bytes, last_event_id: str | None = None) -> bytes | FrameStream:
        """Answer the body of a request: with the bytes of a JSON answer, or with a stream that the caller closes.

        Either goes out as HTTP 200. Raises RefusedError (503) before any byte when too many streams are open.
        """
        try:
            request = jsonrpc.parse(body)
        except jsonrpc.RequestError as error:
            self._note(UNKNOWN, str(error.code))
            return jsonrpc.error(error.id, error.code, error.message)
        handler = self._handlers.get(request.method)
        if handler is None:
            return self._error(request, jsonrpc.METHOD_NOT_FOUND, "Method not found")
        try:
            return await handler(self, request, sse.last_event_id(last_event_id))
        except RpcError as error:
            return self._error(request, error.code, error.message)
        except StoreError as error:
            return self._error(request, jsonrpc.INTERNAL_ERROR, f"Internal error: {error}")
        except RefusedError:
            self._note(request.method, "unavailable")
            raise

    async def watch(self, after: int, task_id: str | None = None) -> FrameStream:
        """Open an observer's stream of the frames after that one, of one task alone if it is named.

        Raises RefusedError (503) when too many streams are open or the log cannot be read.
        """
        try:
            stream = await self._open(after, self._ack)
        except StoreError as error:
            raise RefusedError(refusal("unavailable", str(error), ("Retry-After", "1"))) from error
        if task_id is not None:
            stream.narrow(task_id)
        return stream

    async def _send(self, request: Request, _: int | None) -> bytes:
        message = _message_of(jsonrpc.params_of(request))
        given = Input(message.text, message.json)
        task = await self._engine.deliver(given)
        if task is None:
            task = await self._engine.send(given, context_id=message.context_id, owner=OPERATOR)
        self._note(request.method, "rejected" if task.state is TaskState.REJECTED else "ok")
        return jsonrpc.result(request.id, murmur.task_object(task))

    async def _stream(self, request: Request, after: int | None) -> FrameStream:
        params = jsonrpc.params_of(request)
        stream = await self._open(after)
        try:
            message = _message_of(params)
            given = Input(message.text, message.json)
            task = await self._engine.send(given, context_id=message.context_id, owner=OPERATOR)
        except RpcError as error:
            self._note(request.method, str(error.code))
            stream.finish_with(murmur.error_frame(error.message))
        except StoreError as error:
            self._note(request.method, str(jsonrpc.INTERNAL_ERROR))
            stream.finish_with(murmur.error_frame(f"Internal error: {error}"))
        except BaseException:
            stream.close()
            raise
        else:
            if task.state is TaskState.REJECTED:
                self._note(request.method, "rejected")
                stream.finish_with(murmur.rejected_frame(task))
            else:
                self._note(request.method, "stream")
                stream.follow(task.id)
        return stream

    async def _watch(self, request: Request, after: int | None) -> FrameStream:
        stream = await self._open(after or 0, self._ack)
        self._note(request.method, "stream")
        return stream

    async def _get(self, request: Request, _: int | None) -> bytes:
        task_id = jsonrpc.params_of(request).get("id")
        task = await self._engine.get(task_id if type(task_id) is str else None)
        return self._result(request, murmur.task_object(_found(task)))

    async def _cancel(self, request: Request, _: int | None) -> bytes:
        task_id = jsonrpc.params_of(request).get("id")
        if type(task_id) is not str:
            raise RpcError(jsonrpc.INVALID_PARAMS, "Invalid params: id must be the id of a task")
        task = _found(await self._engine.cancel(task_id))
        return self._result(request, murmur.canceled_object(task, self._engine.residue(task_id)))

    async def _stop(self, request: Request, _: int | None) -> bytes:
        jsonrpc.params_of(request)
        canceled = await self._engine.stop()
        ids = (task.id for task in canceled)
        return self._result(request, murmur.stopped(self._session_id, ids, self._engine.residue()))

    async def _open(self, after: int | None, first: bytes = b"") -> FrameStream:
        await self._engine.load()
        if self._engine.open_streams >= self._streams:
            text = "Too many streams are open on this capsule; try again later."
            raise RefusedError(refusal("unavailable", text, ("Retry-After", "1")))
        subscription = self._engine.feed.subscribe(murmur.event_frame, after)
        return FrameStream(subscription, heartbeat=self._heartbeat, first=first)

    def _result(self, request: Request, result: dict[str, Any]) -> bytes:
        self._note(request.method, "ok")
        return jsonrpc.result(request.id, result)

    def _error(self, request: Request, code: int, message: str) -> bytes:
        self._note(request.method, str(code))
        return jsonrpc.error(request.id, code, message)

    def _note(self, method: str, outcome: str) -> None:
        if self._count is not None:
            self._count(method, outcome)

    _SERVED: ClassVar = _served(
        {
            "message/send": _send,
            "message/stream": _stream,
            "stream/watch": _watch,
            "tasks/get": _get,
            "tasks/cancel": _cancel,
            "session/stop": _stop,
        }
    )
