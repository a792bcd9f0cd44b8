"""An inbox on a real desk: engine, database and socket as the daemon puts them together, and workers played by hand."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sidecar.desk.access import Access
from sidecar.desk.api import ReloadResult
from sidecar.desk.endpoint import Desk, Parts
from sidecar.desk.handles import Handles
from sidecar.desk.looks import Looks
from sidecar.desk.tasks import Tasks
from sidecar.desk.workers import Workers
from sidecar.model import Capsule, Conversation, InboxSettings, Lifecycle, Manifest, Settings, TaskAcceptance
from sidecar.ops.metrics import Gauges, Metrics
from sidecar.planes.routes import Planes
from sidecar.store import Store
from sidecar.tasks.backends.inbox import Inbox
from sidecar.tasks.engines import Engines
from sidecar.tasks.model import Input, Rules
from sidecar.web import guards
from sidecar.web.server import HttpLimits, HttpServer, Policy
from sidecar.web.sockets import listen
from tests.support.credentials import access_of, no_keys
from tests.support.gates import Gate
from tests.support.rawhttp import Answer, exchange, request_bytes
from tests.support.sessions import SESSION
from tests.support.view import NoAgents, NoChannels, Shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from sidecar.events import Task
    from sidecar.tasks.engine import Engine

ADMIN, WORKER = "admin-token", "worker-token"


def served(
    *,
    lease: float = 30.0,
    attempts: int = 3,
    concurrency: int = 1,
    queue_depth: int = 50,
    input_timeout: int | None = None,
) -> Capsule:
    """Return a capsule called `hello` whose work is done by an inbox."""
    lifecycle = Lifecycle(
        task_acceptance=TaskAcceptance.QUEUE,
        queue_depth=queue_depth,
        conversation=Conversation.STATELESS,
        input_timeout_secs=input_timeout,
    )
    settings = Settings(concurrency=concurrency, inbox=InboxSettings(lease, attempts))
    return Capsule("hello", "/c", SESSION, Manifest("hello", "1.0", lifecycle=lifecycle), settings, "/c", 0.0)


@dataclass
class Hold:
    """A task in the hands of a worker that is played by hand, call by call."""

    place: Workplace
    document: dict[str, Any]

    @property
    def id(self) -> str:
        """The task's id."""
        task_id: str = self.document["task"]["id"]
        return task_id

    async def post(self, what: str, *lines: dict[str, Any], lease: str | None = None) -> Answer:
        """Post to one of its paths."""
        headers = {"x-sidecar-lease": self.document["lease"] if lease is None else lease}
        return await self.place.post(f"/workers/hello/tasks/{self.id}/{what}", *lines, headers=headers)

    async def say(self, *lines: dict[str, Any]) -> dict[str, Any]:
        """Say lines that are taken, and return what it must hear."""
        return document(await self.post("events", *lines))

    async def beat(self, query: str = "") -> dict[str, Any]:
        """Give a sign of life that is taken, and return what it must hear."""
        return document(await self.post(f"heartbeat{query}"))


