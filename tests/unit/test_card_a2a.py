"""The cards for clients that know A2A alone, and what the reference card says to such clients."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from sidecar.cards.a2a import card_03, card_10, root_card, root_url
from sidecar.cards.reference import card
from sidecar.cards.served import Cards, View
from sidecar.model import AuthKind, Lifecycle, Manifest, TaskAcceptance
from tests.conftest import FIXTURES
from tests.unit.test_card import GOLDEN, SESSION, capsule, manifest_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sidecar.model import Capsule

A2A_PORT = 24500
CREDENTIALS = (AuthKind("agent_key"), AuthKind("oidc", "https://login.example/"), AuthKind("runtime_token"))

MEMBERS_03 = {
    *(
        "protocolVersion",
        "name",
        "description",
        "url",
        "preferredTransport",
        "additionalInterfaces",
        "version",
    ),
    *(
        "capabilities",
        "defaultInputModes",
        "defaultOutputModes",
        "skills",
        "supportsAuthenticatedExtendedCard",
    ),
}
MEMBERS_10 = {
    *("name", "description", "supportedInterfaces", "version", "capabilities"),
    *("defaultInputModes", "defaultOutputModes", "skills"),
}
SECURITY_03 = {"security", "securitySchemes"}
SECURITY_10 = {"securityRequirements", "securitySchemes"}


def root(made: Capsule) -> dict[str, Any]:
    """Return the card of the second port."""
    return root_card(made, root_url(made))


MAKERS: dict[str, Callable[[Capsule], dict[str, Any]]] = {"a2a03": card_03, "a2a10": card_10, "root": root}
REAL = sorted((FIXTURES / "manifests" / "capsules").glob("*/murmur.yaml"))


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.yaml")))
def test_a_card_is_what_its_golden_file_says(name: str, kind: str) -> None:
    """Manifest above, card below; key order counts. The last one wants credentials."""
    credentials = CREDENTIALS if name == "tools" else ()
    made = MAKERS[kind](capsule(manifest_of(GOLDEN / f"{name}.yaml"), credentials, a2a_port=A2A_PORT))
    assert json.dumps(made, indent=2, ensure_ascii=False) + "\n" == (
        GOLDEN / f"{name}.{kind}.json"
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("kind", ["full", *MAKERS])
def test_what_the_public_kit_checks_of_a_card_holds(path: Path, kind: str) -> None:
    """Required members are there and filled, URLs absolute, modes media types, flags booleans, skills whole."""
    made = {"full": card, **MAKERS}[kind](capsule(manifest_of(path), a2a_port=A2A_PORT))
    for key in ("name", "description", "version"):
        assert isinstance(made[key], str)
        assert made[key].strip()
    for key in ("defaultInputModes", "defaultOutputModes"):
        assert made[key]
        assert all(re.fullmatch(r"[^/\s]+/[^/\s]+", mode) for mode in made[key])
    assert all(type(made["capabilities"][key]) is bool for key in ("streaming",))
    assert len({skill["id"] for skill in made["skills"]}) == len(made["skills"])
    for skill in made["skills"]:
        assert all(isinstance(skill[key], str) and skill[key] for key in ("id", "name", "description"))
        assert skill["tags"]
        assert all(isinstance(tag, str) for tag in skill["tags"])
    if kind == "full":
        assert list(made["capabilities"]) == ["tools", "shell", "network", "streaming"]
    else:
        extensions = made["capabilities"]["extensions"]
        assert len({each["uri"] for each in extensions}) == len(extensions)
        assert all(type(each["required"]) is bool for each in extensions)
    if kind in ("a2a03", "root"):
        assert_url(made["url"])
        assert {"transport": made["preferredTransport"], "url": made["url"]} in made["additionalInterfaces"]
        assert made["protocolVersion"] == "0.3.0"
        assert made["supportsAuthenticatedExtendedCard"] is False
        for key in ("pushNotifications", "stateTransitionHistory"):
            assert made["capabilities"][key] is False
    if kind != "a2a10":
        assert all(each["transport"] == "JSONRPC" for each in made["additionalInterfaces"])
        assert all(assert_url(each["url"]) for each in made["additionalInterfaces"])
    if kind != "a2a03":
        versions = [each["protocolVersion"] for each in made["supportedInterfaces"]]
        assert versions == ["1.0", "0.3"]
        for each in made["supportedInterfaces"]:
            assert each.keys() == {"url", "protocolBinding", "protocolVersion"}
            assert each["protocolBinding"] == "JSONRPC"
            assert_url(each["url"])


def assert_url(url: str) -> bool:
    """Fail unless a URL is absolute, of HTTP, and nothing but a place."""
    parts = urlsplit(url)
    assert parts.scheme in ("http", "https")
    assert parts.netloc
    assert not parts.query
    assert not parts.fragment
    return True


@pytest.mark.parametrize("credentials", [(), CREDENTIALS])
def test_pure_cards_have_the_members_of_their_version_and_no_others(
    credentials: tuple[AuthKind, ...],
) -> None:
    """The schemas of both versions forbid anything else; the card of the second port is their union."""
    made = capsule(Manifest("a", "1"), credentials, a2a_port=A2A_PORT)
    security_03, security_10 = (SECURITY_03, SECURITY_10) if credentials else (set(), set())
    assert card_03(made).keys() == MEMBERS_03 | security_03
    assert card_10(made).keys() == MEMBERS_10 | security_10
    assert root(made).keys() == MEMBERS_03 | MEMBERS_10 | security_03 | security_10
    extended = {"extendedAgentCard"} if credentials else set()
    assert card_10(made)["capabilities"].keys() == {"streaming", "pushNotifications", "extensions"} | extended
    assert card_03(made)["supportsAuthenticatedExtendedCard"] is bool(credentials)


def test_the_reference_card_leads_each_client_to_its_version() -> None:
    """Nobody knows the transport of the flat `url`; 1.0 comes first, since some take whatever is first."""
    made = card(capsule())
    assert made["preferredTransport"] == "MURMUR"
    assert made["additionalInterfaces"] == [
        {"transport": "JSONRPC", "url": "http://localhost:24000/a2a/v0.3"}
    ]
    assert made["supportedInterfaces"] == [
        {"url": "http://localhost:24000/a2a/v1", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "http://localhost:24000/a2a/v0.3", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
    ]


def test_pure_cards_announce_the_murmur_door() -> None:
    """Its place, methods, session, tools and planes, as parameters of an extension that nobody must know."""
    made = capsule(manifest_of(GOLDEN / "both-planes.yaml"))
    for maker in (card_03, card_10):
        (found,) = maker(made)["capabilities"]["extensions"]
        assert found["required"] is False
        assert found["params"] == {
            "url": "http://localhost:24000/",
            "session_id": SESSION,
            "tools": card(made)["capabilities"]["tools"],
            "methods": card(made)["serves"]["methods"],
            "planes": ["files", "peer_files"],
        }
        assert {"stream/watch", "session/stop"} <= set(found["params"]["methods"])


def test_where_nothing_takes_tasks_no_card_says_so() -> None:
    """Under `none` there is no skill and nothing to stream."""
    made = capsule(Manifest("a", "1", lifecycle=Lifecycle(task_acceptance=TaskAcceptance.NONE)), a2a_port=1)
    for maker in MAKERS.values():
        assert maker(made)["skills"] == []
        assert maker(made)["capabilities"]["streaming"] is False


def test_what_a_caller_must_show_has_the_shape_of_each_version() -> None:
    """Where a card is for both, one object has both shapes."""
    made = capsule(None, CREDENTIALS, a2a_port=A2A_PORT)
    discovery = {"openIdConnectUrl": "https://login.example/.well-known/openid-configuration"}
    v03 = {"bearer": {"type": "http", "scheme": "bearer"}, "oidc": {"type": "openIdConnect", **discovery}}
    v10 = {
        "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}},
        "oidc": {"openIdConnectSecurityScheme": discovery},
    }
    assert card_03(made)["securitySchemes"] == v03
    assert card_03(made)["security"] == [{"bearer": []}, {"oidc": []}]
    assert card_10(made)["securitySchemes"] == v10
    assert card_10(made)["securityRequirements"] == [
        {"schemes": {"bearer": {"list": []}}},
        {"schemes": {"oidc": {"list": []}}},
    ]
    for maker in (card, root):
        assert maker(made)["securitySchemes"] == {name: v03[name] | v10[name] for name in v03}
        assert {"security", "securityRequirements"} <= maker(made).keys()
    for each in (card, *MAKERS.values()):
        assert not {"security", "securityRequirements", "securitySchemes"} & each(capsule(a2a_port=1)).keys()


def test_several_providers_have_a_scheme_each() -> None:
    """One that is named twice has one."""
    kinds = [AuthKind("oidc", f"https://{name}.example") for name in ("one", "two", "one")]
    assert list(card_03(capsule(None, tuple(kinds)))["securitySchemes"]) == ["bearer", "oidc", "oidc2"]


@pytest.mark.parametrize(
    ("public_url", "base", "at_root"),
    [
        (None, "http://localhost:24000", "http://localhost:24500/"),
        ("https://a.example", "https://a.example", "https://a.example/a2a"),
        ("https://a.example/c/{id}", "https://a.example/c/my-agent", "https://a.example/c/my-agent/a2a"),
        ("https://a.example/p/{port}", "https://a.example/p/24000", "https://a.example/p/24500/"),
        (
            "http://{id}.a.example:{port}/x",
            "http://my-agent.a.example:24000/x",
            "http://my-agent.a.example:24500/x/",
        ),
    ],
)
def test_behind_a_proxy_every_url_is_the_public_one(public_url: str | None, base: str, at_root: str) -> None:
    """The id and the port are put in; the flat `url` of the reference card stays where the listener is."""
    made = capsule(public_url=public_url, a2a_port=A2A_PORT)
    assert [each["url"] for each in card(made)["supportedInterfaces"]] == [
        f"{base}/a2a/v1",
        f"{base}/a2a/v0.3",
    ]
    assert card(made)["additionalInterfaces"][0]["url"] == f"{base}/a2a/v0.3"
    assert card(made)["url"] == "localhost:24000"
    assert card_03(made)["url"] == f"{base}/a2a/v0.3"
    assert [each["url"] for each in card_10(made)["supportedInterfaces"]] == [
        f"{base}/a2a/v1",
        f"{base}/a2a/v0.3",
    ]
    for maker in MAKERS.values():
        assert maker(made)["capabilities"]["extensions"][0]["params"]["url"] == f"{base}/"
    found = root(made)
    assert {found["url"], *(each["url"] for each in found["supportedInterfaces"])} == {at_root}


def test_an_ipv6_host_stands_in_brackets() -> None:
    """As everywhere in a URL."""
    assert card_03(capsule(advertise="2001:db8::7"))["url"] == "http://[2001:db8::7]:24000/a2a/v0.3"


def test_cards_are_made_once_and_no_earlier_than_somebody_asks() -> None:
    """Only the reference card is there from the start; the same document comes each time."""
    made = Cards(capsule(a2a_port=A2A_PORT))
    assert made.of(View.REFERENCE) is made.reference
    documents = [made.of(view) for view in View]
    assert [made.of(view) for view in View] == documents
    assert all(made.of(view) is found for view, found in zip(View, documents, strict=True))
    assert len({found.etag for found in documents}) == len(View)
    assert json.loads(made.of(View.A2A_03).whole.body) == card_03(capsule(a2a_port=A2A_PORT))
    assert json.loads(made.of(View.A2A_10).whole.body) == card_10(capsule(a2a_port=A2A_PORT))
    assert json.loads(made.of(View.ROOT).whole.body) == root(capsule(a2a_port=A2A_PORT))


def test_what_a_trusted_proxy_says_counts_unless_the_configuration_says_it() -> None:
    """The base that was forwarded is on the cards; those of the last one asked for are kept."""
    made = Cards(capsule(a2a_port=A2A_PORT))
    there = made.of(View.A2A_03, "https://a.example/x")
    assert json.loads(there.whole.body)["url"] == "https://a.example/x/a2a/v0.3"
    assert made.of(View.A2A_03, "https://a.example/x") is there
    assert json.loads(made.of(View.A2A_03).whole.body)["url"] == "http://localhost:24000/a2a/v0.3"
    assert json.loads(made.of(View.ROOT, "https://a.example/x").whole.body)["url"] == "https://a.example/x/"
    fixed = Cards(capsule(public_url="https://b.example"))
    assert (
        json.loads(fixed.of(View.A2A_03, "https://a.example").whole.body)["url"]
        == "https://b.example/a2a/v0.3"
    )


def test_a_change_shows_in_the_validators_of_every_view() -> None:
    """Another session, and every card has another tag: each announces it."""
    before, after = capsule(a2a_port=1), replace(capsule(a2a_port=1), session_id=SESSION[:-1] + "a")
    for view in View:
        assert Cards(before).of(view).etag != Cards(after).of(view).etag
