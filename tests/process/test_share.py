"""Handles from the command line to a peer, on a spawned sidecar: `sidecar share`, the desk's calls, and redeeming."""

from __future__ import annotations

import hashlib
import http.client
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support.spawned import Spawned, running, write_capsule
from tests.support.spawned import sidecar as command
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import CompletedProcess

READER = "reader@localhost:24001"
EXPORTS = """\
exports:
  files: {root: out/, mode: read-only, max_bytes: 4Gi}
  peer_files: {root: out/handoff/, max_ttl: 10m}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a capsule that shares files, and one that does not."""
    path = tmp_path / "capsules"
    write_capsule(path / "a", more=EXPORTS)
    write_capsule(path / "b")
    (path / "a/out/handoff").mkdir(parents=True)
    (path / "a/out/handoff/report.md").write_bytes(b"report")
    return path


@pytest.fixture
def sidecar(root: Path, tmp_path: Path) -> Iterator[Spawned]:
    """A sidecar that serves the root."""
    with running(["--root", str(root)], state=tmp_path / "state") as spawned:
        assert spawned.port("a")
        yield spawned


def share(sidecar: Spawned, *arguments: str) -> CompletedProcess[str]:
    """Run `sidecar share`."""
    return command("share", "--state", str(sidecar.state), *arguments)


def minted(sidecar: Spawned, *arguments: str) -> dict[str, Any]:
    """Make a handle and return what is said of it."""
    assert sidecar.port("a")
    done = share(sidecar, "a", "report.md", "--audience", READER, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def fetched(sidecar: Spawned, handle: str, audience: str = READER) -> tuple[int, bytes]:
    """Redeem a handle."""
    url = f"http://127.0.0.1:{sidecar.port('a')}/resources/peer/{handle}"
    try:
        with urlopen(Request(url, headers={"x-murmur-audience": audience}), timeout=10) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()


def asked(
    sidecar: Spawned, method: str, path: str, body: Any = None, token: str | None = None
) -> tuple[int, Any]:
    """Ask the desk, as the operator unless another token is given."""
    token = (sidecar.state / "admin.token").read_text().strip() if token is None else token
    connection = http.client.HTTPConnection(sidecar.desk.removeprefix("http://"), timeout=10)
    fields = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), fields)
    answer = connection.getresponse()
    document = json.loads(answer.read())
    connection.close()
    return answer.status, document


def test_a_handle_is_made_used_listed_and_revoked_from_the_command_line(sidecar: Spawned) -> None:
    """What is printed is enough to fetch the file, and nothing that is kept holds the handle itself."""
    document = minted(sidecar, "--ttl", "2m")
    assert list(document) == ["handle", "handle_id", "expires_at_ms", "audience"]
    handle = document["handle"]
    assert document["audience"] == READER
    assert document["handle_id"] == hashlib.sha256(handle.encode()).hexdigest()[:16]
    assert fetched(sidecar, handle) == (200, b"report")
    assert fetched(sidecar, handle, "other@localhost:1")[0] == 403

    text = share(sidecar, "a", "report.md", "--audience", READER)
    assert [line.split()[0] for line in text.stdout.splitlines()] == ["handle", "id", "audience", "expires"]
    listed = share(sidecar, "a", "--list")
    assert document["handle_id"] in listed.stdout
    assert handle not in listed.stdout
    assert len(json.loads(share(sidecar, "a", "--list", "--json").stdout)["handles"]) == 2

    revoked = share(sidecar, "a", "--revoke", document["handle_id"])
    assert (revoked.returncode, revoked.stdout) == (0, f"revoked {document['handle_id']}\n")
    again = share(sidecar, "a", "--revoke", document["handle_id"])
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == "sidecar: the desk refused: This handle is revoked already.\n"
    status, body = fetched(sidecar, handle)
    assert (status, json.loads(body)["error"]) == (410, "handle_expired")
    assert "revoked" in share(sidecar, "a", "--list").stdout

    payload, mac = handle.split(".")[1:]
    sidecar.event("handle_refused", outcome="handle_expired")
    with urlopen(sidecar.desk + "/metrics", timeout=10) as answer:
        metrics = answer.read().decode()
    assert 'sidecar_handle_calls_total{action="mint",outcome="ok"} 2.0' in metrics
    assert 'sidecar_plane_reads_total{capsule="a",outcome="handle_expired",plane="peer_files"} 1.0' in metrics
    kept = [*sidecar.raw, metrics, json.dumps(sidecar.api("/api/capsules/a/handles"))]
    kept += [file.read_bytes().decode("latin-1") for file in sidecar.state.iterdir() if file.is_file()]
    assert not [text for text in kept if payload in text or mac in text]


def test_a_handle_ends_with_its_time_and_with_the_sidecar(root: Path, tmp_path: Path) -> None:
    """Expired: 410; after a restart over the same state: not valid, since the keys were in memory only."""
    with running(["--root", str(root)], state=tmp_path / "state") as sidecar:
        short, long = minted(sidecar, "--ttl", "1s"), minted(sidecar)
        until_sync(lambda: fetched(sidecar, short["handle"])[0] == 410, what="the end of a handle")
        assert fetched(sidecar, long["handle"])[0] == 200
    with running(["--root", str(root)], state=tmp_path / "state") as sidecar:
        status, body = fetched(sidecar, long["handle"])
        assert (status, json.loads(body)["error"]) == (403, "handle_not_valid")
        assert share(sidecar, "a", "--list").stdout.splitlines()[1:] == []


