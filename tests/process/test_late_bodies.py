"""A credential that ends while the body of its request is on the way: what comes then is not looked at, on any door."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.support.moi import DOOR, KEYS, TEAM, Home, home, message
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AUTH = KEYS % ("0" * 64)
PATIENT = "body_timeout: 5m"
"""However long the meanwhile takes."""
SEND = {"jsonrpc": "2.0", "id": 7, "method": "message/send", "params": message("late")}
DOORS: dict[str, tuple[str, dict[str, Any]]] = {
    "murmur": ("/", SEND),
    "a2a": ("/a2a/v0.3", SEND),
    "everruns": ("/v1/channels/keyed/sessions", {"title": "late"}),
    "moi": (DOOR, SEND | {"agent_id": "keyed"}),
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A sidecar with an agent that wants keys, and with keys of the MOI view."""
    with home(tmp_path_factory.mktemp("home"), auth=AUTH, limits=PATIENT) as made:
        made.key("keyed")
        yield made


def sent_late(here: Home, door: str, meanwhile: Callable[[], object], **shown: str) -> bytes:
    """Send a head, do something once the body is asked for, send the body, and return the answer's first line."""
    path, document = DOORS[door]
    body = json.dumps(document).encode()
    desk = urlsplit(here.sidecar.desk).port
    port = desk if path.startswith(("/v1", "/newmoi")) else here.sidecar.port("keyed")
    fields = {
        "Host": "localhost",
        "Connection": "close",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Expect": "100-continue",
        **{name.replace("_", "-"): value for name, value in shown.items()},
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    with (
        closing(socket.create_connection(("127.0.0.1", port or 0), timeout=30)) as connection,
        connection.makefile("rb") as answer,
    ):
        connection.sendall(f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode())
        assert answer.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert answer.readline() == b"\r\n"
        meanwhile()
        connection.sendall(body)
        return answer.readline()


def tasks(here: Home) -> list[Any]:
    """Return the tasks of the agent."""
    found: list[Any] = here.operate("GET", "keyed/tasks")["tasks"]
    return found


@pytest.mark.parametrize("door", DOORS)
def test_a_key_that_is_revoked_before_the_body_is_there_starts_nothing(here: Home, door: str) -> None:
    """The answer is 401, as for any key that is over; one that is not revoked does what was asked."""
    made = here.operate("POST", "keyed/keys", {"operator": True})
    shown = {"Authorization": f"Bearer {made['key']}"}
    assert sent_late(here, door, lambda: None, **shown).split()[1] in (b"200", b"201")
    before = tasks(here)

    def revoked() -> None:
        here.operate("DELETE", f"keyed/keys/{made['key_id']}")

    assert sent_late(here, door, revoked, **shown) == b"HTTP/1.1 401 Unauthorized\r\n"
    assert len(tasks(here)) == len(before)


def test_a_key_of_the_moi_view_that_is_taken_out_before_the_body_is_there_starts_nothing(here: Home) -> None:
    """As one that there never was."""
    before = tasks(here)
    other = here.client().using(moi_key=TEAM)

    def taken_out() -> None:
        here.configure(
            auth=AUTH.replace("    - {key: {env: MOI_TEAM}, workspace: team}\n", ""), limits=PATIENT
        )
        until_sync(lambda: other.card(agent_id="known").status == 401, what="the key is gone")

    assert sent_late(here, "moi", taken_out, moi_key=TEAM) == b"HTTP/1.1 401 Unauthorized\r\n"
    assert len(tasks(here)) == len(before)
    here.configure(auth=AUTH, limits=PATIENT)
    until_sync(lambda: other.card(agent_id="known").status == 200, what="the key is back")
