"""The card for Everruns clients: what is on it, and that it has what its reference requires."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sidecar.cards.everruns import card, card_document
from sidecar.model import AuthKind, Lifecycle, Manifest, TaskAcceptance
from tests.unit.test_card import GOLDEN, capsule, manifest_of

SESSIONS = "/base/v1/channels/my-agent/sessions"
A2A = "http://localhost:24000/a2a/.well-known/agent-card.json"
CREDENTIALS = (
    AuthKind("agent_key"),
    AuthKind("runtime_token"),
    AuthKind("personal_access_token"),
    AuthKind("oidc", "https://login.example/"),
    AuthKind("o_auth2"),
)
REQUIRED = {"name": str, "streaming": bool, "input": dict, "auth": list, "links": dict}
"""What the reference requires, and what its example shows, with their types."""
MAYBE = {"description": str, "conversation_starters": list}


def made(**changes: Any) -> dict[str, Any]:
    """Make a card."""
    return card(capsule(**changes), sessions=SESSIONS, a2a=A2A)


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.yaml")))
def test_a_card_is_what_its_golden_file_says(name: str) -> None:
    """Manifest above, card below; key order counts."""
    document = made(
        manifest=manifest_of(GOLDEN / f"{name}.yaml"),
        credentials=CREDENTIALS,
        conversation_starters=("What can you do?",),
    )
    assert json.dumps(document, indent=2, ensure_ascii=False) + "\n" == (
        GOLDEN / f"{name}.everruns.json"
    ).read_text(encoding="utf-8")


def test_it_has_what_the_reference_requires_and_nothing_that_it_does_not_know() -> None:
    """Each member has the type of the reference; what has no value is left out, never null."""
    bare = made(manifest=Manifest("a", "1"))
    full = made(
        manifest=Manifest("a", "1", description="What it is for"),
        credentials=CREDENTIALS,
        conversation_starters=("Hello",),
    )
    assert bare.keys() == REQUIRED.keys()
    assert full.keys() == REQUIRED.keys() | MAYBE.keys()
    for member, kind in (REQUIRED | MAYBE).items():
        assert type(full[member]) is kind
    assert set(full["input"]) == {"text", "images", "files"}
    assert all(type(value) is bool for value in full["input"].values())
    assert full["links"] == {"sessions": SESSIONS, "a2a": A2A}
    assert None not in json.loads(json.dumps(full)).values()


def test_credentials_come_in_order_each_with_its_own_members_and_once() -> None:
    """Only `oidc` has an issuer; a kind that is there twice is named once."""
    twice = (*CREDENTIALS, AuthKind("o_auth2"), AuthKind("oidc", "https://other.example"))
    assert made(credentials=twice)["auth"] == [
        {"type": "agent_key"},
        {"type": "runtime_token"},
        {"type": "personal_access_token"},
        {"type": "oidc", "issuer": "https://login.example/"},
        {"type": "o_auth2"},
        {"type": "oidc", "issuer": "https://other.example"},
    ]
    assert made()["auth"] == []


@pytest.mark.parametrize("acceptance", TaskAcceptance)
def test_what_messages_may_hold_agrees_with_what_is_taken(acceptance: TaskAcceptance) -> None:
    """Under `none` nothing is, and nothing streams."""
    document = made(manifest=Manifest("a", "1", lifecycle=Lifecycle(task_acceptance=acceptance)))
    takes = acceptance is not TaskAcceptance.NONE
    assert document["input"] == {"text": takes, "images": False, "files": False}
    assert document["streaming"] is takes


def test_the_a2a_card_is_named_only_where_there_is_one() -> None:
    """`links` names what answers."""
    assert card(capsule(), sessions=SESSIONS, a2a=None)["links"] == {"sessions": SESSIONS}


def test_it_is_for_one_caller_and_has_an_entity_tag() -> None:
    """It depends on credentials too, so that the time of the capsule's last change says nothing about it."""
    document = card_document(capsule(), sessions=SESSIONS, a2a=A2A)
    head = document.whole.head.lower()
    assert b"cache-control: private, max-age=10\r\n" in head
    assert b"last-modified" not in head
    assert document.answer(document.etag).status == 304
    assert document.answer(None, "Sat, 01 Jan 2050 00:00:00 GMT").status == 200
    assert document.etag != card_document(capsule(), sessions=SESSIONS, a2a=None).etag
