"""A capsule's second port, as the configuration gives and takes it."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from tests.support.crashing import free_port
from tests.support.sockets import listener
from tests.support.spawned import running
from tests.support.spawned import sidecar as command
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.spawned import Spawned

CARD = "/.well-known/agent-card.json"


def written(root: Path, a2a_port: int | None, ports: str = "24000-31999") -> str:
    """Return a configuration that gives the capsule `a` this second port."""
    own = "" if a2a_port is None else f"capsules: {{a: {{a2a_port: {a2a_port}}}}}\n"
    return f"roots: [{{path: {root}}}]\ndesk: {{port: 0}}\nlisten: {{ports: {ports}}}\n{own}"


def card(port: int) -> dict[str, Any]:
    """Return the card at a port."""
    with urlopen(f"http://localhost:{port}{CARD}", timeout=20) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def last_error(spawned: Spawned) -> str:
    """Return what the desk says is wrong with the capsule."""
    (row,) = spawned.api("/api/capsules")["capsules"]
    error = row["last_error"]
    return "" if error is None else str(error["message"])


def test_a_reload_gives_and_takes_the_second_port(root: Path, tmp_path: Path) -> None:
    """The first one stays what it was, on its port; after the stop neither is left."""
    config = tmp_path / "config.yaml"
    first, other = free_port(), free_port()
    config.write_text(written(root, first))
    with running(["--config", str(config)], state=tmp_path / "state") as spawned:
        port = spawned.port("a")
        assert card(first)["url"] == f"http://localhost:{first}/"
        config.write_text(written(root, other))
        until_sync(lambda: listener(other) is not None)
        until_sync(lambda: listener(first) is None)
        assert card(other)["url"] == f"http://localhost:{other}/"
        config.write_text(written(root, None))
        until_sync(lambda: listener(other) is None)
        assert spawned.port("a") == port
        config.write_text(written(root, first))
        until_sync(lambda: listener(first) is not None)
    assert listener(first) is None


def test_a_busy_second_port_is_the_capsules_last_error(root: Path, tmp_path: Path) -> None:
    """It is served all the same, and the port is taken once it is free."""
    config = tmp_path / "config.yaml"
    wanted = free_port()
    config.write_text(written(root, wanted))
    with (
        closing(socket.create_server(("127.0.0.1", wanted))) as taken,
        running(["--config", str(config)], state=tmp_path / "state") as spawned,
    ):
        assert "a2a_port" in last_error(spawned)
        assert spawned.event("second_port_unbound")["port"] == wanted
        assert card(spawned.port("a"))["name"] == "a"
        taken.close()
        until_sync(lambda: last_error(spawned) == "")
        assert card(wanted)["url"] == f"http://localhost:{wanted}/"


def test_no_capsule_takes_a_second_port_for_its_first(root: Path, tmp_path: Path) -> None:
    """Where it lies within the range it is left alone, by a free choice and by one that was remembered."""
    config = tmp_path / "config.yaml"
    start = free_port()
    config.write_text(written(root, None, f"{start}-{start}"))
    with running(["--config", str(config)], state=tmp_path / "state") as spawned:
        assert spawned.port("a") == start
    config.write_text(written(root, start, f"{start}-{start + 9}"))
    with running(["--config", str(config)], state=tmp_path / "state") as spawned:
        assert spawned.port("a") in range(start + 1, start + 10)
        assert card(start)["url"] == f"http://localhost:{start}/"


def test_check_says_what_is_wrong_with_ports_and_urls(root: Path, tmp_path: Path) -> None:
    """Before anything is started, with the line and what to write."""
    config = tmp_path / "config.yaml"
    config.write_text(
        f"roots: [{{path: {root}}}]\n"
        "listen: {public_url: 'https://agents.example/{name}', trusted_proxies: [proxy.example]}\n"
        "capsules: {a: {port: 24500, a2a_port: 24500}}\n"
    )
    done = command("check", "--config", str(config))
    assert done.returncode == 2
    assert ":2:22: E-CFG-004 listen.public_url:" in done.stdout
    assert ":2:73: E-CFG-004 listen.trusted_proxies[0]:" in done.stdout
    config.write_text(f"roots: [{{path: {root}}}]\ncapsules: {{a: {{port: 24500, a2a_port: 24500}}}}\n")
    done = command("check", "--config", str(config))
    assert done.returncode == 2
    assert "E-CFG-005 capsules.a.a2a_port: 24500 is capsules.a.port already" in done.stdout
