"""The sessions of Everruns, as they are read and written."""

from __future__ import annotations

import json
import uuid
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.dialects import everruns
from sidecar.dialects.everruns import Envelope, UnreadableError

SESSION = "session_019f01a940ce7761854e768ecbe3d399"
OTHER = "session_019f01a940ce7761854e768ecbe3d39a"
TEXT = {"type": "text", "text": "hello"}


def message(content: Any = None, **changes: Any) -> bytes:
    """Return the body of a message."""
    return json.dumps(
        {"message": {"role": "user", "content": [TEXT] if content is None else content, **changes}}
    ).encode()


def test_a_message_is_read() -> None:
    """One or more texts, as they stand."""
    assert everruns.read_message(message()) == ("hello",)
    assert everruns.read_message(message([TEXT, {"type": "text", "text": ""}])) == ("hello", "")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"hello"',
        b'{"message": "hello"}',
        b'{"message": {"role": "user"}}',
        message([]),
        message("hello"),
        message(["hello"]),
        message([{"type": "text"}]),
        message([{"type": "text", "text": 1}]),
        message([{"type": "text", "text": "  \n"}]),
        message([{"type": "image", "url": "x"}]),
        message([{**TEXT, "more": 1}]),
        message(role="assistant"),
        message(role="system"),
        message(role=None),
        message(more=1),
        b'{"message": {"role": "user", "content": [{"type": "text", "text": "x"}]}, "more": 1}',
    ],
)
def test_anything_else_is_no_message(body: bytes) -> None:
    """Another role, no content, a bare string, another kind of part, members that nobody knows."""
    with pytest.raises(UnreadableError):
        everruns.read_message(body)


@pytest.mark.parametrize(
    ("body", "title"),
    [
        *((body, None) for body in (b"", b" ", b"{}", b'{"title": null}', b'{"title": ""}')),
        (b'{"title": "T", "more": 1}', "T"),
        (json.dumps({"title": "x" * 200}).encode(), "x" * 200),
    ],
)
def test_a_session_may_have_a_title(body: bytes, title: str | None) -> None:
    """The body is optional, and so is the title."""
    assert everruns.read_session(body) == title


@pytest.mark.parametrize(
    "body", [b"[]", b"{", b"1", b'{"title": 1}', json.dumps({"title": "x" * 201}).encode()]
)
def test_a_title_that_is_too_long_or_no_text_is_refused(body: bytes) -> None:
    """At most 200 characters."""
    with pytest.raises(UnreadableError):
        everruns.read_session(body)


@pytest.mark.parametrize("values", [[""], [" "], ["a", "b"], ["x" * 256], ["\udce9"]])
def test_a_key_is_sent_once_and_is_text(values: list[str]) -> None:
    """Nothing else is a key, bytes that are no UTF-8 (a surrogate by now) neither."""
    with pytest.raises(UnreadableError):
        everruns.read_key(values)
    assert everruns.read_key([]) is None
    assert everruns.read_key([" a b "]) == "a b"


@pytest.mark.parametrize("text", ["0", "201", "-1", "1.5", "", "x", "٣", "9" * 30])
def test_a_limit_is_a_number_within_bounds(text: str) -> None:
    """From 1 to the most there may be."""
    with pytest.raises(UnreadableError):
        everruns.read_limit(text, everruns.SESSIONS)
    assert everruns.read_limit(None, everruns.SESSIONS) == 50
    assert everruns.read_limit("200", everruns.SESSIONS) == 200


@given(st.floats(0, 1e12), st.uuids())
def test_a_page_token_comes_back_as_it_was(at: float, identity: uuid.UUID) -> None:
    """Whatever the time."""
    session = f"session_{identity.hex}"
    assert everruns.read_page_token(everruns.page_token(at, session)) == (at, session)


@given(st.text(max_size=60))
def test_any_other_page_token_is_refused(text: str) -> None:
    """Nothing raises but what says that it is none."""
    with pytest.raises(UnreadableError):
        everruns.read_page_token(text)


@given(st.integers(1, 2**32 - 1), st.floats(0, 4e9))
def test_the_id_of_an_event_is_a_uuid_7_that_holds_its_number(sequence: int, at: float) -> None:
    """It is the same each time, of this session alone, and its time is the event's."""
    made = everruns.event_id(SESSION, sequence, at)
    found = uuid.UUID(made.removeprefix("event_"))
    assert made == f"event_{found.hex}"
    assert found.version == 7
    assert found.variant == uuid.RFC_4122
    assert found.int >> 80 == int(at * 1000)
    assert everruns.sequence_of(SESSION, made) == sequence
    assert everruns.sequence_of(OTHER, made) is None


def test_ids_of_one_moment_ascend() -> None:
    """Events of one millisecond sort by their ids."""
    ids = [everruns.event_id(SESSION, sequence, 1_700_000_000.5) for sequence in range(1, 5000)]
    assert ids == sorted(ids)


@given(st.one_of(st.text(max_size=50), st.uuids().map(lambda one: f"event_{one.hex}")))
def test_ids_that_were_never_given_out_are_known_for_that(text: str) -> None:
    """A guess is no place in a session."""
    assert everruns.sequence_of(SESSION, text) is None


def test_messages_of_the_agent_have_ids_of_their_task_that_stay() -> None:
    """A question and the reply of one task are two messages; both are UUIDs of version 7."""
    task = "tsk_019f01a940ce7761854e768ecbe3d399"
    reply, question = everruns.message_id(task, "reply"), everruns.message_id(task, "question 3")
    assert reply != question
    assert reply == everruns.message_id(task, "reply")
    assert uuid.UUID(reply.removeprefix("message_")).version == 7
    assert everruns.turn_id(task) == "turn_019f01a940ce7761854e768ecbe3d399"


def test_an_event_in_a_stream_has_its_id_type_and_envelope() -> None:
    """`id`, `event` and one line of `data`."""
    frame = everruns.event_frame(
        SESSION, Envelope(2, "turn.started", 1_700_000_000.25, orjson.Fragment(b'{"turn_id": "t"}'))
    )
    lines = frame.decode().split("\n")
    assert lines[-2:] == ["", ""]
    identity = everruns.event_id(SESSION, 2, 1_700_000_000.25)
    assert lines[0] == f"id: {identity}"
    assert lines[1] == "event: turn.started"
    assert json.loads(lines[2].removeprefix("data: ")) == {
        "id": identity,
        "type": "turn.started",
        "ts": "2023-11-14T22:13:20.250Z",
        "session_id": SESSION,
        "sequence": 2,
        "data": {"turn_id": "t"},
    }
