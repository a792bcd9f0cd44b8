"""The card for MOI clients: what is on it, and that it has what its reference requires."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sidecar.cards.moi import card, card_document
from sidecar.model import Lifecycle, Manifest, TaskAcceptance
from tests.unit.test_card import GOLDEN, capsule, manifest_of

URL = "https://desk.example/base/newmoi/agents/a2a"
REQUIRED = {
    "name": str,
    "description": str,
    "url": str,
    "version": str,
    "protocolVersion": str,
    "capabilities": dict,
    "defaultInputModes": list,
    "defaultOutputModes": list,
    "skills": list,
}
EXAMPLE = {
    "name": "Matrixflow Explore Agent",
    "version": "v2",
    "protocolVersion": "0.3.0",
    "capabilities": {"streaming": True, "stateTransitionHistory": True},
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain", "application/json"],
}
"""The members that the reference shows, with values of their types."""
EXTENSIONS = {"preferredTransport"}


def made(**changes: Any) -> dict[str, Any]:
    """Make a card."""
    return card(capsule(**changes), url=URL)


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.yaml")))
def test_a_card_is_what_its_golden_file_says(name: str) -> None:
    """Manifest above, card below; key order counts."""
    document = made(manifest=manifest_of(GOLDEN / f"{name}.yaml"))
    assert json.dumps(document, indent=2, ensure_ascii=False) + "\n" == (
        GOLDEN / f"{name}.moi.json"
    ).read_text(encoding="utf-8")


def test_each_member_of_the_references_example_is_there_with_its_type() -> None:
    """At every depth; lists hold what its lists hold."""

    def held(ours: Any, theirs: Any) -> None:
        assert type(ours) is type(theirs)
        if isinstance(theirs, dict):
            for member, value in theirs.items():
                held(ours[member], value)
        elif isinstance(theirs, list):
            assert {type(one) for one in ours} <= {type(one) for one in theirs}

    held(made(), EXAMPLE)


@pytest.mark.parametrize("acceptance", TaskAcceptance)
def test_it_has_every_member_of_the_view_and_says_what_is_so(acceptance: TaskAcceptance) -> None:
    """Whatever the capsule takes; without tasks nothing streams."""
    document = made(manifest=Manifest("a", "1", lifecycle=Lifecycle(task_acceptance=acceptance)))
    assert document.keys() == REQUIRED.keys() | EXTENSIONS
    for member, kind in REQUIRED.items():
        assert type(document[member]) is kind
    assert document["protocolVersion"] == "0.3.0"
    takes = acceptance is not TaskAcceptance.NONE
    assert document["capabilities"] == {
        "streaming": takes,
        "stateTransitionHistory": True,
        "pushNotifications": False,
    }
    assert bool(document["skills"]) is takes


def test_it_leads_to_the_door_that_all_agents_share_and_nowhere_else() -> None:
    """Where the capsule itself listens is none of its callers' business."""
    document = made(public_url="https://elsewhere.example/{id}", advertise="host.example")
    assert document["url"] == URL
    assert "host.example" not in json.dumps(document)
    assert "elsewhere.example" not in json.dumps(document)


def test_it_is_for_one_caller_and_has_an_entity_tag() -> None:
    """It depends on the desk as well, so that the time of the capsule's last change says nothing about it."""
    document = card_document(capsule(), url=URL)
    head = document.whole.head.lower()
    assert b"cache-control: private, max-age=10\r\n" in head
    assert b"last-modified" not in head
    assert document.answer(document.etag).status == 304
    assert document.etag != card_document(capsule(), url=URL + "/").etag
