"""From every place where a card is, the clients that can read it come to the same tasks."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support.a2a_clients import CONFIG, JS, PYTHON, Client, beside_its_packages
from tests.support.agents import PROJECT, environment
from tests.support.crashing import free_port
from tests.support.spawned import running

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = PROJECT / "examples" / "clients"
PLACES = {"1.0": ("", "/a2a", "root"), "0.3": ("", "/a2a/v0.3", "root")}
"""Below the capsule's own port, or the root of its second one."""


def example(client: Client) -> list[str]:
    """Return the command that runs the example of a client: it prints the reply to a message."""
    name = f"a2a_{'1' if client.version == '1.0' else '03'}"
    if client.language == "python":
        return [str(environment(client.version)), str(EXAMPLES / f"{name}.py")]
    return ["node", str(beside_its_packages(client.version, EXAMPLES / f"{name}.mjs"))]


@pytest.mark.parametrize(
    "clients", [PYTHON, pytest.param(JS, marks=pytest.mark.machine)], ids=lambda of: of[0].language
)
def test_every_card_leads_to_the_same_tasks(clients: tuple[Client, ...], tmp_path: Path) -> None:
    """Beside the reference card, behind a path, and at the root of a port that speaks nothing but A2A."""
    port = free_port()
    env = {"SIDECAR_CAPSULES__obedient__A2A_PORT": str(port)}
    with running(["--config", str(CONFIG)], state=tmp_path / "state", env=env) as sidecar:
        own, root = f"http://localhost:{sidecar.port('obedient')}", f"http://localhost:{port}"
        # a base that ends in a slash is one to every client
        urls = {
            (client, place): f"{root if place == 'root' else own + place}/"
            for client in clients
            for place in PLACES[client.version]
        }
        started = {
            case: subprocess.Popen([*example(case[0]), url, "count 3"], stdout=subprocess.PIPE, text=True)
            for case, url in urls.items()
        }
        printed = {case: process.communicate(timeout=120)[0] for case, process in started.items()}
    assert printed == dict.fromkeys(urls, "0 1 2 ")
