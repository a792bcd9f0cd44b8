"""The catalogs as documents: names that are unique and well-formed, whatever ids and hosts are."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sidecar.cards.catalog import ai_catalog, api_catalog
from tests.unit.test_card import capsule

NAME = re.compile(r"urn:air:[a-zA-Z0-9.-]+(:[a-zA-Z0-9._-]+)+")
SLUG = st.from_regex(r"[a-z0-9._-]{1,12}", fullmatch=True)
IDS = st.lists(st.lists(SLUG, min_size=1, max_size=3).map("~".join), unique=True, max_size=5)
HOSTS = st.sampled_from(["agents.example.org", "127.0.0.1", "[::1]", "[2001:db8::7]:7410", "localhost:7410"])


@given(ids=IDS, host=HOSTS)
def test_every_entry_has_a_name_of_its_own(ids: list[str], host: str) -> None:
    """Of the form that the schema of catalogs has, also where an id or the host could not stand in it."""
    capsules = [replace(capsule(), id=capsule_id) for capsule_id in ids]
    entries = ai_catalog(capsules, base=f"https://{host}/base")["entries"]
    names = [entry["identifier"] for entry in entries]
    assert all(NAME.fullmatch(name) for name in names)
    assert len(set(names)) == len(ids)


def test_without_capsules_the_catalogs_are_there_all_the_same() -> None:
    """With nothing but the door that all agents share."""
    assert ai_catalog((), base="http://localhost:7410") == {"specVersion": "1.0", "entries": []}
    made = api_catalog((), catalog="c", moi="m", health="h", channel=lambda one: one.id)
    assert made["linkset"][0] == {"anchor": "c", "item": [{"href": "m"}]}


def test_the_card_that_is_named_is_one_of_a2a_whatever_the_card_of_murmur_carries() -> None:
    """Behind a proxy by its public URL."""
    (entry,) = ai_catalog([capsule(card="reference", public_url="https://x/{id}")], base="https://x")[
        "entries"
    ]
    assert entry["url"] == "https://x/my-agent/a2a/.well-known/agent-card.json"
