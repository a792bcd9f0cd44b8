"""What an `Authorization` header and an `End-User` header are taken for."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from sidecar.auth.caller import bearer_of, is_end_user

TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def sent(*values: str) -> CIMultiDictProxy[str]:
    """Make headers."""
    return CIMultiDictProxy(CIMultiDict([("authorization", value) for value in values]))


@given(st.lists(st.text(max_size=40), max_size=3))
@example(["Bearer a, Bearer b"])
@example(["Bearer a\nb"])
@example(["Bearer"])
def test_any_headers_give_one_token_or_none(values: list[str]) -> None:
    """Nothing raises, and nothing but a token of RFC 6750 comes out."""
    token = bearer_of(sent(*values))
    assert token is None or (len(values) == 1 and TOKEN.fullmatch(token))


@given(
    st.from_regex(TOKEN, fullmatch=True),
    st.sampled_from(["Bearer", "bearer", "BEARER", "bEARer"]),
    st.integers(1, 3),
)
def test_the_scheme_may_be_in_any_case(token: str, scheme: str, blanks: int) -> None:
    """One header with one token; two of them are none, and so is another scheme."""
    given_ = f"{scheme}{' ' * blanks}{token}"
    assert bearer_of(sent(given_)) == token
    assert bearer_of(sent(given_, given_)) is None
    assert bearer_of(sent(f"Basic {token}")) is None
    assert bearer_of(sent(token)) is None


@given(st.text(max_size=300))
def test_an_end_user_is_short_printable_and_has_no_blank_edges(text: str) -> None:
    """So that it can be stored, compared and shown."""
    if is_end_user(text):
        assert 1 <= len(text) <= 256
        assert text == text.strip()
        assert text.isprintable()
        text.encode()
