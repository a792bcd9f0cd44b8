"""Server-sent events as a client reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.dialects import sse
from sidecar.dialects.reading import UnreadableError
from sidecar.dialects.sse_reader import Frame, SseReader

ANY_DATA = st.text(st.characters(blacklist_characters="\r\n", codec="utf-8")).map(str.encode)


def read(data: bytes, size: int = 1 << 20) -> list[Frame]:
    """Read a stream in pieces of one size."""
    reader = SseReader()
    return [frame for at in range(0, len(data), size) for frame in reader.feed(data[at : at + size])]


@given(
    st.lists(
        st.tuples(st.from_regex("[a-z]+", fullmatch=True), ANY_DATA, st.none() | st.integers(0, 2**64 - 1))
    ),
    st.integers(1, 40),
)
def test_what_a_door_writes_is_read_back_in_any_pieces(
    frames: list[tuple[str, bytes, int | None]], size: int
) -> None:
    """Framing and reading are each other's inverse, however the bytes are cut."""
    data = b"".join(sse.frame(*frame) + sse.comment("heartbeat") for frame in frames)
    assert read(data, size) == [Frame(*frame) for frame in frames]


@pytest.mark.parametrize(
    ("data", "frames"),
    [
        (b"data: a\r\ndata: b\r\n\r\n", [Frame("message", b"a\nb")]),
        (b"data:a\rdata:b\r\rdata:c\n\n", [Frame("message", b"a\nb"), Frame("message", b"c")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Frame("message", b"a")]),
        (b"event: x\n\ndata: a\n\n", [Frame("message", b"a")]),
        (b"data\n\n", [Frame("message", b"")]),
        (b"id: 7\ndata: a\n\ndata: b\n\n", [Frame("message", b"a", 7), Frame("message", b"b")]),
        (b"id: -7\ndata: a\n\n", [Frame("message", b"a")]),
        (b"retry: 10\nnonsense\n: comment\n\n", []),
        (b"data: half", []),
        (b"data: half\n", []),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_streams_are_read_as_the_standard_has_it(data: bytes, frames: list[Frame], size: int) -> None:
    """Line ends of every kind, a byte order mark, fields without a value, and frames without an end."""
    padded = data if size != 1 else data + b":\n"  # a lone \r is known by what follows it
    assert read(padded, size) == frames


@given(st.binary(), st.integers(1, 9))
def test_any_bytes_are_read_alike_in_any_pieces(data: bytes, size: int) -> None:
    """Garbage gives what it gives, and never an error of ours."""
    assert read(data, size) == read(data)


def test_a_frame_over_the_limit_is_refused() -> None:
    """In one line, in many, and before its end has come."""
    for data in (b"data: " + b"x" * 200, b"data: x\n" * 60, b"data: " + b"x" * 200 + b"\n\n"):
        with pytest.raises(UnreadableError):
            SseReader(100).feed(data)
