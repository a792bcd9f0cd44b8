"""Listeners that speak TLS: they do what plain ones do, also for clients that stop half-way."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from contextlib import suppress
from random import Random

import pytest
from structlog.testing import capture_logs

from sidecar.certificates import read_pair
from sidecar.web.turned_away import MOST_TURNED_AWAY
from tests.support.certificates import Files, connected, dialed, make_pair
from tests.support.rawhttp import request_bytes
from tests.support.site import BIG, raw, site
from tests.support.waiting import until

GET = request_bytes("GET", "/")
KEPT = request_bytes("GET", "/kept", headers={"Connection": "keep-alive"})


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A pair for this machine."""
    return make_pair(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def served(files: Files) -> ssl.SSLContext:
    """What a listener serves it with."""
    return read_pair(str(files.cert), str(files.key)).context


@pytest.fixture(scope="session")
def trusted(files: Files) -> ssl.SSLContext:
    """What a client trusts it with."""
    return files.trusted()


def body_of(answer: bytes) -> bytes:
    """Return the body of a 200."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), answer[:200]
    return body


async def test_requests_are_answered_over_the_newest_version(
    served: ssl.SSLContext, trusted: ssl.SSLContext
) -> None:
    """Several on one connection, with HTTP/1.1 agreed on and nothing compressed."""
    trusted.set_alpn_protocols(["h2", "http/1.1"])
    async with site(served) as made, connected(made.port, trusted) as client:
        assert (client.tls.version(), client.tls.selected_alpn_protocol()) == ("TLSv1.3", "http/1.1")
        assert client.tls.compression() is None
        client.send(KEPT)
        assert b"/kept" in await client.read(until=b"/kept")
        client.send(GET)
        assert body_of(await client.read()) == b"/"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_versions_of_today_are_spoken(
    files: Files, served: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    """With forward secrecy in the older one too."""
    context = files.trusted()
    context.minimum_version = context.maximum_version = version
    async with site(served) as made, connected(made.port, context) as client:
        name, _, _ = client.tls.cipher() or ("", "", 0)
        assert name.startswith(("ECDHE-", "TLS_AES_", "TLS_CHACHA20_"))
        client.send(GET)
        assert body_of(await client.read()) == b"/"


@pytest.mark.parametrize("old", ["TLSv1_1", "AES128-SHA256", "DHE", "ECDHE+AES:!AESGCM:!AESCCM"])
async def test_what_is_out_of_date_is_not_spoken(files: Files, served: ssl.SSLContext, old: str) -> None:
    """Neither older versions nor ciphers without forward secrecy, or with it and without authenticated encryption.

    The client is told so by an alert.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(files.cert)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    if old == "TLSv1_1":
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = ssl.TLSVersion.TLSv1_1
    else:
        context.set_ciphers(old)
    async with site(served) as made:
        with capture_logs() as lines:
            async with dialed(made.port, context) as client:
                with pytest.raises(ssl.SSLError, match="alert"):
                    await client.shake_hands()
            await until(lambda: lines)
        assert [(line["event"], line["code"]) for line in lines] == [("request_refused", "no_tls")]


async def test_plain_http_is_told_to_speak_https(served: ssl.SSLContext) -> None:
    """In the one shape of refusals, with one line in the log, and an end."""
    async with site(served) as made:
        with capture_logs() as lines:
            answer = await raw(made.port, GET)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert json.loads(body)["error"] == "bad_request"
        assert "https://" in json.loads(body)["message"]
        assert [line["code"] for line in lines] == ["no_tls"]
        assert made.entered == 0


async def test_a_client_that_does_not_trust_the_certificate_shows_in_the_log(served: ssl.SSLContext) -> None:
    """The operator reads why nobody comes in."""
    async with site(served) as made:
        with capture_logs() as lines:
            async with dialed(made.port, ssl.create_default_context()) as client:
                with pytest.raises(ssl.SSLCertVerificationError):
                    await client.shake_hands()
                client.flush()
                await until(lambda: lines)
        assert "unknown ca" in lines[0]["reason"]


async def test_random_bytes_end_the_connection_and_nothing_else(served: ssl.SSLContext) -> None:
    """Whatever comes in place of a handshake or after it: an end, and no traceback."""
    random = Random(7)
    async with site(served) as made:
        with capture_logs() as lines:
            for _ in range(100):
                head = b"\x16\x03\x01" if random.random() < 0.8 else b""
                with suppress(ConnectionError):
                    await raw(made.port, head + random.randbytes(random.randrange(1, 2000)), half_close=True)
        assert {line["event"] for line in lines} == {"request_refused"}
        assert not made.server.busy


async def test_bytes_that_were_altered_on_their_way_end_the_connection(
    served: ssl.SSLContext, trusted: ssl.SSLContext
) -> None:
    """Nothing of them reaches a handler, and no line is worth writing."""
    async with site(served) as made:
        with capture_logs() as lines:
            async with connected(made.port, trusted) as client:
                client.tls.write(GET)
                data = bytearray(client.outgoing.read())
                data[-1] ^= 1
                client.writer.write(bytes(data))
                with pytest.raises((ssl.SSLError, ConnectionError, EOFError)):
                    await client.read()
        assert (made.entered, lines) == (0, [])


async def test_records_may_come_in_any_pieces(served: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    """A handshake and a hundred requests at once, cut anywhere."""
    async with site(served) as made, dialed(made.port, trusted) as client:
        client.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await client.shake_hands()
        client.tls.write(KEPT * 100 + GET)
        random = Random(3)
        data = client.outgoing.read()
        while data:
            size = random.randrange(1, 400)
            client.writer.write(data[:size])
            data = data[size:]
            await asyncio.sleep(0)
        answer = await client.read()
        assert (answer.count(b"HTTP/1.1 200 "), answer.count(b"/kept")) == (101, 100)


@pytest.mark.parametrize("sent", [0, 1, 50])
async def test_a_slow_handshake_ends(served: ssl.SSLContext, trusted: ssl.SSLContext, sent: int) -> None:
    """After its time, however much of it there is; trickling does not buy more."""
    async with site(served, idle=0.4) as made, dialed(made.port, trusted) as client:
        with suppress(ssl.SSLWantReadError):
            client.tls.do_handshake()
        hello = client.outgoing.read()
        client.writer.write(hello[:sent])

        async def trickle() -> None:
            for place in range(sent, len(hello) - 1):
                client.writer.write(hello[place : place + 1])
                await asyncio.sleep(0.1)

        trickling = asyncio.ensure_future(trickle())
        with suppress(ConnectionError):
            assert await client.reader.read() == b""
        trickling.cancel()
        await asyncio.wait((trickling,))
        await until(lambda: not made.server.busy)
        assert made.policy.handshakes == 0


async def test_handshakes_count_among_the_connections(
    served: ssl.SSLContext, trusted: ssl.SSLContext
) -> None:
    """Connections that only wait to be asked who they are cannot be without number."""
    most = 2 + MOST_TURNED_AWAY
    async with site(served, connections=2) as made:
        waiting = [await asyncio.open_connection("127.0.0.1", made.port) for _ in range(most)]
        await until(lambda: made.policy.handshakes == most)
        async with dialed(made.port, trusted) as client:
            with pytest.raises((ConnectionError, EOFError)):
                await client.shake_hands()
        for _, writer in waiting:
            writer.close()
            await writer.wait_closed()
        await until(lambda: made.policy.handshakes == 0)
        async with connected(made.port, trusted) as client:
            client.send(GET)
            assert body_of(await client.read()) == b"/"


async def test_one_too_many_is_told_so(served: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    """A connection over the limit reads 503, as over plain HTTP."""
    async with site(served, connections=1) as made, connected(made.port, trusted) as first:
        first.send(KEPT)
        await first.read(until=b"/kept")
        async with connected(made.port, trusted) as second:
            answer = await second.read()
            assert answer.startswith(b"HTTP/1.1 503 ")
        await until(lambda: made.policy.turned_away == 0)


@pytest.mark.parametrize("notified", [True, False])
async def test_a_client_that_closes_its_side_alone_is_answered(
    served: ssl.SSLContext, trusted: ssl.SSLContext, *, notified: bool
) -> None:
    """By its last record (RFC 8446 section 6.1) or by that of the connection alone."""
    async with site(served) as made, connected(made.port, trusted) as client:
        client.send(request_bytes("GET", "/waits"))
        await until(lambda: made.entered == 1)
        client.end(notified=notified)
        made.release.set()
        assert body_of(await client.read()) == b"/waits"


async def test_a_client_that_leaves_ends_what_it_asked_for(
    served: ssl.SSLContext, trusted: ssl.SSLContext
) -> None:
    """As on a plain port: the handler is cancelled, and there is no line."""
    async with site(served) as made:
        with capture_logs() as lines:
            async with connected(made.port, trusted) as client:
                client.send(request_bytes("GET", "/waits"))
                await until(lambda: made.entered == 1)
                linger = struct.pack("ii", 1, 0)
                client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await until(lambda: made.cancelled == 1 and not made.server.busy)
        assert lines == []


async def test_a_client_that_leaves_in_its_handshake_is_no_news(
    served: ssl.SSLContext, trusted: ssl.SSLContext
) -> None:
    """Whoever looks whether a port is open does just that."""
    async with site(served) as made:
        with capture_logs() as lines:
            for half in (True, False):
                async with dialed(made.port, trusted) as client:
                    if half:
                        with suppress(ssl.SSLWantReadError):
                            client.tls.do_handshake()
                        client.flush()
                        await client.reader.read(100)
            await until(lambda: not made.server.busy)
        assert lines == []


async def test_a_big_answer_arrives_whole(served: ssl.SSLContext, trusted: ssl.SSLContext) -> None:
    """Thirty megabytes, as fast as the client reads."""
    async with site(served) as made, connected(made.port, trusted, within=60) as client:
        client.send(request_bytes("GET", "/big"))
        answer = bytearray()
        with suppress(ssl.SSLZeroReturnError):
            while len(answer) < BIG:
                answer += await client.read(until=b"x")
        assert answer.count(b"x") >= BIG


async def test_who_does_not_read_is_waited_for_and_then_cut(
    served: ssl.SSLContext, trusted: ssl.SSLContext
) -> None:
    """A big answer stays with whoever made it, and the connection ends after the idle time."""
    async with site(served, idle=0.5) as made, connected(made.port, trusted) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport that can read
        client.send(request_bytes("GET", "/big"))
        await until(lambda: made.entered == 1)
        assert max(connection.unsent for connection in made.server._open()) < 1 << 20  # noqa: SLF001 - what is held
        await until(lambda: not made.server.busy)


async def test_the_end_of_the_listener_is_the_end_of_everybody(
    served: ssl.SSLContext, trusted: ssl.SSLContext
) -> None:
    """Idle ones by a last record, busy ones with their answer, handshakes and those that do not read at once."""
    async with (
        site(served) as made,
        connected(made.port, trusted) as idle,
        connected(made.port, trusted) as busy,
        connected(made.port, trusted) as stuck,
        dialed(made.port, trusted) as shaking,
    ):
        stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport that can read
        stuck.send(request_bytes("GET", "/big"))
        busy.send(request_bytes("GET", "/waits"))
        await until(lambda: made.entered == 2 and made.policy.handshakes == 1)
        drained = asyncio.ensure_future(made.server.drain(budget=10.0, cut=0.2))
        assert await idle.read() == b""
        with suppress(ConnectionError):
            assert await shaking.reader.read() == b""
        made.release.set()
        assert body_of(await busy.read()) == b"/waits"
        async with asyncio.timeout(9):
            await drained
        assert not made.server.busy


async def test_another_certificate_is_for_new_connections(
    files: Files, served: ssl.SSLContext, trusted: ssl.SSLContext
) -> None:
    """Those that are open go on under the one that they began with; so they do where TLS is turned off."""
    other = make_pair(files.cert.parent, "other", "rsa")
    async with site(served) as made, connected(made.port, trusted) as before:
        made.policy.context = read_pair(str(other.cert), str(other.key)).context
        async with connected(made.port, other.trusted()) as after:
            assert after.tls.getpeercert(binary_form=True) == other.der
            after.send(GET)
            assert body_of(await after.read()) == b"/"
        made.policy.context = None
        assert body_of(await raw(made.port, GET)) == b"/"
        before.send(GET)
        assert body_of(await before.read()) == b"/"
        assert before.tls.getpeercert(binary_form=True) == files.der


@pytest.mark.parametrize(("origin", "status"), [("https://localhost", 200), ("http://localhost", 403)])
async def test_pages_of_plain_http_are_strangers(
    served: ssl.SSLContext, trusted: ssl.SSLContext, origin: str, status: int
) -> None:
    """Whoever is on the way could make one up under this very host and port."""
    async with site(served) as made, connected(made.port, trusted) as client:
        host = f"localhost:{made.port}"
        client.send(request_bytes("GET", "/", host=host, headers={"Origin": f"{origin}:{made.port}"}))
        assert (await client.read()).startswith(b"HTTP/1.1 %d " % status)
