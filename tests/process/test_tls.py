"""A sidecar that speaks TLS, seen from outside: its cards, its command line, its workers, and another certificate."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from sidecar.worker import Worker
from sidecar.worker.errors import AwayError
from tests.support.certificates import Files, make_pair
from tests.support.spawned import environment, running
from tests.support.spawned import sidecar as command
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.spawned import Spawned

PROJECT = Path(__file__).parents[2]
WATCH = b'{"jsonrpc":"2.0","id":1,"method":"stream/watch"}'
CONFIG = """\
roots: [{{path: {root}}}]
listen: {{tls: {{cert: tls.pem, key: tls.key}}{listen}}}
desk: {{port: 0, tls: {{cert: tls.pem, key: tls.key}}}}
capsules: {{a: {{a2a_port: {second}}}}}
"""


def free_port() -> int:
    """Return a port that nobody listens on, below those that the kernel gives to outgoing connections."""
    for port in range(19_000 + os.getpid() % 10 * 100, 20_000):
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@pytest.fixture
def pair(tmp_path: Path) -> Files:
    """The pair that the configuration names."""
    return make_pair(tmp_path)


@pytest.fixture
def config(root: Path, tmp_path: Path, pair: Files) -> Path:
    """A configuration with TLS everywhere."""
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(root=root, second=free_port(), listen=""))
    return path


@pytest.fixture
def secure(config: Path, tmp_path: Path) -> Iterator[Spawned]:
    """A sidecar with it."""
    with running(["--config", str(config)], state=tmp_path / "state") as spawned:
        yield spawned


def read(url: str, context: ssl.SSLContext, *, token: str | None = None) -> Any:
    """Return the document at a URL."""
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    with urlopen(Request(url, headers=headers), timeout=20, context=context) as answer:
        return json.load(answer)


def token_of(spawned: Spawned) -> str:
    """Return the admin token."""
    return (spawned.state / "admin.token").read_text().strip()


def row_of(spawned: Spawned, pair: Files) -> dict[str, Any]:
    """Return the row of the one capsule."""
    document = read(f"{spawned.desk}/api/capsules", pair.trusted(), token=token_of(spawned))
    row: dict[str, Any] = document["capsules"][0]
    return row


def shown(port: int) -> bytes:
    """Return the certificate that a port shows to new connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
        context.wrap_socket(plain) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def ended(spawned: Spawned) -> bytes:
    """Start a task and end it, and return its id, which then shows in streams."""
    state = ("--state", str(spawned.state))
    sent = command("send", "a", "hello", "--no-wait", *state)
    task_id = sent.stdout.strip()
    canceled = command("tasks", "cancel", "a", task_id, *state)
    assert (sent.returncode, canceled.returncode) == (0, 0), canceled.stderr
    return task_id.encode()


def until_shown(port: int, certificate: bytes) -> None:
    """Wait until a port shows a certificate."""
    until_sync(lambda: shown(port) == certificate, what="the new certificate")


