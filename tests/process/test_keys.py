"""Agent keys from the command line to a client, on a spawned sidecar: made, used, rotated, revoked, never shown again."""

from __future__ import annotations

import http.client
import json
import signal
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.serving import PORTS
from tests.support.spawned import Spawned, running, write_capsule
from tests.support.spawned import sidecar as command
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from subprocess import CompletedProcess

OWN_PORTS = {"SIDECAR_LISTEN__PORTS": f"{PORTS[0] + 200}-{PORTS[1]}"}
"""Ports that are remembered over a restart must be free again, also where other tests run at the same time."""


def a_root(path: Path) -> Path:
    """Make a root with a few capsules, one for each test."""
    for name in ("a", "b", "c", "d"):
        write_capsule(path / name)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root of a test's own."""
    return a_root(tmp_path / "capsules")


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spawned]:
    """Run a sidecar for all tests that change nothing but one capsule's keys."""
    base = tmp_path_factory.mktemp("keys")
    with running(["--root", str(a_root(base / "capsules"))], state=base / "state") as spawned:
        for name in ("a", "b", "c", "d"):
            assert spawned.port(name)
        yield spawned


def keys(sidecar: Spawned, *arguments: str) -> CompletedProcess[str]:
    """Run `sidecar keys`."""
    return command("keys", arguments[0], "--state", str(sidecar.state), *arguments[1:])


def made(sidecar: Spawned, *arguments: str) -> dict[str, Any]:
    """Run `sidecar keys` with `--json` and return what it says."""
    done = keys(sidecar, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def called(sidecar: Spawned, capsule: str, token: str | None = None) -> int:
    """Call a capsule's door and return the status."""
    connection = http.client.HTTPConnection("127.0.0.1", sidecar.port(capsule), timeout=10)
    fields = {"Content-Type": "application/json"}
    if token is not None:
        fields["Authorization"] = f"Bearer {token}"
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "session/stop"})
    connection.request("POST", "/", body, fields)
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_key_is_made_used_rotated_and_revoked_from_the_command_line(sidecar: Spawned) -> None:
    """Each takes effect at once; what is kept, logged or listed never holds a secret."""
    assert called(sidecar, "a") == 200
    first = made(sidecar, "create", "a", "--operator", "--expires", "30d")
    assert called(sidecar, "a") == 401
    assert called(sidecar, "a", first["key"]) == 200
    assert called(sidecar, "b") == 200
    until_sync(lambda: "securitySchemes" in sidecar.card("a"), what="the card")
    assert "securitySchemes" not in sidecar.card("b")

    second = made(sidecar, "rotate", "a", first["key_id"])
    assert second["key_id"] == first["key_id"]
    assert 86_000 < second["rotated_until"] - second["created_at"] < 87_000
    assert [called(sidecar, "a", one["key"]) for one in (first, second)] == [200, 200]
    plain = keys(sidecar, "create", "a", "--end-users")
    secret = plain.stdout.splitlines()[0].split()[1]
    assert "not shown again" in plain.stderr
    assert called(sidecar, "a", secret) == 403

    listed = keys(sidecar, "list", "a")
    rows = [line.split() for line in listed.stdout.splitlines()]
    assert [row[1:3] for row in rows[1:]] == [["valid", "operator"], ["valid", "end-users"]]
    assert list(made(sidecar, "list", "a")["keys"][0]) == [
        *("key_id", "state", "end_users", "operator"),
        *("created_at", "expires_at", "revoked_at", "rotated_until"),
    ]

    revoked = keys(sidecar, "revoke", "a", first["key_id"])
    assert (revoked.returncode, revoked.stdout) == (0, f"revoked {first['key_id']}\n")
    assert [called(sidecar, "a", one["key"]) for one in (first, second)] == [401, 401]
    assert called(sidecar, "a") == 401
    assert made(sidecar, "list", "a")["keys"][0]["rotated_until"] is None

    for name in ("key_created", "key_rotated", "key_revoked"):
        assert sidecar.events(name)[0]["key"] == first["key_id"]
    kept = [*sidecar.raw, listed.stdout, json.dumps(sidecar.api("/api/capsules/a/keys"))]
    files = [file.read_bytes() for file in sidecar.state.iterdir() if file.is_file()]
    assert any(sha256(first["key"].encode()).digest() in data for data in files)
    for one in (first["key"], second["key"], secret):
        assert not [text for text in kept if one[6:] in text]
        assert not [data for data in files if one[6:].encode() in data or bytes.fromhex(one[6:]) in data]


def test_the_last_key_that_is_forgotten_opens_the_capsule_again(sidecar: Spawned) -> None:
    """Revoked it does not; its card says so too."""
    key = made(sidecar, "create", "c")
    made(sidecar, "revoke", "c", key["key_id"])
    assert called(sidecar, "c") == 401
    assert keys(sidecar, "revoke", "c", key["key_id"], "--forget").stdout == f"forgot {key['key_id']}\n"
    assert called(sidecar, "c") == 200
    until_sync(lambda: "securitySchemes" not in sidecar.card("c"), what="the card")
    assert made(sidecar, "list", "c") == {"keys": []}


