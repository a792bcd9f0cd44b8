"""What one request costs, beside what it costs elsewhere."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Server, a2a_peer, baseline, compare, get, nginx, post
from benchmarks.table import Row
from tests.support.spawned import Spawned, running, write_capsule

if TYPE_CHECKING:
    from collections.abc import Iterator

CARD = "/.well-known/agent-card.json"
DEEP = "  after_task: sleep\nexports:\n  files:\n    root: out/\n    mode: read-only\n"


@contextlib.contextmanager
def one_capsule(queue_depth: int = 20, more: str = "") -> Iterator[tuple[Spawned, Server, Path]]:
    """Run a sidecar with one capsule; yields it, its port as a server, and the capsule's directory."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = write_capsule(Path(scratch, "capsules", "bench"), more=DEEP + more)
        manifest = directory / "murmur.yaml"
        manifest.write_text(manifest.read_text().replace("queue_depth: 20", f"queue_depth: {queue_depth}"))
        (directory / "out").mkdir()
        (directory / "out" / "file.bin").write_bytes(bytes(range(256)) * 16)
        env = {"SIDECAR_LIMITS__TASKS": "10000000"}
        with running(["--root", str(directory.parent)], state=Path(scratch, "state"), env=env) as spawned:
            yield spawned, Server("sidecar", spawned.process.pid, spawned.port("bench")), directory


def fetched(port: int, path: str) -> tuple[dict[str, str], bytes]:
    """Fetch one answer with its headers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        return {k.lower(): v for k, v in answer.headers.items()}, answer.read()


def call(port: int, document: dict[str, Any], *, path: str = "/", **headers: str) -> dict[str, Any]:
    """Call a method once."""
    fields = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(document).encode(), fields)
    with urllib.request.urlopen(request) as answer:
        result: dict[str, Any] = json.load(answer)
        return result


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Make a JSON-RPC call."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


SEND = rpc("message/send", {"message": {"messageId": "m1", "role": "user", "parts": [{"text": "hello"}]}})
PEER_SEND = rpc(
    "SendMessage",
    {
        "message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hello"}]},
        "configuration": {"returnImmediately": True},
    },
)
VERSION = {"A2A-Version": "1.0"}


def card() -> list[Row]:
    """GET of the card."""
    with one_capsule() as (_, ours, directory), a2a_peer() as peer, nginx(directory) as static:
        headers, body = fetched(ours.port, CARD)
        (directory / "card.json").write_bytes(body)
        with baseline("bare", "bytes", json.dumps({"headers": headers, "body": body.decode()})) as bare:
            servers = [(ours, get(CARD)), (bare, get(CARD)), (peer, get(CARD))]
            if static is not None:
                servers.append((static, get("/card.json")))
            costs = compare(servers)
    mine = costs["sidecar"]
    rows = [
        Row("GET card, CPU a request", mine.cpu, "µs", "bare web.Server", costs["bare"].cpu, most=1.15),
        Row(
            "GET card, requests a second", mine.rate, "/s", "a2a-sdk 1.3", costs["a2a-sdk 1.3"].rate, least=8
        ),
    ]
    if static is not None:
        rows.append(Row("GET card, CPU a request", mine.cpu, "µs", "nginx static", costs["nginx"].cpu))
    return rows


def tasks_get() -> list[Row]:
    """POST of tasks/get."""
    with one_capsule() as (_, ours, _directory), a2a_peer() as peer:
        task = call(ours.port, SEND)["result"]["id"]
        answer = call(ours.port, rpc("tasks/get", {"id": task}))
        other = call(peer.port, PEER_SEND, **VERSION)["result"]["task"]["id"]
        with baseline("bare", "parse", json.dumps(answer)) as bare:
            mine_request = post(rpc("tasks/get", {"id": task}))
            costs = compare(
                [
                    (ours, mine_request),
                    (bare, mine_request),
                    (peer, post(rpc("GetTask", {"id": other}), **VERSION)),
                ]
            )
    mine = costs["sidecar"]
    return [
        Row("POST tasks/get, CPU a request", mine.cpu, "µs", "bare aiohttp", costs["bare"].cpu, most=1.5),
        Row(
            "POST tasks/get, requests a second",
            mine.rate,
            "/s",
            "a2a-sdk 1.3",
            costs["a2a-sdk 1.3"].rate,
            least=4,
        ),
    ]


def message_send() -> list[Row]:
    """POST of message/send, durable; every answer must be `submitted` and in the database afterwards."""
    with one_capsule(queue_depth=10_000_000) as (spawned, ours, _directory), a2a_peer() as peer:
        answer = call(ours.port, SEND)
        with baseline("bare", "parse", json.dumps(answer)) as bare:
            costs = compare(
                [(ours, post(SEND)), (bare, post(SEND)), (peer, post(PEER_SEND, **VERSION))], warm_up=200
            )
        with contextlib.closing(sqlite3.connect(spawned.state / "sidecar.db")) as database:
            kept = database.execute("SELECT count(*) FROM tasks").fetchone()[0]
        mine = costs["sidecar"]
        expected = mine.count + 200 + 1
        if kept != expected or set(mine.statuses) != {"200"} or '"submitted"' not in mine.first:
            raise SystemExit(f"message/send: {expected} answered, {kept} in the database, {mine.statuses}")
    return [
        Row(
            "POST message/send, durable, a second",
            mine.rate,
            "/s",
            "bare aiohttp",
            costs["bare"].rate,
            least=0.45,
        ),
        Row(
            "POST message/send, durable, a second",
            mine.rate,
            "/s",
            "a2a-sdk 1.3",
            costs["a2a-sdk 1.3"].rate,
            least=12,
        ),
        Row("POST message/send, p99 over p50", mine.p99, "ms", "its p50", mine.p50, most=3),
    ]


def file() -> list[Row]:
    """GET of a file of 4 KiB."""
    path = "/resources/files/file.bin"
    with one_capsule() as (_, ours, directory), nginx(directory / "out") as static:
        target = str(directory / "out" / "file.bin")
        with (
            baseline("beneath", "beneath", target) as beneath,
            baseline("FileResponse", "fileresponse", target) as whole,
        ):
            servers = [(ours, get(path)), (beneath, get("/")), (whole, get("/"))]
            if static is not None:
                servers.append((static, get("/file.bin")))
            costs = compare(servers)
    mine = costs["sidecar"]
    rows = [
        Row(
            "GET 4 KiB file, CPU a request",
            mine.cpu,
            "µs",
            "openat2, hop, Response",
            costs["beneath"].cpu,
            most=1.25,
        ),
        Row(
            "GET 4 KiB file, CPU a request",
            mine.cpu,
            "µs",
            "FileResponse",
            costs["FileResponse"].cpu,
            most=0.4,
        ),
    ]
    if static is not None:
        rows.append(Row("GET 4 KiB file, CPU a request", mine.cpu, "µs", "nginx static", costs["nginx"].cpu))
    return rows