class Stream:
    """A client that watches a session over TLS."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        head = (
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(WATCH)}\r\n\r\n"
        )
        self.socket.sendall(head.encode() + WATCH)
        self.seen = b""
        self.until(b"connection-ack")

    def until(self, text: bytes) -> None:
        """Read until this was seen, without waiting for ever among comments."""
        end = time.monotonic() + 20
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            piece = self.socket.recv(65536)
            assert piece, self.seen
            self.seen += piece

    def to_end(self) -> bytes:
        """Read to the end, which must be a proper one: without a last record this raises."""
        while piece := self.socket.recv(65536):
            self.seen += piece
        return self.seen

    def close(self) -> None:
        """Leave."""
        self.socket.close()


def test_every_url_on_every_card_is_one_that_answers(secure: Spawned, pair: Files) -> None:
    """They begin with https, those of the second port and of the catalog too, and the log says so of the desk."""
    trusted = pair.trusted()
    assert secure.events("ready")[0]["desk"] == secure.desk
    assert secure.desk.startswith("https://127.0.0.1:")
    base = f"https://{row_of(secure, pair)['url']}"
    views = read(f"{secure.desk}/api/capsules/a/cards", trusted, token=token_of(secure))["cards"]
    urls = [view["url"] for view in views if not view["url"].startswith(secure.desk)]
    assert len(urls) >= 3
    second = secure.event("second_port_bound")["port"]
    for url in (*urls, f"https://localhost:{second}/.well-known/agent-card.json"):
        assert url.startswith((base, f"https://localhost:{second}/"))
        card = json.dumps(read(url, trusted))
        assert "https://localhost" in card
        assert "http://" not in card
    (entry,) = read(f"{secure.desk}/.well-known/ai-catalog.json", trusted)["entries"]
    assert read(entry["url"], trusted)["name"] == "a"


def test_the_command_line_trusts_the_certificate_in_run_json_alone(secure: Spawned) -> None:
    """Whatever name and authority it has; another one is not even shown the token."""
    state = ("--state", str(secure.state))
    assert command("health", *state).stdout == "ready\n"
    assert json.loads(command("list", "--json", *state).stdout)["capsules"][0]["id"] == "a"
    assert command("link", *state).stdout.startswith(f"{secure.desk}/#link=")
    sent = command("send", "a", "hello", "--no-wait", *state)
    assert (sent.returncode, sent.stderr) == (0, "")
    assert sent.stdout.strip() in command("tasks", "list", "a", *state).stdout
    assert "nothing changed" in command("reload", *state).stdout

    path = secure.state / "run.json"
    run = json.loads(path.read_text())
    run["desk"]["certificate_sha256"] = "0" * 64
    path.write_text(json.dumps(run))
    refused = command("list", *state)
    assert refused.returncode == 1
    assert "another certificate than run.json names" in refused.stderr


def test_workers_find_the_desk_and_know_its_certificate(secure: Spawned, pair: Files) -> None:
    """By the state directory, by a file of authorities, or by the variable that OpenSSL knows."""
    places: list[dict[str, Any]] = [
        {"state": secure.state},
        {"url": secure.desk, "token": token_of(secure), "cafile": pair.cert},
    ]
    for place in places:
        assert asyncio.run(first_task(Worker("a", **place), secure)) == "hello"
    program = f"import tests.process.test_tls as t, asyncio; asyncio.run(t.work_once('{secure.desk}'))"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=PROJECT,
        env=environment(SSL_CERT_FILE=str(pair.cert), SIDECAR_TOKEN=token_of(secure)),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert command("send", "a", "to a process", "--state", str(secure.state)).returncode == 0
        said, _ = process.communicate(timeout=30)
        assert said == "to a process\n"


async def first_task(worker: Worker, sidecar: Spawned) -> str:
    """Do one task that is handed in meanwhile, and return its text."""
    sending = asyncio.ensure_future(
        asyncio.to_thread(command, "send", "a", "hello", "--state", str(sidecar.state))
    )
    async with asyncio.timeout(30), aclosing(worker.tasks()) as tasks:
        async for task in tasks:
            await task.complete("done")
            break
    assert "done" in (await sending).stdout
    return task.prompt


async def work_once(url: str) -> None:
    """Do one task, and print its text."""
    async with aclosing(Worker("a", url=url).tasks()) as tasks:
        async for task in tasks:
            await task.complete("done")
            print(task.prompt)  # noqa: T201 - for who started it
            break


async def test_a_worker_tells_nothing_to_who_shows_another_certificate(secure: Spawned) -> None:
    """It waits, as for a sidecar that is away."""
    worker = Worker("a", url=secure.desk, token="secret")
    with pytest.raises(AwayError, match="certificate"):
        async with worker._client.opened():  # noqa: SLF001 - what the worker's loop would wait for
            await worker._client.call("next")  # noqa: SLF001 - likewise


def test_a_renewed_certificate_is_shown_to_new_connections(
    secure: Spawned, pair: Files, tmp_path: Path
) -> None:
    """On all ports, without a reload being asked for; streams go on byte by byte."""
    row = row_of(secure, pair)
    desk = int(secure.desk.rpartition(":")[2])
    second = secure.event("second_port_bound")["port"]
    with closing(Stream(row["port"], pair.trusted())) as stream:
        other = make_pair(tmp_path, "other", "rsa")
        der = other.der
        pair.replace_by(other)
        for port in (row["port"], second, desk):
            until_shown(port, der)
        assert secure.event("certificates_renewed")["files"] == [str(pair.cert)]
        assert command("health", "--state", str(secure.state)).stdout == "ready\n"
        stream.until(ended(secure))
        assert secure.stop() == 0
        stream.to_end()


def test_a_pair_that_does_not_fit_is_refused_and_said_once(
    secure: Spawned, pair: Files, config: Path, tmp_path: Path
) -> None:
    """The old one is shown on; where it shows is where every refused configuration does; then it is mended."""
    port = row_of(secure, pair)["port"]
    trusted, before = pair.trusted(), pair.der
    other = make_pair(tmp_path, "other")
    other.key.rename(pair.key)
    line = f"{config}:2:36: E-CFG-018 listen.tls.key: is not the key of the first certificate in {pair.cert}"
    refused = secure.event("config_refused")
    assert refused["problems"][0] == line
    document = read(f"{secure.desk}/api/capsules", trusted, token=token_of(secure))
    assert line in document["config"]["last_error"]["message"]
    assert "is not the key" in json.dumps(read(f"{secure.desk}/readyz", trusted))
    assert command("reload", "--state", str(secure.state)).returncode == 2
    assert shown(port) == before
    assert len(secure.events("config_refused")) == 1
    der = other.der
    other.cert.rename(pair.cert)
    secure.event("config_mended")
    until_shown(port, der)


def test_a_certificate_is_renewed_although_the_rest_is_refused(
    secure: Spawned, pair: Files, config: Path, tmp_path: Path
) -> None:
    """A slip in the file must not let certificates run out; the slip goes on being shown."""
    port = row_of(secure, pair)["port"]
    config.write_text(config.read_text() + "oops: 1\n")
    secure.event("config_refused")
    other = make_pair(tmp_path, "other")
    der = other.der
    pair.replace_by(other)
    until_shown(port, der)
    document = json.loads(command("list", "--json", "--state", str(secure.state)).stdout)
    assert "oops" in document["config"]["last_error"]["message"]


def test_tls_is_turned_off_and_on_by_a_reload(secure: Spawned, pair: Files, config: Path, root: Path) -> None:
    """On the same ports: cards and run.json say what holds, and streams of either kind go on."""
    port, desk = row_of(secure, pair)["port"], secure.desk
    with_tls = config.read_text()
    with closing(Stream(port, pair.trusted())) as stream:
        config.write_text(f"roots: [{{path: {root}}}]\ndesk: {{port: 0}}\n")
        until_sync(lambda: secure.desk == desk.replace("https:", "http:"), what="a desk without TLS")
        until_sync(lambda: "http://" in json.dumps(secure.card("a")), what="a card without TLS")
        assert secure.capsules()["a"]["port"] == port
        config.write_text(with_tls)
        until_sync(lambda: secure.desk == desk, what="a desk with TLS")
        until_shown(port, pair.der)
        stream.until(ended(secure))


def test_a_stop_ends_streams_with_their_last_frame_and_a_last_record(secure: Spawned, pair: Files) -> None:
    """And those that are still shaking hands, or never read, hold nothing up."""
    port = row_of(secure, pair)["port"]
    streams = [Stream(port, pair.trusted()) for _ in range(20)]
    with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as half:
        half.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert secure.stop() == 0
    for stream in streams:
        with closing(stream):
            assert stream.to_end().endswith(b"0\r\n\r\n")
    stopping, stopped = (secure.events(name)[0]["timestamp"] for name in ("stopping", "stopped"))
    assert stopping < stopped


def test_plain_http_is_told_what_to_write(secure: Spawned, pair: Files) -> None:
    """Clients such as curl and browsers with http:// in their address."""
    port = row_of(secure, pair)["port"]
    with pytest.raises(HTTPError) as refused, urlopen(f"http://localhost:{port}/", timeout=10):
        pass
    with refused.value as answer:
        assert (answer.status, json.load(answer)["error"]) == (400, "bad_request")
    assert secure.event("request_refused")["code"] == "no_tls"


