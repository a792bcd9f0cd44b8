"""A capsule's own port once it has credentials: what stays public, what is refused, and what ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.model import (
    AuthSettings,
    FilesExport,
    Lifecycle,
    Manifest,
    PeerFilesExport,
    Rate,
    TaskAcceptance,
)
from tests.support.credentials import ADMIN
from tests.support.rawhttp import Answer, exchange, get, request_bytes
from tests.support.serving import PORTS, Bench, bench
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CARD = "/.well-known/agent-card.json"
CARDS = (
    CARD,
    "/.well-known/agent.json",
    "/a2a/.well-known/agent-card.json",
    "/a2a/v0.3/.well-known/agent-card.json",
)
MANIFEST = Manifest(
    "a",
    "1",
    lifecycle=Lifecycle(task_acceptance=TaskAcceptance.QUEUE, queue_depth=5),
    files=FilesExport("out/"),
    peer_files=PeerFilesExport("out/"),
)


@dataclass
class Port:
    """A served capsule `a`, whose cards say so when its credentials change."""

    bench: Bench

    @property
    def number(self) -> int:
        """Its port."""
        return self.bench.port("a")

    async def key(self, **more: Any) -> tuple[str, str]:
        """Make a key; return its id and its secret."""
        issued = await self.bench.ring.create(str(self.bench.root / "a"), "a", **more)
        return issued.key.id, issued.secret

    async def ask(self, method: str, target: str, token: str | None = None, **headers: str) -> Answer:
        """Send a request, with or without a token."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            fields["Authorization"] = f"Bearer {token}"
        body = call("session/stop") if method == "POST" else None
        return await exchange(self.number, request_bytes(method, target, headers=fields, body=body))

    async def call(self, token: str | None = None, **headers: str) -> int:
        """Call the door; return the status."""
        return (await self.ask("POST", "/", token, Content_Type="application/json", **headers)).status

    async def serve(self, **auth: Any) -> None:
        """Serve the capsule with other settings."""
        await self.bench.serve(self.bench.want("a", manifest=MANIFEST, auth=AuthSettings(**auth)))


def call(method: str) -> bytes:
    """Return the body of a call."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method}).encode()


@asynccontextmanager
async def port(root: Path, **auth: Any) -> AsyncIterator[Port]:
    """Serve a capsule with a file, refreshed as the daemon does it."""
    (root / "a/out").mkdir(parents=True)
    (root / "a/out/report.md").write_text("report")
    async with bench(root) as made:
        served = Port(made)
        changed: set[str] = set()
        made.access.on_change = changed.add
        await served.serve(**auth)
        stop = asyncio.Event()

        async def refresh() -> None:
            while not stop.is_set():
                await made.pool.refresh(sorted(changed))
                changed.clear()
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            group.create_task(refresh())
            try:
                yield served
            finally:
                stop.set()


class Watching:
    """A client of `stream/watch`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.over = False

    @classmethod
    async def open(cls, port: Port, token: str | None = None) -> Watching:
        """Open a stream and wait for its first frame."""
        made = cls(*await asyncio.open_connection("127.0.0.1", port.number))
        fields = {"Content-Type": "application/json"}
        if token is not None:
            fields["Authorization"] = f"Bearer {token}"
        made.writer.write(request_bytes("POST", "/", headers=fields, body=call("stream/watch")))
        async with asyncio.timeout(10):
            await made.reader.readuntil(b"connection-ack")
        return made

    async def ends(self, within: float = 3.0) -> bytes:
        """Wait for the end, and return what came until then."""
        async with asyncio.timeout(within):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""
            finally:
                self.close()

    def close(self) -> None:
        """Leave."""
        self.writer.close()

    async def goes_on(self) -> bool:
        """Whether nothing came and it has not ended, some time after whatever would have ended it."""
        await asyncio.sleep(0.1)
        return not self.reader.at_eof() and not self.writer.is_closing()


async def test_an_open_port_asks_nobody(tmp_path: Path) -> None:
    """Whatever is sent is ignored."""
    async with port(tmp_path) as served:
        assert await served.call() == 200
        assert await served.call("anything") == 200
        assert (await served.ask("GET", "/resources/files/report.md")).body == b"report"


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("POST", "/", {"Content_Type": "application/json"}),
        ("POST", "/", {"Content_Type": "text/plain"}),
        ("POST", "/", {"Content_Type": "application/json", "Content_Length": "999999999"}),
        ("GET", "/", {}),
        ("GET", "/resources/files", {}),
        ("PUT", "/resources/files/report.md", {}),
        ("GET", "/resources/files/../secret", {}),
        ("GET", "/resources/peerless", {}),
        ("GET", "/nothing", {}),
        ("DELETE", "/nothing", {}),
    ],
)
async def test_a_stranger_is_refused_before_path_and_body_are_looked_at(
    tmp_path: Path, method: str, target: str, headers: dict[str, str]
) -> None:
    """401 in the one shape, with the challenge, whatever is asked for."""
    async with port(tmp_path) as served:
        await served.key()
        for token in (None, "wrong"):
            answer = await served.ask(method, target, token, **headers)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == 'Bearer realm="sidecar"'
            assert answer.headers["content-type"] == "application/json"
            assert list(json.loads(answer.body)) == ["error", "message"]
            assert json.loads(answer.body)["error"] == "unauthorized"


