"""The desk's calls for workers of an inbox: the next task, what they say of it, signs of life (docs/workers.md)."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

from aiohttp import hdrs

from sidecar.desk import api
from sidecar.errors import RefusedError, StoreError, refusal
from sidecar.model import Answer
from sidecar.tasks.backends.inbox import Inbox
from sidecar.tasks.backends.lines import MOST_LINES, BadLineError, TooManyLinesError, read_lines
from sidecar.web.answers import json_answer
from sidecar.web.body import read_json_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aiohttp import web

    from sidecar.tasks.backend import Backend
    from sidecar.tasks.backends.leases import Lease, News
    from sidecar.web.connection import Connection

PREFIX: Final = "/workers"
"""Everything at and below this path is for workers."""
NEXT: Final = "/workers/{id}/next"
EVENTS: Final = "/workers/{id}/tasks/{task}/events"
HEARTBEAT: Final = "/workers/{id}/tasks/{task}/heartbeat"
RELEASE: Final = "/workers/{id}/tasks/{task}/release"
METHODS: Final = dict.fromkeys((NEXT, EVENTS, HEARTBEAT, RELEASE), (hdrs.METH_POST,))

LEASE: Final = "x-sidecar-lease"
WORKER: Final = "x-sidecar-worker"
LONGEST: Final = 60.0
"""Seconds that a request waits at most; proxies end those that take longer."""

_SECONDS: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_NAME: Final = re.compile(r"[\x21-\x7e]{1,128}")


class Workers:
    """What the paths below `/workers` do.

    `backend_of` returns what does the work of the capsule that is served now under an id, None where there is none.
    """

    def __init__(self, backend_of: Callable[[str], Backend | None]) -> None:
        self._backend_of = backend_of
        self._draining = False
        self._actions: dict[str, Callable[[web.BaseRequest, Inbox, str], Awaitable[Answer]]] = {
            NEXT: self._next,
            EVENTS: self._events,
            HEARTBEAT: self._heartbeat,
            RELEASE: self._release,
        }

    def drain(self) -> None:
        """Refuse workers from now on; those that wait are answered when their inbox is closed."""
        self._draining = True

    async def answer(self, request: web.BaseRequest, template: str) -> Answer:
        """Answer a request to one of the paths of `METHODS`. Raises RefusedError."""
        parts = [unquote(part) for part in request.raw_path.partition("?")[0].split("/")]
        if self._draining:
            raise RefusedError(_STOPPING)
        inbox = self._inbox(parts[2])
        try:
            return await self._actions[template](request, inbox, parts[4] if template != NEXT else "")
        except StoreError as error:
            raise RefusedError(refusal("unavailable", str(error))) from error

    def _inbox(self, capsule_id: str) -> Inbox:
        backend = self._backend_of(capsule_id)
        if backend is None:
            raise RefusedError(_NO_CAPSULE)
        if not isinstance(backend, Inbox):
            raise RefusedError(refusal("not_found", f"This capsule's backend is {backend.name}, not inbox."))
        return backend

    async def _next(self, request: web.BaseRequest, inbox: Inbox, _task: str) -> Answer:
        worker = request.headers.get(WORKER)
        if worker is not None and not _NAME.fullmatch(worker):
            raise RefusedError(_BAD_NAME)
        wait = _wait(request)
        with _attentive(request):
            lease = await inbox.next(worker, wait)
        if lease is None:
            return Answer(204, (api.UNCACHED,), b"")
        return json_answer(lease_document(lease, inbox.lease_seconds), api.UNCACHED)

    async def _events(self, request: web.BaseRequest, inbox: Inbox, task_id: str) -> Answer:
        token, heard = _lease(request), _heard(request)
        limits = cast("Connection", request.protocol).server.policy.limits
        body = await read_json_body(request, limit=limits.body, within=limits.body_timeout, lines=True)
        try:
            lines = read_lines(body)
        except BadLineError as error:
            raise RefusedError(refusal("bad_request", str(error))) from None
        except TooManyLinesError:
            raise RefusedError(_TOO_MANY) from None
        return _news(await inbox.events(task_id, token, lines, heard))

    async def _heartbeat(self, request: web.BaseRequest, inbox: Inbox, task_id: str) -> Answer:
        token, heard, wait = _lease(request), _heard(request), _wait(request)
        with _attentive(request):
            return _news(await inbox.heartbeat(task_id, token, wait, heard))

    async def _release(self, request: web.BaseRequest, inbox: Inbox, task_id: str) -> Answer:
        await inbox.give_back(task_id, _lease(request))
        return Answer(204, (api.UNCACHED,), b"")


def lease_document(lease: Lease, seconds: float) -> dict[str, Any]:
    """Return what a worker is handed: its task, every message so far, and for how long it has it."""
    return {
        "lease": lease.token,
        "lease_seconds": int(seconds) if seconds == int(seconds) else seconds,
        "attempt": lease.attempt,
        "task": {"id": lease.task.id, "contextId": lease.task.context_id},
        "message": lease.message,
        "input": lease.earlier,
    }


def _news(news: News) -> Answer:
    told = {"accepted": news.accepted, "cancelled": news.canceled, "input": news.inputs}
    return json_answer(told, api.UNCACHED)


@contextmanager
def _attentive(request: web.BaseRequest) -> Iterator[None]:
    """Notice at once when a client that waits leaves: one that only ends its sending half is taken to have left."""
    connection = cast("Connection", request.protocol)
    connection.streaming = True
    try:
        yield
    finally:
        connection.streaming = False


def _lease(request: web.BaseRequest) -> str:
    given = request.headers.getall(LEASE, ())
    if len(given) != 1:
        raise RefusedError(_NO_LEASE)
    return given[0]


def _wait(request: web.BaseRequest) -> float:
    given = request.query.get("wait", "0")
    if not _SECONDS.fullmatch(given):
        raise RefusedError(_BAD_WAIT)
    return min(float(given), LONGEST)


def _heard(request: web.BaseRequest) -> int | None:
    given = request.query.get("heard")
    if given is None:
        return None
    if not _COUNT.fullmatch(given):
        raise RefusedError(_BAD_HEARD)
    return int(given)


_STOPPING: Final = refusal("unavailable", "The sidecar is stopping.")
_NO_CAPSULE: Final = refusal(
    "not_found", "No capsule is served under this id now: sidecar list says which are."
)
_NO_LEASE: Final = refusal("bad_request", f"Send the lease that came with the task, once, as {LEASE}.")
_BAD_NAME: Final = refusal("bad_request", f"{WORKER} must be 1 to 128 visible ASCII characters.")
_BAD_WAIT: Final = refusal("bad_request", "wait must be a number of seconds.")
_BAD_HEARD: Final = refusal("bad_request", "heard must be a number of input lines.")
_TOO_MANY: Final = refusal("body_too_large", f"The body has more than {MOST_LINES} lines: send several.")
