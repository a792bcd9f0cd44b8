"""The published MOI client, unmodified, against a real sidecar, whose view is open, or wants its key."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.a2a_clients import CONFIG, DRIVERS, WITHIN
from tests.support.agents import MOI
from tests.support.installed import from_pypi
from tests.support.spawned import running

if TYPE_CHECKING:
    from pathlib import Path

KEY = "the-key-of-team"


@pytest.fixture(scope="module", params=["open", "with a key"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the client saw."""
    place: Path = tmp_path_factory.mktemp("moi")
    auth = "auth: {moi_keys: [{key: {env: MOI_KEY}, workspace: team}]}\n"
    config = place / "config.yaml"
    text = CONFIG.read_text().replace("./capsules", str(CONFIG.parent / "capsules"))
    config.write_text(text + (auth if request.param == "with a key" else ""))
    python = from_pypi("moi", MOI)
    with running(["--config", str(config)], state=place / "state", env={"MOI_KEY": KEY}) as spawned:
        spawned.port("obedient")
        command = [str(python), str(DRIVERS / "moi_client.py"), spawned.desk, KEY]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, check=False)
        url = spawned.desk
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"kind": request.param, "url": url}


def test_get_raw_gets_the_card(seen: dict[str, Any]) -> None:
    """Bare, as JSON, with the id that the client gave its request."""
    assert (seen["card"]["name"], seen["card"]["protocolVersion"]) == ("obedient", "0.3.0")
    assert seen["card"]["url"] == f"{seen['url']}/newmoi/agents/a2a"
    assert (seen["type"], seen["request_id"]) == ("application/json", "mine-1")


def test_the_clients_own_envelope_is_not_ours(seen: dict[str, Any]) -> None:
    """`get_json` takes what is inside one, and a card has nothing there."""
    assert seen["unwrapped"] is None


def test_refusals_reach_the_client_with_their_codes(seen: dict[str, Any]) -> None:
    """An agent that there is not; a wrong key, which an open view takes no notice of."""
    status, body = seen["missing"]
    assert (status, body["code"]) == (404, "ErrNotFound")
    if seen["kind"] == "open":
        assert seen["wrong_key"] == []
    else:
        status, body = seen["wrong_key"]
        assert (status, body["code"]) == (401, "ErrUnauthorized")
