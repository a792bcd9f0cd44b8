"""A request on the desk: whose it is, what it asks for, and the answer."""

from __future__ import annotations

import asyncio
import operator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from aiohttp import hdrs
from aiohttp.web_response import StreamResponse

from sidecar.desk import api, catalogs, keys, looks, moi, page, tasks, workers
from sidecar.desk.catalogs import Catalogs
from sidecar.desk.changes import MOST, Changes
from sidecar.desk.channels import PREFIX, Channels
from sidecar.desk.handles import HANDLE, HANDLES, METHODS
from sidecar.desk.moi import Moi
from sidecar.desk.page import Page
from sidecar.desk.sign_in import SignIn
from sidecar.desk.targets import CAPSULE, parts_of, template_of
from sidecar.errors import RefusedError, refusal
from sidecar.model import Answer
from sidecar.web.answers import Wire, etag_matches, json_answer, wire
from sidecar.web.stream import EventStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web
    from multidict import CIMultiDictProxy

    from sidecar.auth.access import Access as CapsuleAccess
    from sidecar.cards.views import View
    from sidecar.desk.access import Access
    from sidecar.desk.channels import Directory
    from sidecar.desk.handles import Handles
    from sidecar.desk.moi_callers import Directory as Agents
    from sidecar.desk.sign_in import Session
    from sidecar.model import Capsule, CapsuleStatus, ConfigStatus, RegistryView, RootStatus
    from sidecar.ops.metrics import Gauges, Metrics, Snapshot
    from sidecar.web.connection import Connection

    Shown = tuple[tuple[CapsuleStatus, ...], ConfigStatus, tuple[RootStatus, ...]]
    Action = Callable[[web.BaseRequest], Awaitable[Answer | web.StreamResponse]]

HEALTHY: Final = json_answer({"status": "ok"}, api.UNCACHED)
OPERATORS: Final = "/api"
"""Everything at and below this path is the operator's."""
READ: Final = (hdrs.METH_GET, hdrs.METH_HEAD)
CAPSULES: Final = "/api/capsules"
SESSIONS: Final = "/api/sessions"
EVENTS: Final = "/api/events"
CHANNELS: Final = PREFIX + "/"
MOI: Final = moi.PREFIX + "/"
WORKERS: Final = workers.PREFIX + "/"
OUTCOMES: Final = {200: "ok", 204: "ok", 304: "not_modified", 422: "config_refused", 503: "unavailable"}


@dataclass(frozen=True, slots=True)
class Parts:
    """What the desk shows and does, handed to it by the daemon.

    `reload` makes the daemon read its configuration again and waits for the outcome: a client that leaves cancels
    the waiting, so it must not be the reload itself that runs in it. `access` says who asks something of a capsule.
    `gauges` tells a scrape what the desk cannot know.
    """

    view: RegistryView
    channels: Directory
    agents: Agents
    access: CapsuleAccess
    metrics: Metrics
    gauges: Callable[[], Gauges]
    reload: Callable[[], Awaitable[api.ReloadResult]]
    handles: Handles
    keys: keys.Keys
    looks: looks.Looks
    tasks: tasks.Tasks
    workers: workers.Workers