async def test_two_headers_are_one_too_many(tmp_path: Path) -> None:
    """Even if both are right."""
    async with port(tmp_path) as served:
        _, secret = await served.key(operator=True)
        head = f"Authorization: Bearer {secret}\r\n"
        for extra, status in ((head, 200), (head * 2, 401), (head.lower() + head, 401)):
            lines = f"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{extra}"
            body = call("session/stop")
            more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            assert (await exchange(served.number, (lines + more).encode() + body)).status == status


async def test_the_operators_credentials_open_door_and_files_and_others_do_not(tmp_path: Path) -> None:
    """The admin token, and keys made with `--operator`; any other key is 403 `forbidden`."""
    async with port(tmp_path) as served:
        _, plain = await served.key()
        _, operator = await served.key(operator=True, end_users=True)
        for token in (ADMIN, operator):
            assert await served.call(token) == 200
            assert (await served.ask("GET", "/resources/files/report.md", token)).body == b"report"
            assert (await served.ask("GET", "/nothing", token)).status == 404
        for token, headers in ((plain, {}), (operator, {"End_User": "ann"})):
            for method, target in (("POST", "/"), ("GET", "/resources/files"), ("GET", "/nothing")):
                answer = await served.ask(method, target, token, **headers)
                assert (answer.status, json.loads(answer.body)["error"]) == (403, "forbidden")
                assert "insufficient_scope" in answer.headers["www-authenticate"]


async def test_cards_stay_public_and_say_what_is_wanted(tmp_path: Path) -> None:
    """With the first key they change, for those who hold one already too; with the last one they are as before."""
    async with port(tmp_path) as served:
        before = await served.ask("GET", CARD)
        assert "securitySchemes" not in json.loads(before.body)
        key_id, _ = await served.key()

        async def wanted(target: str) -> bool:
            answer = await served.ask("GET", target)
            assert answer.status == 200
            return "securitySchemes" in json.loads(answer.body)

        for target in CARDS:
            await until(lambda target=target: wanted(target))  # type: ignore[misc]  # the target is bound at once
        held = {"If_None_Match": before.headers["etag"]}
        assert (await served.ask("GET", CARD, **held)).status == 200
        since = {"If_Modified_Since": before.headers["last-modified"]}
        assert (await served.ask("GET", CARD, **since)).status == 200
        await served.bench.ring.forget(key_id)

        async def free() -> bool:
            return not await wanted(CARD)

        await until(free)
        assert (await served.ask("GET", CARD)).headers["etag"] == before.headers["etag"]


async def test_a_peers_handle_is_a_credential_of_its_own(tmp_path: Path) -> None:
    """The peer plane asks for nothing else."""
    async with port(tmp_path, door="authenticated") as served:
        answer = await served.ask("GET", "/resources/peer/mh1.YWJj.YWJj")
        assert (answer.status, json.loads(answer.body)["error"]) == (400, "missing_audience")
        assert await served.call() == 401


async def test_an_open_door_stays_open(tmp_path: Path) -> None:
    """Where the configuration says so, although there is a key; the cards say what the other doors want."""
    async with port(tmp_path, door="open") as served:
        await served.key()
        assert await served.call() == 200

        async def says_so() -> bool:
            return "securitySchemes" in json.loads((await get(served.number, CARD)).body)

        await until(says_so)
        assert (await served.ask("GET", "/resources/files/report.md")).status == 200


async def test_what_is_refused_is_counted(tmp_path: Path) -> None:
    """By its code."""
    async with port(tmp_path, door="authenticated") as served:
        await served.call()
        counters = served.bench.metrics.capsule("a")
        assert counters.requests["other", "unauthorized"] == 1


async def test_open_streams_end_with_their_key_and_no_others_do(tmp_path: Path) -> None:
    """Revoked: within a second, without another byte; another key's stream and the admin's go on."""
    async with port(tmp_path) as served:
        first, secret = await served.key(operator=True)
        _, other = await served.key(operator=True)
        ending = await Watching.open(served, secret)
        going = [await Watching.open(served, token) for token in (other, ADMIN)]
        await served.bench.ring.revoke(first)
        assert b"capsule-closed" not in await ending.ends()
        assert await served.call(secret) == 401
        for stream in going:
            assert await stream.goes_on()
            stream.close()


