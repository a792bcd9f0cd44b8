"""One capsule's port: card, door, planes, and what is at no path."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from sidecar.model import FilesExport, Lifecycle, Manifest, PeerFilesExport, TaskAcceptance, served_methods
from sidecar.tasks.model import Input
from tests.support.port import CARD, CLOSED, MESSAGE, QUEUE, Port, Stream, call_bytes, served
from tests.support.rawhttp import exchange, read_answer, request_bytes
from tests.support.serving import bench
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

# --- the card


async def test_the_card_is_that_of_the_capsule_and_its_listener(tmp_path: Path) -> None:
    """Card cases: url and session are those of the launch; the body is what its length says."""
    async with served(tmp_path) as port:
        answer = await port.get(CARD)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.headers["cache-control"] == "public, max-age=10"
        card = json.loads(answer.body)
        assert card["url"] == f"localhost:{port.number}"
        assert card["session_id"] == "ses_a"
        assert list(card["capabilities"]) == ["tools", "shell", "network", "streaming"]


async def test_the_reference_card_is_served_where_it_is_set(tmp_path: Path) -> None:
    """`card: reference` leaves the six keys."""
    async with served(tmp_path, settings={"card": "reference"}) as port:
        assert list(await port.card()) == [
            "name",
            "version",
            "url",
            "session_id",
            "capabilities",
            "serves",
        ]


async def test_two_capsules_have_different_urls_and_sessions(tmp_path: Path) -> None:
    """Card case: concurrent capsules."""
    async with bench(tmp_path) as made:
        await made.serve(made.want("a"), made.want("b"))
        cards = [await Port(made, made.port(name)).card() for name in "ab"]
        assert len({card["url"] for card in cards}) == 2
        assert len({card["session_id"] for card in cards}) == 2


async def test_a_query_on_the_card_is_ignored(tmp_path: Path) -> None:
    """Whatever follows the question mark."""
    async with served(tmp_path) as port:
        assert (await port.get(CARD + "?a=b&c=%zz")).body == (await port.get(CARD)).body


async def test_head_of_the_card_has_the_headers_of_get(tmp_path: Path) -> None:
    """The same but for the body."""
    async with served(tmp_path) as port:
        got, head = await port.get(CARD), await port.get(CARD, "HEAD")
        assert head.status == 200
        assert {**head.headers, "date": ""} == {**got.headers, "date": ""}


async def test_b37_who_holds_the_card_is_told_so(tmp_path: Path) -> None:
    """B37: 304 with the validators for the current tag, in lists, weak or as `*`; 200 for another; HEAD likewise."""
    async with served(tmp_path) as port:
        etag = (await port.get(CARD)).headers["etag"]
        for given in (etag, f"W/{etag}", f'"x", {etag}', "*"):
            for method in ("GET", "HEAD"):
                answer = await port.get(CARD, method, If_None_Match=given)
                assert (answer.status, answer.body) == (304, b"")
                assert answer.headers["etag"] == etag
                assert {"cache-control", "last-modified", "date"} <= answer.headers.keys()
        for given in ('"x"', "garbage", etag.strip('"')):
            assert (await port.get(CARD, If_None_Match=given)).status == 200
        twice = request_bytes("GET", CARD, headers={"If-None-Match": '"x"', "if-none-match": etag})
        assert (await exchange(port.number, twice)).status == 304
        old = etag
        await port.bench.serve(port.bench.want("a", manifest=Manifest("a", "2")))
        answer = await port.get(CARD, If_None_Match=old)
        assert (answer.status, json.loads(answer.body)["version"]) == (200, "2")
        assert answer.headers["etag"] != old


async def test_who_held_the_card_at_a_time_is_told_so(tmp_path: Path) -> None:
    """RFC 9110 section 13.1.3: `If-Modified-Since` counts where there is no `If-None-Match`, and only if it is a date."""
    async with served(tmp_path) as port:
        card = await port.get(CARD)
        modified = card.headers["last-modified"]
        for method in ("GET", "HEAD"):
            answer = await port.get(CARD, method, If_Modified_Since=modified)
            assert (answer.status, answer.body) == (304, b"")
            assert answer.headers["etag"] == card.headers["etag"]
        for given in ("Sun, 06 Nov 1994 08:49:37 GMT", "garbage", "", f"{modified}, {modified}"):
            assert (await port.get(CARD, If_Modified_Since=given)).status == 200
        both = {"If_Modified_Since": modified, "If_None_Match": '"x"'}
        assert (await port.get(CARD, **both)).status == 200
        both = {"If_Modified_Since": "garbage", "If_None_Match": card.headers["etag"]}
        assert (await port.get(CARD, **both)).status == 304


async def test_a_method_that_nobody_knows_is_not_allowed(tmp_path: Path) -> None:
    """405 where something is, 404 where nothing is; methods have a case."""
    async with served(tmp_path) as port:
        for method in ("FOO", "get"):
            answer = await port.get(CARD, method)
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
            answer = await port.get("/", method)
            assert (answer.status, answer.headers["allow"]) == (405, "POST")
            assert (await port.get("/resources/files", method)).status == 405
            assert (await port.get("/nothing", method)).status == 404


async def test_a_not_modified_answer_keeps_the_connection_in_step(tmp_path: Path) -> None:
    """304 has no body: the next answer begins right behind it."""
    async with served(tmp_path) as port:
        etag = (await port.get(CARD)).headers["etag"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        one = request_bytes("GET", CARD, headers={"Connection": "keep-alive", "If-None-Match": etag})
        writer.write(one + request_bytes("GET", CARD))
        assert (await read_answer(reader)).status == 304
        assert (await read_answer(reader)).status == 200
        writer.close()
        await writer.wait_closed()


# --- paths and methods


@pytest.mark.parametrize(
    ("method", "target", "status", "code", "allow"),
    [
        ("GET", "/unknown/path", 404, "not_found", None),
        ("PUT", "/unknown", 404, "not_found", None),
        ("GET", "/.well-known/agent-card.json/", 404, "not_found", None),
        ("GET", "/%2ewell-known/agent-card.json", 404, "not_found", None),
        ("GET", "//", 404, "not_found", None),
        ("GET", "/resources", 404, "not_found", None),
        ("POST", CARD, 405, "method_not_allowed", "GET, HEAD"),
        ("OPTIONS", CARD, 405, "method_not_allowed", "GET, HEAD"),
        ("DELETE", CARD, 405, "method_not_allowed", "GET, HEAD"),
        ("GET", "/", 405, "method_not_allowed", "POST"),
        ("HEAD", "/", 405, "method_not_allowed", "POST"),
        ("PUT", "/", 405, "method_not_allowed", "POST"),
        ("GET", "/resources/elsewhere", 404, "not_found", None),
        ("PUT", "/resources/elsewhere", 405, "method_not_allowed", "GET"),
        ("GET", "/resources/peerless/x", 404, "not_found", None),
        ("HEAD", "/resources/files", 405, "method_not_allowed", "GET"),
        ("GET", "/resources/files", 404, "no_resource_plane", None),
        ("GET", "/resources/files/x", 404, "no_resource_plane", None),
        ("GET", "/resources/peer/mh1.YWJj.YWJj", 404, "no_peer_plane", None),
    ],
)
async def test_b34_every_refusal_has_one_shape(
    tmp_path: Path, method: str, target: str, status: int, code: str, allow: str | None
) -> None:
    """B34: an unknown path is 404 whatever the method, a known one 405 with `allow`, all in the same JSON."""
    async with served(tmp_path) as port:
        answer = await port.get(target, method)
        assert answer.status == status
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers.get("allow") == allow
        if method != "HEAD":
            assert list(json.loads(answer.body)) == ["error", "message"]
            assert json.loads(answer.body)["error"] == code


async def test_the_planes_are_those_of_the_capsule(tmp_path: Path) -> None:
    """Card cases: a declared files plane lists and reads, a declared peer plane refuses junk, as the card says."""
    (tmp_path / "a" / "out").mkdir(parents=True)
    (tmp_path / "a" / "out" / "hello.txt").write_text("hello")
    both = Manifest("a", "1", files=FilesExport("out/"), peer_files=PeerFilesExport("out/"))
    async with served(tmp_path, both) as port:
        assert (await port.card())["serves"]["planes"] == ["files", "peer_files"]
        listing = json.loads((await port.get("/resources/files?generation=1")).body)
        assert [entry["path"] for entry in listing["entries"]] == ["hello.txt"]
        assert listing["generation"] == 0
        read = await port.get("/resources/files/hello.txt")
        assert (read.body, read.headers["content-length"]) == (b"hello", "5")
        unchanged = await port.get("/resources/files/hello.txt", If_None_Match=read.headers["etag"])
        assert (unchanged.status, unchanged.body) == (304, b"")
        junk = await port.get("/resources/peer/report.md")
        assert (junk.status, json.loads(junk.body)["error"]) == (400, "malformed_handle")
        counters = port.bench.metrics.capsule("a")
        assert counters.planes == {
            ("files", "ok"): 2,
            ("files", "not_modified"): 1,
            ("peer_files", "malformed_handle"): 1,
        }


async def test_b45_slow_readers_of_a_big_file_cost_nobody_else(tmp_path: Path) -> None:
    """B45: cards, small reads, listings and calls are answered while many take nothing of what they asked for."""
    out = tmp_path / "a" / "out"
    out.mkdir(parents=True)
    (out / "small").write_bytes(b"small")
    with (out / "big").open("wb") as big:
        big.truncate(40_000_000)
    manifest = Manifest("a", "1", lifecycle=QUEUE, files=FilesExport("out/", max_bytes=1 << 30))
    async with served(tmp_path, manifest, idle=60.0) as port:
        await port.get("/resources/files/big", If_None_Match="*")  # its hash is known then
        slow = []
        try:
            for _ in range(20):
                reader, writer = await asyncio.open_connection("127.0.0.1", port.number, limit=2**16)
                slow.append(writer)
                writer.write(request_bytes("GET", "/resources/files/big"))
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            for _ in range(10):
                async with asyncio.timeout(5):
                    assert (await port.get(CARD)).status == 200
                    assert (await port.get("/resources/files/small")).body == b"small"
                    assert (await port.get("/resources/files")).status == 200
                    assert (await port.call("tasks/get"))["error"]["code"] == -32001
        finally:
            for writer in slow:
                writer.transport.abort()


# --- the door


async def test_b34_a_body_too_large_is_refused_in_the_same_shape(tmp_path: Path) -> None:
    """B34: 413 for two MiB; nothing of it reaches the door."""
    async with served(tmp_path) as port:
        headers = {"Content-Type": "application/json", "Content-Length": str(2 * 1024 * 1024)}
        answer = await exchange(port.number, request_bytes("POST", "/", headers=headers))
        assert (answer.status, json.loads(answer.body)["error"]) == (413, "body_too_large")
        assert port.bench.metrics.capsule("a").requests == {("other", "body_too_large"): 1}


async def test_a_call_without_json_is_refused(tmp_path: Path) -> None:
    """415: a form of a web page is never a call."""
    async with served(tmp_path) as port:
        answer = await exchange(
            port.number, request_bytes("POST", "/", headers={"Content-Type": "text/plain"}, body=b"{}")
        )
        assert (answer.status, json.loads(answer.body)["error"]) == (415, "unsupported_media_type")


async def test_b46_a_foreign_page_reaches_neither_card_nor_door(tmp_path: Path) -> None:
    """B46: a foreign Host or Origin is refused on every path before dispatch."""
    async with served(tmp_path, Manifest("a", "1", lifecycle=QUEUE)) as port:
        foreign = [
            request_bytes("GET", CARD, host="evil.example"),
            request_bytes("GET", "/unknown", host="evil.example"),
            call_bytes("message/send", {"message": MESSAGE}, Host="evil.example"),
            call_bytes("message/send", {"message": MESSAGE}, Origin="http://evil.example"),
        ]
        for request in foreign:
            assert (await exchange(port.number, request)).status == 403
        assert (await port.call("tasks/get", {}))["error"]["code"] == -32001


@pytest.mark.parametrize("acceptance", TaskAcceptance)
async def test_b36_what_the_card_lists_is_what_the_door_answers(
    tmp_path: Path, acceptance: TaskAcceptance
) -> None:
    """B36: every listed method answers something other than -32601, every other one -32601 as plain JSON."""
    manifest = Manifest("a", "1", lifecycle=Lifecycle(task_acceptance=acceptance))
    async with served(tmp_path, manifest) as port:
        card = await port.card()
        listed = card["serves"]["methods"]
        assert listed == [method.name for method in served_methods(acceptance)]
        assert card["capabilities"]["streaming"] is ("message/stream" in listed)
        for name in (
            "message/send",
            "message/stream",
            "stream/watch",
            "tasks/get",
            "tasks/cancel",
            "session/stop",
        ):
            stream = await Stream.open(port.number, call_bytes(name, {"message": MESSAGE, "id": "x"}))
            is_stream = b"text/event-stream" in stream.head
            body = b"" if is_stream else await stream.reader.read()
            assert (b"-32601" in body) is (name not in listed)
            assert is_stream is (name in listed and name in {"message/stream", "stream/watch"})
            await stream.close()
        assert (await port.call("tasks/list"))["error"] == {"code": -32601, "message": "Method not found"}


async def test_a_task_is_taken_and_found(tmp_path: Path) -> None:
    """The door of the port is that of the session."""
    async with served(tmp_path, Manifest("a", "1", lifecycle=QUEUE)) as port:
        sent = (await port.call("message/send", {"message": MESSAGE}))["result"]
        assert sent["status"]["state"] == "submitted"
        got = (await port.call("tasks/get", {"id": sent["id"]}))["result"]
        assert got == sent
        requests = port.bench.metrics.capsule("a").requests
        assert requests == {("message/send", "ok"): 1, ("tasks/get", "ok"): 1}


async def test_requests_are_counted_by_what_they_were(tmp_path: Path) -> None:
    """The card's by outcome, others by the refusal."""
    async with served(tmp_path) as port:
        etag = (await port.get(CARD)).headers["etag"]
        await port.get(CARD, If_None_Match=etag)
        await port.get(CARD, If_None_Match='"x"')
        await port.get(CARD, "PUT")
        await port.get("/nowhere")
        await port.get("/")
        assert port.bench.metrics.capsule("a").requests == {
            ("card", "ok"): 2,
            ("card", "not_modified"): 1,
            ("card", "method_not_allowed"): 1,
            ("other", "not_found"): 1,
            ("other", "method_not_allowed"): 1,
        }


