"""The second port of a capsule, which serves A2A at its root: opened beside the first, gone with it."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from sidecar.model import Manifest
from tests.support.rawhttp import exchange, get, read_answer, request_bytes
from tests.support.serving import PORTS, bench
from tests.support.sockets import listener
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

FREE = (PORTS[0], PORTS[0] + 99)
ONE, OTHER = PORTS[0] + 100, PORTS[0] + 101
CARD = "/.well-known/agent-card.json"
OLDEST = "/.well-known/agent.json"


async def test_both_cards_are_one_and_name_the_root(tmp_path: Path) -> None:
    """Clients that look at the origin alone find both versions there."""
    async with bench(tmp_path, ports=FREE) as made:
        await made.serve(made.want("a", a2a_port=ONE))
        answer = await get(ONE, CARD)
        assert answer.status == 200
        assert (await get(ONE, OLDEST)).body == answer.body
        card = json.loads(answer.body)
        root = f"http://localhost:{ONE}/"
        assert card["url"] == root
        assert {each["url"] for each in card["supportedInterfaces"]} == {root}
        murmur = card["capabilities"]["extensions"][0]["params"]
        assert murmur["url"] == f"http://localhost:{made.port('a')}/"
        assert (await get(ONE, CARD, headers={"If-None-Match": answer.headers["etag"]})).status == 304
        assert (await get(ONE, CARD, method="PUT")).status == 405


@pytest.mark.parametrize(
    "path",
    ["/resources/files", "/resources/peer/x", "/a2a", "/a2a/v1", "/a2a/.well-known/agent-card.json", "/x"],
)
async def test_nothing_but_a2a_is_there(tmp_path: Path, path: str) -> None:
    """Neither the planes nor the murmur door's neighbours; refusals have the one shape."""
    async with bench(tmp_path, ports=FREE) as made:
        await made.serve(made.want("a", a2a_port=ONE))
        answer = await get(ONE, path)
        assert (answer.status, json.loads(answer.body)["error"]) == (404, "not_found")
        assert (await get(made.port("a"), CARD)).status == 200


