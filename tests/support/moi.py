"""A sidecar with agents that do as they are told, and a plain client of its MOI view."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tests.support.everruns import AGENT, Answer, Channel, Stream
from tests.support.spawned import running, write_capsule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.spawned import Spawned

CARD = "/newmoi/agents/card"
DOOR = "/newmoi/agents/a2a"
TEAM, OTHER = "key-of-team", "key-of-other"
KEYS = """
auth:
  moi_keys:
    - {key: {env: MOI_TEAM}, workspace: team}
    - {key: {env: MOI_OTHER}, workspace: other}
  personal_tokens:
    - {sha256: "%s", member: ada}
"""
CONFIG = """
roots: [{{path: {root}}}]
desk: {{public_url: "http://agents.example.org/behind/"}}
command: {{argv: [python3, -I, -S, {agent}], protocol: jsonl}}
backend: command
tasks: {{concurrency: 8}}
heartbeat: {{a2a: 500ms}}
limits: {{{limits}}}
{auth}
capsules:
  known: {{agent_code: explore}}
  ours: {{agent_code: explore, moi_workspace: {ours}, members: {members}}}
  theirs: {{agent_code: elsewhere, moi_workspace: other}}
  broken: {{agent_code: broken}}
  resting: {{disabled: true}}
"""


@dataclass
class Client:
    """A client of the view; `sent` goes out with each request."""

    desk: str
    sent: dict[str, str] = field(default_factory=dict)

    def using(self, **headers: str) -> Client:
        """Return a client that sends these headers; `_` in their names stands for `-`."""
        return Client(self.desk, {name.replace("_", "-"): value for name, value in headers.items()})

    def bearer(self, token: str, **headers: str) -> Client:
        """Return a client that shows a token."""
        return self.using(Authorization=f"Bearer {token}", **headers)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send one request."""
        return self._channel().send(method, path, body, **headers)

    def card(self, method: str = "GET", headers: dict[str, str] | None = None, **selectors: str) -> Answer:
        """Ask for a card."""
        query = f"?{urlencode(selectors)}" if selectors else ""
        return self.send(method, CARD + query, **(headers or {}))

    def call(
        self, method: str, params: Any, headers: dict[str, str] | None = None, **selectors: Any
    ) -> Answer:
        """Call a method."""
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params, **selectors}
        return self.send("POST", DOOR, body, **(headers or {}))

    def result(self, method: str, params: Any, **selectors: Any) -> dict[str, Any]:
        """Call a method that has a result, and return that."""
        answer = self.call(method, params, **selectors)
        assert answer.status == 200, answer
        assert list(answer.json) == ["jsonrpc", "id", "result"], answer.json
        found: dict[str, Any] = answer.json["result"]
        return found

    def code(self, method: str, params: Any, **selectors: Any) -> int:
        """Call a method that has an error, and return its code."""
        answer = self.call(method, params, **selectors)
        assert answer.status == 200, answer
        assert list(answer.json) == ["jsonrpc", "id", "error"], answer.json
        found: int = answer.json["error"]["code"]
        return found

    @contextmanager
    def stream(self, method: str, params: Any, **selectors: Any) -> Iterator[Stream]:
        """Open a stream until the end of the block."""
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params, **selectors}
        given = self.sent | {"Content-Type": "application/json", "Accept": "text/event-stream"}
        connection = self._channel()._connection()  # noqa: SLF001 - the same client, of another view
        try:
            connection.request("POST", DOOR, json.dumps(body), given)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            assert answer.headers["content-type"] == "text/event-stream"
            assert answer.headers["x-request-id"]
            yield Stream(answer)
        finally:
            connection.close()

    def _channel(self) -> Channel:
        return Channel(self.desk, "", sent=self.sent)


def message(text: str, **more: Any) -> dict[str, Any]:
    """Return the parameters of a send."""
    parts = [{"kind": "text", "text": text}]
    return {"message": {"kind": "message", "messageId": "m-1", "role": "user", "parts": parts, **more}}


def problem(answer: Answer) -> tuple[int, str]:
    """Return status and code of a refusal, whose shape must be the one of this view."""
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json) == ["code", "msg", "request_id"]
    assert all(type(value) is str for value in answer.json.values())
    assert answer.headers["x-request-id"] == answer.json["request_id"]
    assert ("www-authenticate" in answer.headers) is (answer.status in (401, 403))
    assert ("retry-after" in answer.headers) is (answer.status in (429, 503))
    return answer.status, answer.json["code"]


@dataclass
class Home:
    """A sidecar with some agents; `gates` is a directory for files that agents wait for."""

    sidecar: Spawned
    place: Path

    @property
    def gates(self) -> Path:
        """Where these files are."""
        return self.place / "gates"

    def client(self) -> Client:
        """Return a client without a credential."""
        return Client(self.sidecar.desk)

    def operate(self, method: str, path: str, body: Any = None) -> Any:
        """Ask the operator's API, and return what it answers."""
        token = (self.sidecar.state / "admin.token").read_text().strip()
        return Channel(self.sidecar.desk, "", token).send(method, f"/api/capsules/{path}", body).json

    def key(self, capsule_id: str, **wishes: Any) -> str:
        """Make an agent key and return its secret."""
        found: str = self.operate("POST", f"{capsule_id}/keys", wishes)["key"]
        return found

    def configure(
        self, *, auth: str = "", limits: str = "", members: bool = False, ours: str = "team"
    ) -> None:
        """Write the configuration; `ours` is the workspace of the agent of this name."""
        root, agent = self.place / "capsules", self.place / "agent.py"
        taken = str(members).lower()
        text = CONFIG.format(root=root, agent=agent, auth=auth, limits=limits, members=taken, ours=ours)
        (self.place / "config.yaml").write_text(text)


@contextmanager
def home(place: Path, **config: Any) -> Iterator[Home]:
    """Run a sidecar with agents below a directory, on the state of earlier runs there."""
    root = place / "capsules"
    for name in ("known", "ours", "theirs", "keyed", "resting"):
        write_capsule(root / name)
    write_capsule(root / "one", acceptance="single")
    write_capsule(root / "none", acceptance="none")
    broken = root / "broken"
    broken.mkdir(exist_ok=True)
    (broken / "murmur.yaml").write_text("name: broken\nversion: 1\nlifecycle: never\n")
    (place / "agent.py").write_text(AGENT)
    (place / "gates").mkdir(exist_ok=True)
    made = Home.__new__(Home)
    made.place = place
    made.configure(**config)
    env = {"MOI_TEAM": TEAM, "MOI_OTHER": OTHER}
    with running(["--config", str(place / "config.yaml")], state=place / "state", env=env) as spawned:
        made.sidecar = spawned
        for name in ("known", "ours", "theirs", "keyed", "one", "none"):
            spawned.port(name)
        yield made
