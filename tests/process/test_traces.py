"""A trace goes through: from the request to the command, to a worker, and through a forward to the door behind."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support import agents
from tests.support.installed import from_pypi
from tests.support.spawned import running, write_capsule
from tests.support.spawned import sidecar as command
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.spawned import Spawned

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CONFIG = """\
roots: [{{path: {root}}}]
desk: {{port: 0}}
log: {{format: json}}
capsules:
  first: {{backend: forward, forward: {{url: "http://localhost:{port}"}}}}
  last:
    port: {port}
    backend: command
    command: {{argv: [printenv, TRACEPARENT]}}
"""


READER = """
import json, sys
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        request = ExportTraceServiceRequest.FromString(file.read())
    for resource in request.resource_spans:
        names = {a.key: a.value.string_value for a in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                facts = {a.key: a.value.string_value or a.value.int_value for a in span.attributes}
                print(json.dumps({
                    "name": span.name, "kind": span.kind, "trace": span.trace_id.hex(), "id": span.span_id.hex(),
                    "parent": span.parent_span_id.hex(), "facts": facts, "fault": span.status.message,
                    "service": names["service.name"],
                }))
"""
"""Prints the spans of the bodies that a collector was sent."""


class Collector:
    """Takes what is sent to it, and keeps it in files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.status = 200
        self.bodies: list[Path] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if collector.status == 200:
                    path = collector.directory / f"body-{len(collector.bodies)}"
                    path.write_bytes(body)
                    collector.bodies.append(path)
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def spans(self) -> list[dict[str, Any]]:
        """Return all spans so far."""
        python = from_pypi("otel", agents.OTEL)
        done = subprocess.run(
            [str(python), "-c", READER, *map(str, self.bodies)], capture_output=True, text=True, check=True
        )
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    """A collector that listens."""
    made = Collector(tmp_path)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Spawned]:
    """A capsule that forwards to one which runs a command, and one with an inbox."""
    config = configured(tmp_path)
    with running(["--config", str(config)], state=tmp_path / "state") as spawned:
        yield spawned


def configured(tmp_path: Path) -> Path:
    """Write these capsules, and their configuration."""
    for name in ("first", "last", "inbox"):
        write_capsule(tmp_path / "capsules" / name)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(root=tmp_path / "capsules", port=port))
    return config


def with_traces(endpoint: str) -> dict[str, str]:
    """Return an environment in which a sidecar finds the library, and sends spans at once."""
    packages = next((from_pypi("otel", agents.OTEL).parents[1] / "lib").glob("*/site-packages"))
    return {
        "PYTHONPATH": str(packages),
        "PYTHONWARNINGS": "default",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "SIDECAR_TRACES__ENDPOINT": endpoint,
    }


def ask(url: str, body: object = None, **headers: str) -> Any:
    """Post a document, and return the answer."""
    data = json.dumps(body).encode()
    with urlopen(Request(url, data, {"content-type": "application/json", **headers}), timeout=20) as answer:
        return json.loads(answer.read() or b"null")


def send(sidecar: Spawned, capsule: str, **headers: str) -> dict[str, Any]:
    """Send a task as an A2A client, and wait for its end."""
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    answer = ask(
        f"http://localhost:{sidecar.port(capsule)}/a2a/v1", call, **{"a2a-version": "1.0", **headers}
    )
    assert "result" in answer, answer
    task: dict[str, Any] = answer["result"]["task"]
    return task


def test_a_trace_reaches_the_command_behind_a_forward(chain: Spawned) -> None:
    """Its own and that of the capsule before it; it shows in nothing that the client reads of its message."""
    for capsule in ("last", "first"):
        task = send(chain, capsule, traceparent=TRACE)
        (artifact,) = task["artifacts"]
        assert artifact["parts"] == [{"text": f"{TRACE}\n"}]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert TRACE not in json.dumps({**task, "artifacts": []})


def test_without_a_trace_or_with_a_malformed_one_there_is_none(chain: Spawned) -> None:
    """The variable is not set at all."""
    for headers in ({}, {"traceparent": "00-zz"}):
        assert send(chain, "last", **headers)["status"]["state"] == "TASK_STATE_FAILED"


def test_a_worker_of_the_inbox_reads_it_in_the_metadata(chain: Spawned) -> None:
    """Also after a restart, since it is kept with the message."""
    url = f"http://localhost:{chain.port('inbox')}/"
    message = {"messageId": "m1", "role": "user", "parts": [{"text": "hi"}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    ask(url, call, traceparent=TRACE)
    bearer = f"Bearer {(chain.state / 'admin.token').read_text().strip()}"
    taken = ask(f"{chain.desk}/workers/inbox/next?wait=5", authorization=bearer)
    assert taken["message"]["metadata"] == {"traceparent": TRACE}


def test_spans_of_a_task_that_is_forwarded_hang_together(tmp_path: Path, collector: Collector) -> None:
    """From the request of the client down to the command's variable, each a child of the one before."""
    config = configured(tmp_path)
    with running(
        ["--config", str(config)], state=tmp_path / "state", env=with_traces(collector.url)
    ) as chain:
        task = send(chain, "first", traceparent=TRACE)
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        with pytest.raises(HTTPError) as refused:
            urlopen(f"http://localhost:{chain.port('last')}/resources/peer/mh1.secret/x", timeout=20)
        refused.value.close()
    assert not [path for path in collector.bodies if b"mh1.secret" in path.read_bytes()]
    told = {span["id"]: span for span in collector.spans()}
    mine = [span for span in told.values() if span["trace"] == TRACE[3:35]]
    (first,) = (span for span in mine if span["parent"] == TRACE[36:52])
    assert (first["name"], first["kind"], first["facts"]["sidecar.listener"]) == ("POST /a2a/v1", 2, "first")
    assert first["facts"]["http.response.status_code"] == 200
    said = task["artifacts"][0]["parts"][0]["text"].strip()
    last = told[said[36:52]]
    chain_of = []
    while last["id"] != first["id"]:
        chain_of.append(last["name"])
        last = told[last["parent"]]
    assert chain_of[0] == chain_of[-1] == "task"
    assert chain_of[1] == "POST /"
    assert chain_of[2] == "POST"
    assert {span["service"] for span in mine} == {"sidecar"}
    tasks = [span["facts"] for span in mine if span["name"] == "task"]
    assert {facts["sidecar.state"] for facts in tasks} == {"completed"}


def test_a_collector_that_is_away_is_told_once_and_holds_nothing_up(
    tmp_path: Path, collector: Collector
) -> None:
    """Neither requests nor the stop; when it is back, that is told too."""
    collector.status = 400
    config = configured(tmp_path)
    with running(
        ["--config", str(config)], state=tmp_path / "state", env=with_traces(collector.url)
    ) as chain:
        send(chain, "last")
        chain.event("traces_not_sent")
        send(chain, "last")
        collector.status = 200
        until_sync(lambda: send(chain, "last") and chain.events("traces_sent"), what="a line")
        assert len(chain.events("traces_not_sent")) == 1
        assert not chain.events("library_message")
        collector.status = 400
        assert chain.stop() == 0


def test_an_endpoint_without_the_library_is_an_error_at_its_place(tmp_path: Path) -> None:
    """That says what to install."""
    config = configured(tmp_path)
    config.write_text(config.read_text() + "traces: {endpoint: 'http://localhost:4318/v1/traces'}\n")
    refused = command("check", "--config", str(config))
    assert refused.returncode == 2
    assert ":10:20: E-CFG-020 traces.endpoint: needs what is not installed: pip install" in refused.stdout
