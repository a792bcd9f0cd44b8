"""Runtime tokens: what is signed, and that nothing else is ever good."""

from __future__ import annotations

import base64
import string

from hypothesis import given
from hypothesis import strategies as st

from sidecar.auth.runtime_token import LASTS, RuntimeTokens, virtual_user

KEY = bytes(range(32))
NOW = 1_700_000_000.0


def issued(channel: str = "ses_a", now: float = NOW, end_user: str = "ann") -> str:
    """Return a token."""
    return RuntimeTokens(KEY).issue(channel, "key_1", end_user, now)


def test_a_token_is_good_on_its_channel_for_a_quarter_of_an_hour() -> None:
    """And may be shown as often as one likes, which is what a bearer token is."""
    tokens, token = RuntimeTokens(KEY), issued()
    for _ in range(2):
        claims = tokens.read(token, "ses_a", NOW + LASTS - 1)
        assert claims is not None
        assert (claims.key_id, claims.end_user, claims.expires_at) == ("key_1", "ann", NOW + 900)
    assert tokens.read(token, "ses_a", NOW + LASTS) is None
    assert tokens.read(token, "ses_b", NOW) is None
    assert RuntimeTokens().read(token, "ses_a", NOW) is None
    assert issued() != issued()


def test_no_altered_token_is_good() -> None:
    """Cut short, made longer, another payload, another spelling of the same bytes."""
    tokens, token = RuntimeTokens(KEY), issued()
    head, payload, mac = token[:6], *token[6:].split(".")
    other = issued(end_user="bob")[6:].split(".")[0]
    # 32 bytes are 42 characters and a part of another one, whose last two bits say nothing
    digits = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    twin = mac[:-1] + digits[digits.index(mac[-1]) ^ 1]
    assert base64.urlsafe_b64decode(twin + "=") == base64.urlsafe_b64decode(mac + "=")
    for bad in (
        token[:-1],
        token + "A",
        token + "=",
        " " + token,
        token + "\n",
        token.upper(),
        head + other + "." + mac,
        head + payload + "." + twin,
        head + payload + ".." + mac,
        head + payload,
        head + "." + mac,
        payload + "." + mac,
    ):
        assert tokens.read(bad, "ses_a", NOW) is None, bad


@given(st.data())
def test_any_end_user_comes_back_as_it_was(data: st.DataObject) -> None:
    """Whatever characters it has."""
    end_user = data.draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256))
    claims = RuntimeTokens(KEY).read(issued(end_user=end_user), "ses_a", NOW)
    assert claims is not None
    assert claims.end_user == end_user


@given(st.binary(max_size=200), st.binary(min_size=32, max_size=32))
def test_no_guess_is_ever_good(payload: bytes, mac: bytes) -> None:
    """Nor does one raise anything."""
    parts = (base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (payload, mac))
    assert RuntimeTokens(KEY).read("sc_rt_" + ".".join(parts), "ses_a", NOW) is None


@given(st.text())
def test_any_text_is_taken_for_what_it_is(text: str) -> None:
    """No token."""
    assert RuntimeTokens(KEY).read(text, "ses_a", NOW) is None
    assert RuntimeTokens(KEY).read("sc_rt_" + text, "ses_a", NOW) is None


def test_a_virtual_user_is_the_same_each_time_and_tells_nothing() -> None:
    """One per key and end user."""
    assert virtual_user("key_1", "ann") == virtual_user("key_1", "ann")
    assert virtual_user("key_1", "ann") != virtual_user("key_2", "ann")
    assert "ann" not in virtual_user("key_1", "ann")
