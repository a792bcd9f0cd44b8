"""A trace goes through: from the request to the command, to a worker, and through a forward to the door behind."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from tests.support.spawned import running, write_capsule

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


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Spawned]:
    """A capsule that forwards to one which runs a command, and one with an inbox."""
    for name in ("first", "last", "inbox"):
        write_capsule(tmp_path / "capsules" / name)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(root=tmp_path / "capsules", port=port))
    with running(["--config", str(config)], state=tmp_path / "state") as spawned:
        yield spawned


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
