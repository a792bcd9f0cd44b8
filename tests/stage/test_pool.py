"""The owner of all listeners: opening, swapping, closing, retrying, draining."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from sidecar.cards.served import Cards
from sidecar.listeners.pool import Pool
from sidecar.model import Capsule, Lifecycle, Manifest, TaskAcceptance
from sidecar.ops.metrics import Counters
from sidecar.planes.routes import Planes
from sidecar.serve.endpoint import Served
from sidecar.tasks.model import Input
from tests.support.credentials import access_of
from tests.support.ports import Shut
from tests.support.rawhttp import get, read_answer, request_bytes
from tests.support.serving import PORTS, Bench, Facts, bench
from tests.support.sockets import LISTEN, listener, table
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

CARD = "/.well-known/agent-card.json"
CLOSED = b"event: capsule-closed\ndata: {}\n\n"
LOOPBACK = "127.0.0.1"


async def card(port: int, host: str = LOOPBACK) -> dict[str, Any]:
    """Return the card of a port."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request_bytes("GET", CARD))
    answer = await read_answer(reader)
    writer.close()
    await writer.wait_closed()
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def watch(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open an observer's stream, and return its connection behind the ack."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    body = b'{"jsonrpc":"2.0","id":1,"method":"stream/watch"}'
    headers = {"Content-Type": "application/json", "Connection": "keep-alive"}
    writer.write(request_bytes("POST", "/", headers=headers, body=body))
    async with asyncio.timeout(10):
        await reader.readuntil(b"conversation_mode")
        await reader.readuntil(b"\r\n")
    return reader, writer


async def ends_with_closed(reader: asyncio.StreamReader) -> bool:
    """Read a stream to the end of its connection, and tell whether the closing frame came last."""
    async with asyncio.timeout(10):
        return (await reader.read()).endswith(CLOSED + b"\r\n0\r\n\r\n")


def taken(host: str = LOOPBACK) -> socket.socket:
    """Return a socket that listens on a port of its own, as another program would."""
    sock = socket.socket()
    for port in range(PORTS[1], PORTS[0], -1):
        try:
            sock.bind((host, port))
            sock.listen()
        except OSError:
            continue
        return sock
    raise AssertionError("no port left")


async def test_each_capsule_gets_a_port_of_the_range(tmp_path: Path) -> None:
    """Free choices are different ports of the range, told to whoever keeps them; reserved ones are left alone."""
    async with bench(tmp_path) as made:
        wishes = [made.want(name) for name in "abc"]
        reserved = range(PORTS[0], PORTS[0] + 10)
        await made.serve(*wishes, reserved=reserved)
        ports = [made.port(name) for name in "abc"]
        assert len(set(ports)) == 3
        assert all(PORTS[0] + 10 <= port <= PORTS[1] for port in ports)
        for name, port in zip("abc", ports, strict=True):
            assert (await card(port))["url"] == f"localhost:{port}"
            assert (await card(port))["name"] == name


async def test_b16_an_unrelated_change_leaves_socket_and_stream_alone(tmp_path: Path) -> None:
    """B16: a changes nothing, b comes, changes and goes: a's socket is the same and its stream goes on."""
    async with bench(tmp_path, heartbeat=0.05) as made:
        lifecycle = Lifecycle(task_acceptance=TaskAcceptance.QUEUE)
        first = made.want("a", manifest=Manifest("a", "1", lifecycle=lifecycle))
        await made.serve(first)
        before = listener(made.port("a"))
        reader, writer = await watch(made.port("a"))
        await made.serve(first, made.want("b"))
        await made.serve(first, made.want("b", manifest=Manifest("b", "2")))
        await made.serve(first)
        assert listener(made.port("a")) == before
        engine = await made.engine("a")
        await engine.cancel((await engine.send(Input.of("{}"), context_id=None, owner="test")).id)
        async with asyncio.timeout(10):
            await reader.readuntil(b"id: 1\nevent: status")
        writer.close()
        await writer.wait_closed()


async def test_a_changed_manifest_is_swapped_in_on_the_same_socket(tmp_path: Path) -> None:
    """The next request sees it; the stream of the same session goes on."""
    async with bench(tmp_path, heartbeat=0.05) as made:
        await made.serve(made.want("a"))
        before = listener(made.port("a"))
        reader, writer = await watch(made.port("a"))
        await made.serve(made.want("a", manifest=Manifest("a", "2")))
        assert (await card(made.port("a")))["version"] == "2"
        assert listener(made.port("a")) == before
        async with asyncio.timeout(10):
            await reader.readuntil(b":heartbeat")
            await reader.readuntil(b":heartbeat")
        assert made.pool.open_streams == 1
        writer.close()
        await writer.wait_closed()


async def test_streams_of_a_session_that_is_over_end_with_the_closing_frame(tmp_path: Path) -> None:
    """Another name in the same place is another session: same port, and the old session's streams end."""
    async with bench(tmp_path) as made:
        await made.serve(made.want("a"))
        port = made.port("a")
        reader, writer = await watch(port)
        await made.serve(made.want("a", manifest=Manifest("b", "1"), session="ses_b"))
        async with asyncio.timeout(10):
            rest = await reader.readuntil(b"\r\n0\r\n\r\n")
        assert rest.count(CLOSED) == 1
        assert (await card(port))["session_id"] == "ses_b"
        assert made.port("a") == port
        writer.close()
        await writer.wait_closed()


async def test_a_capsule_that_goes_takes_its_listener_along(tmp_path: Path) -> None:
    """Connection refused, streams ended with the closing frame, the engine let go."""
    async with bench(tmp_path) as made:
        await made.serve(made.want("a"))
        port = made.port("a")
        reader, writer = await watch(port)
        await made.serve()
        assert await ends_with_closed(reader)
        with pytest.raises(ConnectionRefusedError):
            await card(port)
        writer.close()
        await writer.wait_closed()
        await made.serve(made.want("a", port))
        assert (await card(port))["session_id"] == "ses_a"


async def test_b18_a_busy_port_leaves_that_capsule_unbound_and_nobody_else(tmp_path: Path) -> None:
    """B18: the reason names port, address and remedy; the others are served."""
    async with bench(tmp_path) as made:
        with taken() as other:
            port = other.getsockname()[1]
            with capture_logs() as lines:
                await made.serve(made.want("a"), made.want("b", port, "configured"), made.want("c"))
            assert {"a", "c"} == {(await card(made.port(name)))["name"] for name in "ac"}
            reason = made.reason("b")
            assert all(part in reason for part in (str(port), LOOPBACK, "capsules.b.port", "in use"))
            events = [(line["event"], line["capsule"]) for line in lines]
            assert ("capsule_unbound", "b") in events
            await until(lambda: made.pool.retries >= 2)
            assert len(made.facts.reasons[str(made.root / "b")]) == 1


async def test_b19_a_port_that_becomes_free_is_bound(tmp_path: Path) -> None:
    """B19: it is tried again with pauses, until it is free."""
    async with bench(tmp_path) as made:
        with taken() as other:
            port = other.getsockname()[1]
            await made.serve(made.want("b", port, "remembered"))
            assert "its port before" in made.reason("b")
        await until(lambda: str(made.root / "b") in made.facts.ports)
        assert (await card(port))["name"] == "b"


async def test_what_waits_is_dropped_when_it_is_no_longer_wanted(tmp_path: Path) -> None:
    """A capsule that goes while its port is busy is not opened later."""
    async with bench(tmp_path) as made:
        with taken() as other:
            port = other.getsockname()[1]
            await made.serve(made.want("b", port))
            await made.serve()
        retries = made.pool.retries
        await made.serve(made.want("a"))
        await until(lambda: "retry listeners" not in {task.get_name() for task in asyncio.all_tasks()})
        assert made.pool.retries <= retries + 1
        with pytest.raises(ConnectionRefusedError):
            await card(port)


async def test_another_port_is_tried_at_once(tmp_path: Path) -> None:
    """A mended configuration does not wait for the next attempt."""
    async with bench(tmp_path) as made:
        with taken() as other:
            await made.serve(made.want("b", other.getsockname()[1]))
            await made.serve(made.want("b"))
            assert (await card(made.port("b")))["name"] == "b"


async def test_of_two_capsules_with_one_port_the_first_is_served(tmp_path: Path) -> None:
    """The other says whose port it is; when the first goes, it gets the port."""
    async with bench(tmp_path) as made:
        port = PORTS[0] + 50
        first, second = (made.want(name, port, "configured") for name in "ab")
        await made.serve(first, second)
        assert (await card(port))["name"] == "a"
        assert "capsule a" in made.reason("b")
        await made.serve(second)
        assert (await card(port))["name"] == "b"


async def test_two_capsules_can_exchange_their_ports(tmp_path: Path) -> None:
    """Both are closed before either is opened."""
    async with bench(tmp_path) as made:
        low, high = PORTS[0] + 60, PORTS[0] + 61
        await made.serve(made.want("a", low), made.want("b", high))
        await made.serve(made.want("a", high), made.want("b", low))
        assert [(await card(port))["name"] for port in (low, high)] == ["b", "a"]
        assert not made.facts.reasons


@pytest.mark.parametrize(("old", "new"), [("127.0.0.1", "0.0.0.0"), ("0.0.0.0", "127.0.0.1")])
async def test_b21_the_same_port_is_rebound_on_another_host(tmp_path: Path, old: str, new: str) -> None:
    """B21: from loopback to everywhere and back, with a stream open on the old one, which ends."""
    async with bench(tmp_path) as made:
        port = PORTS[0] + 70
        await made.serve(made.want("a", port, hosts=(old,)))
        reader, writer = await watch(port)
        await made.serve(made.want("a", port, hosts=(new,)))
        assert (await card(port))["name"] == "a"
        assert not made.facts.reasons
        assert await ends_with_closed(reader)
        writer.close()
        await writer.wait_closed()
        reader, writer = await watch(port)
        writer.close()
        await writer.wait_closed()


async def test_several_hosts_are_bound_together_or_not_at_all(tmp_path: Path) -> None:
    """One address that is taken keeps the others from being opened, and the range is searched further."""
    async with bench(tmp_path) as made:
        with taken("127.0.0.2") as other:
            port = other.getsockname()[1]
            hosts = (LOOPBACK, "127.0.0.2", "::1")
            await made.serve(made.want("a", port, hosts=hosts), made.want("b", hosts=hosts))
            assert "127.0.0.2" in made.reason("a")
            with pytest.raises(ConnectionRefusedError):
                await card(port)
            for host in hosts:
                assert (await card(made.port("b"), host))["name"] == "b"


async def test_an_exhausted_range_is_said_as_such(tmp_path: Path) -> None:
    """The reason names the range and the key; a port that becomes free is taken."""
    first = PORTS[0] + 80
    async with bench(tmp_path, ports=(first, first + 1)) as made:
        a, b, c = (made.want(name) for name in "abc")
        await made.serve(a, b, c)
        assert f"{first}-{first + 1}" in made.reason("c")
        assert "listen.ports" in made.reason("c")
        await made.serve(b, c)
        assert (await card(first))["name"] == "c"


async def test_a_host_that_this_machine_has_not_is_explained(tmp_path: Path) -> None:
    """The reason names the address and the key, also for a free choice, without trying every port."""
    async with bench(tmp_path) as made:
        await made.serve(made.want("a", hosts=("203.0.113.1",)), made.want("b", hosts=("no.such.invalid",)))
        assert "203.0.113.1" in made.reason("a")
        assert "listen.host" in made.reason("a")
        assert "no.such.invalid" in made.reason("b")


async def test_the_listener_that_is_one_too_many_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    """The budget of descriptors counts sockets; whoever goes makes room."""
    async with bench(tmp_path, most=3) as made:
        a, b, c = made.want("a", hosts=(LOOPBACK, "::1")), made.want("b"), made.want("c")
        await made.serve(a, b, c)
        assert "limit on open files" in made.reason("c")
        assert (await card(made.port("b")))["name"] == "b"
        await made.serve(b, c)
        assert (await card(made.port("c")))["name"] == "c"


class Fragile:
    """Opens capsules like the real thing, except for one that it fails on, as a defect would."""

    def __init__(self, made: Bench, bad: str) -> None:
        self.real = made.fronts
        self.bad = bad

    async def open(self, capsule: Capsule) -> Served:
        """Open, or fail."""
        if capsule.manifest.version == self.bad:
            raise RuntimeError("defect")
        return await self.real.open(capsule)

    async def close(self, session_id: str) -> None:
        """Close."""
        await self.real.close(session_id)


async def test_one_capsule_that_fails_never_stops_the_others(tmp_path: Path) -> None:
    """Its socket is given back and it is tried again; a swap that fails leaves what was served."""
    async with bench(tmp_path) as made:
        made.pool._doors = Fragile(made, "bad")  # noqa: SLF001 - a defect has no configuration
        good, bad = made.want("b"), made.want("a", PORTS[0] + 90, manifest=Manifest("a", "bad"))
        with capture_logs() as lines:
            await made.serve(good, bad)
        assert (await card(made.port("b")))["name"] == "b"
        assert "log says why" in made.reason("a")
        assert "capsule_failed" in [line["event"] for line in lines]
        assert listener(PORTS[0] + 90) is None
        with capture_logs():
            await made.serve(made.want("b", manifest=Manifest("b", "bad")))
        assert (await card(made.port("b")))["version"] == "1"


async def test_other_settings_are_swapped_in_on_the_same_socket(tmp_path: Path) -> None:
    """Heartbeats and limits of a reload hold for streams to come."""
    async with bench(tmp_path) as made:
        await made.serve(made.want("a", heartbeat=100.0))
        before = listener(made.port("a"))
        await made.serve(made.want("a", heartbeat=0.05))
        reader, writer = await watch(made.port("a"))
        async with asyncio.timeout(10):
            await reader.readuntil(b":heartbeat")
        assert listener(made.port("a")) == before
        writer.close()
        await writer.wait_closed()


async def test_another_range_holds_for_choices_to_come(tmp_path: Path) -> None:
    """What is open stays where it is."""
    async with bench(tmp_path, ports=(PORTS[0], PORTS[0] + 9)) as made:
        await made.serve(made.want("a"))
        port = made.port("a")
        made.pool.ports = (PORTS[0] + 20, PORTS[0] + 29)
        await made.serve(made.want("a"), made.want("b"))
        assert made.port("a") == port
        assert PORTS[0] + 20 <= made.port("b") <= PORTS[0] + 29


@pytest.mark.parametrize("streams", [1, 100])
async def test_b17_closing_ends_every_stream_with_its_last_frame(tmp_path: Path, streams: int) -> None:
    """B17, B27: open streams do not hold up the stop; each gets the closing frame."""
    async with bench(tmp_path) as made:
        await made.serve(made.want("a"))
        opened = [await watch(made.port("a")) for _ in range(streams)]
        async with asyncio.timeout(5):
            await made.pool.aclose(budget=5.0)
        assert all(await asyncio.gather(*(ends_with_closed(reader) for reader, _ in opened)))
        for _, writer in opened:
            writer.close()
            await writer.wait_closed()


async def test_closing_does_not_wait_for_clients_that_do_not_read(tmp_path: Path) -> None:
    """H21, H39: a hundred deaf clients are cut off, well within the budget."""
    async with bench(tmp_path, streams=200) as made:
        lifecycle = Lifecycle(task_acceptance=TaskAcceptance.QUEUE, queue_depth=5)
        wanted = made.want("a", manifest=Manifest("a", "1", lifecycle=lifecycle))
        await made.serve(wanted)
        deaf = []
        body = b'{"jsonrpc":"2.0","id":1,"method":"stream/watch"}'
        for _ in range(100):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, (LOOPBACK, made.port("a")))
            sock.send(request_bytes("POST", "/", headers={"Content-Type": "application/json"}, body=body))
            deaf.append(sock)
        await until(lambda: made.pool.open_streams == 100)
        engine = await made.engine("a")
        for _ in range(60):
            await engine.cancel(
                (await engine.send(Input.of("{}"), context_id="x" * 100_000, owner="test")).id
            )
        with capture_logs() as lines:
            async with asyncio.timeout(15):
                await made.pool.aclose(budget=30.0)
        assert [line for line in lines if line["log_level"] == "error"] == []
        for sock in deaf:
            sock.close()


