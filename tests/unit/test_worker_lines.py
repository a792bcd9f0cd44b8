"""Reading what workers post: all lines of a body, or the place of the first bad one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.tasks import said
from sidecar.tasks.backends.lines import (
    MOST_LINES,
    BadLineError,
    Line,
    TooManyLinesError,
    read_lines,
    unheard,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SEQ = st.none() | st.integers(1, 2**53)
GOOD = st.builds(lambda text, seq: {"type": "text", "text": text, "seq": seq}, TEXT, SEQ)
BLANK = st.sampled_from([b"", b" ", b"\r", b"\t\r"])


@given(st.lists(st.tuples(GOOD, BLANK)), st.sampled_from([b"\n", b"\r\n"]))
def test_every_line_is_read_with_its_number_whatever_ends_it(
    lines: list[tuple[dict[str, Any], bytes]], end: bytes
) -> None:
    """Empty lines between are left out, and counted."""
    body = b"".join(json.dumps(line).encode() + end + blank + b"\n" for line, blank in lines)
    assert read_lines(body) == tuple(
        Line(said.Text(line["text"]), 2 * place + 1, line["seq"]) for place, (line, _) in enumerate(lines)
    )


@given(st.binary())
def test_any_bytes_are_read_or_refused_with_a_place(body: bytes) -> None:
    """Nothing but the refusal is raised, and it names a line that there is."""
    try:
        read_lines(body)
    except BadLineError as error:
        number = int(str(error).split(":")[0].removeprefix("Line "))
        assert 1 <= number <= body.count(b"\n") + 1


@given(
    st.lists(GOOD, max_size=3),
    st.lists(GOOD, max_size=3),
    st.sampled_from(
        [
            b"{",
            b"[]",
            b"1",
            b'{"type": "texts"}',
            b'{"type": "text"}',
            b'{"type": "turn", "seq": 0}',
            b'{"type": "turn", "seq": true}',
            b'{"type": "turn", "seq": "1"}',
            b'{"type": "text", "text": "\xff"}',
        ]
    ),
)
def test_one_bad_line_refuses_them_all_and_is_named(
    before: list[dict[str, Any]], behind: list[dict[str, Any]], bad: bytes
) -> None:
    """The number counts from 1."""
    body = b"\n".join(
        [*(json.dumps(x).encode() for x in before), bad, *(json.dumps(x).encode() for x in behind)]
    )
    with pytest.raises(BadLineError, match=rf"^Line {len(before) + 1}: .+\.$"):
        read_lines(body)


def test_a_body_has_so_many_lines_and_no_more() -> None:
    """One commit is not to hold everybody else up."""
    line = b'{"type":"turn"}\n'
    assert len(read_lines(line * MOST_LINES)) == MOST_LINES
    with pytest.raises(TooManyLinesError):
        read_lines(line * (MOST_LINES + 1))


@given(st.integers(0, 5), st.integers(1, 8), st.integers(0, 8))
def test_a_repeat_of_numbered_lines_leaves_what_is_new(accepted: int, first: int, count: int) -> None:
    """However much of a batch was taken in before, each line is new once; a gap is refused."""
    batch = tuple(Line(said.Turn(), n, first + n - 1) for n in range(1, count + 1))
    if count and first > accepted + 1:
        with pytest.raises(BadLineError, match=f"{accepted + 1} comes next"):
            unheard(batch, accepted)
    else:
        new = [line.seq for line in unheard(batch, accepted)]
        assert new == [seq for seq in range(first, first + count) if seq > accepted]


def test_lines_without_a_number_are_always_new_and_count_too() -> None:
    """Numbers and their absence may be mixed: the number is that of the line under its lease."""
    lines = (Line(said.Turn(), 1), Line(said.Turn(), 2, 4), Line(said.Turn(), 3, 4), Line(said.Turn(), 4))
    assert [line.number for line in unheard(lines, 2)] == [1, 2, 4]
