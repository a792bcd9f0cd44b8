"""A request on the desk: whose it is, what it asks for, and the answer."""

from __future__ import annotations

import asyncio
import operator
from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from aiohttp import hdrs, web

from sidecar.desk import api, tasks, workers
from sidecar.desk.handles import HANDLE, HANDLES, METHODS
from sidecar.errors import RefusedError, refusal
from sidecar.model import Answer
from sidecar.ops.exposition import CONTENT_TYPE, exposition
from sidecar.web.answers import Wire, etag_matches, json_answer, wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sidecar.desk.access import Access
    from sidecar.desk.handles import Handles
    from sidecar.model import CapsuleStatus, ConfigStatus, RegistryView, RootStatus
    from sidecar.ops.metrics import Gauges, Metrics

    Shown = tuple[tuple[CapsuleStatus, ...], ConfigStatus, tuple[RootStatus, ...]]
    Action = Callable[[web.BaseRequest], Awaitable[Answer | web.StreamResponse]]

HEALTHY: Final = json_answer({"status": "ok"}, api.UNCACHED)
OPERATORS: Final = "/api"
"""Everything at and below this path is the operator's."""
READ: Final = (hdrs.METH_GET, hdrs.METH_HEAD)
CAPSULE: Final = "/api/capsules/{id}"
_PARENTS: Final = (CAPSULE.split("/")[:-1], workers.PREFIX.split("/"))
OUTCOMES: Final = {200: "ok", 204: "ok", 304: "not_modified", 422: "config_refused", 503: "unavailable"}


@dataclass(frozen=True, slots=True)
class Parts:
    """What the desk shows and does, handed to it by the daemon.

    `reload` makes the daemon read its configuration again and waits for the outcome: a client that leaves cancels
    the waiting, so it must not be the reload itself that runs in it. `gauges` tells a scrape what the desk cannot know.
    """

    view: RegistryView
    metrics: Metrics
    gauges: Callable[[], Gauges]
    reload: Callable[[], Awaitable[api.ReloadResult]]
    handles: Handles
    tasks: tasks.Tasks
    workers: workers.Workers


