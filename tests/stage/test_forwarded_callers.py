"""Callers behind a proxy: told apart where the proxy is trusted, one where it is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sidecar.model import AuthSettings, Rate
from sidecar.web.forwarded import Proxies
from tests.support.rawhttp import exchange, request_bytes
from tests.support.serving import bench

if TYPE_CHECKING:
    from pathlib import Path

ONCE = AuthSettings(rate=Rate(1, 3600.0))


async def status(port: int, asks_for: str) -> int:
    """Call the door for a client, as a proxy does, and return what comes of it."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tasks/get"}).encode()
    headers = {"Content-Type": "application/json", "X-Forwarded-For": asks_for}
    return (await exchange(port, request_bytes("POST", "/", headers=headers, body=body))).status


async def test_each_client_of_a_trusted_proxy_has_a_rate_of_its_own(tmp_path: Path) -> None:
    """The address counts that the proxy saw, not what the client said before."""
    async with bench(tmp_path) as made:
        made.pool.policy.proxies = Proxies(("127.0.0.1",))
        await made.serve(made.want("a", auth=ONCE))
        port = made.port("a")
        assert [await status(port, client) for client in ("192.0.2.1", "192.0.2.2")] == [200, 200]
        assert await status(port, "192.0.2.1") == 429
        assert await status(port, "203.0.113.5, 192.0.2.2") == 429


async def test_who_is_not_trusted_cannot_be_somebody_else(tmp_path: Path) -> None:
    """Whatever it says of itself, it is the address that it comes from."""
    async with bench(tmp_path) as made:
        await made.serve(made.want("a", auth=ONCE))
        port = made.port("a")
        assert [await status(port, client) for client in ("192.0.2.1", "192.0.2.2")] == [200, 429]
