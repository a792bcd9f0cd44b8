"""The operator's view of one capsule's tasks: list, read, cancel, send, watch, in the murmur dialect."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import parse_qs

import orjson
from aiohttp import hdrs

from sidecar.desk import api
from sidecar.dialects import murmur, sse
from sidecar.errors import RefusedError, StoreError, refusal
from sidecar.events import TaskState
from sidecar.tasks.model import Input
from sidecar.web.answers import json_answer
from sidecar.web.body import read_json_body
from sidecar.web.stream import EventStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from sidecar.events import Task
    from sidecar.model import Answer
    from sidecar.tasks.engine import Engine
    from sidecar.web.stream import Frames

TASKS: Final = "/api/capsules/{id}/tasks"
TASK: Final = "/api/capsules/{id}/tasks/{task}"
CANCEL: Final = "/api/capsules/{id}/tasks/{task}/cancel"
MESSAGES: Final = "/api/capsules/{id}/messages"
STREAM: Final = "/api/capsules/{id}/stream"
METHODS: Final = {
    TASKS: (hdrs.METH_GET,),
    TASK: (hdrs.METH_GET,),
    CANCEL: (hdrs.METH_POST,),
    MESSAGES: (hdrs.METH_POST,),
    STREAM: (hdrs.METH_GET,),
}
BODY: Final = 1024 * 1024
BODY_TIMEOUT: Final = 15.0
LISTED: Final = 100
"""So many of a capsule's tasks are listed, the newest first."""
MOST_STATUS: Final = 2000
"""Characters of a task's status in the list; the task itself has all of it."""
MOST_TAIL: Final = 1000
"""Frames of the past that `?tail=` asks for at most."""

_KEYS: Final = frozenset({"text", "task_id", "context_id"})
_NOT_SERVED: Final = refusal("unavailable", "The capsule is not served now: sidecar list says why.")
_NO_TASK: Final = refusal("not_found", "There is no task with this id.")
_SHAPE: Final = refusal(
    "bad_request",
    'Send a JSON object with "text", and if you like "task_id" of a task that waits for input, or "context_id".',
)


class Front(Protocol):
    """What the desk needs of a capsule that is served: its engine, and streams of its session."""

    @property
    def engine(self) -> Engine:
        """The engine of its session."""

    @property
    def accepts(self) -> bool:
        """Whether it takes tasks at all."""

    async def watch(self, after: int, task_id: str | None) -> Frames:
        """Open a stream of the session's frames after that one, or of one task's alone. Raises RefusedError."""


class Tasks:
    """What `tasks`, `messages` and `stream` below a capsule's path on the desk do.

    `front` returns what is served now under an id, None where nothing is. `owner` is whose its tasks are: the
    operator's, who sees the session whole.
    """

    def __init__(self, front: Callable[[str], Front | None], owner: str) -> None:
        self._front = front
        self._owner = owner
        self._streams: set[EventStream] = set()

    def end_streams(self) -> None:
        """Have every stream end with its closing frame."""
        for stream in tuple(self._streams):
            stream.end()

    async def answer(
        self, request: web.BaseRequest, template: str, capsule_id: str, task_id: str
    ) -> Answer | web.StreamResponse:
        """Answer a request below a capsule that there is. Raises RefusedError."""
        front = self._front(capsule_id)
        if front is None:
            raise RefusedError(_NOT_SERVED)
        try:
            if template == STREAM:
                return await self._stream(request, front)
            if template == TASKS:
                return _answered({"tasks": [listed(task) for task in await front.engine.list(LISTED)]})
            if template == TASK:
                return _task(await front.engine.get(task_id))
            if template == CANCEL:
                return _canceled(front, await front.engine.cancel(task_id))
            return await self._message(request, front)
        except StoreError as error:
            busy = refusal("unavailable", str(error), ("Retry-After", "1"))
            raise RefusedError(busy) from error

    async def _message(self, request: web.BaseRequest, front: Front) -> Answer:
        text, task_id, context_id = wishes(await read_json_body(request, limit=BODY, within=BODY_TIMEOUT))
        given = _given(text, context_id)
        # what comes of the message is behind this frame: streams begin there
        behind = ("Last-Event-ID", str(front.engine.feed.head))
        if task_id is not None:
            return await _delivered(front, given, task_id, behind)
        if not front.accepts:
            raise RefusedError(refusal("bad_request", "The capsule takes no tasks (task_acceptance: none)."))
        return _task(await front.engine.send(given, context_id=context_id, owner=self._owner), behind)

    async def _stream(self, request: web.BaseRequest, front: Front) -> web.StreamResponse:
        asked = parse_qs(request.raw_path.partition("?")[2])
        after = sse.last_event_id(request.headers.get("Last-Event-ID"))
        tail = sse.last_event_id(asked.get("tail", [None])[0])
        if after is None and tail is not None:
            await front.engine.load()
            after = max(0, front.engine.feed.head - min(tail, MOST_TAIL))
        stream = EventStream(await front.watch(after or 0, asked.get("task", [None])[0]))
        self._streams.add(stream)
        try:
            return await stream.send(request)
        finally:
            self._streams.discard(stream)


def _given(text: str, context_id: str | None) -> Input:
    message = {"messageId": f"msg_{secrets.token_hex(16)}", "role": "user", "parts": [{"text": text}]}
    if context_id is not None:
        message["contextId"] = context_id
    return Input(text, orjson.dumps(message).decode())


async def _delivered(front: Front, given: Input, task_id: str, *headers: tuple[str, str]) -> Answer:
    task = await front.engine.deliver(given, task_id=task_id)
    if task is not None:
        return _task(task, *headers)
    known = await front.engine.get(task_id)
    if known is None:
        raise RefusedError(_NO_TASK)
    raise RefusedError(refusal("bad_request", f"The task does not wait for input: it is {known.state}."))


def _task(task: Task | None, *headers: tuple[str, str]) -> Answer:
    if task is None:
        raise RefusedError(_NO_TASK)
    return _answered(murmur.task_object(task), *headers)


def _canceled(front: Front, task: Task | None) -> Answer:
    if task is None:
        raise RefusedError(_NO_TASK)
    return _answered(murmur.canceled_object(task, front.engine.residue(task.id)))


def _answered(document: object, *headers: tuple[str, str]) -> Answer:
    return json_answer(document, api.UNCACHED, *headers)


def listed(task: Task) -> dict[str, Any]:
    """Return a task as a row of the list; times are ISO 8601 in UTC."""
    return {
        "id": task.id,
        "context_id": task.context_id,
        "owner": task.owner,
        "state": task.state,
        "status": _beginning(task.status),
        "created_at": _time(task.created_at),
        "ended_at": None if task.ended_at is None else _time(task.ended_at),
        "waits_for_input": task.state is TaskState.INPUT_REQUIRED,
    }


def _beginning(text: str | None) -> str | None:
    """Return the text of a status, or of a long one as much as a list can do with."""
    return text if text is None or len(text) <= MOST_STATUS else f"{text[:MOST_STATUS]}…"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def wishes(body: bytes) -> tuple[str, str | None, str | None]:
    """Read the body of a message: its text, the task that it answers, its context. Raises RefusedError."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise RefusedError(_SHAPE) from None
    if type(document) is not dict or not document.keys() <= _KEYS or type(document.get("text")) is not str:
        raise RefusedError(_SHAPE)
    task_id, context_id = document.get("task_id"), document.get("context_id")
    if not all(value is None or type(value) is str for value in (task_id, context_id)):
        raise RefusedError(_SHAPE)
    return document["text"], task_id, context_id
