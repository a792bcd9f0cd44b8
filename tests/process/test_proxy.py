"""Behind a real nginx, with the configuration that docs/proxy.md shows: a path for each capsule, streams included."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from tests.support.a2a_clients import CONFIG as CLIENTS
from tests.support.a2a_clients import PYTHON, picture, run_all, story
from tests.support.crashing import free_port
from tests.support.nginx import proxy
from tests.support.spawned import running, write_capsule
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.spawned import Spawned

PAGE = Path(__file__).parents[2] / "docs" / "proxy.md"
REFERENCE = "/.well-known/agent-card.json"
PATHS = (REFERENCE, "/.well-known/agent.json", f"/a2a{REFERENCE}", f"/a2a/v0.3{REFERENCE}")
AGENT = """\
import pathlib, sys, time
sys.stdin.read()
print("begun", flush=True)
while not pathlib.Path({gate!r}).exists():
    time.sleep(0.01)
print("done")
"""
EXPORTS = "exports:\n  files:\n    root: out/\n    mode: read-only\n"

pytestmark = pytest.mark.machine


def block(kind: str) -> str:
    """Return the first block of this kind on the page."""
    found = re.search(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@dataclass
class Site:
    """nginx in front of a sidecar: `port` is nginx's, `gate` a file that the agents wait for."""

    port: int
    sidecar: Spawned
    gate: Path

    @property
    def host(self) -> str:
        """What stands in URLs for the public host."""
        return f"127.0.0.1:{self.port}"

    def ask(
        self, path: str, body: Mapping[str, Any] | None = None, **headers: str
    ) -> tuple[HTTPConnection, HTTPResponse]:
        """Send one request to nginx, whose answer may still be coming."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is None:
            connection.request("GET", path, headers=fields)
        else:
            fields["Content-Type"] = "application/json"
            connection.request("POST", path, json.dumps(body), fields)
        return connection, connection.getresponse()

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        """Read what is at a path."""
        connection, answer = self.ask(path, None, **headers)
        found = answer.status, answer.read()
        connection.close()
        return found

    def card(self, path: str, **headers: str) -> dict[str, Any]:
        """Read a card."""
        status, body = self.get(path, **headers)
        assert status == 200
        found: dict[str, Any] = json.loads(body)
        return found


@contextmanager
def site(tmp_path: Path, *, knows_its_url: bool = True) -> Iterator[Site]:
    """Run both as the page says, on free ports; without the public URL the proxy forwards where it was asked."""
    port, hello, greeter = free_port(), free_port(), free_port()
    by = {
        "24000": str(hello),
        "24001": str(greeter),
        "8080": f"127.0.0.1:{port}",
        "https://agents.example": f"http://127.0.0.1:{port}",
    }
    for name in ("hello", "greeter"):
        place = write_capsule(tmp_path / "capsules" / name, more=EXPORTS)
        (place / "out").mkdir()
        (place / "out" / "a b%2F.txt").write_text(name)
    gate = tmp_path / "gate"
    (tmp_path / "agent.py").write_text(AGENT.format(gate=str(gate)))
    nginx, sidecar = (
        re.sub("|".join(by), lambda found: by[found[0]], block(kind)) for kind in ("nginx", "yaml")
    )
    if not knows_its_url:
        sidecar = re.sub("  public_url: .*\n", "", sidecar)
        nginx = nginx.replace('X-Forwarded-Host ""', "X-Forwarded-Host $http_host")
        nginx = nginx.replace('X-Forwarded-Proto ""', "X-Forwarded-Proto $scheme")
        nginx = nginx.replace('X-Forwarded-Prefix ""', "X-Forwarded-Prefix /agents/$capsule")
    more = (
        f"roots: [{{path: {tmp_path / 'capsules'}}}]\n"
        "desk: {port: 0}\nbackend: command\n"
        f"command: {{argv: [{sys.executable}, {tmp_path / 'agent.py'}]}}\n"
        "heartbeat: {murmur: 500ms}\n"
    )
    with both(tmp_path, sidecar + more, nginx) as spawned:
        found = Site(port, spawned, gate)
        until_sync(lambda: answers(found), what="nginx")
        yield found


@contextmanager
def both(tmp_path: Path, sidecar: str, nginx: str) -> Iterator[Spawned]:
    """Run a sidecar and nginx on these configurations."""
    config = tmp_path / "config.yaml"
    config.write_text(sidecar)
    with running(["--config", str(config)], state=tmp_path / "state") as spawned, proxy(tmp_path, nginx):
        yield spawned


def answers(found: Site) -> bool:
    """Whether nginx is there."""
    try:
        return found.get("/nowhere")[0] == 404
    except ConnectionError:
        return False


def urls(value: Any) -> list[str]:
    """Return every absolute URL in a card, the names of extensions left out."""
    if isinstance(value, dict):
        return [url for key, item in value.items() if key != "uri" for url in urls(item)]
    if isinstance(value, list):
        return [url for item in value for url in urls(item)]
    return [value] if isinstance(value, str) and "://" in value else []


def test_every_url_on_the_cards_is_the_public_one(tmp_path: Path) -> None:
    """Of each capsule its own; what clients say of the host, or forward, changes nothing; validators pass through."""
    with site(tmp_path) as public:
        for capsule in ("hello", "greeter"):
            base = f"http://{public.host}/agents/{capsule}"
            for path in PATHS:
                card = public.card(f"/agents/{capsule}{path}")
                assert card["name"] == capsule
                assert urls(card)
                assert all(url.startswith(f"{base}/") for url in urls(card))
                said = {
                    "Host": "evil.example",
                    "X_Forwarded_Host": "evil.example",
                    "X_Forwarded_Proto": "https",
                }
                assert public.card(f"/agents/{capsule}{path}", **said) == card
                connection, answer = public.ask(f"/agents/{capsule}{path}")
                etag = answer.headers["ETag"]
                connection.close()
                assert public.get(f"/agents/{capsule}{path}", If_None_Match=etag) == (304, b"")
        assert public.get("/agents/unknown/")[0] == 404
        assert public.get("/agents/hello%2Fx")[0] == 404


def test_without_a_public_url_the_cards_name_what_a_trusted_proxy_forwards(tmp_path: Path) -> None:
    """Scheme, host and prefix come from nginx."""
    with site(tmp_path, knows_its_url=False) as public:
        base = f"http://{public.host}/agents/greeter/"
        for path in PATHS:
            assert all(url.startswith(base) for url in urls(public.card(f"/agents/greeter{path}")))


def test_paths_of_files_arrive_as_they_were_written(tmp_path: Path) -> None:
    """Nothing is decoded on the way: an escaped slash is part of a name's spelling, a step up is refused."""
    with site(tmp_path) as public:
        status, body = public.get("/agents/hello/resources/files/a%20b%252F.txt")
        assert (status, body) == (200, b"hello")
        assert public.get("/agents/greeter/resources/files/a%20b%252F.txt") == (200, b"greeter")
        status, body = public.get("/agents/hello/resources/files/%2e%2e/murmur.yaml")
        assert (status, json.loads(body)["error"]) == (403, "outside_root")