@dataclass
class Workplace:
    """One capsule's inbox, on a desk that listens."""

    store: Store
    engine: Engine
    inbox: Inbox
    desk: Desk
    port: int
    capsule: Capsule
    policy: Policy
    gates: list[Gate] = field(default_factory=list)

    async def post(
        self,
        target: str,
        *lines: dict[str, Any],
        headers: dict[str, str] | None = None,
        token: str | None = WORKER,
        body: bytes | None = None,
    ) -> Answer:
        """Post JSON lines."""
        if body is None:
            body = b"\n".join(json.dumps(line).encode() for line in lines)
        given = {"Content-Type": "application/jsonl", **(headers or {})}
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        return await exchange(self.port, request_bytes("POST", target, headers=given, body=body))

    async def take(self, query: str = "?wait=5", **headers: str) -> Hold:
        """Take the next task, which there must be."""
        answer = await self.post(f"/workers/hello/next{query}", headers=headers)
        return Hold(self, document(answer))

    async def send(self, text: str = "hello") -> str:
        """Hand in a task and return its id."""
        task = await self.engine.send(given(text), context_id=None, owner="o")
        return task.id

    async def task(self, task_id: str) -> Task:
        """Return a task as it stands."""
        task = await self.engine.get(task_id)
        assert task is not None
        return task

    async def hold_writer(self) -> Gate:
        """Hold the database's writer, until the gate is opened or the workplace closed."""
        gate = Gate(self.store)
        self.gates.append(gate)
        await gate.reached()
        return gate

    def events(self, task_id: str) -> list[tuple[str, dict[str, Any]]]:
        """Return what the log says of a task, in order, its input left out."""
        query = "SELECT kind, data FROM events WHERE task_id = ? AND kind <> 'input' ORDER BY seq"
        found = self.store.read_now(lambda db: db.execute(query, (task_id,)).fetchall())
        return [(kind, json.loads(data)) for kind, data in found]

    @property
    def waits(self) -> int:
        """How many requests of workers wait now."""
        return len(self.inbox._scopes)  # noqa: SLF001 - a request that waits shows nowhere else

    @property
    def connections(self) -> int:
        """How many connections the desk has."""
        return self.policy.connections

    @property
    def reports(self) -> int:
        """How many reports are under way."""
        return _running("report of ")

    @property
    def leases(self) -> bool:
        """Whether any lease is held or remembered."""
        return _running("leases of ") > 0

    def reconfigure(self, **inbox: Any) -> None:
        """Change the settings of the inbox, as a reload does."""
        settings = replace(self.capsule.settings, inbox=replace(self.capsule.settings.inbox, **inbox))
        self.capsule = replace(self.capsule, settings=settings)
        self.inbox.reconfigure(self.capsule)


@asynccontextmanager
async def workplace(
    directory: Path,
    capsule: Capsule | None = None,
    *,
    open_to_all: bool = False,
    port: int = 0,
    **limits: Any,
) -> AsyncIterator[Workplace]:
    """Open an inbox on `sidecar.db` in a directory; everything is closed at the end, as at a stop."""
    capsule = capsule or served()
    store = Store.open(str(directory / "sidecar.db"))
    engines = Engines(store, keep_events=100_000, keep_tasks=3600.0)
    planes = Planes()
    metrics = Metrics("test")
    inbox = Inbox()
    backends = {capsule.id: inbox}
    workers = Workers(backends.get)
    parts = Parts(
        view=Shown(),
        channels=NoChannels(),
        agents=NoAgents(),
        access=access_of(),
        metrics=metrics,
        gauges=Gauges,
        reload=_no_reload,
        handles=Handles(planes.sharing, lambda _: None, metrics),
        keys=no_keys(),
        looks=Looks(lambda _: None, planes),
        tasks=Tasks(lambda _: None, "operator"),
        workers=workers,
    )
    token = None if open_to_all else ADMIN
    desk = Desk(parts, access=Access(token), worker_access=Access(token, worker=WORKER), open_metrics=True)
    policy = Policy(guards.Guards(guards.Rules("desk")), HttpLimits(**limits))
    server = HttpServer(desk.handle, name="desk", policy=policy)
    sockets = listen(["127.0.0.1"], port)
    engine = await engines.open(capsule.session_id, Rules.of(capsule, max_live=1000))
    place = Workplace(store, engine, inbox, desk, sockets[0].getsockname()[1], capsule, policy)
    try:
        inbox.start(engine, capsule)
        await server.start(sockets)
        yield place
    finally:
        for gate in place.gates:
            gate.open()
        desk.end_streams()
        await inbox.aclose(2.0)
        engine.let_go()
        await server.drain(budget=5)
        desk.close()
        await engines.aclose()
        await planes.aclose()
        store.close()


def _running(name: str) -> int:
    return sum(task.get_name().startswith(name) for task in asyncio.all_tasks())


async def _no_reload() -> ReloadResult:
    return ReloadResult()


def given(text: str) -> Input:
    """Return a message with this text."""
    return Input.of(
        json.dumps({"messageId": "m1", "role": "user", "parts": [{"text": text}], "metadata": {"k": 1}})
    )


def document(answer: Answer) -> dict[str, Any]:
    """Return the document of a good answer."""
    assert answer.status == 200, (answer.status, answer.body)
    found: dict[str, Any] = json.loads(answer.body)
    return found


def refusal_of(answer: Answer) -> tuple[int, str]:
    """Return status and code of a refusal in the one shape."""
    body = json.loads(answer.body)
    assert list(body) == ["error", "message"], body
    return answer.status, body["error"]
