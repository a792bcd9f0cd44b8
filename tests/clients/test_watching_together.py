"""Clients of every dialect watch one task at the same time, and see the same events in the same order."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

from tests.support.a2a_clients import CONFIG, JS, PYTHON, Client, opened, part_of, state_of, texts, watching
from tests.support.spawned import running

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

EXPECTED = [
    ("working", "at it"),
    ("report", "one "),
    ("report", "two"),
    ("file", ""),
    ("link", ""),
    ("data", ""),
    ("reply", "made it"),
    ("completed", ""),
]


def ask(url: str, method: str, params: dict[str, Any]) -> Any:
    """Call the murmur door and return its open answer."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    request = Request(url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    return urlopen(request, timeout=30)


def in_murmur(lines: Iterable[bytes], task_id: str) -> Iterator[tuple[str, str]]:
    """Return what a murmur stream tells of a task from the first status with words of its worker to its end."""
    kind = ""
    for line in lines:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "event":
            kind = value
        if name != "data":
            continue
        data = json.loads(value)
        if data.get("id") != task_id:
            continue
        match kind:
            case "status" if data["final"]:
                yield data["status"]["state"], ""
                return
            case "status" if data["status"]["message"] == "at it":
                yield data["status"]["state"], "at it"
            case "artifact":
                yield data["artifact"]["tool_name"], data["artifact"]["content"]
            case "text" if data["text"]:
                yield "reply", data["text"]


def in_a2a(events: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Return the same of a stream of either version of A2A, whose task came already."""
    for event in events:
        kind, body = opened(event)
        if kind == "status-update":
            said = texts(body["status"].get("message", {}).get("parts", ()))
            if said or state_of(body["status"]) == "completed":
                yield state_of(body["status"]), said
        else:
            name = {"response": "reply"}.get(body["artifact"]["name"], body["artifact"]["name"])
            parts = [part_of(part) for part in body["artifact"]["parts"]]
            yield name, "".join(part for part in parts if isinstance(part, str))


@pytest.mark.parametrize(
    "clients",
    [PYTHON, pytest.param((*PYTHON, *JS), marks=pytest.mark.machine)],
    ids=lambda clients: ", ".join(map(str, clients)),
)
def test_all_see_the_same_in_the_same_order(clients: tuple[Client, ...], tmp_path: Path) -> None:
    """The task was handed in at the murmur door; whoever asks for it without credentials may see it."""
    gate = tmp_path / "gate"
    with running(["--config", str(CONFIG)], state=tmp_path / "state") as sidecar, ExitStack() as stack:
        url = f"http://localhost:{sidecar.port('obedient')}"
        murmur = stack.enter_context(ask(url, "stream/watch", {}))
        message = {"messageId": "m", "role": "user", "parts": [{"text": f"make {gate}"}]}
        with ask(url, "message/send", {"message": message}) as answer:
            task_id = json.load(answer)["result"]["id"]
        watchers = [stack.enter_context(watching(client, url, task_id)) for client in clients]
        read = [partial(map, json.loads, watcher.stdout) for watcher in watchers]
        streams = [make() for make in read]
        for stream in streams:
            kind, task = opened(next(stream))
            assert (kind, task["id"]) == ("task", task_id)
        gate.touch()
        told = [list(in_a2a(stream)) for stream in streams]
        told.append(list(in_murmur(murmur, task_id)))
    for seen in told:
        assert [each for each in seen if each != ("reply", "")] == EXPECTED
