"""Sessions of the Everruns view over HTTP: making, listing, messages, events, cancelling, keys against repeats."""

from __future__ import annotations

import re
import threading
import uuid
from datetime import datetime
from typing import Any

import pytest

from tests.process.test_everruns_card import problem_of
from tests.support.everruns import Channel, House, message
from tests.support.waiting import until_sync

WHOLE = ["input.message", "turn.started", "output.message.completed", "turn.completed"]
BAD = [
    b"",
    b"{",
    {"message": "hello"},
    {"message": {"role": "assistant", "content": [{"type": "text", "text": "x"}]}},
    {"message": {"role": "user", "content": []}},
    {"message": {"role": "user", "content": "hello"}},
    {"message": {"role": "user", "content": [{"type": "image", "url": "http://x"}]}},
    {"message": {"role": "user", "content": [{"type": "text", "text": ""}]}},
    {},
]


@pytest.fixture
def channel(here: House) -> Channel:
    """A caller of its own, to whom nothing of the other tests belongs."""
    return here.channel("keyed", here.key("keyed")[1])


def is_id(text: str, prefix: str) -> bool:
    """Whether a text is a UUID version 7 as 32 hex digits behind a prefix."""
    found = re.fullmatch(f"{prefix}([0-9a-f]{{32}})", text)
    return found is not None and uuid.UUID(found[1]).version == 7


def ended(channel: Channel, session: str, turns: int = 1) -> list[dict[str, Any]]:
    """Wait until so many turns of a session are over, and return its events."""
    last = {"turn.completed", "turn.failed", "turn.cancelled"}
    until_sync(lambda: sum(kind in last for kind in channel.types(session)) >= turns, what="ended")
    return channel.events(session)


def test_a_session_is_made_with_or_without_a_body(channel: Channel) -> None:
    """201 with its place; what it says of itself is what is said when it is read."""
    for body, title in ((None, None), ({}, None), ({"title": "Order 42"}, "Order 42")):
        made = channel.post("/sessions", body)
        assert made.status == 201
        assert is_id(made.json["id"], "session_")
        assert made.headers["location"] == f"/behind/v1/channels/keyed/sessions/{made.json['id']}"
        assert made.json.get("title") == title
        found = channel.get(f"/sessions/{made.json['id']}")
        assert found.json == made.json | {"pending_questions": []}
        assert found.json["status"] == "started"
        assert "last_turn_status" not in found.json
        assert datetime.fromisoformat(found.json["created_at"]).year > 2000
    long = channel.post("/sessions", {"title": "x" * 201})
    assert problem_of(long) == (400, "bad_request")
    assert channel.post("/sessions", {"title": "x" * 200}).status == 201
    assert problem_of(channel.post("/sessions", b"[]")) == (400, "bad_request")


def test_sessions_are_listed_by_activity_page_by_page(channel: Channel) -> None:
    """The most recently active first; a page says where the next one begins, the last one does not."""
    assert channel.get("/sessions").json == {"data": []}
    made = [channel.session(f"number {n}") for n in range(5)]
    channel.say(made[0], "hello")
    ended(channel, made[0])
    wanted = [made[0], made[4], made[3], made[2], made[1]]
    assert [one["id"] for one in channel.get("/sessions").json["data"]] == wanted
    found: list[str] = []
    token = ""
    while True:
        page = channel.get(f"/sessions?limit=2{token}").json
        found += [one["id"] for one in page["data"]]
        assert all("pending_questions" not in one for one in page["data"])
        if "next_page_token" not in page:
            break
        assert len(page["data"]) == 2
        token = f"&page_token={page['next_page_token']}"
    assert found == wanted
    for query in ("limit=0", "limit=201", "limit=x", "page_token=x"):
        assert problem_of(channel.get(f"/sessions?{query}")) == (400, "bad_request")
    assert channel.get("/sessions?limit=200").status == 200