def call(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Make a call of JSON-RPC."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


MURMUR = {"messageId": "m", "role": "user", "parts": [{"text": "hello"}]}


def test_events_come_through_one_by_one(tmp_path: Path) -> None:
    """What an agent says is there before it is done, comments come while it says nothing, and the end ends the stream."""
    with site(tmp_path) as public:
        connection, answer = public.ask("/agents/hello/", call("message/stream", MURMUR))
        assert answer.headers["Content-Type"] == "text/event-stream"
        before = read_until(answer, b'"begun')
        assert b"completed" not in before
        read_until(answer, b":heartbeat")
        public.gate.touch()
        assert b"completed" in answer.read()
        connection.close()


SEND = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}}


def test_a2a_answers_at_the_urls_that_its_card_names(tmp_path: Path) -> None:
    """A stream of 1.0 at its interface, piece by piece; a task of 0.3 at its own."""
    with site(tmp_path) as public:
        card = public.card(f"/agents/hello/a2a{REFERENCE}")
        newer, older = (path_of(each["url"], public) for each in card["supportedInterfaces"])
        connection, answer = public.ask(newer, call("SendStreamingMessage", SEND), A2A_Version="1.0")
        assert answer.headers["Content-Type"] == "text/event-stream"
        begun = read_until(answer, b'"begun')
        (task_id,) = set(re.findall(rb'"taskId":"(tsk_[0-9a-f]+)"', begun))
        public.gate.touch()
        assert b"TASK_STATE_COMPLETED" in answer.read()
        connection.close()
        connection, answer = public.ask(older, call("tasks/get", {"id": task_id.decode()}))
        assert json.loads(answer.read())["result"]["status"]["state"] == "completed"
        connection.close()