async def test_a_stream_ends_with_the_overlap_of_its_secret(tmp_path: Path) -> None:
    """Both live while it lasts; without one the old secret's stream ends at once, the new one's does not."""
    async with port(tmp_path) as served:
        key_id, old = await served.key(operator=True)
        rotated = await served.bench.ring.rotate(key_id, overlap=1)
        assert rotated is not None
        streams = [await Watching.open(served, token) for token in (old, rotated.secret)]
        again = await served.bench.ring.rotate(key_id, overlap=0.3 / 3600)
        assert again is not None
        newest = await Watching.open(served, again.secret)
        for stream in streams:
            await stream.ends()
        assert await newest.goes_on()
        newest.close()


async def test_a_stream_ends_when_its_key_does(tmp_path: Path) -> None:
    """By itself."""
    async with port(tmp_path) as served:
        _, secret = await served.key(operator=True, lasts=0.5)
        await (await Watching.open(served, secret)).ends()
        assert await served.call(secret) == 401


async def test_a_strangers_stream_ends_when_the_door_closes(tmp_path: Path) -> None:
    """With the first key, or because the configuration says so; opened again it is open to all."""
    async with port(tmp_path) as served:
        stream = await Watching.open(served)
        key_id, _ = await served.key()
        await stream.ends()
        await served.bench.ring.forget(key_id)
        stream = await Watching.open(served)
        await served.serve(door="authenticated")
        await stream.ends()
        await served.serve(door="open")
        stream = await Watching.open(served)
        await served.key()
        assert await stream.goes_on()
        stream.close()


async def test_a_slow_reader_cannot_keep_a_revoked_stream(tmp_path: Path) -> None:
    """What it has not read is gone; the connection ends all the same."""
    async with port(tmp_path) as served:
        key_id, secret = await served.key(operator=True)
        stream = await Watching.open(served, secret)
        stream.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport can
        body = {"messageId": "m", "role": "user", "parts": [{"text": "x" * 900_000}]}
        text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": body}).encode()
        fields = {"Content-Type": "application/json", "Authorization": f"Bearer {ADMIN}"}
        assert (
            await exchange(served.number, request_bytes("POST", "/", headers=fields, body=text))
        ).status == 200
        await served.bench.ring.revoke(key_id)
        await until(lambda: served.bench.pool.open_streams == 0)
        stream.close()


async def test_no_stream_is_remembered_when_it_is_over(tmp_path: Path) -> None:
    """However it ended."""
    async with port(tmp_path) as served:
        _, secret = await served.key(operator=True)
        for token in (secret, ADMIN):
            stream = await Watching.open(served, token)
            stream.close()
        await until(lambda: not served.bench.access.streams.count)


async def test_the_rate_holds_at_the_door(tmp_path: Path) -> None:
    """429 with `Retry-After`, in the one shape, before the body is looked at; cards are not counted."""
    async with port(tmp_path, rate=Rate(2, 60.0)) as served:
        assert [await served.call() for _ in range(3)] == [200, 200, 429]
        answer = await served.ask("POST", "/", Content_Type="text/plain")
        assert (answer.status, json.loads(answer.body)["error"]) == (429, "rate_limited")
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert (await served.ask("GET", CARD)).status == 200


@dataclass
class Client:
    """A caller of A2A 1.0 with its key."""

    port: Port
    token: str | None
    end_user: str | None = None

    async def ask(self, method: str, params: dict[str, Any]) -> Answer:
        """Call a method."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        fields = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        if self.token is not None:
            fields["Authorization"] = f"Bearer {self.token}"
        if self.end_user is not None:
            fields["End-User"] = self.end_user
        return await exchange(self.port.number, request_bytes("POST", "/a2a/v1", headers=fields, body=body))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method and return the JSON answer."""
        answer = await self.ask(method, params)
        assert answer.status == 200, answer.body
        found: dict[str, Any] = json.loads(answer.body)
        return found

    async def send(self) -> str:
        """Start a task and return its id."""
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        said = await self.call("SendMessage", message=message, configuration={"returnImmediately": True})
        found: str = said["result"]["task"]["id"]
        return found

    async def tasks(self) -> list[str]:
        """Return the ids of its tasks."""
        return [task["id"] for task in (await self.call("ListTasks"))["result"]["tasks"]]


