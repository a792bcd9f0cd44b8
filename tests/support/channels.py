"""The Everruns view on a real socket, over real engines, on clocks that a test moves."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.auth.access import Access
from sidecar.auth.keys import KeyRing
from sidecar.auth.providers import Providers
from sidecar.config.loading import Flags, build
from sidecar.daemon.channel_directory import ChannelDirectory
from sidecar.desk.channels import Channels
from sidecar.web.guards import Guards, Rules
from sidecar.web.server import HttpLimits, HttpServer, Policy
from sidecar.web.sockets import listen
from tests.support.credentials import ADMIN
from tests.support.rawhttp import exchange, request_bytes
from tests.support.serving import bench
from tests.support.view import Shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aiohttp import web

    from sidecar.tasks.engine import Engine
    from sidecar.tasks.said import Said
    from sidecar.web.answers import Wire
    from tests.support.rawhttp import Answer
    from tests.support.serving import Bench

START = 1_700_000_000.0


@dataclass
class Stage:
    """A desk that serves channels alone. `now` is what its clocks say, in Unix seconds."""

    bench: Bench
    channels: Channels
    ring: KeyRing
    port: int
    now: float = START

    async def ask(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, **headers: str
    ) -> Answer:
        """Send one request below `/v1/channels`; `_` in names of headers stands for `-`."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            given["Authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            given["Content-Type"] = "application/json"
        request = request_bytes(method, f"/v1/channels/{path}", headers=given, body=data)
        return await exchange(self.port, request)

    async def session(self, name: str = "a", key: str | None = None) -> str:
        """Begin a session of an agent and return its id."""
        made = await self.ask("POST", f"{name}/sessions", {}, key=key)
        assert made.status == 201, made.body
        return str(json.loads(made.body)["id"])

    async def say(self, session: str, text: str, name: str = "a", **headers: str) -> Answer:
        """Send a message."""
        content = [{"type": "text", "text": text}]
        body = {"message": {"role": "user", "content": content}}
        return await self.ask("POST", f"{name}/sessions/{session}/messages", body, **headers)

    async def events(self, session: str, query: str = "limit=500", name: str = "a") -> list[dict[str, Any]]:
        """Return the events of a session."""
        answer = await self.ask("GET", f"{name}/sessions/{session}/events?{query}")
        found: list[dict[str, Any]] = json.loads(answer.body)["data"]
        return found

    async def engine(self, name: str = "a") -> Engine:
        """Return the engine of an agent."""
        return await self.bench.engine(name)

    async def work(self, *said: Said, name: str = "a") -> str:
        """Take the next task of an agent, say this of it, and return its id."""
        engine = await self.engine(name)
        claim = await engine.claim()
        assert claim is not None
        await engine.report(claim.task.id, said)
        return claim.task.id

    @asynccontextmanager
    async def stream(
        self, session: str, query: str = "after_sequence=0", name: str = "a"
    ) -> AsyncIterator[asyncio.StreamReader]:
        """Open a stream until the end of the block and return what comes, from the head of the answer on."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 16)
        try:
            writer.write(request_bytes("GET", f"/v1/channels/{name}/sessions/{session}/sse?{query}"))
            yield reader
        finally:
            writer.close()


@asynccontextmanager
async def channels(place: Path, *, real: bool = False, **options: Any) -> AsyncIterator[Stage]:
    """Run a stage below a directory, with `real` on the clock of this machine; `options` are the bench's."""
    async with bench(place, **options) as below:
        stage: Stage | None = None

        def clock() -> float:
            return time.time() if real else START if stage is None else stage.now

        ring = KeyRing.load(below.store, clock)
        access = Access(ring, Providers(), admin_token=ADMIN, clock=clock, monotonic=clock)
        below.everruns._clock = clock  # noqa: SLF001 - the bench has made it on the real one
        config = build(f"roots: [{{path: {place}}}]\n".encode(), "c.yaml", Flags(), {}, cwd=str(place))
        made = Channels(ChannelDirectory(below.fronts, Shown(), config), access)

        async def handle(request: web.BaseRequest) -> Wire | web.StreamResponse:
            return (await made.answer(request, request.raw_path.partition("?")[0]))[2]

        server = HttpServer(handle, name="desk", policy=Policy(Guards(Rules("desk")), HttpLimits(idle=1.0)))
        sockets = listen(["127.0.0.1"], 0)
        stage = Stage(below, made, ring, sockets[0].getsockname()[1])
        await server.start(sockets)
        try:
            yield stage
        finally:
            made.end_streams()
            await server.drain(budget=5)
            await access.aclose()