def test_the_official_clients_work_below_a_prefix(tmp_path: Path) -> None:
    """Unmodified: they find the card there, and stream, wait in silence, answer a question and come back."""
    port, direct = free_port(), free_port()
    by = {"24000": str(direct), "8080": f"127.0.0.1:{port}", "hello": "obedient"}
    nginx = re.sub("|".join(by), lambda found: by[found[0]], block("nginx"))
    sidecar = CLIENTS.read_text().replace("./capsules", str(CLIENTS.parent / "capsules"))
    sidecar = sidecar.replace("  obedient:\n", f"  obedient:\n    port: {direct}\n")
    sidecar += f"desk: {{port: 0}}\nlisten: {{public_url: 'http://127.0.0.1:{port}/agents/{{id}}'}}\n"
    with both(tmp_path, sidecar, nginx) as spawned:
        until_sync(lambda: answers(Site(port, spawned, tmp_path)), what="nginx")
        results = run_all(PYTHON, f"http://127.0.0.1:{port}/agents/obedient", tmp_path)
    for client, seen in results.items():
        assert isinstance(seen, dict), f"{client}: {seen}"
        assert story(seen["stream"]) == [["task", ""], ["response", "0 1 2 "], ["completed", ""]], client
        assert story(seen["silent stream"])[-1] == ["completed", ""], client
        assert picture(seen["silent send"])["state"] == "completed", client
        assert picture(seen["answered"])["state"] == "completed", client
        assert picture(seen["got"])["artifacts"] == {"response": "begun done"}, client


def path_of(url: str, public: Site) -> str:
    """Return the path of a URL of this site."""
    start = f"http://{public.host}"
    assert url.startswith(start)
    return url.removeprefix(start)


def test_a_client_that_leaves_leaves_its_task(tmp_path: Path) -> None:
    """The stream ends at the sidecar too, and nothing of it is an error; the task goes on."""
    with site(tmp_path) as public:
        connection, answer = public.ask("/agents/hello/", call("message/stream", MURMUR))
        read_until(answer, b'"begun')
        answer.close()
        connection.close()
        until_sync(lambda: open_streams(public) == 0, what="the end of the stream")
        public.gate.touch()
        until_sync(lambda: state(public) == "completed")
        assert not [line for line in public.sidecar.log if line["level"] == "error"]


def open_streams(public: Site) -> int:
    """Return how many streams the sidecar has open."""
    with urlopen(f"{public.sidecar.desk}/metrics", timeout=10) as answer:
        found = re.search(r"^sidecar_open_streams (\d+)", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def state(public: Site) -> str:
    """Return the state of the newest task."""
    connection, answer = public.ask("/agents/hello/", call("tasks/get", {}))
    found: str = json.loads(answer.read())["result"]["status"]["state"]
    connection.close()
    return found


def read_until(answer: HTTPResponse, sought: bytes) -> bytes:
    """Return a stream's bytes up to something in it."""
    found = b""
    while sought not in found:
        piece = answer.read1(4096)
        assert piece, found
        found += piece
    return found
