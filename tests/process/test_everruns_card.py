"""The card for Everruns clients as the desk serves it, and the order in which requests are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from tests.support.everruns import House, message
from tests.support.spawned import write_capsule
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from tests.support.everruns import Answer

NOBODY = "session_" + "0" * 32
PATHS = [
    ("GET", ""),
    ("POST", "/sessions"),
    ("GET", "/sessions"),
    ("GET", f"/sessions/{NOBODY}"),
    ("POST", f"/sessions/{NOBODY}/messages"),
    ("GET", f"/sessions/{NOBODY}/events"),
    ("GET", f"/sessions/{NOBODY}/sse"),
    ("POST", f"/sessions/{NOBODY}/cancel"),
    ("POST", "/runtime-auth"),
    ("GET", "/nothing"),
    ("DELETE", ""),
]


def problem_of(answer: Answer) -> tuple[int, str]:
    """Return status and code of a refusal, whose shape must be the one of this view."""
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json
    assert told["status"] == answer.status
    assert type(told["title"]) is str
    assert told["error"]["code"] == told["code"]
    assert type(told["error"]["message"]) is str
    assert None not in told.values()
    assert ("www-authenticate" in answer.headers) is (told["code"] in ("unauthorized", "forbidden"))
    assert all(type(action["rel"]) is str for action in told.get("allowed_actions", []))
    return answer.status, told["code"]


def test_an_open_agent_shows_its_card_to_anybody(here: House) -> None:
    """200, no credential is asked for, and whatever is sent is ignored."""
    for channel in (here.channel("plain"), here.channel("plain", "nonsense", "somebody")):
        answer = channel.get()
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "private, max-age=10"
        assert answer.json["auth"] == []
        assert answer.json["name"] == "plain"
        assert answer.json["streaming"] is True
        assert "description" not in answer.json
        assert "conversation_starters" not in answer.json
    assert here.channel("described").get().json["description"] == "What it is for"


def test_a_card_that_is_known_is_not_sent_again(here: House) -> None:
    """By its entity tag, also with `HEAD`."""
    channel = here.channel("plain")
    etag = channel.get().headers["etag"]
    assert channel.get(If_None_Match=etag).status == 304
    assert channel.get(If_None_Match=f'"other", {etag}').status == 304
    assert channel.get(If_None_Match='"other"').status == 200
    head = channel.ask("HEAD")
    assert (head.status, head.raw, head.headers["etag"]) == (200, b"", etag)


def test_links_lead_where_something_answers(here: House) -> None:
    """Sessions are root-relative below the path of the desk's public URL; the A2A card is there."""
    for name in ("plain", "none"):
        links = here.channel(name).get().json["links"]
        assert links["sessions"] == f"/behind/v1/channels/{name}/sessions"
        with urlopen(links["a2a"], timeout=10) as answer:
            assert json.load(answer)["name"] == name
        assert "ag_ui" not in links


def test_an_agent_may_have_a_channel_id_of_its_own(here: House) -> None:
    """By that one it is known, and by no other; its card offers what the configuration says."""
    here.sidecar.port("named")
    card = here.channel("Front-Door").get().json
    assert card["name"] == "named"
    assert card["conversation_starters"] == ["What can you do?", "Hello"]
    assert card["links"]["sessions"] == "/behind/v1/channels/Front-Door/sessions"
    made = here.channel("Front-Door").post("/sessions", {})
    assert made.headers["location"] == f"/behind/v1/channels/Front-Door/sessions/{made.json['id']}"
    for unknown in ("named", "front-door"):
        assert problem_of(here.channel(unknown).get()) == (404, "channel_not_found")


def test_an_agent_that_takes_no_tasks_says_so(here: House) -> None:
    """Nothing is accepted and nothing streams; a message is no way to have it busy."""
    channel = here.channel("none")
    card = channel.get().json
    assert card["input"] == {"text": False, "images": False, "files": False}
    assert card["streaming"] is False
    refused = channel.say(channel.session(), "hello")
    assert problem_of(refused) == (400, "input_not_accepted")


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_a_channel_that_there_is_not_is_missing_whatever_is_sent(here: House, method: str, path: str) -> None:
    """404 `channel_not_found` comes before credentials, path and body."""
    for key in (None, "nonsense"):
        answer = here.channel("nobody", key).ask(method, path, b"{" if method == "POST" else None)
        assert problem_of(answer) == (404, "channel_not_found")


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("name", ["broken", "resting"])
def test_an_agent_that_is_not_served_is_not_available(here: House, name: str, method: str, path: str) -> None:
    """403 for a manifest that was never good, and for a capsule that is disabled."""
    answer = here.channel(name, "nonsense").ask(method, path)
    assert problem_of(answer) == (403, "agent_not_available")