@pytest.mark.parametrize("verb", ["run", "check"])
def test_a_pair_that_cannot_be_used_refuses_the_start(
    verb: str, config: Path, pair: Files, tmp_path: Path
) -> None:
    """With file, line and column, before anything is bound; an exposed key is warned about."""
    pair.key.chmod(0o644)
    arguments = (verb, "--config", str(config), *(["--state", str(tmp_path / "s")] if verb == "run" else []))
    if verb == "check":
        warned = command(*arguments).stdout
        assert f"{config}:2:36: W-CFG-019 listen.tls.key: everybody on this machine may open" in warned
    pair.cert.unlink()
    refused = command(*arguments)
    assert refused.returncode == 2
    said = refused.stdout + refused.stderr
    assert f"{config}:2:22: E-CFG-018 listen.tls.cert: {pair.cert} cannot be read: No such file" in said
    assert f"{config}:3:29: E-CFG-018 desk.tls.cert:" in said


def test_a_key_is_not_exported(config: Path, pair: Files, root: Path) -> None:
    """A capsule whose files would hold it is refused."""
    kept = root / "a" / "out"
    kept.mkdir()
    pair.key.rename(kept / "tls.key")
    config.write_text(config.read_text().replace("key: tls.key", f"key: {kept / 'tls.key'}"))
    assert "would serve" in command("check", "--config", str(config)).stdout
