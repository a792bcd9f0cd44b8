"""A2A tasks over a `kill -9` of the sidecar: what clients were told stays true, and goes on."""

from __future__ import annotations

import http.client
import itertools
import json
import signal
from typing import TYPE_CHECKING, Any, Final
from urllib.request import Request, urlopen

import pytest

from sidecar.tasks.backends.command import INTERRUPTED
from tests.support.spawned import Spawned, running, write_capsule
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AGENT: Final = """#!/bin/sh
read -r line
echo '{"type": "text", "text": "half"}'
echo '{"type": "artifact", "name": "kept", "parts": [{"text": "made"}], "last": true}'
case "$line" in
  *ask*) echo '{"type": "input-required", "prompt": "Which?"}' ;;
esac
exec sleep 60
"""
"""Says and makes something, asks where it is told to, and is never done."""
CONFIG: Final = """
roots: [{{path: {root}}}]
listen: {{ports: 24000-31999}}
heartbeat: {{a2a: 100ms}}
tasks: {{concurrency: 4}}
capsules:
  inbox: {{}}
  command:
    path: {root}/command
    backend: command
    command: {{argv: [{agent}], protocol: jsonl}}
"""
STATE: Final = "TASK_STATE_"


class Client:
    """A client of one capsule that speaks A2A 1.0 and, where it asks for a task, 0.3 as well."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._numbers = itertools.count(1)

    def call(self, method: str, params: dict[str, Any], *, version: str = "1.0") -> dict[str, Any]:
        """Return the whole answer to one call."""
        connection, answer = self.opened(method, params, version=version)
        try:
            found: dict[str, Any] = json.loads(answer().read())
            return found
        finally:
            connection.close()

    def opened(self, method: str, params: dict[str, Any], *, version: str = "1.0") -> tuple[Any, Any]:
        """Make a call, and return its connection and what waits for the answer's head."""
        connection = http.client.HTTPConnection("localhost", self.port, timeout=20)
        body = json.dumps({"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params})
        headers = {"Content-Type": "application/json", "A2A-Version": version}
        connection.request("POST", "/a2a", body, headers)
        return connection, connection.getresponse

    def send(self, text: str, *, at_once: bool = True, **more: Any) -> dict[str, Any]:
        """Send a message and return the task."""
        found = self.call("SendMessage", message(text, at_once=at_once, **more))
        task: dict[str, Any] = found["result"]["task"]
        return task

    def get(self, task_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a task as each version has it."""
        new = self.call("GetTask", {"id": task_id})
        old = self.call("tasks/get", {"id": task_id}, version="0.3")
        return new["result"], old["result"]

    def state(self, task_id: str) -> str:
        """Return where a task stands, as 1.0 spells it."""
        state: str = self.get(task_id)[0]["status"]["state"]
        return state.removeprefix(STATE)

    def until(self, task_id: str, state: str) -> None:
        """Wait until a task stands so."""
        until_sync(lambda: self.state(task_id) == state, what=f"{task_id} {state}")

    def listed(self, **query: Any) -> dict[str, Any]:
        """Return one page of a list."""
        page: dict[str, Any] = self.call("ListTasks", query)["result"]
        return page

    def follow(self, task_id: str, *, version: str = "1.0") -> Iterator[dict[str, Any]]:
        """Yield what a task's stream shows, to its end."""
        method = "SubscribeToTask" if version == "1.0" else "tasks/resubscribe"
        connection, answer = self.opened(method, {"id": task_id}, version=version)
        try:
            for line in answer():
                if line.startswith(b"data:"):
                    yield json.loads(line.removeprefix(b"data:"))["result"]
        finally:
            connection.close()


class Worker:
    """A worker of one capsule, over HTTP and without a heartbeat."""

    def __init__(self, spawned: Spawned, capsule: str) -> None:
        self._base = f"{spawned.desk}/workers/{capsule}"
        self._token = (spawned.state / "admin.token").read_text().strip()

    def take(self) -> dict[str, Any]:
        """Return what the next task comes with."""
        found = self._post("/next?wait=20", b"")
        assert found, "no task came"
        claim: dict[str, Any] = json.loads(found)
        return claim

    def say(self, claim: dict[str, Any], *lines: dict[str, Any]) -> None:
        """Say these things of a task; they are on disk afterwards."""
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        self._post(f"/tasks/{claim['task']['id']}/events", body, {"x-sidecar-lease": claim["lease"]})

    def _post(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
        fields = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/jsonl"}
        with urlopen(Request(self._base + path, body, {**fields, **(headers or {})}), timeout=40) as answer:
            found: bytes = answer.read()
        return found


def message(text: str, *, at_once: bool = False, **more: Any) -> dict[str, Any]:
    """Return the parameters of a send."""
    said = {"messageId": f"m-{text}", "role": "ROLE_USER", "parts": [{"text": text}], **more}
    return {"message": said, "configuration": {"returnImmediately": at_once}}


def configured(tmp_path: Path) -> list[str]:
    """Write two capsules with their configuration, and return the arguments that serve them."""
    root, agent = tmp_path / "capsules", tmp_path / "agent.sh"
    for name in ("inbox", "command"):
        write_capsule(root / name)
    agent.write_text(AGENT)
    agent.chmod(0o755)
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(root=root, agent=agent))
    return ["--config", str(config)]


def killed(spawned: Spawned) -> None:
    """End it as nobody can prepare for."""
    spawned.signal(signal.SIGKILL)
    assert spawned.wait() == -signal.SIGKILL


def test_tasks_of_an_inbox_outlive_a_kill(tmp_path: Path) -> None:
    """Each is what it was, in both versions; questions can be answered, lists and streams taken up where they were."""
    arguments, state = configured(tmp_path), tmp_path / "state"
    with running(arguments, state=state) as spawned:
        client, worker = Client(spawned.port("inbox")), Worker(spawned, "inbox")
        over, asked, half = (client.send(text)["id"] for text in ("over", "asked", "half"))
        claims = {claim["task"]["id"]: claim for claim in (worker.take(), worker.take(), worker.take())}
        made = {"type": "artifact", "name": "kept", "parts": [{"data": [1, None]}], "last": True}
        worker.say(claims[over], {"type": "text", "text": "all of it"}, made, {"type": "completed"})
        worker.say(claims[asked], made, {"type": "input-required", "prompt": "Which?"})
        worker.say(claims[half], {"type": "text", "text": "half"})
        waiting = client.send("waiting")["id"]
        before = {task_id: client.get(task_id) for task_id in (over, asked, half, waiting)}
        page = client.listed(pageSize=2)

        connection, head = client.opened("SendMessage", message("blocks", contextId="ctx_blocks"))
        answer = head()  # it came with the first space
        stream = client.follow(half)
        assert next(stream)["task"] == before[half][0]
        killed(spawned)
        with pytest.raises(http.client.IncompleteRead) as cut:
            answer.read()
        assert not cut.value.partial.strip()
        connection.close()
        assert not list(stream)

    with running(arguments, state=state) as spawned:
        assert spawned.port("inbox") == client.port
        assert {task_id: client.get(task_id) for task_id in before} == before
        (blocked,) = client.listed(contextId="ctx_blocks")["tasks"]
        assert blocked["status"]["state"] == "TASK_STATE_SUBMITTED"
        rest = client.listed(pageSize=50, pageToken=page["nextPageToken"])["tasks"]
        seen = [task["id"] for task in (*page["tasks"], *rest)]
        assert sorted(seen) == sorted(before)

        streams = [client.follow(half), client.follow(half, version="0.3")]
        for stream in streams:
            next(stream)
        assert client.send("this one", taskId=asked)["status"]["state"] == "TASK_STATE_WORKING"
        worker = Worker(spawned, "inbox")
        for claim in (worker.take() for _ in range(4)):
            heard = [line["text"] for line in claim["input"]]
            assert heard == (["this one"] if claim["task"]["id"] == asked else [])
            worker.say(claim, {"type": "text", "text": "whole"}, {"type": "completed"})
        new, old = map(list, streams)
        assert new[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert (old[-1]["status"]["state"], old[-1]["final"]) == ("completed", True)
        for task_id in (asked, half, waiting, blocked["id"]):
            found = client.get(task_id)[0]
            assert found["status"]["state"] == "TASK_STATE_COMPLETED"
            assert found["artifacts"][0]["parts"] == [{"text": "whole"}]
        texts = [said["parts"][0]["text"] for said in client.get(asked)[0]["history"]]
        assert texts == ["asked", "Which?", "this one"]


def test_tasks_of_a_command_that_a_kill_ended_say_so(tmp_path: Path) -> None:
    """What their programs had said and made stays; nobody can answer, cancel or follow them any more."""
    arguments, state = configured(tmp_path), tmp_path / "state"
    with running(arguments, state=state) as spawned:
        client = Client(spawned.port("command"))
        runs, asked = client.send("run")["id"], client.send("ask", at_once=False)["id"]
        until_sync(lambda: len(client.get(runs)[0].get("artifacts", ())) == 2, what="what the program made")
        assert client.state(asked) == "INPUT_REQUIRED"
        killed(spawned)

    with running(arguments, state=state) as spawned:
        assert spawned.port("command") == client.port
        for task_id in (runs, asked):
            client.until(task_id, "FAILED")
            for found in client.get(task_id):
                assert found["status"]["message"]["parts"][0]["text"] == INTERRUPTED
                assert [made["name"] for made in found["artifacts"]] == ["response", "kept"]
                assert found["artifacts"][0]["parts"][0]["text"] == "half"
            assert client.call("CancelTask", {"id": task_id})["error"]["code"] == -32002
            assert client.call("SubscribeToTask", {"id": task_id})["error"]["code"] == -32004
            refused = client.call("SendMessage", message("too late", taskId=task_id))
            assert refused["error"]["code"] == -32004