class Desk:
    """The handler of the desk's listener; give `handle` to an `HttpServer`, and call `close` at the end.

    Big documents are written by a thread of the desk's own, so that a scrape of thousands of capsules stalls no door.
    """

    def __init__(self, parts: Parts, *, access: Access, worker_access: Access, open_metrics: bool) -> None:
        self._view = parts.view
        self._metrics = parts.metrics
        self._gauges = parts.gauges
        self._reload = parts.reload
        self._handles = parts.handles
        self._tasks = parts.tasks
        self._workers = parts.workers
        self._access = access
        self._worker_access = worker_access
        self._open_metrics = open_metrics
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="desk")
        self._scrape: asyncio.Future[bytes] | None = None
        self._written: tuple[Shown, tuple[str, Answer]] | None = None
        self._paths: dict[str, tuple[tuple[str, ...], Action]] = {
            "/healthz": (READ, self._healthz),
            "/readyz": (READ, self._readyz),
            "/metrics": (READ, self._scraped),
            "/api/capsules": (READ, self._capsules),
            CAPSULE: (READ, self._capsule),
            "/api/reload": ((hdrs.METH_POST,), self._reloaded),
            HANDLES: (METHODS[HANDLES], self._handled),
            HANDLE: (METHODS[HANDLE], self._handled),
            **{template: (methods, self._tasked) for template, methods in tasks.METHODS.items()},
            **{template: (methods, self._worked) for template, methods in workers.METHODS.items()},
        }

    def reconfigure(self, *, access: Access, worker_access: Access, open_metrics: bool) -> None:
        """Take over what a reload changed, for the requests to come."""
        self._access = access
        self._worker_access = worker_access
        self._open_metrics = open_metrics

    def close(self) -> None:
        """End the desk's thread; call it once its listener is gone."""
        self._writer.shutdown(wait=True, cancel_futures=True)

    def end_streams(self) -> None:
        """Have every stream end with its closing frame, and take no more requests of workers."""
        self._tasks.end_streams()
        self._workers.drain()

    async def handle(self, request: web.BaseRequest) -> Wire | web.StreamResponse:
        """Answer one request that the guard let through; raises RefusedError for a refusal.

        On the paths of operators and workers the credentials come first, so that a stranger learns nothing of what is there.
        """
        path = request.raw_path.partition("?")[0]
        template = template_of(path)
        try:
            answer = await self._action(request, path, template)(request)
        except RefusedError as error:
            self._metrics.desk_request(template, error.refusal.code)
            raise
        if isinstance(answer, web.StreamResponse):
            self._metrics.desk_request(template, "stream")
            return answer
        self._metrics.desk_request(template, OUTCOMES.get(answer.status, "other"))
        return wire(answer)

    def _action(self, request: web.BaseRequest, path: str, template: str) -> Action:
        if self._is_operators(path):
            self._access.require(request.headers)
        elif path == workers.PREFIX or path.startswith(workers.PREFIX + "/"):
            self._worker_access.require(request.headers)
        if template not in self._paths:
            raise RefusedError(refusal("not_found", "There is nothing at this path."))
        methods, action = self._paths[template]
        if request.method not in methods:
            allow = ", ".join(methods)
            raise RefusedError(refusal("method_not_allowed", f"This path takes {allow}.", ("allow", allow)))
        return action

    def _is_operators(self, path: str) -> bool:
        if path == "/metrics":
            return not self._open_metrics
        return path == OPERATORS or path.startswith(OPERATORS + "/")

    async def _healthz(self, _request: web.BaseRequest) -> Answer:
        return HEALTHY

    async def _readyz(self, _request: web.BaseRequest) -> Answer:
        view = self._view
        ready = view.ready()
        document = api.ready_document(
            ready=ready,
            detail=view.detail(),
            capsules=view.capsules(),
            config=view.config(),
            roots=view.roots(),
        )
        return json_answer(document, api.UNCACHED, status=200 if ready else 503)

    async def _scraped(self, _request: web.BaseRequest) -> Answer:
        if self._scrape is None:
            snapshot = self._metrics.snapshot(self._view, self._gauges())
            self._scrape = asyncio.get_running_loop().run_in_executor(self._writer, exposition, snapshot)
            self._scrape.add_done_callback(self._scrape_is_over)
        # Scrapes at the same time share one; a scraper that leaves does not end it for the others.
        body = await asyncio.shield(self._scrape)
        return Answer(200, (("content-type", CONTENT_TYPE), api.UNCACHED), body)

    def _scrape_is_over(self, _done: asyncio.Future[bytes]) -> None:
        self._scrape = None

    async def _capsules(self, request: web.BaseRequest) -> Answer:
        view = self._view
        shown = (tuple(view.capsules()), view.config(), tuple(view.roots()))
        if self._written is None or not _same(self._written[0], shown):
            loop = asyncio.get_running_loop()
            self._written = (shown, await loop.run_in_executor(self._writer, _whole, shown))
        return _unless_known(request, *self._written[1])

    async def _capsule(self, request: web.BaseRequest) -> Answer:
        row = self._row(_parts(request)[0])
        return _unless_known(request, *api.tagged(api.capsule_document(row)))

    async def _handled(self, request: web.BaseRequest) -> Answer:
        capsule_id, _, *handle_id = _parts(request)
        return await self._handles.answer(request, self._row(capsule_id).id, "".join(handle_id))

    async def _tasked(self, request: web.BaseRequest) -> Answer | web.StreamResponse:
        capsule_id, _, *task_id = _parts(request)
        template = template_of(request.raw_path.partition("?")[0])
        return await self._tasks.answer(request, template, self._row(capsule_id).id, "".join(task_id[:1]))

    async def _worked(self, request: web.BaseRequest) -> Answer:
        return await self._workers.answer(request, template_of(request.raw_path.partition("?")[0]))

    def _row(self, wanted: str) -> CapsuleStatus:
        """Return a capsule's row. Raises RefusedError where there is none."""
        rows = self._view.capsules()
        place = bisect_left(rows, wanted, key=lambda row: row.id)
        if place == len(rows) or rows[place].id != wanted:
            raise RefusedError(refusal("not_found", "There is no capsule with this id."))
        return rows[place]

    async def _reloaded(self, _request: web.BaseRequest) -> Answer:
        return api.reload_answer(await self._reload())


def template_of(path: str) -> str:
    """Return what a path is an instance of: those below one capsule have its id, and that of a handle or task, in braces."""
    parts = path.split("/")
    for parent in _PARENTS:
        at = len(parent)
        if parts[:at] == parent and len(parts) > at:
            parts[at] = "{id}"
            name = {"handles": "{handle_id}", "tasks": "{task}"}.get("".join(parts[at + 1 : at + 2]))
            if name is not None and len(parts) > at + 2:
                parts[at + 2] = name
    return "/".join(parts)


def _parts(request: web.BaseRequest) -> list[str]:
    """Return the parts of the path of something of one capsule, from its id on, decoded."""
    return [unquote(part) for part in request.raw_path.partition("?")[0].split("/")[3:]]


def _whole(shown: Shown) -> tuple[str, Answer]:
    return api.tagged(api.registry_document(*shown))


def _same(one: Shown, other: Shown) -> bool:
    """Tell, without comparing thousands of rows field by field, whether certainly nothing changed."""
    rows, others = one[0], other[0]
    return len(rows) == len(others) and all(map(operator.is_, rows, others)) and one[1:] == other[1:]


def _unless_known(request: web.BaseRequest, etag: str, answer: Answer) -> Answer:
    given = ", ".join(request.headers.getall(hdrs.IF_NONE_MATCH, ())) or None
    return api.not_modified(etag) if etag_matches(given, etag) else answer
