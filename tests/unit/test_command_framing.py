"""From a command's bytes to what it says: any cut of the bytes gives the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.tasks.backends import framing as module
from sidecar.tasks.backends.framing import Lines, Plain, TooLongError, framing
from sidecar.tasks.said import Completed, Text, Thinking

if TYPE_CHECKING:
    from sidecar.tasks.backends.framing import Framing
    from sidecar.tasks.said import Said


def hear(reader: Framing, data: bytes, cuts: list[int]) -> list[Said]:
    """Feed bytes in pieces and return everything said."""
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    said: list[Said] = []
    for begin, end in zip([0, *places], [*places, len(data)], strict=True):
        said += reader.feed(data[begin:end])
    return said + reader.end()


@given(st.binary() | st.text().map(str.encode), st.lists(st.integers(min_value=0)))
def test_text_is_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    """A character split between two reads is one character, and bytes that are no UTF-8 are replaced."""
    said = hear(Plain(), data, cuts)
    assert all(isinstance(each, Text) and each.text for each in said)
    assert "".join(each.text for each in said if isinstance(each, Text)) == data.decode("utf-8", "replace")


LINE = st.sampled_from(
    [
        b'{"type": "text", "text": "a"}',
        b'{"type": "thinking", "text": "b"}\r',
        b"plain",
        b"",
        b"{}",
        b"[1]",
        b'{"type": "text"}',
        b'{"type": "nothing"}',
        "{héllo".encode(),
        b"\xff",
    ]
)


@given(st.lists(LINE), st.lists(st.integers(min_value=0)), st.sampled_from([b"", b"\n"]))
def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], cuts: list[int], ending: bytes) -> None:
    """What is no object of the vocabulary is text as it stands, its newline included."""
    data = b"\n".join(lines) + ending
    said = hear(Lines(), data, cuts)
    assert said == hear(Lines(), data, [])
    expected = [
        Text("a")
        if b'"a"' in line
        else Thinking("b")
        if b'"b"' in line
        else Text(line.decode("utf-8", "replace") + "\n")
        for line in data.split(b"\n")
    ]
    last = expected.pop()
    if last != Text("\n"):
        expected.append(Text(last.text.removesuffix("\n")) if isinstance(last, Text) else last)
    assert said == expected


def test_a_last_line_needs_no_newline() -> None:
    """An agent that writes its last line without one is understood."""
    assert hear(Lines(), b'x\n{"type": "completed", "response": "r"}', [3]) == [Text("x\n"), Completed("r")]


def test_a_line_has_a_longest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that is complete nor one that is still coming may be longer."""
    monkeypatch.setattr(module, "LONGEST_LINE", 10)
    assert Lines().feed(b"x" * 10 + b"\n" + b"y" * 10) == [Text("x" * 10 + "\n")]
    for data in (b"x" * 11, b"x" * 11 + b"\n", b"a\n" + b"x" * 11 + b"\nb"):
        with pytest.raises(TooLongError):
            Lines().feed(data)


@given(st.integers(min_value=1, max_value=5), st.text(min_size=1))
def test_objects_come_out_in_their_order(count: int, text: str) -> None:
    """One per line."""
    line = json.dumps({"type": "text", "text": text}).encode() + b"\n"
    assert Lines().feed(line * count) == [Text(text)] * count


def test_the_protocol_decides_how_output_is_read() -> None:
    """`text` unless it is `jsonl`."""
    assert isinstance(framing("jsonl"), Lines)
    assert isinstance(framing("text"), Plain)