def test_a_good_key_does_not_help_where_the_agent_is_not_served(here: House) -> None:
    """403 before the key is looked at; once it is served again, the key opens it and nothing else does."""
    _, key = here.key("other")
    channel = here.channel("other", key)
    assert channel.get().status == 200
    config = here.sidecar.state.parent / "config.yaml"
    before = config.read_text()
    config.write_text(f"{before}  other: {{disabled: true}}\n")
    here.sidecar.api("/api/reload", method="POST")
    until_sync(lambda: channel.get().status != 200, what="not served")
    assert problem_of(channel.get()) == (403, "agent_not_available")
    assert problem_of(here.channel("other").get()) == (403, "agent_not_available")
    config.write_text(before)
    here.sidecar.api("/api/reload", method="POST")
    until_sync(lambda: channel.get().status == 200, what="served again")
    assert problem_of(here.channel("other").get()) == (401, "unauthorized")


def test_an_agent_that_was_removed_is_no_channel_any_more(here: House) -> None:
    """404, as for one that there never was."""
    manifest = write_capsule(here.sidecar.state.parent / "capsules" / "leaving") / "murmur.yaml"
    channel = here.channel("leaving")
    until_sync(lambda: channel.get().status == 200, what="served")
    manifest.unlink()
    until_sync(lambda: channel.get().status != 200, what="not served")
    assert problem_of(channel.get()) == (404, "channel_not_found")


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_credentials_come_before_the_path_and_the_body(here: House, method: str, path: str) -> None:
    """401 with a challenge and nothing else to do, whatever is asked for."""
    here.key("keyed")
    for key in (None, "nonsense", "sc_ak_" + "0" * 64):
        answer = here.channel("keyed", key).ask(method, path, b"{" if method == "POST" else None)
        assert problem_of(answer) == (401, "unauthorized")
        assert "allowed_actions" not in answer.json


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/nothing", (404, "not_found")),
        ("GET", "/", (404, "not_found")),
        ("GET", "/sessions/", (404, "session_not_found")),
        ("GET", f"/sessions/{NOBODY}/nothing", (404, "not_found")),
        ("DELETE", "", (405, "method_not_allowed")),
        ("PUT", "/sessions", (405, "method_not_allowed")),
        ("GET", "/runtime-auth", (405, "method_not_allowed")),
        ("GET", f"/sessions/{NOBODY}/messages", (405, "method_not_allowed")),
        ("GET", f"/sessions/{NOBODY}", (404, "session_not_found")),
        ("GET", "/sessions/../secrets", (404, "not_found")),
        ("GET", "/sessions/x", (404, "session_not_found")),
        ("GET", f"/sessions/{NOBODY}/events", (404, "session_not_found")),
        ("GET", f"/sessions/{NOBODY}/sse", (404, "session_not_found")),
        ("POST", f"/sessions/{NOBODY}/cancel", (404, "session_not_found")),
    ],
)
def test_what_is_not_there_is_told_as_a_problem(
    here: House, method: str, path: str, expected: tuple[int, str]
) -> None:
    """Unknown paths, methods and sessions; 405 names what is taken."""
    answer = here.channel("plain").ask(method, path)
    assert problem_of(answer) == expected
    assert answer.json["instance"] == f"/v1/channels/plain{path}"
    assert ("allow" in answer.headers) is (answer.status == 405)


def test_bodies_that_are_not_taken_are_told_as_problems(here: House) -> None:
    """Another type, too much, no HTTP: the same shape; a session that is missing comes before them."""
    channel = here.channel("plain")
    text = channel.ask("POST", "/sessions", b"title=x", Content_Type="text/plain")
    assert problem_of(text) == (415, "unsupported_media_type")
    assert problem_of(channel.post("/sessions", b"x" * 2_000_000)) == (413, "body_too_large")
    missing = channel.post(f"/sessions/{NOBODY}/messages", message("hello"))
    assert problem_of(missing) == (404, "session_not_found")