def test_a_message_is_a_turn_with_numbered_events(channel: Channel) -> None:
    """Envelopes have their members, numbers dense from 1, ids of their own, and the reply at the end."""
    session = channel.session()
    sent = channel.say(session, "count 3")
    assert sent.status == 201
    assert is_id(sent.json["id"], "message_")
    events = ended(channel, session)
    assert [event["type"] for event in events] == [*WHOLE[:2], *["output.message.delta"] * 3, *WHOLE[2:]]
    assert [event["sequence"] for event in events] == list(range(1, 8))
    for event in events:
        assert {"id", "type", "ts", "session_id", "sequence", "data"} == event.keys()
        assert is_id(event["id"], "event_")
        assert event["session_id"] == session
        assert event["data"]["turn_id"] == sent.json["turn_id"]
    assert events[0]["data"]["message"]["content"] == [{"type": "text", "text": "count 3"}]
    assert events[0]["data"]["message"]["id"] == sent.json["id"]
    assert "".join(event["data"]["delta"] for event in events[2:5]) == "0 1 2 "
    reply = events[5]["data"]["message"]
    assert (reply["role"], reply["content"]) == ("agent", [{"type": "text", "text": "0 1 2 "}])
    found = channel.get(f"/sessions/{session}").json
    assert (found["status"], found["last_turn_status"]) == ("idle", "completed")


def test_events_are_read_from_a_number_on(channel: Channel) -> None:
    """`after_sequence` and `limit`; the same events each time."""
    session = channel.session()
    channel.say(session, "count 30")
    events = ended(channel, session)
    assert len(events) == 34
    assert channel.events(session, "") == events
    assert channel.events(session, "after_sequence=30") == events[30:]
    assert channel.events(session, "after_sequence=3&limit=2") == events[3:5]
    assert channel.events(session, "after_sequence=1000") == []
    for query in ("limit=0", "limit=501", "after_sequence=-1", "after_sequence=x"):
        assert problem_of(channel.get(f"/sessions/{session}/events?{query}")) == (400, "bad_request")


@pytest.mark.parametrize("body", BAD, ids=str)
def test_anything_else_is_no_message(here: House, body: Any) -> None:
    """400, and nothing is kept of it."""
    channel = here.channel("plain")
    session = channel.session()
    assert problem_of(channel.post(f"/sessions/{session}/messages", body)) == (400, "bad_request")
    assert channel.events(session) == []


def test_a_question_waits_in_the_session_and_the_next_message_answers_it(channel: Channel) -> None:
    """The turn goes on; what was asked is a message of the agent, too."""
    session, other = channel.session(), channel.session()
    first = channel.say(session, "ask which one?").json
    place = f"/sessions/{session}"
    until_sync(lambda: channel.get(place).json["pending_questions"], what="asked")
    found = channel.get(place).json
    assert found["status"] == "waitingfortoolresults"
    (question,) = found["pending_questions"]
    assert (question["turn_id"], question["question"]) == (first["turn_id"], "which one?")
    channel.say(other, "hello")
    ended(channel, other)
    assert channel.get(place).json["pending_questions"]
    assert channel.say(session, "this one").json["turn_id"] == first["turn_id"]
    events = ended(channel, session)
    kinds = ["input.message", "turn.started", "output.message.completed", "input.message", *WHOLE[2:]]
    assert [event["type"] for event in events] == kinds
    texts = [e["data"]["message"]["content"][0]["text"] for e in events if "message" in e["data"]]
    assert texts == ["ask which one?", "which one?", "this one", "you said this one"]
    assert channel.get(place).json["pending_questions"] == []


def test_without_room_the_agent_is_busy(here: House) -> None:
    """409 with the time to wait and what can be done; nothing of the message is kept."""
    channel = here.channel("one")
    session, other = channel.session(), channel.session()
    channel.say(session, f"hold {here.gates / 'busy'}")
    busy = channel.say(session, "more")
    assert problem_of(busy) == (409, "agent_busy")
    assert busy.json["retry_after_seconds"] >= 1
    actions = {action["rel"]: action for action in busy.json["allowed_actions"]}
    assert actions["cancel"]["method"] == "POST"
    assert actions["cancel"]["href"] == f"/behind/v1/channels/one/sessions/{session}/cancel"
    elsewhere = channel.say(other, "more").json
    assert [action["rel"] for action in elsewhere["allowed_actions"]] == ["retry-later"]
    assert channel.events(other) == []
    (here.gates / "busy").touch()
    assert ended(channel, session)[-1]["type"] == "turn.completed"
    assert channel.say(other, "more").status == 201
    ended(channel, other)


def test_cancelling_ends_the_running_turn(here: House, channel: Channel) -> None:
    """`turn.cancelled` comes last; with nothing to cancel, nothing happens."""
    session = channel.session()
    channel.say(session, f"hold {here.gates / 'never'}")
    until_sync(lambda: "output.message.delta" in channel.types(session), what="running")
    assert channel.get(f"/sessions/{session}").json["status"] == "active"
    answer = channel.post(f"/sessions/{session}/cancel")
    assert (answer.status, answer.json["status"]) == (200, "idle")
    assert answer.json["last_turn_status"] == "cancelled"
    assert channel.types(session)[-1] == "turn.cancelled"
    assert channel.post(f"/sessions/{session}/cancel").status == 200
    assert channel.types(session).count("turn.cancelled") == 1


