"""The HTTP server between two requests: what comes together, what comes apart, and methods that nobody knows."""

from __future__ import annotations

import asyncio
import json

import pytest

from sidecar.web.guards import Guards, Rules
from sidecar.web.heads import END, Seam, is_one_call
from sidecar.web.server import HttpLimits
from tests.support.rawhttp import exchange, read_answer, request_bytes
from tests.support.site import Site, raw, site
from tests.support.waiting import until

HEAD = b" HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET /a" + HEAD + b"\r\n"
POST = b"POST /" + HEAD + b"Content-Type: application/json\r\n"
WHOLE = POST + b"Content-Length: 2\r\n\r\n[]"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n"
GARBAGE = (b"\x00", b"hello\r\n\r\n", b"GET /b HTTP/1.1\r\nbad line\r\n\r\n", b"\x16\x03\x01")


def statuses(received: bytes) -> list[int]:
    """Return the status of every answer."""
    return [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("good", [GET, WHOLE, CHUNKED, GET + WHOLE + CHUNKED + GET, GET * 100])
async def test_garbage_takes_nothing_with_it_that_came_before(good: bytes, garbage: bytes) -> None:
    """Whole requests are run and answered, also those in the same packet as what is none; then comes one 400."""
    async with site() as made:
        count = len(good.split(b"HTTP/1.1")) - 1
        received = await raw(made.port, good + garbage)
        assert statuses(received) == [200] * count + [400]
        assert made.entered == count
        assert received.count(b"connection: close") == 1


async def test_requests_are_found_wherever_packets_end() -> None:
    """One byte after the other, or cut within the end of a head: the answers are those of one packet."""
    sent = GET + WHOLE + CHUNKED + GET + b"hello\r\n\r\n"
    async with site() as made:
        for cut in (1, len(GET) - 3, len(GET) - 2, len(GET) - 1, len(GET)):
            reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
            loop = asyncio.get_running_loop()
            sock = writer.get_extra_info("socket").dup()
            try:
                for piece in (sent[:cut], sent[cut:]):
                    await loop.sock_sendall(sock, piece)
                    await asyncio.sleep(0.02)
                async with asyncio.timeout(10):
                    assert statuses(await reader.read()) == [200, 200, 200, 200, 400]
            finally:
                sock.close()
                writer.close()
                await writer.wait_closed()


async def test_a_body_full_of_ends_of_heads_arrives_whole() -> None:
    """What looks like the end of a head within a body is part of the body."""
    async with site(body=1_000_000) as made:
        body = b"\r\n\r\n" * 50_000
        headers = {"Content-Type": "application/json"}
        answer = await exchange(made.port, request_bytes("POST", "/", headers=headers, body=body))
        assert (answer.status, answer.body) == (200, body)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (POST + b"Content-Length: 2\r\n\r\n", b"[]"),
        (POST + b"content-length: 2\r\n\r\n", b"[]"),
        (POST + b"Content-Length: 2\r\n\r\n", b"[]GET /"),
        (POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n", b"[]"),
        (POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", b"[]"),
        (POST + b"X: y\r\nContent-Length: +2\r\n\r\n", b"[]"),
        (POST + b"Bad line\r\nContent-Length: 2\r\n\r\n", b"[]"),
        (POST.replace(b"1.1", b"1.2") + b"Content-Length: 2\r\n\r\n", b"[]"),
        (POST.replace(b"1.1", b"1.0") + b"Content-Length: 2\r\n\r\n", b"[]"),
        (POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", b"[]"),
        (POST + b"Expect: luck\r\nContent-Length: 2\r\n\r\n", b"[]"),
        (POST + b"Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\n", b"[]"),
        (POST + b"Content-Length: 0\r\n\r\n", b""),
    ],
)
async def test_a_call_on_an_idle_connection_is_answered_as_one_behind_another(
    head: bytes, body: bytes
) -> None:
    """Whether it is taken whole or cut at its head, good or not: the same answers come."""
    async with site() as made:
        behind = await raw(made.port, GET + head + body, half_close=True)
    async with site() as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        try:
            writer.write(GET)
            async with asyncio.timeout(10):
                first = await reader.readuntil(b"\r\n\r\n/a")
                writer.write(head + body)
                writer.write_eof()
                idle = first + await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()
    assert statuses(idle) == statuses(behind)
    assert len(statuses(idle)) > 1


def test_only_a_post_with_its_whole_body_and_no_more_is_one_call() -> None:
    """What cannot be told at a glance is none."""
    assert is_one_call(WHOLE)
    assert is_one_call(POST + b"Content-Length: 0\r\n\r\n")
    for other in (b"", GET, CHUNKED, WHOLE + b" ", WHOLE[:-1], WHOLE + GET, b"\r\n" + WHOLE, POST):
        assert not is_one_call(other)


@pytest.mark.parametrize("left", [0, 1, 2, 3])
def test_the_end_of_a_head_is_found_across_a_seam(left: int) -> None:
    """However the four bytes are divided, the head ends behind them."""
    seam = Seam()
    seam.left = (b"x" + END[:left])[-3:]
    assert seam.end_of_head(END[left:] + b"GET", 0) == 4 - left
    assert seam.end_of_head(b"ab", 0) == 2


@pytest.mark.parametrize("method", ["FOO", "get", "Post", "BREW", "G", "PURGES", "X-Y!", "M" * 64])
async def test_an_unknown_method_comes_to_the_handler(method: str) -> None:
    """It is the handler that says 404 or 405; the connection goes on, with a body too."""
    async with site() as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        for _ in range(2):
            writer.write(method.encode() + b" /a?b" + HEAD + b"Content-Length: 2\r\n\r\n{}" + GET)
            async with asyncio.timeout(10):
                first = await read_answer(reader)
                assert (first.status, first.headers["x-method"], first.body) == (200, method, b"/a?b")
                if "connection" in first.headers:  # its body was not read yet when the answer went out
                    break
                assert (await read_answer(reader)).headers["x-method"] == "GET"
        writer.close()
        await writer.wait_closed()


async def test_unknown_methods_may_stand_between_others() -> None:
    """Each request of a pipeline is answered in its turn, and guarded."""
    async with site() as made:
        answers = await raw(
            made.port, GET + b"FOO /" + HEAD + b"\r\n" + GET + b"BAR / HTTP/1.1\r\nHost: evil\r\n\r\n" + b"\0"
        )
        assert statuses(answers) == [200, 200, 200, 403, 400]


async def test_new_guards_and_limits_hold_for_connections_that_are_open() -> None:
    """A reload does not wait for a client to connect again."""
    async with site() as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        name = GET.replace(b"localhost", b"capsules.example")
        for rules, status in ((Rules("listen"), 403), (Rules("listen", hosts=("capsules.example",)), 200)):
            made.policy.guards = Guards(rules)
            writer.write(name)
            assert (await read_answer(reader)).status == status
        made.policy.limits = HttpLimits(body=1)
        writer.write(WHOLE)
        assert (await read_answer(reader)).status == 413
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(("target", "says"), [(b"/x#f", "fragment"), (b"*", "*"), (b"http://a/", "slash")])
async def test_the_refusal_of_a_target_says_what_is_wrong_with_it(target: bytes, says: str) -> None:
    """A path with a fragment does begin with a slash."""
    async with site() as made:
        answer = await raw(made.port, b"GET " + target + HEAD + b"\r\n")
        message = json.loads(answer.partition(b"\r\n\r\n")[2])["message"]
        assert says in message


UNFINISHED = {
    "a declared length": POST + b"Content-Length: 1000\r\n\r\n[",
    "no chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n",
    "within a chunk": POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n[",
    "an expectation": POST + b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n",
}


async def drained(made: Site, reader: asyncio.StreamReader) -> bytes:
    """Drain with a budget that nobody would wait for, and return what a client got."""
    async with asyncio.timeout(10):
        await made.server.drain(budget=1000.0, cut=0.1)
        return await reader.read()


@pytest.mark.parametrize("case", UNFINISHED)
async def test_draining_does_not_wait_for_a_body(case: str) -> None:
    """Who has not sent the whole request by the cut is told so, and let go."""
    async with site(body_timeout=1000.0, idle=1000.0) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(UNFINISHED[case])
        await until(lambda: made.entered == 1)
        received = await drained(made, reader)
        answer = received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503 "), received
        assert b"connection: close" in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "unavailable"
        writer.close()
        await writer.wait_closed()


async def test_draining_takes_a_body_that_is_under_way() -> None:
    """What arrives before the cut is answered as ever."""
    async with site() as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(WHOLE[:-1])
        await until(lambda: made.entered == 1)
        async with asyncio.timeout(10):
            draining = asyncio.ensure_future(made.server.drain(budget=1000.0, cut=1000.0))
            await until(lambda: made.server.connections[0]._last)  # type: ignore[attr-defined]  # noqa: SLF001 - nothing else shows that the drain began
            writer.write(b"]")
            answer = await read_answer(reader)
            await draining
        assert (answer.status, answer.body, answer.headers["connection"]) == (200, b"[]", "close")
        writer.close()
        await writer.wait_closed()


async def test_draining_does_not_wait_for_the_rest_of_a_refused_body() -> None:
    """A body that was answered already, and is only thrown away, ends with its listener."""
    async with site() as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(POST.replace(b"json", b"xml") + b"Content-Length: 1000\r\n\r\n[")
        await until(lambda: made.entered == 1)
        answer = await drained(made, reader)
        assert answer.startswith(b"HTTP/1.1 415 ")
        writer.close()
        await writer.wait_closed()


async def test_a_handler_that_comes_to_its_body_after_the_cut_does_not_wait_either() -> None:
    """The request waited for something else when the listener ended."""
    async with site(body_timeout=1000.0) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(UNFINISHED["no chunk"].replace(b"POST /", b"POST /waits"))
        await until(lambda: made.entered == 1)
        draining = asyncio.ensure_future(drained(made, reader))
        await until(lambda: made.server.connections[0].given_up)  # type: ignore[attr-defined]  # of our own kind
        made.release.set()
        assert (await draining).startswith(b"HTTP/1.1 503 ")
        writer.close()
        await writer.wait_closed()