async def call(port: int, method: str, params: dict[str, Any], **headers: str) -> dict[str, Any]:
    """Call a method at the root of a port."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    fields = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
    answer = await exchange(port, request_bytes("POST", "/", headers=fields, body=body))
    assert answer.status == 200
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def test_both_versions_are_spoken_at_the_root_and_murmur_is_not(tmp_path: Path) -> None:
    """A task that one version started the other one has too; the murmur door's own methods are not known there."""
    async with bench(tmp_path, ports=FREE) as made:
        await made.serve(made.want("a", a2a_port=ONE))
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        params = {"message": message, "configuration": {"returnImmediately": True}}
        task = (await call(ONE, "SendMessage", params, A2A_Version="1.0"))["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
        again = (await call(ONE, "tasks/get", {"id": task["id"]}))["result"]
        assert (again["id"], again["status"]["state"]) == (task["id"], "submitted")
        for method in ("session/stop", "stream/watch"):
            assert (await call(ONE, method, {}))["error"]["code"] == -32601
        assert (await get(ONE, "/")).status == 405


async def test_the_guards_stand_there_too(tmp_path: Path) -> None:
    """A Host that is not let in on the first port is not on the second."""
    async with bench(tmp_path, ports=FREE) as made:
        await made.serve(made.want("a", a2a_port=ONE))
        answer = await get(ONE, CARD, headers={"Host": "evil.example"})
        assert (answer.status, json.loads(answer.body)["error"]) == (403, "host_not_allowed")


async def test_a_reload_moves_it_and_what_it_shows_follows(tmp_path: Path) -> None:
    """Another port, then none: what is wanted no longer is closed, and the first port is not disturbed."""
    async with bench(tmp_path, ports=FREE) as made:
        await made.serve(made.want("a", a2a_port=ONE))
        first = listener(made.port("a"))
        await made.serve(made.want("a", a2a_port=ONE, manifest=Manifest("a", "2")))
        assert json.loads((await get(ONE, CARD)).body)["version"] == "2"
        await made.serve(made.want("a", a2a_port=OTHER))
        assert listener(ONE) is None
        assert json.loads((await get(OTHER, CARD)).body)["url"] == f"http://localhost:{OTHER}/"
        await made.serve(made.want("a"))
        assert listener(OTHER) is None
        assert listener(made.port("a")) == first


async def test_one_capsule_can_take_over_the_port_of_another(tmp_path: Path) -> None:
    """What is given up is closed before anything is opened."""
    async with bench(tmp_path, ports=FREE) as made:
        await made.serve(made.want("a", a2a_port=ONE), made.want("b", a2a_port=OTHER))
        await made.serve(made.want("a", a2a_port=OTHER), made.want("b", a2a_port=ONE))
        assert [json.loads((await get(port, CARD)).body)["name"] for port in (ONE, OTHER)] == ["b", "a"]


async def test_it_is_gone_with_its_capsule(tmp_path: Path) -> None:
    """A capsule that is served no longer has no port left; its number is free again."""
    async with bench(tmp_path, ports=FREE) as made:
        await made.serve(made.want("a", a2a_port=ONE))
        await made.serve()
        assert listener(ONE) is None
        await made.serve(made.want("b", a2a_port=ONE))
        assert json.loads((await get(ONE, CARD)).body)["name"] == "b"
    assert listener(ONE) is None


async def test_a_busy_port_is_said_and_taken_once_it_is_free(tmp_path: Path) -> None:
    """The capsule is served all the same; the message names the port and the key; it is told once."""
    async with bench(tmp_path, ports=FREE) as made:
        directory = str(made.root / "a")
        with closing(socket.create_server(("127.0.0.1", ONE))), capture_logs() as lines:
            await made.serve(made.want("a", a2a_port=ONE))
            reason = made.facts.troubles[directory]
            assert reason is not None
            assert f"port {ONE}" in reason
            assert "change capsules.a.a2a_port in the configuration" in reason
            assert (await get(made.port("a"), CARD)).status == 200
            await made.serve(made.want("a", a2a_port=ONE, manifest=Manifest("a", "2")))
            await until(lambda: made.pool.retries > 1)
        await until(lambda: made.facts.troubles[directory] is None)
        assert json.loads((await get(ONE, CARD)).body)["version"] == "2"
        assert [line["event"] for line in lines].count("second_port_unbound") == 1


async def test_a_busy_port_that_is_wanted_no_longer_is_no_trouble_any_more(tmp_path: Path) -> None:
    """Nor is it tried again."""
    async with bench(tmp_path, ports=FREE) as made:
        with closing(socket.create_server(("127.0.0.1", ONE))):
            await made.serve(made.want("a", a2a_port=ONE))
            await made.serve(made.want("a"))
            assert made.facts.troubles[str(made.root / "a")] is None
        await made.serve(made.want("b"))
        assert listener(ONE) is None


async def test_two_capsules_do_not_share_one(tmp_path: Path) -> None:
    """The first in path order has it, the other is told."""
    async with bench(tmp_path, ports=FREE) as made:
        await made.serve(made.want("a", a2a_port=ONE), made.want("b", a2a_port=ONE))
        reason = made.facts.troubles[str(made.root / "b")]
        assert reason is not None
        assert f"port {ONE} is that of the capsule a" in reason
        assert json.loads((await get(ONE, CARD)).body)["name"] == "a"
        await made.serve(made.want("b", a2a_port=ONE))
        await until(lambda: made.facts.troubles[str(made.root / "b")] is None)
        assert json.loads((await get(ONE, CARD)).body)["name"] == "b"


async def test_idle_connections_end_with_the_port(tmp_path: Path) -> None:
    """Whoever keeps a connection open to it is not left with one that nobody answers."""
    async with bench(tmp_path, ports=FREE) as made:
        await made.serve(made.want("a", a2a_port=ONE))
        reader, writer = await asyncio.open_connection("127.0.0.1", ONE)
        writer.write(request_bytes("GET", CARD, headers={"Connection": "keep-alive"}))
        assert (await read_answer(reader)).status == 200
        await made.serve(made.want("a"))
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