class Desk:
    """The handler of the desk's listener; give `handle` to an `HttpServer`, and call `close` at the end.

    Big documents are written by a thread of the desk's own, so that a scrape of thousands of capsules stalls no door.
    `url` returns the base URL at which browsers reach the desk.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        access: Access,
        worker_access: Access,
        open_metrics: bool,
        url: Callable[[], str] = str,
    ) -> None:
        self._view = parts.view
        self._metrics = parts.metrics
        self._gauges = parts.gauges
        self._reload = parts.reload
        self._handles = parts.handles
        self._keys = parts.keys
        self._tasks = parts.tasks
        self._workers = parts.workers
        self._looks = parts.looks
        self._channels = Channels(parts.channels, parts.access, base=url, now=parts.agents.now)
        self._moi = Moi(parts.agents, parts.access, base=url)
        self._changes = Changes(parts.view)
        self._sign_in = SignIn()
        self._page = Page(self._sign_in, url)
        self._access = access
        self._worker_access = worker_access
        self._at_work: dict[Callable[[], None], CIMultiDictProxy[str]] = {}
        self._open_metrics = open_metrics
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="desk")
        self._catalogs = Catalogs(parts.agents.served, _Places(url, self._channels, self._moi), self._writer)
        self._scrape: asyncio.Future[Answer] | None = None
        self._written: tuple[Shown, tuple[str, Answer]] | None = None
        self._paths: dict[str, tuple[tuple[str, ...], Action]] = {
            "/healthz": (READ, self._healthz),
            "/readyz": (READ, self._readyz),
            "/metrics": (READ, self._scraped),
            CAPSULES: (READ, self._capsules),
            SESSIONS: (READ, self._sessions),
            EVENTS: ((hdrs.METH_GET,), self._watched),
            CAPSULE: (READ, self._capsule),
            "/api/reload": ((hdrs.METH_POST,), self._reloaded),
            HANDLES: (METHODS[HANDLES], self._handled),
            HANDLE: (METHODS[HANDLE], self._handled),
            **{path: (methods, self._cataloged) for path, methods in catalogs.METHODS.items()},
            **{template: (methods, self._keyed) for template, methods in keys.METHODS.items()},
            **{template: (methods, self._paged) for template, methods in page.METHODS.items()},
            **{template: (methods, self._looked) for template, methods in looks.METHODS.items()},
            **{template: (methods, self._tasked) for template, methods in tasks.METHODS.items()},
            **{template: (methods, self._worked) for template, methods in workers.METHODS.items()},
        }

    def reconfigure(self, *, access: Access, worker_access: Access, open_metrics: bool) -> None:
        """Take over what a reload changed; who came in without a token, or waits with an old one, is shown out."""
        if self._access.open and not access.open:
            self._changes.end()
            self._tasks.end_streams()
        self._access = access
        self._worker_access = worker_access
        self._open_metrics = open_metrics
        for cut, headers in tuple(self._at_work.items()):
            try:
                worker_access.require(headers)
            except RefusedError:
                cut()

    def close(self) -> None:
        """End the desk's thread and all sign-ins; call it once its listener is gone."""
        self._sign_in.close()
        self._writer.shutdown(wait=True, cancel_futures=True)

    def end_streams(self) -> None:
        """Have every stream end with its closing frame, and take no more requests of workers."""
        self._changes.end()
        self._tasks.end_streams()
        self._channels.end_streams()
        self._moi.end_streams()
        self._workers.drain()

    def link(self) -> str:
        """Return a fresh link that opens the page."""
        return self._page.link(self._access)

    async def handle(self, request: web.BaseRequest) -> Wire | web.StreamResponse:
        """Answer one request that the guard let through; raises RefusedError for a refusal.

        On the paths of operators and workers the credentials come first, so that a stranger learns nothing of what is there.
        """
        path = _path(request)
        view = self._channels if path.startswith(CHANNELS) else self._moi if path.startswith(MOI) else None
        if view is not None:
            template, outcome, told = await view.answer(request, path)
            self._metrics.desk_request(template, outcome)
            return told
        template = template_of(path)
        session = self._sign_in.find(request.headers)
        cut = cast("Connection", request.protocol).cut
        try:
            action = self._action(request, path, template, session)
            if session is not None and path != page.SIGN_OUT:
                session.cuts.add(cut)
            elif path.startswith(WORKERS):
                self._at_work[cut] = request.headers
            answer = await action(request)
        except RefusedError as error:
            self._metrics.desk_request(template, error.refusal.code)
            raise
        finally:
            self._at_work.pop(cut, None)
            if session is not None:
                session.cuts.discard(cut)
        if isinstance(answer, StreamResponse):
            self._metrics.desk_request(template, "stream")
            return answer
        self._metrics.desk_request(template, OUTCOMES.get(answer.status, "other"))
        return wire(answer)

    def _action(self, request: web.BaseRequest, path: str, template: str, session: Session | None) -> Action:
        if self._is_operators(path):
            if session is None:
                self._access.require(request.headers)
        elif path == workers.PREFIX or path.startswith(WORKERS):
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

    async def _cataloged(self, request: web.BaseRequest) -> Answer:
        return await self._catalogs.answer(request, _path(request))

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
            self._scrape = asyncio.get_running_loop().run_in_executor(self._writer, _exposed, snapshot)
            self._scrape.add_done_callback(self._scrape_is_over)
        # Scrapes at the same time share one; a scraper that leaves does not end it for the others.
        return await asyncio.shield(self._scrape)

    def _scrape_is_over(self, _done: asyncio.Future[Answer]) -> None:
        self._scrape = None

    async def _capsules(self, request: web.BaseRequest) -> Answer:
        view = self._view
        shown = (tuple(view.capsules()), view.config(), tuple(view.roots()))
        if self._written is None or not _same(self._written[0], shown):
            loop = asyncio.get_running_loop()
            self._written = (shown, await loop.run_in_executor(self._writer, _whole, shown))
        return _unless_known(request, *self._written[1])

    async def _capsule(self, request: web.BaseRequest) -> Answer:
        row = self._row(parts_of(_path(request))[0])
        return _unless_known(request, *api.tagged(api.capsule_document(row)))

    async def _sessions(self, request: web.BaseRequest) -> Answer:
        held = [api.session_document(row) for row in self._view.capsules() if row.session_id is not None]
        return _unless_known(request, *api.tagged({"sessions": held}))

    async def _watched(self, request: web.BaseRequest) -> web.StreamResponse:
        if len(self._changes) >= MOST:
            raise RefusedError(_TOO_MANY)
        return await EventStream(self._changes.subscribe()).send(request)

    async def _paged(self, request: web.BaseRequest) -> Answer:
        return await self._page.answer(request, _path(request), self._access)

    async def _looked(self, request: web.BaseRequest) -> Answer | web.StreamResponse:
        template = template_of(_path(request))
        capsule_id = self._row(parts_of(_path(request))[0]).id
        return await self._looks.answer(request, template, capsule_id, self._views)

    def _views(self, capsule: Capsule) -> tuple[View, ...]:
        return (*self._channels.views(capsule), *self._moi.views(capsule))

    async def _handled(self, request: web.BaseRequest) -> Answer:
        capsule_id, _, *handle_id = parts_of(_path(request))
        return await self._handles.answer(request, self._row(capsule_id).id, "".join(handle_id))

    async def _keyed(self, request: web.BaseRequest) -> Answer:
        capsule_id, _, *key_id = parts_of(_path(request))
        template = template_of(_path(request))
        return await self._keys.answer(request, template, capsule_id, "".join(key_id[:1]))

    async def _tasked(self, request: web.BaseRequest) -> Answer | web.StreamResponse:
        capsule_id, _, *task_id = parts_of(_path(request))
        template = template_of(_path(request))
        return await self._tasks.answer(request, template, self._row(capsule_id).id, "".join(task_id[:1]))

    async def _worked(self, request: web.BaseRequest) -> Answer:
        return await self._workers.answer(request, template_of(_path(request)))

    def _row(self, wanted: str) -> CapsuleStatus:
        """Return a capsule's row. Raises RefusedError where there is none."""
        row = self._view.capsule(wanted)
        if row is None:
            raise RefusedError(refusal("not_found", "There is no capsule with this id."))
        return row

    async def _reloaded(self, _request: web.BaseRequest) -> Answer:
        return api.reload_answer(await self._reload())