# --- streams


async def test_a_stream_has_exactly_its_headers(tmp_path: Path) -> None:
    """200, text/event-stream without parameters, no-cache, no buffering by proxies; then the ack."""
    async with served(tmp_path) as port:
        stream = await Stream.open(port.number, call_bytes("stream/watch", close=False))
        status, *lines = stream.head.decode().strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        headers.pop("date")
        assert status == "HTTP/1.1 200 OK"
        assert headers == {
            "content-type": "text/event-stream",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            "transfer-encoding": "chunked",
        }
        assert (await stream.chunk()).startswith(b"event: connection-ack\n")
        await stream.close()


async def test_a_stream_shows_what_happens_and_heartbeats(tmp_path: Path) -> None:
    """Frames come as they are committed, comments while nothing happens."""
    async with served(tmp_path, Manifest("a", "1", lifecycle=QUEUE), heartbeat=0.1) as port:
        stream = await Stream.open(port.number, call_bytes("stream/watch"))
        await stream.chunk()
        assert await stream.chunk() == b":heartbeat\n\n"
        task = (await port.call("message/send", {"message": MESSAGE}))["result"]
        await port.call("tasks/cancel", {"id": task["id"]})
        while (chunk := await stream.chunk()) == b":heartbeat\n\n":
            pass
        assert chunk.startswith(b"id: 1\nevent: status\n")
        await stream.close()