def test_keys_survive_the_sidecar(root: Path, tmp_path: Path) -> None:
    """Also where the capsule is gone meanwhile: it is not open when it returns."""
    state = tmp_path / "state"
    with running(["--root", str(root)], state=state, env=OWN_PORTS) as sidecar:
        key = made(sidecar, "create", "a", "--operator")
        over = made(sidecar, "create", "a", "--operator")
        made(sidecar, "revoke", "a", over["key_id"])
        sidecar.signal(signal.SIGKILL)
        sidecar.process.wait(timeout=30)
    with running(["--root", str(root)], state=state, env=OWN_PORTS) as sidecar:
        assert [called(sidecar, "a", one) for one in (None, key["key"], over["key"])] == [401, 200, 401]
        (root / "a/murmur.yaml").rename(root / "a/aside")
        until_sync(lambda: "a" not in sidecar.capsules(), what="the capsule's end")
        assert made(sidecar, "revoke", "a", key["key_id"])["state"] == "revoked"
        (root / "a/aside").rename(root / "a/murmur.yaml")
        assert [called(sidecar, "a", one) for one in (None, key["key"])] == [401, 401]


def test_a_secret_is_not_said_to_be_good_for_longer_than_its_key(sidecar: Spawned) -> None:
    """However long the overlap is."""
    key = made(sidecar, "create", "d", "--expires", "1h")
    rotated = made(sidecar, "rotate", "d", key["key_id"])
    assert rotated["rotated_until"] == rotated["expires_at"] == key["expires_at"]


def test_what_cannot_be_done_is_said_in_one_line(sidecar: Spawned) -> None:
    """Exit with 1 where the sidecar refuses, with 2 for arguments that make no sense."""
    key_id = made(sidecar, "create", "d")["key_id"]
    for arguments, status, says in (
        (("create", "nobody"), 1, "no capsule with this id"),
        (("create", "d", "--expires", "30"), 2, "write 30d"),
        (("create", "d", "--expires", "0s"), 2, "a second at least"),
        (("rotate", "d", "key_x"), 1, "no key with this id"),
        (("rotate", "d", key_id, "--overlap", "169"), 2, "169 hours are not within 0 to 168"),
        (("rotate", "d", key_id, "--overlap=-1"), 2, "within 0 to 168"),
        (("rotate", "d", key_id, "--overlap", "nan"), 2, "within 0 to 168"),
        (("rotate", "d", key_id, "--overlap", "day"), 2, "no number of hours"),
        (("revoke", "b", key_id), 1, "no key with this id"),
        (("revoke", "d", ""), 2, "name the key"),
    ):
        done = keys(sidecar, *arguments)
        assert (done.returncode, done.stdout) == (status, ""), arguments
        assert says in done.stderr.splitlines()[-1]
    listed = {key["key_id"]: key for key in made(sidecar, "list", "d")["keys"]}
    assert listed[key_id]["rotated_until"] is None


def test_the_desk_makes_keys_for_the_operator_alone_and_takes_nothing_odd(sidecar: Spawned) -> None:
    """A capsule's own keys do not open the desk."""
    key = made(sidecar, "create", "d", "--operator")
    token = (sidecar.state / "admin.token").read_text().strip()

    def asked(method: str, path: str, body: Any = None, token: str = token) -> tuple[int, str]:
        connection = http.client.HTTPConnection(sidecar.desk.removeprefix("http://"), timeout=10)
        fields = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), fields)
        answer = connection.getresponse()
        told = json.loads(answer.read())
        connection.close()
        return answer.status, told.get("error", "")

    at = "/api/capsules/d/keys"
    assert asked("GET", at, token=key["key"]) == (401, "unauthorized")
    odd: list[Any] = [[], {"expires": 0}, {"expires": 1.5}, {"expires": True}, {"operator": 1}, {"x": 1}]
    for body in odd:
        assert asked("POST", at, body) == (400, "bad_request")
    rotate = f"{at}/{key['key_id']}/rotate"
    odd = [{"overlap": 169}, {"overlap": -1}, {"overlap": True}, {"overlap": "1"}, {"hours": 1}]
    for body in odd:
        assert asked("POST", rotate, body) == (400, "bad_request")
    assert asked("PUT", at)[0] == asked("GET", rotate)[0] == asked("PATCH", f"{at}/x")[0] == 405
    assert asked("POST", f"/api/capsules/b/keys/{key['key_id']}/rotate", {}) == (404, "not_found")
    assert asked("DELETE", f"{at}/{key['key_id']}?forget=1")[0] == 200
    assert asked("POST", rotate, {}) == (400, "bad_request")


def test_strangers_that_are_let_in_are_warned_about(root: Path, tmp_path: Path) -> None:
    """At the start, and by `check`: beyond loopback without credentials, and a door left open beside them."""
    config = tmp_path / "config.yaml"
    config.write_text(
        f"roots: [{{path: {root}}}]\nlisten: {{host: 0.0.0.0}}\ncapsules:\n  b: {{door: open}}\n"
    )
    state = tmp_path / "state"
    arguments = ["--config", str(config)]
    environ = {"SIDECAR_DESK__PORT": "0", **OWN_PORTS}
    with running(arguments, state=state, env=environ) as sidecar:
        for name in ("a", "b"):
            sidecar.event("capsule_open_to_others", capsule=name, hosts=["0.0.0.0"])
        assert not sidecar.events("door_open_beside_credentials")
        made(sidecar, "create", "b")
        sidecar.event("door_open_beside_credentials", capsule="b")
        assert called(sidecar, "b") == 200
    checked = command("check", *arguments, env={"SIDECAR_STATE": str(state), **environ})
    lines = [line for line in checked.stdout.splitlines() if "W-CFG-016" in line]
    assert len(lines) == 1
    assert "capsules.b" in lines[0]
    assert "W-CFG-008 listen.host" in checked.stdout
    with running(arguments, state=state, env=environ) as sidecar:
        sidecar.event("capsule_open_to_others", capsule="a")
        sidecar.event("door_open_beside_credentials", capsule="b")
        assert [one["capsule"] for one in sidecar.events("capsule_open_to_others")] == ["a", "c", "d"]
