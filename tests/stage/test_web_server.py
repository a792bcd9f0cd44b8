"""The HTTP server that all listeners share, against clients that no library would be."""

from __future__ import annotations

import asyncio
import json
import socket
import tracemalloc
from contextlib import suppress
from random import Random

import pytest
from structlog.testing import capture_logs

from sidecar.web.refusals import RefusalLog
from sidecar.web.sockets import BindError, listen
from tests.support.rawhttp import exchange, get, read_answer, request_bytes
from tests.support.site import BIG, BODY_LIMIT, raw, site
from tests.support.waiting import until


def post(body: bytes = b"{}", *, kind: str = "application/json", **more: str) -> bytes:
    """Make a POST with a JSON body."""
    headers = {"Content-Type": kind, **{k.replace("_", "-"): v for k, v in more.items()}}
    return request_bytes("POST", "/", headers=headers, body=body)


async def connections(port: int, count: int) -> list[socket.socket]:
    """Open connections that send nothing, without stopping the loop that accepts them."""
    loop = asyncio.get_running_loop()
    opened = []
    for _ in range(count):
        sock = socket.socket()
        sock.setblocking(False)
        opened.append(sock)
        await loop.sock_connect(sock, ("127.0.0.1", port))
    return opened


START = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
REFUSED = {
    "no HTTP at all": (b"hello\r\n\r\n", 400, "bad_request"),
    "TLS on a plain port": (b"\x16\x03\x01\x00\xf1\x01\x00\x00\xed\x03\x03", 400, "bad_request"),
    "an HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad_request"),
    "a method that is no token": (b"BR(W / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_request"),
    "an unknown method and more wrong": (b"BREW / HTTP/1.1\r\nHost : a\r\n\r\n", 400, "bad_request"),
    "an unknown method without a Host": (b"BREW / HTTP/1.1\r\n\r\n", 400, "bad_request"),
    "an unknown method and an absolute target": (
        b"BREW http://a/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        400,
        "bad_request",
    ),
    "an unknown method that asks for another protocol": (
        b"BREW / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        400,
        "bad_request",
    ),
    "a coding before chunks": (
        START + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        400,
        "bad_request",
    ),
    "chunks twice": (START + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400, "bad_request"),
    "codings on two lines": (
        START + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "bad_request",
    ),
    "another coding": (START + b"Transfer-Encoding: gzip\r\n\r\n", 400, "bad_request"),
    "the coding that is none": (START + b"Transfer-Encoding: identity\r\n\r\n", 400, "bad_request"),
    "an empty coding": (START + b"Transfer-Encoding:\r\n\r\n", 400, "bad_request"),
    "chunks in HTTP/1.0": (
        START.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "bad_request",
    ),
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_request"),
    "no Host in HTTP/1.0": (b"GET / HTTP/1.0\r\n\r\n", 400, "bad_request"),
    "two Hosts": (START + b"Host: localhost\r\n\r\n", 400, "bad_request"),
    "a header without a colon": (START + b"nonsense\r\n\r\n", 400, "bad_request"),
    "a space before the colon": (START + b"A : b\r\n\r\n", 400, "bad_request"),
    "a NUL in a header": (START + b"A: \x00\r\n\r\n", 400, "bad_request"),
    "a folded header": (START + b"A: b\r\n c\r\n\r\n", 400, "bad_request"),
    "a negative length": (START + b"Content-Length: -1\r\n\r\n", 400, "bad_request"),
    "two lengths": (START + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "bad_request"),
    "length and chunks": (
        START + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
        "bad_request",
    ),
    "an absolute target": (b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_request"),
    "an authority target": (b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_request"),
    "an asterisk target": (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_request"),
    "a relative target": (b"GET x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_request"),
    "a fragment": (b"GET /#x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_request"),
    "bytes above 127 in the target": (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_request"),
    "a long header": (START + b"A: " + b"a" * 9000 + b"\r\n\r\n", 431, "header_too_large"),
    "a long header name": (START + b"a" * 9000 + b": b\r\n\r\n", 431, "header_too_large"),
    "a long target": (
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        431,
        "header_too_large",
    ),
    "many headers": (START + b"A: b\r\n" * 200 + b"\r\n", 431, "header_too_large"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_no_request_is_refused_in_the_one_shape(case: str) -> None:
    """The parser's refusals are JSON with our codes, end the connection, and leave no traceback."""
    data, status, code = REFUSED[case]
    async with site() as made:
        with capture_logs() as lines:
            answer = await raw(made.port, data)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status), answer
        assert b"content-type: application/json" in head
        assert b"content-length: %d" % len(body) in head
        document = json.loads(body)
        assert document["error"] == code
        assert document["message"].isprintable()
        assert list(document) == ["error", "message"]
        assert made.entered == 0
        assert all(line["log_level"] == "warning" and "exc_info" not in line for line in lines)


async def test_refused_requests_do_not_flood_the_log() -> None:
    """However many come, few lines are written, and the next one counts the rest."""
    async with site() as made:
        made.policy.refusals = RefusalLog(lines=2, period=0.2)
        with capture_logs() as lines:
            for _ in range(10):
                await raw(made.port, b"hello\r\n\r\n")
            assert 1 <= len(lines) < 10

            async def says_how_many() -> bool:
                await raw(made.port, b"hello\r\n\r\n")
                return any(line.get("not_logged") for line in lines)

            await until(says_how_many)
        assert {line["event"] for line in lines} == {"request_refused"}


@pytest.mark.parametrize("address", ["127.0.0.1"])
async def test_b46_guards_come_before_the_handler(address: str) -> None:
    """B46: a foreign Host or Origin is refused before anything is dispatched, a body is not read."""
    async with site() as made:
        for headers in ({"Host": "evil.example"}, {"Host": "localhost", "Origin": "http://evil.example"}):
            answer = await exchange(made.port, request_bytes("POST", "/", headers=headers, body=b"{}"))
            assert answer.status == 403
        assert made.entered == 0


async def test_an_answer_is_complete_and_keeps_the_connection() -> None:
    """Requests on one connection are answered one after the other, each with date and length."""
    async with site() as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        for path in (b"/a", b"/b"):
            writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
            answer = await read_answer(reader)
            assert (answer.status, answer.body) == (200, path)
            assert answer.headers["date"].endswith("GMT")
            assert "connection" not in answer.headers
        writer.close()
        await writer.wait_closed()


async def test_pipelined_requests_are_answered_in_order() -> None:
    """A client that sends many at once gets many answers, also when it says that it is done."""
    async with site() as made:
        wanted = [b"/%d" % number for number in range(100)]
        sent = b"".join(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in wanted)
        answer = await raw(made.port, sent, half_close=True)
        assert [part.rpartition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 200 OK")[1:]] == wanted


async def test_head_is_answered_without_a_body() -> None:
    """The head is that of the GET."""
    async with site() as made:
        answer = await get(made.port, "/abc", method="HEAD")
        assert answer.headers["content-length"] == "4"
        assert (await raw(made.port, request_bytes("HEAD", "/abc"))).endswith(b"\r\n\r\n")


async def test_http_1_0_connections_end_unless_kept_on_purpose() -> None:
    """RFC 9112 section 9.3."""
    async with site() as made:
        ends = await raw(made.port, b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert b"connection: close" in ends
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        for _ in range(2):
            writer.write(b"GET / HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n")
            assert (await read_answer(reader)).headers["connection"] == "keep-alive"
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("sent", [b"", START, START + b"A: b"])
async def test_a_slow_header_ends_the_connection_whatever_trickles(sent: bytes) -> None:
    """The deadline of a header is absolute: one byte after the other does not extend it. A header that began gets 408."""
    async with site(idle=0.3) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(sent)

        async def trickle() -> None:
            while True:
                writer.write(b"a" if sent else b"")
                await asyncio.sleep(0.05)

        trickling = asyncio.ensure_future(trickle())
        try:
            async with asyncio.timeout(10):
                answer = await reader.read()
        finally:
            trickling.cancel()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        assert answer.startswith(b"HTTP/1.1 408 ") if sent else answer == b""
        assert b'"error":"timeout"' in answer or not sent


async def test_a_head_without_end_is_refused() -> None:
    """However short its lines and however fast it comes, its size is limited as a whole."""
    async with site() as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(START)
        for _ in range(10):
            writer.write(b"A: " + b"a" * 8000 + b"\r\n")
            await asyncio.sleep(0.02)
        async with asyncio.timeout(10):
            answer = await read_answer(reader)
        assert (answer.status, json.loads(answer.body)["error"]) == (431, "header_too_large")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_random_bytes_never_upset_the_server() -> None:
    """Damaged requests are refused or answered, with no line above a warning, and the port goes on."""
    random = Random(20260131)
    good = [
        START + b"\r\n",
        post(b'{"a":1}'),
        request_bytes("GET", "/abc?d=e", headers={"If-None-Match": "*", "Range": "bytes=0-1"}),
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\n{}\r\n0\r\n\r\n"
        ),
        START + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x05hello",
    ]
    async with site(body_timeout=0.05, idle=0.5) as made:
        made.policy.refusals = RefusalLog(lines=0)

        async def damaged() -> bytes:
            data = bytearray(random.choice(good))
            for _ in range(random.randint(1, 4)):
                place = random.randrange(len(data))
                data[place : place + random.randint(0, 3)] = random.randbytes(random.randint(0, 3))
            with suppress(ConnectionError):
                return await raw(made.port, bytes(data), half_close=random.random() < 0.5)
            return b""

        with capture_logs() as lines:
            for _ in range(15):
                for answer in await asyncio.gather(*(damaged() for _ in range(20))):
                    assert answer == b"" or answer.startswith(b"HTTP/1.1 "), answer
        assert lines == []
        assert (await get(made.port, "/")).status == 200


async def test_a_slow_body_is_refused_whatever_trickles() -> None:
    """408 at the deadline of the whole body, which trickling does not extend."""
    async with site(body_timeout=0.3) as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n"
        )

        async def trickle() -> None:
            while True:
                writer.write(b" ")
                await asyncio.sleep(0.05)

        trickling = asyncio.ensure_future(trickle())
        try:
            async with asyncio.timeout(10):
                answer = await read_answer(reader)
        finally:
            trickling.cancel()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        assert answer.status == 408
        assert json.loads(answer.body)["error"] == "timeout"
        assert answer.headers["connection"] == "close"


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON", "application/a+json"]
)
async def test_json_is_taken_with_any_parameters(kind: str) -> None:
    """The media type counts, in any case, with parameters."""
    async with site() as made:
        answer = await exchange(made.port, post(b"[1]", kind=kind))
        assert (answer.status, answer.body) == (200, b"[1]")


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded", "json", "+json"])
async def test_another_type_of_body_is_refused(kind: str) -> None:
    """415; a form or plain text, which any web page can send, never gets in."""
    async with site() as made:
        answer = await exchange(made.port, post(kind=kind))
        assert (answer.status, json.loads(answer.body)["error"]) == (415, "unsupported_media_type")


async def test_a_compressed_body_is_refused() -> None:
    """What is not inflated cannot swell; the answer says what is taken."""
    async with site() as made:
        for coding in ("gzip", "deflate", "br", "gzip, gzip", "whatever"):
            answer = await exchange(made.port, post(b"\x1f\x8b", Content_Encoding=coding))
            assert answer.status == 415
            assert answer.headers["accept-encoding"] == "identity"
        assert (await exchange(made.port, post(b"{}", Content_Encoding="identity"))).status == 200


async def test_b34_a_declared_body_over_the_limit_is_refused_unread() -> None:
    """B34: 413 in our shape before a byte of it is sent; at the limit it is taken."""
    async with site() as made:
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        answer = await raw(made.port, head + b"Content-Length: %d\r\n\r\n" % (BODY_LIMIT + 1))
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "body_too_large"
        assert (await exchange(made.port, post(b" " * BODY_LIMIT))).status == 200


async def test_b49_a_chunked_body_over_the_limit_is_refused_and_memory_stays_flat() -> None:
    """B49: the limit holds without a Content-Length too, and nothing of the excess is kept."""
    async with site() as made:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        tracemalloc.start()
        try:
            with suppress(ConnectionError):
                for _ in range(160):
                    writer.write(chunk)
                    await writer.drain()
            with suppress(ConnectionError):
                assert (await read_answer(reader)).status == 413
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        assert peak < 3_000_000


async def test_a_body_that_breaks_off_its_own_framing_is_refused_at_once() -> None:
    """A chunk size that is none gives 400, not a wait for the body's deadline."""
    async with site() as made:
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        for rest in (b"zz\r\n", b"2\r\n{}\r\nzz\r\n", b"1\r\n{}}\r\n"):
            answer = await raw(made.port, head + rest)
            assert answer.startswith(b"HTTP/1.1 400 "), answer
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "bad_request"
        before = made.entered
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(head + b"2\r\n{}\r\n")
        await until(lambda: made.entered > before)
        writer.write(b"zz\r\n")
        assert (await read_answer(reader)).status == 400
        writer.close()
        await writer.wait_closed()


async def test_a_client_that_asks_before_sending_its_body_is_told_to_go_on() -> None:
    """`Expect: 100-continue` is answered at once, and only when the body will be read."""
    async with site() as made:
        head = b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: 100-continue\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(head + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n")
        async with asyncio.timeout(10):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"[]")
            assert (await read_answer(reader)).body == b"[]"
        writer.close()
        await writer.wait_closed()
        refused = await raw(made.port, head + b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 415 ")
        refused = await raw(
            made.port, head + b"Content-Type: application/json\r\nContent-Length: 2000\r\n\r\n"
        )
        assert refused.startswith(b"HTTP/1.1 413 ")
        old = head.replace(b"1.1", b"1.0") + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"
        assert (await raw(made.port, old)).startswith(b"HTTP/1.1 200 ")
        other = post(Expect="200-ok")
        assert (await exchange(made.port, other)).status == 400


async def test_a_failure_after_go_on_is_still_answered() -> None:
    """The interim answer is no answer."""
    async with site(body_timeout=0.2) as made:
        answer = await raw(
            made.port,
            b"POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n",
        )
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 408 ")


async def test_a_half_closed_connection_gets_its_answer() -> None:
    """A client that says it sends nothing more, after a whole request, is answered and then left."""
    async with site() as made:
        with capture_logs() as lines:
            assert (await raw(made.port, START + b"\r\n", half_close=True)).endswith(b"\r\n\r\n/")
            assert (await raw(made.port, post(b"[2]"), half_close=True)).endswith(b"[2]")
            made.release.set()
            waits = START.replace(b"/ ", b"/waits ") + b"\r\n"
            assert (await raw(made.port, waits, half_close=True)).endswith(b"/waits")
            assert await raw(made.port, b"", half_close=True) == b""
            assert await raw(made.port, START, half_close=True) == b""
        assert lines == []


async def test_a_body_cut_short_by_a_half_close_gets_no_bytes() -> None:
    """Envelope case: a declared length that never comes, then the end: the connection closes, silently."""
    async with site() as made:
        with capture_logs() as lines:
            for _ in range(5):
                sent = post(b"{}").replace(b"Content-Length: 2", b"Content-Length: 20")
                assert await raw(made.port, sent, half_close=True) == b""
        assert lines == []


async def test_b30_a_client_that_leaves_is_no_error() -> None:
    """B30: whoever hangs up while its request is worked on cancels that, and leaves no line in the log."""
    async with site() as made:
        with capture_logs() as lines:
            rude, polite = (socket.create_connection(("127.0.0.1", made.port)) for _ in range(2))
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            for sock in (rude, polite):
                sock.sendall(START.replace(b"/ ", b"/waits ") + b"\r\n")
            await until(lambda: made.entered == 2)
            rude.close()
            polite.close()
            await until(lambda: made.cancelled == 1)
            made.release.set()
            await until(lambda: not made.server.busy)
        assert lines == []


async def test_b30_a_client_that_leaves_within_its_body_is_no_error() -> None:
    """B30: a body that ends with the connection is nobody's error."""
    async with site() as made:
        with capture_logs() as lines:
            sock = socket.create_connection(("127.0.0.1", made.port))
            sock.sendall(post(b"{}").replace(b"Content-Length: 2", b"Content-Length: 20"))
            await until(lambda: made.entered == 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            sock.close()
            await until(lambda: not made.server.busy)
        assert lines == []


async def test_b30_a_client_that_leaves_while_it_is_written_to_is_no_error() -> None:
    """B30: whatever a handler met when it wrote to a connection that is gone, that one ends and nothing else."""
    async with site() as made:
        with capture_logs() as lines:
            assert await raw(made.port, START.replace(b"/ ", b"/leaves ") + b"\r\n") == b""
        assert lines == []
        assert (await get(made.port, "/")).status == 200


async def test_an_unexpected_failure_is_answered_and_logged_once() -> None:
    """500 in our shape without a detail, and one line that has it; other connections go on."""
    async with site() as made:
        with capture_logs() as lines:
            answer = await get(made.port, "/fails")
        assert (answer.status, json.loads(answer.body)["error"]) == (500, "internal_error")
        assert b"secret" not in answer.body
        assert [line["event"] for line in lines] == ["request_failed"]
        assert lines[0]["exc_info"]
        assert lines[0]["request"] == answer.headers["x-request-id"]
        assert (await get(made.port, "/")).status == 200


async def test_a_failure_and_a_refusal_are_logged_under_the_name_that_the_client_gave() -> None:
    """So that its report finds the line."""
    async with site() as made:
        with capture_logs() as lines:
            failed = await get(made.port, "/fails", headers={"X-Request-Id": "r-1"})
            await exchange(
                made.port, request_bytes("GET", "/", host="evil.example", headers={"X-Request-Id": "r-2"})
            )
        assert failed.headers["x-request-id"] == "r-1"
        assert [line["request"] for line in lines] == ["r-1", "r-2"]


async def test_connections_over_the_limit_are_turned_away() -> None:
    """503 with Retry-After for who comes too late; once one leaves, the next gets in."""
    async with site(connections=3) as made:
        held = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(3)]
        try:
            await until(lambda: len(made.server.connections) == 3)
            answer = await exchange(made.port, request_bytes("GET", "/"))
            assert (answer.status, json.loads(answer.body)["error"]) == (503, "unavailable")
            assert answer.headers["retry-after"]
            assert answer.headers["connection"] == "close"
            held.pop().close()

            async def gets_in() -> bool:
                return (await get(made.port, "/")).status == 200

            await until(gets_in)
        finally:
            for sock in held:
                sock.close()


async def test_the_limit_holds_for_connections_that_come_all_at_once() -> None:
    """They are accepted in one go, before any of them counts."""
    async with site(connections=3) as made:
        socks = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(100)]
        try:
            await until(lambda: len(made.server.connections) == 3 and not made.server.turned_away)
            assert made.policy.connections == 3
        finally:
            for sock in socks:
                sock.close()
        await until(lambda: made.policy.connections == made.policy.turned_away == 0)


async def test_all_listeners_together_have_a_limit_too() -> None:
    """Connections to one listener leave descriptors for the others' files and for the rest of the process."""
    async with site() as one, site() as other:
        other.server.policy = one.policy
        one.policy.most = 2
        held = await connections(one.port, 2)
        await until(lambda: one.policy.connections == 2)
        assert (await get(other.port, "/")).status == 503
        held.pop().close()
        await until(lambda: one.policy.connections == 1)
        assert (await get(other.port, "/")).status == 200
        held.pop().close()
        await until(lambda: one.policy.connections == one.policy.turned_away == 0)


async def test_hundreds_of_turned_away_connections_cost_next_to_nothing() -> None:
    """Beyond a few that get the answer, connections over the limit are just ended."""
    async with site(connections=1) as made:
        held = await connections(made.port, 300)
        try:
            await until(lambda: not made.server.turned_away, within=20)
            assert len(made.server.connections) == 1
        finally:
            for sock in held:
                sock.close()


async def test_hundreds_of_silent_connections_are_let_go() -> None:
    """Opened and left: each ends at the idle time, and the port answers meanwhile."""
    async with site(idle=1.0) as made:
        held = await connections(made.port, 300)
        try:
            assert (await get(made.port, "/")).status == 200
            await until(lambda: not made.server.busy, within=20)
        finally:
            for sock in held:
                sock.close()


async def test_a_client_that_does_not_read_is_cut_off_and_nobody_else_notices() -> None:
    """A big answer that is not taken for the idle time ends its connection; others are answered meanwhile."""
    async with site(idle=0.5) as made:
        sock = socket.create_connection(("127.0.0.1", made.port))
        try:
            sock.sendall(START.replace(b"/ ", b"/big ") + b"\r\n")
            await until(lambda: made.entered == 1)
            with capture_logs() as lines:
                assert (await get(made.port, "/")).status == 200
                await until(lambda: not made.server.busy, within=15)
            assert lines == []
        finally:
            sock.close()


async def test_a_closing_answer_that_nobody_takes_is_cut_off() -> None:
    """Also the rest of a last answer cannot hold a connection for ever."""
    async with site(idle=0.5) as made:
        sock = socket.create_connection(("127.0.0.1", made.port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            sock.sendall((START.replace(b"/ ", b"/" + b"a" * 8000 + b" ") + b"\r\n") * 400)
        except BlockingIOError:
            pass
        finally:
            await until(lambda: not made.server.busy, within=15)
            sock.close()


async def test_a_big_answer_arrives_whole() -> None:
    """It goes out in pieces, as fast as the client reads."""
    async with site() as made:
        answer = await exchange(made.port, request_bytes("GET", "/big"))
        assert len(answer.body) == BIG


async def test_draining_ends_idle_connections_and_lets_busy_ones_finish() -> None:
    """Idle ones end at once; a request under way is answered, and its connection closed."""
    async with site() as made:
        idle = socket.create_connection(("127.0.0.1", made.port))
        idle.setblocking(False)
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(START.replace(b"/ ", b"/waits ") + b"\r\n")
        await until(lambda: made.entered == 1 and len(made.server.connections) == 2)
        draining = asyncio.ensure_future(made.server.drain(budget=10.0, cut=0.1))
        loop = asyncio.get_running_loop()
        assert await asyncio.wait_for(loop.sock_recv(idle, 1), 5) == b""
        idle.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", made.port)
        made.release.set()
        answer = await read_answer(reader)
        assert (answer.body, answer.headers["connection"]) == (b"/waits", "close")
        await draining
        writer.close()
        await writer.wait_closed()


async def test_draining_cuts_off_who_does_not_read_and_what_never_ends() -> None:
    """Neither a client that does not read nor a handler that hangs holds up the end."""
    async with site() as made:
        deaf = socket.create_connection(("127.0.0.1", made.port))
        deaf.sendall(START.replace(b"/ ", b"/big ") + b"\r\n")
        hangs = socket.create_connection(("127.0.0.1", made.port))
        hangs.sendall(START.replace(b"/ ", b"/waits ") + b"\r\n")
        await until(lambda: made.entered == 2)
        await until(lambda: any(c.unsent for c in made.server._open()))  # noqa: SLF001 - no other way to see it
        with capture_logs() as lines:
            async with asyncio.timeout(10):
                await made.server.drain(budget=0.5, cut=0.1)
        assert not made.server.busy
        assert made.cancelled == 1
        assert lines == []
        deaf.close()
        hangs.close()


def test_all_hosts_are_bound_or_none() -> None:
    """A second address that is taken gives the first one back."""
    with socket.socket() as other:
        other.bind(("127.0.0.2", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(BindError) as refused:
            listen(["127.0.0.1", "127.0.0.2"], port)
        assert (refused.value.host, refused.value.port) == ("127.0.0.2", port)
        for sock in listen(["127.0.0.1"], port):
            sock.close()


def test_ipv4_and_ipv6_share_a_port() -> None:
    """The wildcards of both families go together, since IPv6 sockets take IPv6 only."""
    sockets = listen(["0.0.0.0", "::"], 0)
    try:
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
        assert sockets[1].getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
    finally:
        for sock in sockets:
            sock.close()


def test_a_name_is_bound_on_all_its_addresses() -> None:
    """`localhost` answers on every loopback address that it stands for; naming one of them twice does no harm."""
    names = {address[0] for *_, address in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    sockets = listen(["localhost", "127.0.0.1"], 0)
    try:
        assert {sock.getsockname()[0] for sock in sockets} <= names | {"127.0.0.1"}
        assert "127.0.0.1" in {sock.getsockname()[0] for sock in sockets}
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
    finally:
        for sock in sockets:
            sock.close()


def test_a_bound_port_is_held_at_once() -> None:
    """It listens before anything else happens: another program cannot slip in."""
    (sock,) = listen(["127.0.0.1"], 0)
    try:
        with pytest.raises(BindError, match="in use"):
            listen(["127.0.0.1"], sock.getsockname()[1])
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) == 0
    finally:
        sock.close()


async def test_b22_a_port_is_taken_again_although_its_connections_linger() -> None:
    """B22: connections in TIME_WAIT, or still draining, do not keep the port from being bound again."""
    for _ in range(3):
        async with site() as made:
            port = made.port
            await get(port, "/")
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(START + b"\r\n")
            await read_answer(reader)
            made.server.stop_accepting()
            for sock in listen(["127.0.0.1"], port):
                sock.close()
            writer.close()
            await writer.wait_closed()
        for sock in listen(["127.0.0.1"], port):
            sock.close()


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_accepted_as_the_listener_closes_is_not_left_hanging(turns: int) -> None:
    """However far its acceptance has come: the client sees an end at once, or it is served; nothing is left of it."""
    async with site() as made:
        with socket.create_connection(("127.0.0.1", made.port)) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            made.server.stop_accepting()
            for sock in listen(["127.0.0.1"], made.port):
                sock.close()
            await made.server.drain(budget=3.0)
            client.setblocking(False)
            with suppress(ConnectionError):
                async with asyncio.timeout(10):
                    assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