class Hanging:
    """A door behind which calls hang, and what opens it."""

    def __init__(self) -> None:
        self.entered = 0

    async def open(self, capsule: Capsule) -> Served:
        """Return what the port shows."""
        return Served(capsule, Cards(capsule), self, Shut, Counters(), lambda: 0, access_of())

    async def close(self, session_id: str) -> None:
        """Do nothing."""

    async def call(self, _body: bytes, _last_event_id: str | None = None) -> bytes:
        """Hang."""
        self.entered += 1
        await asyncio.Event().wait()
        return b""


async def test_closing_cuts_off_what_was_ending_with_a_longer_budget(tmp_path: Path) -> None:
    """A listener that was closed just before the stop has no more time than the others."""
    async with bench(tmp_path) as made:
        hanging = Hanging()
        facts = Facts()
        pool = Pool(
            doors=hanging,
            planes=Planes(),
            facts=facts,
            policy=made.pool.policy,
            ports=(PORTS[0] + 30, PORTS[0] + 39),
            most=10,
            budget=1000.0,
        )
        wanted = made.want("a")
        await pool.follow({wanted.capsule.directory: wanted})
        reader, writer = await asyncio.open_connection(LOOPBACK, facts.ports[wanted.capsule.directory])
        writer.write(request_bytes("POST", "/", headers={"Content-Type": "application/json"}, body=b"{}"))
        await until(lambda: hanging.entered)
        await pool.follow({wanted.capsule.directory: None})
        async with asyncio.timeout(10):
            await pool.aclose(budget=0.1)
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_closed_pool_opens_nothing_more(tmp_path: Path) -> None:
    """What comes late, while the sidecar stops, is not served."""
    async with bench(tmp_path) as made:
        await made.pool.aclose()
        await made.serve(made.want("a"))
        assert not made.facts.ports


