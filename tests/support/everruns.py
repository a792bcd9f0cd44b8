"""A sidecar with agents that do as they are told, and a plain client of their channels."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.support.spawned import running, write_capsule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.spawned import Spawned

AGENT = """
import json, sys, time
from pathlib import Path

def say(kind, **members):
    print(json.dumps({"type": kind, **members}), flush=True)

def hear():
    return json.loads(sys.stdin.readline())["text"]

word, _, rest = hear().partition(" ")
if word == "count":
    for number in range(int(rest)):
        say("text", text=f"{number} ")
    say("completed")
elif word == "ask":
    say("input-required", prompt=rest or "who?")
    say("completed", response="you said " + hear())
elif word == "hold":
    say("text", text="begun")
    while not Path(rest).exists():
        time.sleep(0.01)
    say("completed", response="done")
elif word in ("failed", "rejected"):
    say(word, message=rest)
elif word == "big":
    for _ in range(int(rest)):
        say("text", text="x" * 1000)
    say("completed", response="big")
else:
    say("completed", response=f"{word} {rest}".strip())
"""
CONFIG = """
roots: [{{path: {root}}}]
desk: {{public_url: "http://localhost/behind/"}}
command: {{argv: [python3, -I, -S, {agent}], protocol: jsonl}}
backend: command
tasks: {{concurrency: 8}}
capsules:
  named: {{channel_id: Front-Door, conversation_starters: ["What can you do?", "Hello"]}}
  resting: {{disabled: true}}
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; `headers` by lowercase name."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.raw)


@dataclass
class Channel:
    """A client of one agent: `key` is sent as a Bearer token, `end_user` as whom it speaks for."""

    desk: str
    id: str
    key: str | None = None
    end_user: str | None = None
    sent: dict[str, str] = field(default_factory=dict)

    def with_key(self, key: str | None, end_user: str | None = None) -> Channel:
        """Return a client of the same agent with another credential."""
        return Channel(self.desk, self.id, key, end_user)

    def headers(self) -> dict[str, str]:
        """Return what is sent with each request."""
        found = dict(self.sent)
        if self.key is not None:
            found["Authorization"] = f"Bearer {self.key}"
        if self.end_user is not None:
            found["End-User"] = self.end_user
        return found

    def ask(self, method: str, path: str = "", body: Any = None, **headers: str) -> Answer:
        """Send one request to the agent; `body` is JSON, or bytes as they are; `_` in names of headers stands for `-`."""
        return self.send(method, f"/v1/channels/{self.id}{path}", body, **headers)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send one request to any path of the desk."""
        given = self.headers() | {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            given.setdefault("Content-Type", "application/json")
        connection = self._connection()
        try:
            connection.request(method, path, data, given)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str = "", **headers: str) -> Answer:
        """Read."""
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        """Send."""
        return self.ask("POST", path, body, **headers)

    def session(self, title: str | None = None) -> str:
        """Begin a session and return its id."""
        made = self.post("/sessions", {} if title is None else {"title": title})
        assert made.status == 201, made.raw
        return str(made.json["id"])

    def say(self, session: str, text: str, **headers: str) -> Answer:
        """Send a message."""
        return self.post(f"/sessions/{session}/messages", message(text), **headers)

    def events(self, session: str, query: str = "limit=500") -> list[dict[str, Any]]:
        """Return the events of a session."""
        answer = self.get(f"/sessions/{session}/events?{query}")
        assert answer.status == 200, answer.raw
        found: list[dict[str, Any]] = answer.json["data"]
        return found

    def types(self, session: str) -> list[str]:
        """Return the types of the events of a session."""
        return [event["type"] for event in self.events(session)]

    @contextmanager
    def stream(self, session: str, query: str = "after_sequence=0", **headers: str) -> Iterator[Stream]:
        """Open a stream until the end of the block."""
        connection = self._connection()
        given = self.headers() | {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request("GET", f"/v1/channels/{self.id}/sessions/{session}/sse?{query}", headers=given)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.headers["content-type"] == "text/event-stream"
            yield Stream(answer)
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        where = urlsplit(self.desk)
        return HTTPConnection(where.hostname or "", where.port, timeout=20)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stream; a comment has the event `:`."""

    event: str
    id: str | None
    data: Any


class Stream:
    """What comes in a stream, frame by frame."""

    def __init__(self, answer: HTTPResponse) -> None:
        self._answer = answer

    def next(self) -> Frame | None:
        """Return the next frame, None at the end."""
        fields: dict[str, str] = {}
        while line := self._answer.readline():
            text = line.decode().removesuffix("\n")
            if text:
                name, _, value = text.partition(":")
                fields[name or ":"] = value.strip()
            elif fields:
                event = ":" if ":" in fields else fields["event"]
                return Frame(event, fields.get("id"), json.loads(fields.get("data", "null")))
        return None

    def until(self, event: str) -> list[Frame]:
        """Return the frames up to one of this kind, comments left out."""
        found = []
        while (frame := self.next()) is not None:
            if frame.event != ":":
                found.append(frame)
            if frame.event == event:
                return found
        raise AssertionError(f"the stream ended before {event}: {found}")

    def rest(self, within: float = 60.0) -> list[Frame]:
        """Return what comes before the end, comments left out; the end must come in so many seconds."""
        found: list[Frame] = []
        latest = time.monotonic() + within
        while (frame := self.next()) is not None:
            assert time.monotonic() < latest, f"the stream goes on: {found}"
            if frame.event != ":":
                found.append(frame)
        return found


def message(text: str) -> dict[str, Any]:
    """Return the body of a message."""
    return {"message": {"role": "user", "content": [{"type": "text", "text": text}]}}


@dataclass
class House:
    """A sidecar with some agents; `gates` is a directory for files that agents wait for."""

    sidecar: Spawned
    gates: Path

    def channel(self, channel_id: str, key: str | None = None, end_user: str | None = None) -> Channel:
        """Return a client of an agent."""
        return Channel(self.sidecar.desk, channel_id, key, end_user)

    def key(self, capsule_id: str, **wishes: Any) -> tuple[str, str]:
        """Make an agent key; return its id and its secret."""
        made = self.operate(f"/api/capsules/{capsule_id}/keys", wishes).json
        return made["key_id"], made["key"]

    def operate(self, path: str, body: Any = None, method: str = "POST") -> Answer:
        """Ask the desk as the operator."""
        token = (self.sidecar.state / "admin.token").read_text().strip()
        return Channel(self.sidecar.desk, "", token).send(method, path, body)


@contextmanager
def house(place: Path, *, config: str = CONFIG, **more: str) -> Iterator[House]:
    """Run a sidecar with agents below a directory, on the state of earlier runs there."""
    root = place / "capsules"
    for name in ("plain", "named", "resting", "keyed", "other", "closing"):
        write_capsule(root / name)
    write_capsule(root / "one", acceptance="single")
    write_capsule(root / "none", acceptance="none")
    write_capsule(root / "described", more="description: What it is for\n")
    broken = root / "broken"
    broken.mkdir(exist_ok=True)
    (broken / "murmur.yaml").write_text("name: broken\nversion: 1\nlifecycle: never\n")
    (place / "agent.py").write_text(AGENT)
    text = config.format(root=root, agent=place / "agent.py", **more)
    (place / "config.yaml").write_text(text)
    gates = place / "gates"
    gates.mkdir(exist_ok=True)
    with running(["--config", str(place / "config.yaml")], state=place / "state") as spawned:
        spawned.port("plain")
        yield House(spawned, gates)
