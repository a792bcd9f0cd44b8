"""Answers as bytes, and `If-None-Match`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import Refusal, refusal
from sidecar.model import Answer
from sidecar.web.answers import etag_matches, json_wire, refusal_answer, unmodified_since, wire

ETAG = '"abc"'


@pytest.mark.parametrize(
    "header",
    [
        '"abc"',
        'W/"abc"',
        '"x", "abc"',
        '"x","abc","y"',
        ' "x" ,  W/"abc" ',
        "*",
        " * ",
        '"has,comma", "abc"',
        '"", "abc"',
        '"abc", broken',
        ', ,"abc"',
        '"x",, "abc",',
    ],
)
def test_a_header_that_names_the_current_tag_matches(header: str) -> None:
    """RFC 9110 section 13.1.2: lists, `*` and weak tags, compared weakly."""
    assert etag_matches(header, ETAG)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "abc",
        '"ABC"',
        '"abcd"',
        'w/"abc"',
        '"abc',
        'abc"',
        "'abc'",
        'broken, "abc"',
        '"x" "abc"',
        '"*"',
        "*, *",
        '"a"bc"',
    ],
)
def test_a_header_that_does_not_name_it_or_is_malformed_is_ignored(header: str | None) -> None:
    """What is no list of entity tags has no say."""
    assert not etag_matches(header, ETAG)


@given(st.text(max_size=80))
def test_no_header_can_upset_the_comparison(header: str) -> None:
    """Any text is taken, in linear time."""
    assert etag_matches(header, ETAG) in (True, False)


@given(
    st.lists(st.text(alphabet=st.characters(exclude_characters='"', min_codepoint=0x21, max_codepoint=0x7E)))
)
def test_a_list_matches_exactly_when_the_tag_is_in_it(tags: list[str]) -> None:
    """Commas and spaces inside a quoted tag belong to it."""
    header = ", ".join(f'"{tag}"' for tag in tags)
    assert etag_matches(header, ETAG) == ("abc" in tags)


MODIFIED = 784111777  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    "header", ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
)
def test_a_date_is_compared_in_each_of_its_forms(header: str) -> None:
    """RFC 9110 sections 5.6.7 and 13.1.3: not modified since then, the same second included."""
    assert unmodified_since(header, MODIFIED)
    assert unmodified_since(header, MODIFIED - 1)
    assert not unmodified_since(header, MODIFIED + 1)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "tomorrow",
        "Sun, 06 Nov 2094 08:49:37 +0100",
        "Sun, 06 Nov 2094 08:49:37",
        "Sun, 06 Nov 2094 08:49:37 GMT, Sun, 06 Nov 2094 08:49:37 GMT",
        "Sun, 06 Xyz 2094 08:49:37 GMT",
        "Sun, 06 Nov 0000 08:49:37 GMT",
        "sun, 06 nov 2094 08:49:37 gmt",
        "4102444800",
    ],
)
def test_what_is_no_date_has_no_say(header: str | None) -> None:
    """RFC 9110 section 13.1.3: an invalid date is ignored."""
    assert not unmodified_since(header, MODIFIED)


@given(
    st.one_of(
        st.text(max_size=40),
        st.from_regex(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", fullmatch=True),
        st.from_regex(r"Sunday, \d\d-(Jan|Feb|Dec)-\d\d \d\d:\d\d:\d\d GMT", fullmatch=True),
        st.from_regex(r"Sun (Jan|Feb) [ 0-9][0-9] \d\d:\d\d:\d\d [0-9]{4}", fullmatch=True),
    )
)
def test_no_date_can_upset_the_comparison(header: str) -> None:
    """Days that no month has are taken or ignored, never an error."""
    assert unmodified_since(header, MODIFIED) in (True, False)


def test_an_answer_is_written_with_its_length() -> None:
    """Status line, headers in order, content length; the date and the end come when it is sent."""
    made = wire(Answer(200, (("content-type", "text/plain"), ("x-a", "ü")), b"hello"))
    expected = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-a: ü\r\ncontent-length: 5\r\n"
    assert made.head == expected.encode()
    assert made.body == b"hello"
    assert b"content-length" not in wire(Answer(304, ())).head


def test_the_short_cut_for_json_writes_the_same() -> None:
    """The prebuilt head is that of the general way."""
    body = b'{"a":1}'
    assert json_wire(body) == wire(Answer(200, (("content-type", "application/json"),), body))


@pytest.mark.parametrize("value", ["a\r\nx: y", "a\nb", "\x00", "\x7f"])
def test_a_control_character_in_a_header_is_never_written(value: str) -> None:
    """RFC 9110 section 5.5: no header can smuggle in another one."""
    with pytest.raises(ValueError, match="control character"):
        wire(Answer(200, (("x-a", value),)))


def test_a_refusal_has_the_one_shape() -> None:
    """`error` and `message`, JSON, its own headers; `unavailable` says when to come back."""
    answer = refusal_answer(refusal("method_not_allowed", 'Say "GET".', ("allow", "GET")))
    assert answer.status == 405
    assert answer.headers == (("content-type", "application/json"), ("allow", "GET"))
    assert answer.body == b'{"error":"method_not_allowed","message":"Say \\"GET\\"."}'
    assert ("retry-after", "1") in refusal_answer(refusal("unavailable", "later")).headers
    own = refusal_answer(Refusal(503, "unavailable", "later", (("Retry-After", "30"),)))
    assert [value for name, value in own.headers if name.lower() == "retry-after"] == ["30"]


def test_a_refusal_can_quote_bytes_that_are_no_text() -> None:
    """A name that is not UTF-8 is shown by its escape."""
    assert b"udcff" in refusal_answer(refusal("not_found", "no \udcff")).body