async def test_b22_a_new_pool_takes_the_same_ports_at_once(tmp_path: Path) -> None:
    """B22: restart after restart under connections, each time on the same ports."""
    ports: list[int | None] = [None, None]
    for turn in range(3):
        async with bench(tmp_path) as made:
            await made.serve(*(made.want(name, port) for name, port in zip("ab", ports, strict=True)))
            assert not made.facts.reasons
            found = [made.port(name) for name in "ab"]
            assert turn == 0 or found == ports
            ports = list(found)
            for port in found:
                await get(port, CARD)
                _, writer = await watch(port)
                writer.write(b"more")
                writer.transport.abort()


async def test_a_hundred_capsules_come_change_and_go(tmp_path: Path) -> None:
    """Many at once: every one has its own port, and afterwards nothing is left."""
    async with bench(tmp_path) as made:
        names = [f"c{number:03}" for number in range(100)]
        await made.serve(*(made.want(name) for name in names))
        ports = {made.port(name) for name in names}
        assert len(ports) == 100
        await made.serve(*(made.want(name, manifest=Manifest(name, "2")) for name in names))
        assert {made.port(name) for name in names} == ports
        assert (await card(made.port("c050")))["version"] == "2"
        await made.serve()
        assert not ports & {row.port for row in table() if row.state == LISTEN}


def test_a_port_of_another_program_is_never_shared() -> None:
    """What is bound cannot be bound beside: no SO_REUSEPORT."""
    with taken() as other, socket.socket() as mine:
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use") as refused:
            mine.bind(other.getsockname())
        assert refused.value.errno == errno.EADDRINUSE
