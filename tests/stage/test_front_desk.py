"""The desk's listener when a reload moves it."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from sidecar.config.loading import Flags, build
from sidecar.daemon.front_desk import DeskPlaceError, FrontDesk
from sidecar.desk.api import ReloadResult
from sidecar.desk.endpoint import Parts
from sidecar.desk.handles import Handles
from sidecar.desk.looks import Looks
from sidecar.desk.tasks import Tasks
from sidecar.desk.workers import Workers
from sidecar.ops.metrics import Gauges, Metrics
from sidecar.planes.routes import Planes
from tests.support.credentials import access_of, no_keys
from tests.support.rawhttp import get, read_answer, request_bytes
from tests.support.view import NoAgents, NoChannels, Shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from sidecar.config import Config

HOST = "127.0.0.1"
TOKEN = {"Authorization": "Bearer s3cret"}


def config(directory: Path, port: int, host: str = HOST) -> Config:
    """Make a configuration that puts the desk somewhere."""
    text = (
        f"roots: [{{path: {directory}}}]\ndesk: {{host: {host}, port: {port}, allowed_hosts: [localhost]}}\n"
    )
    return build(text.encode(), "c.yaml", Flags(), {}, cwd=str(directory))


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


class Moving:
    """A desk whose reload moves it to `to`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.to = config(directory, 0)
        metrics = Metrics("test")
        parts = Parts(
            view=Shown(),
            channels=NoChannels(),
            agents=NoAgents(),
            access=access_of(),
            metrics=metrics,
            gauges=Gauges,
            reload=self.reload,
            handles=Handles(Planes().sharing, lambda _: None, metrics),
            keys=no_keys(),
            looks=Looks(lambda _: None, Planes()),
            tasks=Tasks(lambda _: None, "operator"),
            workers=Workers(lambda _: None),
        )
        self.desk = FrontDesk(config(directory, 0), parts, token="s3cret")

    async def reload(self) -> ReloadResult:
        """Do what the daemon does with the desk."""
        await self.desk.reconfigure(self.to)
        return ReloadResult(changed=True)


@asynccontextmanager
async def moving(directory: Path) -> AsyncIterator[Moving]:
    """Run a desk."""
    made = Moving(directory)
    await made.desk.open()
    try:
        yield made
    finally:
        async with asyncio.timeout(10):
            await made.desk.aclose(1.0)


async def test_the_answer_of_the_reload_that_moves_the_desk_arrives(tmp_path: Path) -> None:
    """The old place answers what it was asked, and takes nobody new; the new one is open by then."""
    async with moving(tmp_path) as made:
        before = made.desk.port
        made.to = config(tmp_path, free_port())
        reader, writer = await asyncio.open_connection(HOST, before)
        headers = {**TOKEN, "Connection": "keep-alive"}
        writer.write(request_bytes("POST", "/api/reload", headers=headers))
        async with asyncio.timeout(10):
            answer = await read_answer(reader)
            assert (answer.status, json.loads(answer.body)) == (200, {"changed": True})
            assert answer.headers["connection"] == "close"
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        assert made.desk.port == made.to.desk.port
        assert (await get(made.desk.port, "/healthz")).status == 200
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HOST, before)


async def test_a_place_that_is_taken_leaves_the_desk_where_it_is(tmp_path: Path) -> None:
    """Connections go on, the listening socket is not even touched, and the next move is possible."""
    async with moving(tmp_path) as made:
        before = made.desk.port
        reader, writer = await asyncio.open_connection(HOST, before)
        with socket.create_server((HOST, 0)) as busy:
            with pytest.raises(DeskPlaceError, match=r"the desk cannot listen on 127\.0\.0\.1 port"):
                await made.desk.reconfigure(config(tmp_path, busy.getsockname()[1]))
            writer.write(request_bytes("GET", "/healthz", headers={"Connection": "keep-alive"}))
            assert (await read_answer(reader)).status == 200
            assert (await get(before, "/healthz")).status == 200
            port = busy.getsockname()[1]
        await made.desk.reconfigure(config(tmp_path, port))
        assert made.desk.port == port
        writer.close()
        await writer.wait_closed()


async def test_the_same_port_on_all_addresses_is_no_obstacle_to_itself(tmp_path: Path) -> None:
    """From loopback to the wildcard and back; where another address is taken, the old one is opened again."""
    async with moving(tmp_path) as made:
        port = free_port()
        await made.desk.reconfigure(config(tmp_path, port))
        for host in ("0.0.0.0", HOST):
            await made.desk.reconfigure(config(tmp_path, port, host))
            assert (made.desk.host, (await get(port, "/healthz")).status) == (host, 200)
        with socket.create_server(("127.0.0.2", port)), pytest.raises(DeskPlaceError):
            await made.desk.reconfigure(config(tmp_path, port, "127.0.0.2"))
        assert (made.desk.host, (await get(port, "/healthz")).status) == (HOST, 200)


async def test_closing_ends_what_is_left_at_the_old_place(tmp_path: Path) -> None:
    """A client that never finishes its request, at a place that was left, holds nothing up."""
    async with moving(tmp_path) as made:
        reader, writer = await asyncio.open_connection(HOST, made.desk.port)
        headers = {**TOKEN, "Content-Type": "application/json", "Connection": "keep-alive"}
        request = request_bytes("POST", "/api/capsules/a/handles", headers=headers, body=b"{}")
        writer.write(request[:-1])
        await made.desk.reconfigure(config(tmp_path, free_port()))
        async with asyncio.timeout(10):
            await made.desk.aclose(1.0)
            with suppress(ConnectionError):
                await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