async def test_a_stream_to_an_old_client_ends_with_its_connection(tmp_path: Path) -> None:
    """HTTP/1.0 knows no chunks: the bytes are the stream, until the end."""
    async with served(tmp_path) as port:
        request = call_bytes("stream/watch").replace(b"HTTP/1.1", b"HTTP/1.0")
        stream = await Stream.open(port.number, request)
        assert b"chunked" not in stream.head
        assert b"connection: close" in stream.head
        await until(lambda: port.bench.pool.open_streams == 1)
        await port.bench.serve()
        assert (await stream.reader.read()).endswith(CLOSED)
        await stream.close()


async def test_a_replay_begins_behind_the_last_event_id(tmp_path: Path) -> None:
    """The header of a client that comes back reaches the door."""
    async with served(tmp_path, Manifest("a", "1", lifecycle=QUEUE)) as port:
        for _ in range(3):
            task = (await port.call("message/send", {"message": MESSAGE}))["result"]
            await port.call("tasks/cancel", {"id": task["id"]})
        request = call_bytes("stream/watch", Last_Event_ID="2")
        stream = await Stream.open(port.number, request)
        seen = b""
        while b"id: 3\n" not in seen:
            seen += await stream.chunk()
        assert b"id: 2\n" not in seen
        await stream.close()