async def test_callers_of_a2a_are_kept_apart(tmp_path: Path) -> None:
    """Another key's task, and another end user's, are not there; the operator's door sees the session whole."""
    async with port(tmp_path) as served:
        _, speaking = await served.key(end_users=True)
        _, other = await served.key()
        callers = [Client(served, speaking), Client(served, speaking, "ann"), Client(served, speaking, "bob")]
        callers.append(Client(served, other))
        mine = [await caller.send() for caller in callers]
        for caller, task in zip(callers, mine, strict=True):
            assert await caller.tasks() == [task]
            for foreign in set(mine) - {task}:
                for method in ("GetTask", "CancelTask", "SubscribeToTask"):
                    assert (await caller.call(method, id=foreign))["error"]["code"] == -32001
        engine = await served.bench.engine("a")
        assert {task.id for task in await engine.list(10)} == set(mine)
        body = json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": mine[1]}}
        ).encode()
        fields = {"Content-Type": "application/json", "Authorization": f"Bearer {ADMIN}"}
        answer = await exchange(served.number, request_bytes("POST", "/", headers=fields, body=body))
        assert json.loads(answer.body)["result"]["id"] == mine[1]


@pytest.mark.parametrize("target", ["/a2a", "/a2a/v1", "/a2a/v0.3"])
async def test_a2a_wants_a_credential_before_anything_else(tmp_path: Path, target: str) -> None:
    """401 in the one shape, whatever the method, the body and its type; any good key will do."""
    async with port(tmp_path) as served:
        _, plain = await served.key()
        for method in ("GET", "POST", "PUT"):
            answer = await served.ask(method, target)
            assert (answer.status, json.loads(answer.body)["error"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == 'Bearer realm="sidecar"'
        assert (await served.ask("GET", target, plain)).status == 405
        answer = await served.ask("POST", target, plain, Content_Type="application/json", End_User="ann")
        assert (answer.status, json.loads(answer.body)["error"]) == (403, "forbidden")
        assert (await served.ask("POST", target, plain, Content_Type="application/json")).status == 200


async def test_the_extended_card_is_for_those_who_show_a_credential(tmp_path: Path) -> None:
    """Where none is asked for there is none."""
    async with port(tmp_path) as served:
        assert (await Client(served, None).call("GetExtendedAgentCard"))["error"]["code"] == -32007
        _, plain = await served.key()
        assert (await Client(served, None).ask("GetExtendedAgentCard", {})).status == 401

        async def card() -> dict[str, Any] | None:
            said = await Client(served, plain).call("GetExtendedAgentCard")
            found: dict[str, Any] | None = said.get("result")
            return found

        found = await until(card)
        assert found is not None
        assert found["capabilities"]["extendedAgentCard"] is True
        assert list(found["securitySchemes"]) == ["bearer"]


async def test_a_stream_and_a_waiting_call_of_a2a_end_with_their_key(tmp_path: Path) -> None:
    """Both, within a second."""
    async with port(tmp_path) as served:
        key_id, secret = await served.key()
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        open_: list[asyncio.StreamReader] = []
        writers = []
        for method in ("SendStreamingMessage", "SendMessage"):
            body = json.dumps(
                {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
            ).encode()
            fields = {"Content-Type": "application/json", "A2A-Version": "1.0"}
            fields |= {"Authorization": f"Bearer {secret}", "Accept": "text/event-stream, application/json"}
            reader, writer = await asyncio.open_connection("127.0.0.1", served.number)
            writer.write(request_bytes("POST", "/a2a/v1", headers=fields, body=body))
            open_.append(reader)
            writers.append(writer)
        await until(lambda: served.bench.access.streams.count == 2)
        await served.bench.ring.revoke(key_id)
        async with asyncio.timeout(3):
            for reader in open_:
                with suppress(ConnectionError):
                    await reader.read()
        for writer in writers:
            writer.close()
        await until(lambda: served.bench.access.streams.count == 0)


async def test_the_second_port_wants_the_same_of_callers_of_a2a(tmp_path: Path) -> None:
    """Its root is A2A's: any good key opens it, whereas the first port's root is the operator's."""
    async with bench(tmp_path, ports=(PORTS[0], PORTS[0] + 99)) as made:
        second = PORTS[0] + 100
        await made.serve(made.want("a", a2a_port=second))
        issued = await made.ring.create(str(tmp_path / "a"), "a")
        for target, status in (("/", 401), ("/nothing", 401), (CARD, 200)):
            assert (await get(second, target)).status == status
        fields = {"Content-Type": "application/json", "Authorization": f"Bearer {issued.secret}"}
        request = request_bytes("POST", "/", headers=fields, body=call("tasks/get"))
        assert (await exchange(second, request)).status == 200
        assert (await exchange(made.port("a"), request)).status == 403


async def test_a_key_that_ends_by_itself_takes_its_kind_with_it(tmp_path: Path) -> None:
    """Without a key that may speak for end users there are no runtime tokens; a key's own kind stays."""
    async with port(tmp_path) as served:

        def kinds() -> list[str]:
            return [kind.type for kind in served.bench.pool.capsules()[0].credentials]

        await served.key(lasts=3600)
        await served.key(end_users=True, lasts=0.5)
        await until(lambda: kinds() == ["agent_key", "runtime_token"])
        await until(lambda: kinds() == ["agent_key"])
