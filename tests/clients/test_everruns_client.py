"""The published Everruns client, unmodified, against a real sidecar, with and without a key."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.a2a_clients import CONFIG, DRIVERS, WITHIN
from tests.support.agents import EVERRUNS
from tests.support.installed import from_pypi
from tests.support.spawned import running, sidecar

if TYPE_CHECKING:
    from pathlib import Path

TURN = ["input.message", "turn.started", "output.message.delta"]
END = ["output.message.completed", "turn.completed"]


@pytest.fixture(scope="module", params=["open", "with a key"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the client saw of an agent that is open, and of one that wants a key."""
    state, gates = tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("gates")
    python = from_pypi("everruns", EVERRUNS)
    with running(["--config", str(CONFIG)], state=state) as spawned:
        spawned.port("obedient")
        key = "anything" if request.param == "open" else made_key(state)
        url = f"{spawned.desk}/v1/channels/obedient"
        command = [str(python), str(DRIVERS / "everruns.py"), url, str(gates), key]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found | {"kind": request.param}


def made_key(state: Path) -> str:
    """Make an agent key for the agent."""
    made = sidecar("keys", "create", "obedient", "--state", str(state), "--json")
    assert made.returncode == 0, made.stderr
    secret: str = json.loads(made.stdout)["key"]
    return secret


def test_run_completes(seen: dict[str, Any]) -> None:
    """`AgentClient.run` returns the reply: of a session of its own, and of one that goes on."""
    assert (seen["reply"], seen["first"], seen["second"]) == ("0 1 2 ", "0 1 ", "0 ")


def test_the_card_says_what_is_accepted(seen: dict[str, Any]) -> None:
    """The card names the credentials, what messages may hold, and where the sessions are."""
    card = seen["card"]
    assert card["auth"] == ([] if seen["kind"] == "open" else [{"type": "agent_key"}])
    assert card["input"] == {"text": True, "images": False, "files": False}
    assert card["links"]["sessions"] == "/v1/channels/obedient/sessions"


def test_sessions_and_events_are_as_the_client_reads_them(seen: dict[str, Any]) -> None:
    """A key makes a session once; the session has its title and state; its events are numbered densely from 1."""
    assert seen["same"]
    assert seen["listed"]
    assert (seen["got"]["title"], seen["got"]["status"]) == ("A title", "idle")
    assert seen["got"]["last_turn_status"] == "completed"
    assert seen["types"] == [*TURN, "output.message.delta", *END, *TURN, *END]
    assert seen["sequences"] == list(range(1, len(seen["types"]) + 1))


def test_what_goes_wrong_is_told_as_the_client_wants_it(seen: dict[str, Any]) -> None:
    """A failed turn raises with code and text; a refusal with status and code."""
    assert seen["failed"] == "turn failed: task_failed: no luck"
    assert seen["missing"] == "404 session_not_found"


def test_questions_are_answered_streams_resumed_and_turns_cancelled(seen: dict[str, Any]) -> None:
    """What the agent asks is on the session; a stream goes on behind the last id; a cancel ends the turn."""
    assert seen["answered"] == {"asked": "who?", "replied": "you said Ada"}
    assert seen["resumed"] == [*TURN, "output.message.delta", *END]
    assert seen["cancelled"] == [*TURN, "turn.cancelled"]