def test_what_cannot_be_shared_is_said_in_one_line(sidecar: Spawned) -> None:
    """Exit with 1 where the sidecar refuses and with 2 for arguments that make no sense; nothing is printed then."""
    text = ""
    for arguments, status in (
        (["a", "../secret", "--audience", READER], 1),
        (["a", "report.md", "--audience", "reader"], 1),
        (["b", "report.md", "--audience", READER], 1),
        (["nobody", "report.md", "--audience", READER], 1),
        (["a", "--revoke", "0000000000000000"], 1),
        (["a", "report.md"], 2),
        (["a"], 2),
        (["a", "--list", "--revoke", "x"], 2),
        (["a", "report.md", "--list"], 2),
        (["a", "report.md", "--audience", READER, "--ttl", "soon"], 2),
        (["a", "report.md", "--audience", READER, "--ttl", "0s"], 2),
        (["a", "report.md", "--audience", READER, "--ttl", "10"], 2),
    ):
        done = share(sidecar, *arguments)
        assert (done.returncode, done.stdout) == (status, ""), (arguments, done.stderr)
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("sidecar: ")
        text = done.stderr
    assert text.endswith('"10" is no duration: a number and its unit (ms, s, m, h, d); write 10s\n')


def test_the_desk_refuses_in_its_one_shape(sidecar: Spawned) -> None:
    """Strangers learn nothing, odd bodies are bad requests, unknown capsules are not found; no handle is made."""
    at = "/api/capsules/a/handles"
    wish = {"path": "report.md", "audience": READER}
    for method, path, body in (("POST", at, wish), ("GET", at, None), ("DELETE", f"{at}/x", None)):
        status, document = asked(sidecar, method, path, body, token="wrong")
        assert (status, document["error"]) == (401, "unauthorized")
    odds: list[Any] = [[], "x", {}, {"path": 1, "audience": READER}, {**wish, "audience": None}]
    odds += [{**wish, "ttl": "10m"}, {**wish, "ttl": True}, {**wish, "ttl": 1.5}, {**wish, "tll": 1}]
    for odd in odds:
        status, document = asked(sidecar, "POST", at, odd)
        assert (status, document["error"]) == (400, "bad_request"), odd
    for method, path, expected in (
        ("PUT", at, (405, "method_not_allowed")),
        ("POST", f"{at}/x", (405, "method_not_allowed")),
        ("GET", f"{at}/x/y", (404, "not_found")),
        ("POST", "/api/capsules/nobody/handles", (404, "not_found")),
        ("POST", "/api/capsules/b/handles", (404, "no_peer_plane")),
        ("DELETE", f"{at}/0000000000000000", (404, "not_found")),
    ):
        status, document = asked(sidecar, method, path, wish)
        assert (status, document["error"]) == expected, (method, path)
    assert asked(sidecar, "POST", at, {"audience": READER, "path": "../x"})[1]["error"] == "outside_root"
    assert asked(sidecar, "POST", at, {"path": "report.md"})[1]["error"] == "missing_audience"
    assert asked(sidecar, "GET", at) == (200, {"handles": []})
    status, document = asked(sidecar, "POST", at, {**wish, "ttl": 10**9})
    assert status == 200
    (row,) = asked(sidecar, "GET", at)[1]["handles"]
    assert list(row) == ["handle_id", "path", "audience", "minted_at_ms", "expires_at_ms", "revoked"]
    assert row["expires_at_ms"] - row["minted_at_ms"] == 600_000


def test_a_capsule_that_is_not_served_shares_nothing(sidecar: Spawned, root: Path) -> None:
    """Known but without a port: unavailable."""
    write_capsule(root / "c", more=EXPORTS)
    port = sidecar.port("c")
    assert port
    (root / "c/murmur.yaml").unlink()
    write_capsule(root / "d")
    (root / "d/murmur.yaml").write_text("name: [")
    until_sync(lambda: sidecar.capsules().get("d", {}).get("state") == "refused", what="d refused")
    status, document = asked(sidecar, "POST", "/api/capsules/d/handles", {"path": "x", "audience": READER})
    assert (status, document["error"]) == (503, "unavailable")


def test_a_file_of_a_gibibyte_costs_no_memory(sidecar: Spawned, root: Path) -> None:
    """It is hashed, then sent and hashed again, piece by piece: less than 64 MB more at the peak."""
    with (root / "a/out/big").open("wb") as file:
        file.write(b"begin")
        file.truncate(1 << 30)
    before = peak_kib(sidecar.process.pid)
    connection = http.client.HTTPConnection("127.0.0.1", sidecar.port("a"), timeout=60)
    connection.request("GET", "/resources/files/big")
    answer = connection.getresponse()
    digest, size = hashlib.sha256(), 0
    while data := answer.read(1 << 20):
        digest.update(data)
        size += len(data)
    connection.close()
    assert size == 1 << 30
    assert answer.headers["etag"] == f'"sha256:{digest.hexdigest()}"'
    assert peak_kib(sidecar.process.pid) - before < 64_000


def peak_kib(pid: int) -> int:
    """Return the most memory that a process ever had resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
