"""The MOI view on a desk whose agents a test makes up: what must not happen, and cards that are at hand."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from structlog.testing import capture_logs

from sidecar.desk import at_hand
from sidecar.desk.at_hand import AtHand
from sidecar.desk.moi_callers import Agent
from sidecar.model import Manifest
from tests.support.credentials import access_of
from tests.support.desk import running_desk
from tests.support.view import NoAgents
from tests.unit.test_card import capsule

if TYPE_CHECKING:
    import pytest

    from sidecar.doors.moi import MoiDoor
    from sidecar.model import Capsule

CARD = "/newmoi/agents/card?agent_id={}"


@dataclass
class One:
    """One agent that is served; `moi` is never called here."""

    capsule: Capsule

    def moi(self) -> MoiDoor:
        """Fail."""
        raise NotImplementedError


@dataclass
class Agents(NoAgents):
    """Agents by id; asking for one of `broken` goes wrong in a way that nobody expects."""

    here: dict[str, Capsule] = field(default_factory=dict)

    def agent(self, agent_id: str) -> Any:
        """Return an agent."""
        if agent_id == "broken":
            raise RuntimeError("a secret of this machine")
        found = self.here.get(agent_id)
        return None if found is None else Agent(agent_id, "system", One(found))

    def now(self, agent_id: str) -> Any:
        """Return the capsule that is served."""
        return self.here.get(agent_id)


async def test_what_nobody_expected_is_told_in_the_shape_of_the_view_and_logged_once() -> None:
    """500, and nothing of what went wrong."""
    async with running_desk(agents=Agents()) as stage:
        with capture_logs() as logs:
            answer = await stage.get(CARD.format("broken"), headers={"X-Request-ID": "mine"})
        told = json.loads(answer.body)
        assert (answer.status, told["code"], told["request_id"]) == (500, "ErrServer", "mine")
        assert "secret" not in told["msg"]
        assert [entry["event"] for entry in logs] == ["request_failed"]
        assert (await stage.get(CARD.format("nobody"))).status == 404


async def test_a_card_at_hand_is_that_of_the_capsule_as_it_is_now() -> None:
    """A change shows with the next request, and so does that it is gone."""
    agents = Agents(here={"a": replace(capsule(Manifest("a", "1")), id="a")})
    async with running_desk(agents=agents) as stage:

        async def version() -> Any:
            answer = await stage.get(CARD.format("a"))
            return json.loads(answer.body).get("version", answer.status)

        assert [await version(), await version()] == ["1", "1"]
        agents.here["a"] = replace(agents.here["a"], manifest=Manifest("a", "2"))
        assert [await version(), await version()] == ["2", "2"]
        wrong = {"moi-key": "x", "X-API-Key": "x"}
        assert (await stage.get(CARD.format("a"), headers=wrong)).status == 400
        assert (await stage.get(CARD.format("a"), method="POST")).status == 405
        del agents.here["a"]
        assert await version() == 404


@dataclass
class Asked:
    """As much of a request as is looked at."""

    raw_path: str
    method: str = "GET"


def test_no_more_cards_are_kept_than_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes; a target that is very long is never kept."""
    monkeypatch.setattr(at_hand, "MOST", 2)
    one = capsule()
    cards: Any = AtHand(access_of(), lambda _: one)
    for name in "abc":
        cards.keep(Asked(name), one, None)
    cards.keep(Asked("d" * 1000), one, None)
    found = [name for name in ("a", "b", "c", "d" * 1000) if cards.find(Asked(name)) is not None]
    assert found == ["b", "c"]