@dataclass(frozen=True, slots=True)
class _Places:
    """Where things are on the desk."""

    base: Callable[[], str]
    channels: Channels
    agents: Moi

    def channel(self, capsule: Capsule) -> str:
        return self.channels.url_of(capsule)

    def moi(self) -> str:
        return self.agents.door


_TOO_MANY: Final = refusal("unavailable", "Too many pages watch the registry; close one, or try again later.")


def _exposed(snapshot: Snapshot) -> Answer:
    from sidecar.ops.exposition import CONTENT_TYPE, exposition  # noqa: PLC0415 - only who is scraped needs it

    return Answer(200, (("content-type", CONTENT_TYPE), api.UNCACHED), exposition(snapshot))


def _path(request: web.BaseRequest) -> str:
    return request.raw_path.partition("?")[0]


def _whole(shown: Shown) -> tuple[str, Answer]:
    return api.tagged(api.registry_document(*shown))


def _same(one: Shown, other: Shown) -> bool:
    """Tell, without comparing thousands of rows field by field, whether certainly nothing changed."""
    rows, others = one[0], other[0]
    return len(rows) == len(others) and all(map(operator.is_, rows, others)) and one[1:] == other[1:]


def _unless_known(request: web.BaseRequest, etag: str, answer: Answer) -> Answer:
    given = ", ".join(request.headers.getall(hdrs.IF_NONE_MATCH, ())) or None
    return api.not_modified(etag) if etag_matches(given, etag) else answer
