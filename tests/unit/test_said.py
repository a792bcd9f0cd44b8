"""What workers may say, one JSON object a line."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.tasks import said
from sidecar.tasks.said import NotSaidError

PARTS: list[dict[str, Any]] = [{"text": "a"}, {"raw": "AAE="}, {"url": "http://x/"}, {"data": [1]}]

LINES: list[tuple[dict[str, Any], said.Said]] = [
    ({"type": "text", "text": "a"}, said.Text("a")),
    ({"type": "text", "text": ""}, said.Text("")),
    ({"type": "thinking", "text": "hm"}, said.Thinking("hm")),
    ({"type": "tool", "name": "sh", "content": "ok"}, said.Tool("sh", "ok")),
    ({"type": "tool", "content": "a hook's"}, said.Tool(None, "a hook's")),
    ({"type": "tool"}, said.Tool(None, "")),
    (
        {
            "type": "tool",
            "name": "sh",
            "content": "no",
            "call_id": "c1",
            "is_error": True,
            "duration_ms": 5,
            "exit_code": -9,
            "truncated": True,
        },
        said.Tool("sh", "no", "c1", is_error=True, duration_ms=5, exit_code=-9, truncated=True),
    ),
    ({"type": "artifact", "parts": PARTS}, said.Artifact(None, None, tuple(PARTS))),
    (
        {"type": "artifact", "name": "n", "artifact_id": "i", "parts": [], "append": True, "last": True},
        said.Artifact("n", "i", (), append=True, last=True),
    ),
    ({"type": "turn"}, said.Turn()),
    ({"type": "status", "message": "reading"}, said.Status("reading")),
    ({"type": "input-required", "prompt": "Which?"}, said.InputRequired("Which?")),
    ({"type": "input-required"}, said.InputRequired("")),
    ({"type": "message", "parts": [{"text": "hi"}]}, said.Reply(({"text": "hi"},))),
    ({"type": "completed"}, said.Completed()),
    ({"type": "completed", "response": None}, said.Completed()),
    ({"type": "completed", "response": ""}, said.Completed("")),
    ({"type": "failed", "message": "no"}, said.Failed("no")),
    ({"type": "failed"}, said.Failed("failed")),
    ({"type": "rejected", "message": "not mine"}, said.Rejected("not mine")),
    ({"type": "rejected"}, said.Rejected("rejected")),
    ({"type": "turn", "unknown": 1}, said.Turn()),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_a_line_of_the_vocabulary_is_read(line: dict[str, Any], expected: said.Said) -> None:
    """Members that are missing or null have their defaults, unknown ones are ignored."""
    assert said.read_line(json.dumps(line).encode()) == expected
    assert said.read_line(b" " + json.dumps(line).encode() + b"\r\n") == expected


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (b'{"type":"text","text":"\xff"}', "not JSON"),
        (b'"text"', "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b"{}", "type is missing"),
        (b'{"type":"texts"}', "type must be one of text, thinking, tool,"),
        (b'{"type":1}', "type must be one of"),
        (b'{"type":null}', "type must be one of"),
        (b'{"type":["text"]}', "type must be one of"),
        (b'{"type":"text"}', "text is missing"),
        (b'{"type":"text","text":1}', "text must be a string"),
        (b'{"type":"thinking"}', "text is missing"),
        (b'{"type":"status"}', "message is missing"),
        (b'{"type":"status","message":["a"]}', "message must be a string"),
        (b'{"type":"failed","message":1}', "message must be a string"),
        (b'{"type":"completed","response":1}', "response must be a string"),
        (b'{"type":"input-required","prompt":{}}', "prompt must be a string"),
        (b'{"type":"tool","name":1}', "name must be a string"),
        (b'{"type":"tool","is_error":"no"}', "is_error must be true or false"),
        (b'{"type":"tool","truncated":0}', "truncated must be true or false"),
        (b'{"type":"tool","duration_ms":1.5}', "duration_ms must be an integer"),
        (b'{"type":"tool","exit_code":true}', "exit_code must be an integer"),
        (b'{"type":"tool","exit_code":99999999999999999999}', "exit_code must be an integer"),
        (b'{"type":"artifact"}', "parts is missing"),
        (b'{"type":"artifact","parts":{}}', "parts must be a list"),
        (b'{"type":"artifact","parts":[],"append":1}', "append must be true or false"),
        (b'{"type":"artifact","parts":["a"]}', "parts[0] must be an object"),
        (b'{"type":"message","parts":[{"text":"a"},{}]}', "parts[1] must have one of text, raw, url, data"),
        (b'{"type":"message","parts":[{"text":"a","url":"b"}]}', "parts[0] must have one of"),
        (b'{"type":"message","parts":[{"text":1}]}', "parts[0].text must be a string"),
        (b'{"type":"message","parts":[{"raw":"%"}]}', "parts[0].raw must be base64"),
        (b'{"type":"message","parts":[{"raw":"\xc3\xa4"}]}', "parts[0].raw must be base64"),
        (b'{"type":"message","parts":[{"text":"a","mediaType":1}]}', "parts[0].mediaType must be a string"),
        (b'{"type":"message","parts":[{"text":"a","metadata":[]}]}', "parts[0].metadata must be an object"),
    ],
)
def test_anything_else_is_refused_and_it_is_said_why(line: bytes, wrong: str) -> None:
    """The member is named."""
    with pytest.raises(NotSaidError) as caught:
        said.read_line(line)
    assert str(caught.value).startswith(wrong)


def test_a_part_may_hold_null_as_its_data() -> None:
    """It is JSON like any other."""
    assert said.read({"type": "message", "parts": [{"data": None}]}) == said.Reply(({"data": None},))


def test_what_could_not_be_written_again_is_refused() -> None:
    """The parser takes deeper nesting than the writer."""
    deep: Any = 1
    for _ in range(260):
        deep = [deep]
    with pytest.raises(NotSaidError, match="cannot be written"):
        said.read({"type": "artifact", "parts": [{"data": deep}]})


def test_only_the_last_lines_are_final() -> None:
    """Four of them end a task."""
    final = {type(value).__name__ for _, value in LINES if value.final}
    assert final == {"Reply", "Completed", "Failed", "Rejected"}


def test_the_text_of_parts_is_that_of_the_text_parts() -> None:
    """Joined by a newline."""
    assert said.texts(({"text": "a"}, {"url": "b"}, {"text": ""}, {"text": "c"})) == "a\n\nc"


def test_text_that_utf8_cannot_hold_is_made_so_that_it_can() -> None:
    """As it may come out of a file name in an error."""
    assert said.clean("no \udcff, ü") == "no ?, ü"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = sorted({key for line, _ in LINES for key in line} - {"type"})


@given(
    st.sampled_from([line["type"] for line, _ in LINES]),
    st.dictionaries(st.sampled_from(MEMBERS), JSON | st.just([{"raw": "AA=="}]), max_size=6),
)
def test_any_object_is_read_or_refused(kind: str, members: dict[str, Any]) -> None:
    """Nothing else comes of it."""
    line = json.dumps({"type": kind, **members}).encode()
    try:
        found = said.read_line(line)
    except NotSaidError:
        return
    assert type(found).__name__.lower() in {kind.replace("-", ""), "reply"}


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(line: bytes) -> None:
    """As lines of a process that speaks something else."""
    with pytest.raises(NotSaidError):
        said.read_line(line)


@given(st.binary(max_size=50))
def test_any_base64_is_a_part(data: bytes) -> None:
    """And comes through unchanged."""
    parts = [{"raw": base64.b64encode(data).decode(), "mediaType": "x/y", "filename": "f", "metadata": {}}]
    assert said.read({"type": "message", "parts": parts}) == said.Reply(tuple(parts))
