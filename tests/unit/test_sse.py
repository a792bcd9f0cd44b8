"""Framing of server-sent events."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.dialects import sse


def parsed(stream: bytes) -> list[dict[str, str]]:
    """Read a stream as the HTML standard says (section 9.2.6), comments left out."""
    events: list[dict[str, str]] = []
    fields: dict[str, str] = {}
    for line in stream.decode().split("\n"):
        if not line:
            if fields:
                events.append(fields)
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
    assert not fields
    return events


def test_a_numbered_frame_has_id_event_and_data() -> None:
    """Byte for byte."""
    assert sse.frame("status", b'{"a":1}', 3) == b'id: 3\nevent: status\ndata: {"a":1}\n\n'


def test_an_unnumbered_frame_has_no_id_line() -> None:
    """So a client keeps the last id it had."""
    assert sse.frame("gap", b"{}") == b"event: gap\ndata: {}\n\n"


def test_a_comment_is_one_line_and_a_blank_one() -> None:
    """The heartbeat."""
    assert sse.comment("heartbeat") == b":heartbeat\n\n"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["status", "text"]),
            st.dictionaries(
                st.text(st.characters(exclude_categories=["Cs"])),
                st.text(st.characters(exclude_categories=["Cs"])),
            ),
            st.none() | st.integers(0, 2**64 - 1),
        )
    )
)
def test_frames_of_any_json_come_back_from_a_parser(
    frames: list[tuple[str, dict[str, str], int | None]],
) -> None:
    """Text with line breaks, separators and control characters stays on its one data line."""
    stream = b"".join(
        sse.frame(event, orjson.dumps(data), number) + sse.comment("x") for event, data, number in frames
    )
    assert b"\r" not in stream
    found = parsed(stream)
    assert [(f["event"], json.loads(f["data"]), f.get("id")) for f in found] == [
        (event, data, None if number is None else str(number)) for event, data, number in frames
    ]


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (None, None),
        ("", None),
        ("0", 0),
        ("7", 7),
        ("007", 7),
        (str(2**64 - 1), 2**64 - 1),
        (str(2**64), 2**64 - 1),
        ("9" * 20, 2**64 - 1),
        ("9" * 400, 2**64 - 1),
        ("9" * 8000, 2**64 - 1),
        ("0" * 8000, 0),
        ("0" * 8000 + "7", 7),
        ("-1", None),
        ("+1", None),
        ("1.0", None),
        ("1e3", None),
        (" 1", None),
        ("1 ", None),
        ("1\n", None),
        ("٣", None),
        ("1_000", None),
        ("abc", None),
        ("1, 2", None),
    ],
)
def test_only_plain_digits_are_a_last_event_id(value: str | None, number: int | None) -> None:
    """Signed, decimal and any other text counts as no header at all; a longer number is the highest there is."""
    assert sse.last_event_id(value) == number


@given(st.text())
def test_any_header_value_is_a_number_or_nothing(value: str) -> None:
    """Never an exception."""
    number = sse.last_event_id(value)
    assert number is None or 0 <= number < 2**64