@pytest.mark.parametrize(("word", "code"), [("failed", "task_failed"), ("rejected", "task_rejected")])
def test_a_failure_is_told_without_places_on_this_host(here: House, word: str, code: str) -> None:
    """A worker's `failed` and `rejected` are `turn.failed`; paths and addresses in its words are not passed on."""
    channel = here.channel("plain")
    session = channel.session()
    channel.say(session, f"{word} cannot read {here.gates}/secret.txt from 10.1.2.3:80")
    last = ended(channel, session)[-1]
    assert last["type"] == "turn.failed"
    assert last["data"]["error_code"] == code
    assert last["data"]["error"] == "cannot read [path] from [address]"
    assert channel.get(f"/sessions/{session}").json["last_turn_status"] == "failed"


def test_a_repeat_with_its_key_gets_the_first_reply(channel: Channel) -> None:
    """The same id and `Idempotent-Replayed`; without a key there are two."""
    first = channel.post("/sessions", {"title": "a"}, Idempotency_Key="k1")
    again = channel.post("/sessions", b'{ "title" : "a" }', Idempotency_Key="k1")
    assert "idempotent-replayed" not in first.headers
    assert (again.status, again.raw) == (201, first.raw)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    session = first.json["id"]
    sent = channel.say(session, "hello", Idempotency_Key="k2")
    ended(channel, session)
    assert channel.say(session, "hello", Idempotency_Key="k2").raw == sent.raw
    assert channel.types(session) == WHOLE
    assert channel.session() != channel.session()


def test_a_key_is_for_one_request_of_one_caller(here: House, channel: Channel) -> None:
    """Another body or path with it is 422, an empty one 400; another caller's key is another key."""
    made = channel.post("/sessions", {"title": "a"}, Idempotency_Key="k").json["id"]
    reused = channel.post("/sessions", {"title": "b"}, Idempotency_Key="k")
    assert problem_of(reused) == (422, "idempotency_key_reused")
    assert problem_of(channel.say(made, "a", Idempotency_Key="k")) == (422, "idempotency_key_reused")
    for none in ("", "\xe9"):  # http.client sends this as one byte, which is no UTF-8
        assert problem_of(channel.post("/sessions", {}, Idempotency_Key=none)) == (400, "bad_request")
    other = here.channel("keyed", here.key("keyed")[1])
    assert other.post("/sessions", {"title": "b"}, Idempotency_Key="k").status == 201
    assert len(channel.get("/sessions").json["data"]) == 1


def test_a_failure_frees_the_key(here: House) -> None:
    """What was refused may be sent again, also another way."""
    channel = here.channel("one")
    session, other = channel.session(), channel.session()
    channel.say(session, f"hold {here.gates / 'freed'}")
    assert channel.say(other, "first", Idempotency_Key="f").status == 409
    assert channel.post(f"/sessions/{other}/messages", {}, Idempotency_Key="f").status == 400
    (here.gates / "freed").touch()
    ended(channel, session)
    assert channel.say(other, "second", Idempotency_Key="f").status == 201
    assert ended(channel, other)[0]["data"]["message"]["content"][0]["text"] == "second"


def test_many_repeats_at_once_make_one_turn(channel: Channel) -> None:
    """Each is answered 201 with the one reply, or 409 while that is still being made."""
    session = channel.session()
    answers: list[Any] = []

    def send() -> None:
        answers.append(channel.say(session, "hello", Idempotency_Key="together"))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good = {answer.raw for answer in answers if answer.status == 201}
    assert len(good) == 1
    for answer in answers:
        if answer.status != 201:
            assert problem_of(answer) == (409, "idempotency_key_in_progress")
    ended(channel, session)
    assert channel.types(session) == WHOLE


def test_a_message_may_have_many_parts(channel: Channel) -> None:
    """All of them reach the agent, a line each."""
    session = channel.session()
    content = [{"type": "text", "text": "say"}, {"type": "text", "text": "more ☃"}]
    body = message("") | {"message": {"role": "user", "content": content}}
    assert channel.post(f"/sessions/{session}/messages", body).status == 201
    events = ended(channel, session)
    assert events[0]["data"]["message"]["content"] == content
    assert events[2]["data"]["message"]["content"][0]["text"] == "say\nmore ☃"
