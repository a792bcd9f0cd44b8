"""Sends of the A2A door that wait for their task, over real sockets: when they end, and what keeps their client."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from sidecar.doors.a2a import A2aDoor
from sidecar.doors.a2a_asked import Asked
from sidecar.doors.a2a_streams import WaitingSend
from sidecar.tasks.said import Completed, Failed, Reply, Status, Text
from tests.support.a2a_port import V03, V10, Caller, document, state_of
from tests.support.port import BOUND, served, taking
from tests.support.rawhttp import exchange, read_answer
from tests.support.sessions import capsule, request, session
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.port import Port

pytestmark = pytest.mark.parametrize("version", [V03, V10])
SETTINGS: dict[str, Any] = {"concurrency": 5}
SEND_03 = request(
    "message/send",
    {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hello"}]}},
)
SEND_10 = request(
    "SendMessage", {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
)


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[Port]:
    """A capsule with a queue."""
    async with served(tmp_path, taking(queue_depth=20), settings=SETTINGS) as made:
        yield made


@pytest.fixture
def caller(port: Port, version: str) -> Caller:
    """A client of that capsule."""
    return Caller(port, version)


async def followers(port: Port) -> int:
    """Return how many follow a task."""
    return len((await port.engine()).telling.followers)


@pytest.mark.parametrize(("said", "state"), [(Completed("done"), "completed"), (Failed("no"), "failed")])
async def test_a_send_waits_for_the_end(caller: Caller, said: Any, state: str) -> None:
    """And returns the whole task, in an answer like any other where it did not last."""
    waiting = asyncio.ensure_future(caller.result("send", caller.params()))
    worker = await caller.port.work()
    await worker.say(Status("at it"))
    assert not waiting.done()
    await worker.say(said)
    task = caller.task(await waiting)
    assert (task["id"], state_of(task)) == (worker.id, state)
    assert task == await caller.get(worker.id)
    assert await followers(caller.port) == 0


async def test_who_does_not_say_waits(caller: Caller) -> None:
    """In either version."""
    params = caller.params()
    del params["configuration"]
    waiting = asyncio.ensure_future(caller.result("send", params))
    worker = await caller.port.work()
    assert not waiting.done()
    await worker.complete("done")
    assert state_of(caller.task(await waiting)) == "completed"


async def test_a_send_waits_for_a_question_too(caller: Caller) -> None:
    """The answer to it waits again."""
    waiting = asyncio.ensure_future(caller.result("send", caller.params()))
    worker = await caller.port.work()
    await worker.ask("Which?")
    task = caller.task(await waiting)
    assert state_of(task) == "input-required"
    assert task["status"]["message"]["parts"][0]["text"] == "Which?"
    answering = asyncio.ensure_future(caller.result("send", caller.params("that", taskId=task["id"])))
    await worker.orders.wait(BOUND)
    assert not answering.done()
    await worker.complete("done")
    assert state_of(caller.task(await answering)) == "completed"


async def test_a_send_ends_with_the_cancel_of_its_task(caller: Caller) -> None:
    """Whoever cancels."""
    waiting = asyncio.ensure_future(caller.result("send", caller.params()))
    worker = await caller.port.work()
    await caller.port.cancel(worker.id)
    assert state_of(caller.task(await waiting)) == "canceled"


async def test_a_message_that_is_the_first_word_is_the_result(caller: Caller) -> None:
    """And no task, though there is one."""
    waiting = asyncio.ensure_future(caller.result("send", caller.params()))
    worker = await caller.port.work()
    await worker.say(Reply(({"text": "hi"}, {"data": {"a": 1}})))
    result = await waiting
    message = result if caller.version == V03 else result["message"]
    assert message["parts"][0]["text"] == "hi"
    assert message["parts"][1]["data"] == {"a": 1}
    assert "taskId" not in message
    assert await caller.state(worker.id) == "completed"


async def test_a_send_returns_the_task_as_it_stands_after_a_while(tmp_path: Path, version: str) -> None:
    """That of `limits.blocking_send`; the task goes on."""
    settings = SETTINGS | {"blocking_send": 0.2}
    async with served(tmp_path, taking(queue_depth=5), settings=settings) as port:
        caller = Caller(port, version)
        task = caller.task(await caller.result("send", caller.params()))
        assert state_of(task) == "submitted"
        assert await followers(port) == 0
        worker = await port.work()
        assert worker.id == task["id"]
        await worker.complete("late")
        assert await caller.state(task["id"]) == "completed"


async def test_a_send_that_lasts_keeps_its_client_with_spaces(tmp_path: Path, version: str) -> None:
    """Head and one space at the first beat, one more at each; then the answer, and the connection goes on."""
    settings = SETTINGS | {"heartbeat_a2a": 0.05}
    async with served(tmp_path, taking(queue_depth=5), settings=settings) as port:
        caller = Caller(port, version)
        request = caller.request("send", caller.params(), Connection="keep-alive")
        async with asyncio.timeout(BOUND):
            reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
            assert b"transfer-encoding: chunked\r\n" in head
            assert b"content-length" not in head
            for _ in range(3):
                assert await reader.readexactly(6) == b"1\r\n \r\n"
            worker = await port.work()
            await worker.say(Text("done"), Completed())
            while (size := int(await reader.readline(), 16)) == 1:
                assert await reader.readexactly(3) == b" \r\n"
            body = await reader.readexactly(size)
            assert await reader.readexactly(7) == b"\r\n0\r\n\r\n"
            assert body.startswith(b'{"jsonrpc":"2.0","id":1,"result":{')
            writer.write(caller.request("get", {"id": worker.id}))
            task = document(await read_answer(reader))["result"]
            assert state_of(task) == "completed"
            writer.close()
            await writer.wait_closed()


async def test_an_older_kind_of_http_gets_spaces_up_to_the_end_of_the_connection(
    tmp_path: Path, version: str
) -> None:
    """It knows no chunks."""
    settings = SETTINGS | {"heartbeat_a2a": 0.05}
    async with served(tmp_path, taking(queue_depth=5), settings=settings) as port:
        caller = Caller(port, version)
        request = caller.request("send", caller.params()).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
        waiting = asyncio.ensure_future(exchange(port.number, request, within=BOUND))
        worker = await port.work()
        await asyncio.wait((waiting,), timeout=0.2)
        await worker.complete("done")
        answer = await waiting
        assert answer.headers["connection"] == "close"
        assert answer.body.startswith(b" ")
        assert state_of(caller.task(document(answer)["result"])) == "completed"


@pytest.mark.parametrize("lasting", [False, True])
async def test_a_client_that_leaves_ends_its_send_and_not_its_task(
    tmp_path: Path, version: str, *, lasting: bool
) -> None:
    """Before anything was sent to it, or after; nothing of it is an error."""
    settings = SETTINGS | {"heartbeat_a2a": 0.05 if lasting else 20.0}
    async with served(tmp_path, taking(queue_depth=5), settings=settings) as port:
        caller = Caller(port, version)
        with capture_logs() as lines:
            reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
            writer.write(caller.request("send", caller.params()))
            worker = await port.work()
            assert await followers(port) == 1
            if lasting:
                await reader.readuntil(b" ")
            else:  # else it would look like a client that has only said all it has to say
                reset = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            writer.transport.abort()
            engine = await port.engine()
            await until(lambda: len(engine.telling.followers) == 0)
            await worker.complete("done")
            assert await caller.state(worker.id) == "completed"
        assert lines == []


async def test_a_send_ends_when_its_listener_does(caller: Caller) -> None:
    """With the task as it stands."""
    waiting = asyncio.ensure_future(caller.result("send", caller.params()))
    await caller.port.work()
    await caller.port.bench.serve()
    assert state_of(caller.task(await waiting)) == "working"


async def test_sends_are_counted_with_what_came_of_them(caller: Caller) -> None:
    """By version and call."""
    waiting = asyncio.ensure_future(caller.result("send", caller.params()))
    worker = await caller.port.work()
    await worker.complete("done")
    await waiting
    await caller.code("get", {"id": "none"})
    await caller.raw(b"{}")
    counted = caller.port.bench.metrics.capsule("a").requests
    assert counted == {
        (f"a2a-{caller.version}/send", "ok"): 1,
        (f"a2a-{caller.version}/get", "-32001"): 1,
        ("other", "-32600"): 1,
    }


async def test_a_log_that_cannot_be_read_is_an_internal_error(tmp_path: Path, version: str) -> None:
    """For calls that ask, and for sends that wait."""
    async with session(tmp_path) as s:
        counted: list[tuple[str, str]] = []
        door = A2aDoor(s.engine, capsule(), lambda what, how: counted.append((what, how)))
        asked = Asked("operator", version)
        send = {V03: SEND_03, V10: SEND_10}[version]
        waiting = await door.call(send, asked)
        assert isinstance(waiting, WaitingSend)
        await s.engine.close()
        for answer in (await waiting.next(), await door.call(send, asked)):
            assert isinstance(answer, bytes)
            error = json.loads(answer)["error"]
            assert error["code"] == -32603
            assert error["message"].startswith("Internal error: ")
        waiting.close()
        assert counted == [(f"a2a-{version}/send", "-32603")] * 2