async def test_a_connection_serves_on_when_its_stream_is_over(tmp_path: Path) -> None:
    """A stream that ends by itself leaves the connection for the next request."""
    async with served(tmp_path, Manifest("a", "1")) as port:
        await port.call("message/send", {"message": MESSAGE})
        request = call_bytes("message/stream", {"message": MESSAGE}, close=False)
        stream = await Stream.open(port.number, request)
        assert b"rejected" in await stream.rest()
        stream.writer.write(request_bytes("GET", CARD))
        assert (await read_answer(stream.reader)).status == 200
        await stream.close()


@pytest.mark.parametrize("abrupt", [True, False])
async def test_b30_b31_a_client_that_leaves_ends_its_stream_and_nothing_else(
    tmp_path: Path, *, abrupt: bool
) -> None:
    """B30, B31: a closed or reset connection leaves no stream, no task and no line in the log."""
    async with served(tmp_path, heartbeat=0.1) as port:
        before = len(asyncio.all_tasks())
        with capture_logs() as lines:
            sock = socket.create_connection(("127.0.0.1", port.number))
            sock.sendall(call_bytes("stream/watch"))
            await until(lambda: port.bench.pool.open_streams == 1)
            if abrupt:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            sock.close()
            await until(lambda: port.bench.pool.open_streams == 0)
            await until(lambda: len(asyncio.all_tasks()) <= before)
        assert lines == []
        assert (await port.get(CARD)).status == 200


