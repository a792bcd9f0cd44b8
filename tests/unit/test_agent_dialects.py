"""A2A of both versions, and foreign cards, as a client reads and writes them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.dialects import a2a03, a2a10
from sidecar.dialects.agent import (
    ArtifactSeen,
    MessageSeen,
    Outgoing,
    PieceSeen,
    StatusSeen,
    TaskSeen,
    plain_parts,
)
from sidecar.dialects.agent_card import A2aCard, MurmurCard, read_card
from sidecar.dialects.reading import UnreadableError

if TYPE_CHECKING:
    from sidecar.dialects.agent import A2a

VERSIONS: tuple[A2a, ...] = (a2a03, a2a10)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
TEXT = st.text(max_size=9)
EXTRAS = st.fixed_dictionaries(
    {},
    optional={
        "filename": TEXT.filter(bool),
        "mediaType": TEXT.filter(bool),
        "metadata": st.dictionaries(TEXT, TEXT, min_size=1, max_size=2),
    },
)
OBJECT = st.dictionaries(TEXT, TEXT, max_size=3)
CONTENT = st.one_of(
    st.builds(lambda t: {"text": t}, TEXT),
    st.builds(lambda t: {"data": t}, OBJECT),
    st.builds(lambda t, e: {"raw": t, **e}, TEXT, EXTRAS),
    st.builds(lambda t, e: {"url": t, **e}, TEXT, EXTRAS),
)


@given(st.lists(CONTENT, max_size=4))
def test_parts_are_written_and_read_back(parts: list[dict[str, Any]]) -> None:
    """In both versions a part keeps what it holds, its name, its type and its metadata."""
    for version in VERSIONS:
        written = version.write_message(Outgoing("m", tuple(parts)))
        assert list(plain_parts(written["parts"])) == parts


def test_messages_have_the_form_of_their_version() -> None:
    """Kinds and roles differ; a task and a context are named where there are any."""
    message = Outgoing("m1", ({"text": "a"}, {"url": "u", "mediaType": "t"}), "c", "t", {"k": 1})
    assert a2a03.stream_params(message) == {
        "message": {
            "kind": "message",
            "messageId": "m1",
            "role": "user",
            "parts": [
                {"kind": "text", "text": "a"},
                {"kind": "file", "file": {"uri": "u", "mimeType": "t"}},
            ],
            "contextId": "c",
            "taskId": "t",
            "metadata": {"k": 1},
        }
    }
    assert a2a10.send_params(message) == {
        "message": {
            "messageId": "m1",
            "role": "ROLE_USER",
            "parts": [{"text": "a"}, {"url": "u", "mediaType": "t"}],
            "contextId": "c",
            "taskId": "t",
            "metadata": {"k": 1},
        },
        "configuration": {"returnImmediately": True},
    }
    assert a2a03.send_params(message)["configuration"] == {"blocking": False}


def test_data_that_is_no_object_is_wrapped_for_the_older_version() -> None:
    """0.3 has only objects there."""
    assert a2a03.write_part({"data": [1]}) == {"kind": "data", "data": {"value": [1]}}


def test_a_message_that_came_here_goes_out_without_our_ids() -> None:
    """Its task and context name things of this side; parts of murmur and of both versions are understood."""
    came = orjson.dumps(
        {
            "messageId": "theirs",
            "role": "user",
            "taskId": "tsk_ours",
            "contextId": "ctx_ours",
            "parts": [{"text": "a"}, {"kind": "file", "file": {"bytes": "AA==", "name": "f"}}, {"odd": 1}, 3],
        }
    ).decode()
    assert Outgoing.of(came, "m", context_id="c", task_id=None) == Outgoing(
        "m", ({"text": "a"}, {"raw": "AA==", "filename": "f"}), "c", None, None
    )


@pytest.mark.parametrize(
    ("version", "result", "seen"),
    [
        (
            a2a03,
            {
                "kind": "task",
                "id": "t",
                "contextId": "c",
                "status": {"state": "working", "message": {"parts": [{"kind": "text", "text": "x"}]}},
                "artifacts": [{"artifactId": "a", "parts": [{"kind": "text", "text": "y"}]}],
            },
            TaskSeen("t", "c", "working", ({"text": "x"},), (ArtifactSeen("a", None, ({"text": "y"},)),)),
        ),
        (
            a2a10,
            {
                "task": {
                    "id": "t",
                    "contextId": "c",
                    "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": {"parts": [{"text": "x"}]}},
                    "artifacts": [{"artifactId": "a", "name": "n", "parts": [{"data": {"k": 1}}]}],
                }
            },
            TaskSeen(
                "t", "c", "input-required", ({"text": "x"},), (ArtifactSeen("a", "n", ({"data": {"k": 1}},)),)
            ),
        ),
        (
            a2a03,
            {"kind": "status-update", "taskId": "t", "status": {"state": "odd"}, "final": True},
            StatusSeen("t", "unknown"),
        ),
        (
            a2a10,
            {"statusUpdate": {"taskId": "t", "status": {"state": "TASK_STATE_AUTH_REQUIRED"}}},
            StatusSeen("t", "auth-required"),
        ),
        (
            a2a03,
            {
                "kind": "artifact-update",
                "taskId": "t",
                "append": True,
                "lastChunk": True,
                "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": "y"}]},
            },
            PieceSeen("t", ArtifactSeen("a", None, ({"text": "y"},)), append=True, last=True),
        ),
        (
            a2a10,
            {"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "a", "parts": [{"raw": "AA=="}]}}},
            PieceSeen("t", ArtifactSeen("a", None, ({"raw": "AA=="},))),
        ),
        (a2a03, {"kind": "message", "parts": [{"kind": "text", "text": "x"}]}, MessageSeen(({"text": "x"},))),
        (a2a10, {"message": {"parts": [{"url": "u"}]}}, MessageSeen(({"url": "u"},))),
    ],
)
def test_results_are_read(version: A2a, result: dict[str, Any], seen: object) -> None:
    """Tasks, updates and messages of either version become the same values."""
    assert version.read_event(result) == seen


@given(JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    """Whatever a server sends, it is a value or an UnreadableError."""
    for version in VERSIONS:
        for reader in (version.read_event, version.read_task):
            with suppress(UnreadableError):
                reader(value)


INTERFACE = {"url": "http://a/v1", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}


@pytest.mark.parametrize(
    ("card", "read"),
    [
        (
            {"session_id": "ses_1", "serves": {"methods": ["a"], "planes": ["files"]}, "url": "localhost:1"},
            MurmurCard("ses_1", ("a",), ("files",)),
        ),
        (
            {"supportedInterfaces": [INTERFACE], "capabilities": {"streaming": True}},
            A2aCard("1.0", "http://a/v1", streaming=True),
        ),
        (
            {"supportedInterfaces": [{**INTERFACE, "protocolVersion": "0.3"}], "url": "http://a/flat"},
            A2aCard("0.3", "http://a/v1", streaming=False),
        ),
        ({"url": "http://a/"}, A2aCard("0.3", "http://a/", streaming=False)),
        (
            {
                "url": "http://a/grpc",
                "preferredTransport": "GRPC",
                "additionalInterfaces": [{"transport": "JSONRPC", "url": "http://a/rpc"}],
            },
            A2aCard("0.3", "http://a/rpc", streaming=False),
        ),
    ],
)
def test_a_card_tells_what_is_spoken(card: dict[str, Any], read: object) -> None:
    """`serves` is murmur's, `supportedInterfaces` 1.0's, else it is 0.3's."""
    assert read_card(orjson.dumps(card)) == read


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ([], "not a JSON object"),
        ({}, "neither a murmur capsule's nor an A2A agent's"),
        ({"serves": {}}, "session_id"),
        ({"url": "http://a", "preferredTransport": "GRPC"}, "offers GRPC"),
        ({"supportedInterfaces": [{**INTERFACE, "protocolVersion": "2.0"}]}, "none of them is JSONRPC"),
        ({"url": "ftp://a"}, "none of them is JSONRPC"),
        ({"url": "http://[bad"}, "none of them is JSONRPC"),
    ],
)
def test_a_card_that_will_not_do_says_why(card: object, words: str) -> None:
    """The text is the rest of a sentence."""
    with pytest.raises(UnreadableError, match=words):
        read_card(orjson.dumps(card))


@given(JSON | st.binary())
def test_any_card_is_read_or_refused(card: object) -> None:
    """A card is foreign data like any other."""
    with suppress(UnreadableError):
        read_card(card if isinstance(card, bytes) else orjson.dumps(card))