async def test_streams_over_the_limit_are_refused_and_calls_go_on(tmp_path: Path) -> None:
    """503 with Retry-After before a task is started for one stream too many."""
    async with served(tmp_path, Manifest("a", "1", lifecycle=QUEUE), streams=2) as port:
        streams = [await Stream.open(port.number, call_bytes("stream/watch")) for _ in range(2)]
        answer = await exchange(port.number, call_bytes("message/stream", {"message": MESSAGE}))
        assert (answer.status, json.loads(answer.body)["error"]) == (503, "unavailable")
        assert answer.headers["retry-after"]
        assert (await port.call("tasks/get", {}))["error"]["code"] == -32001
        for stream in streams:
            await stream.close()


async def test_a_stream_that_nobody_reads_is_cut_off_and_costs_nobody_else(tmp_path: Path) -> None:
    """It holds a bounded number of bytes, lags, and ends at the idle time; a reader misses nothing."""
    lifecycle = Lifecycle(task_acceptance=TaskAcceptance.QUEUE, queue_depth=5)
    async with served(tmp_path, Manifest("a", "1", lifecycle=lifecycle), idle=1.0) as port:
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", port.number))
        deaf.sendall(call_bytes("stream/watch"))
        reader = await Stream.open(port.number, call_bytes("stream/watch"))
        await until(lambda: port.bench.pool.open_streams == 2)
        engine = await port.bench.engine("a")
        context = "x" * 100_000
        seen = b""
        for number in range(1, 1000):
            task = await engine.send(Input.of("{}"), context_id=context, owner="test")
            await engine.cancel(task.id)
            while f"id: {number}\n".encode() not in seen[-120_000:]:
                seen = seen[-120_000:] + await reader.chunk()
            if port.bench.pool.open_streams == 1:
                break
        await until(lambda: port.bench.pool.open_streams == 1)
        assert b"lagged" not in seen
        await reader.close()
        deaf.close()
