"""Peer handles as pure values: their form, and in which order they are found wanting."""

from __future__ import annotations

import base64
import hmac
import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import RefusedError
from sidecar.planes.handles import Claims, HandleKeys, audience_of, handle_id, mint, parse, verify

KEY = bytes(range(32))
CLAIMS = Claims("ses_1", "report.md", 10_000, "0123456789abcdef" * 2)
AUDIENCE = "reader@localhost:24001"


def code_of(
    token: str, *, key: bytes = KEY, audience: str = AUDIENCE, issuer: str = "ses_1", now_ms: int = 0
) -> str:
    """Return the code a token is refused with, or `ok`."""
    try:
        verify(parse(token), key, audience, issuer=issuer, now_ms=now_ms)
    except RefusedError as error:
        return error.refusal.code
    return "ok"


def signed(payload: bytes) -> str:
    """Put a right MAC over any payload."""
    segment = base64.urlsafe_b64encode(payload).rstrip(b"=")
    mac = hmac.digest(KEY, b"murmur-peer-handle-v1\x1f" + segment + b"\x1f" + AUDIENCE.encode(), "sha256")
    return f"mh1.{segment.decode()}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def document(**changes: Any) -> bytes:
    """Return a payload with some members changed; None leaves a member out."""
    members = {"v": 1, "iss": "ses_1", "p": "report.md", "exp": 10_000, "n": CLAIMS.nonce} | changes
    return json.dumps({k: v for k, v in members.items() if v is not None}).encode()


def test_a_handle_has_three_url_safe_segments_without_padding() -> None:
    """The form of the reference: `mh1`, payload, MAC."""
    prefix, payload, mac = mint(KEY, CLAIMS, AUDIENCE).split(".")
    assert prefix == "mh1"
    assert set(payload + mac) <= set(string.ascii_letters + string.digits + "-_")
    assert len(mac) == 43


def test_two_audiences_share_the_payload_and_not_the_mac() -> None:
    """The audience is under the MAC and not inside."""
    one, two = mint(KEY, CLAIMS, AUDIENCE), mint(KEY, CLAIMS, "other@localhost:1")
    assert one.split(".")[1] == two.split(".")[1]
    assert one.split(".")[2] != two.split(".")[2]
    payload = base64.urlsafe_b64decode(one.split(".")[1] + "==")
    assert b"reader" not in payload
    assert json.loads(payload) == {"v": 1, "iss": "ses_1", "p": "report.md", "exp": 10_000, "n": CLAIMS.nonce}


def test_the_id_of_a_handle_is_stable() -> None:
    """Sixteen lowercase hex digits that may be logged."""
    token = mint(KEY, CLAIMS, AUDIENCE)
    assert handle_id(token) == handle_id(token)
    assert len(handle_id(token)) == 16
    assert set(handle_id(token)) <= set("0123456789abcdef")


def test_a_minted_handle_is_verified() -> None:
    """What was minted comes back, for the same audience in any case."""
    token = mint(KEY, CLAIMS, AUDIENCE)
    audience = audience_of("  Reader@LocalHost:24001 ")
    assert verify(parse(token), KEY, audience, issuer="ses_1", now_ms=9_999) == CLAIMS


@pytest.mark.parametrize(
    "token",
    [
        "report.md",
        "mh1",
        "mh1.YWJj",
        "mh1.YWJj.YWJj.YWJj",
        "mh2.YWJj.YWJj",
        "MH1.YWJj.YWJj",
        "mh1..YWJj",
        "mh1.YWJj.",
        "mh1.YWJj=.YWJj",
        "mh1.YW+j.YWJj",
        "mh1.YW/j.YWJj",
        "mh1.Y.YWJj",
        "mh1.YWJj.YWJjZ",
        "mh1.YWJj%2EYWJj",
        "mh1.YWJj.YWJj\n",
        "mh1.YWJj.YWJ",
        "mh1.YWJj.ÄWJj",
        " mh1.YWJj.YWJj",
    ],
)
def test_another_shape_is_malformed(token: str) -> None:
    """Three segments, each the one canonical base64url spelling of something."""
    assert code_of(token) == "malformed_handle"


def test_a_second_spelling_of_a_mac_is_malformed() -> None:
    """Unused bits must be zero, else one handle had several ids."""
    token = mint(KEY, CLAIMS, AUDIENCE)
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    other = token[:-1] + alphabet[alphabet.index(token[-1]) + 1]
    assert code_of(other) == "malformed_handle"


def test_every_wrong_mac_is_refused_alike() -> None:
    """Tampered payload, tampered MAC, other audience, other key, a longer MAC: not valid."""
    token = mint(KEY, CLAIMS, AUDIENCE)
    prefix, payload, mac = token.split(".")
    flipped = ("B" if mac[0] == "A" else "A") + mac[1:]
    assert code_of(f"{prefix}.{payload}.{flipped}") == "handle_not_valid"
    assert code_of(f"{prefix}.{payload}AAAA.{mac}") == "handle_not_valid"
    assert code_of(token + "A") == "handle_not_valid"
    assert code_of(token, audience="other@localhost:1") == "handle_not_valid"
    assert code_of(token, key=bytes(32)) == "handle_not_valid"
    assert code_of(token, issuer="ses_2") == "handle_not_valid"
    assert code_of("mh1.YWJj.YWJj") == "handle_not_valid"


@pytest.mark.parametrize(
    "payload",
    [
        b"not json",
        b"\xff\xfe",
        b"[]",
        b"1",
        b"[" * 5000,
        document(v=2),
        document(v=True),
        document(v="1"),
        document(v=1.0),
        document(iss=3),
        document(p=None),
        document(exp="soon"),
        document(exp=True),
        document(n="short"),
        document(n="0123456789ABCDEF" * 2),
    ],
)
def test_a_signed_payload_of_another_kind_is_malformed(payload: bytes) -> None:
    """The payload is looked at only after the MAC, and then strictly."""
    assert code_of(signed(payload)) == "malformed_handle"


def test_the_checks_come_in_their_order() -> None:
    """MAC before payload, payload before issuer, issuer before time."""
    assert code_of(signed(document(v=2)), key=bytes(32)) == "handle_not_valid"
    assert code_of(signed(document(v=2, iss="ses_9"))) == "malformed_handle"
    assert code_of(signed(document(iss="ses_9", exp=1)), now_ms=5) == "handle_not_valid"
    assert code_of(signed(document(exp=5)), now_ms=5) == "handle_expired"
    assert code_of(signed(document(exp=5)), now_ms=4) == "ok"


def test_keys_belong_to_a_session_and_go_with_it() -> None:
    """One key while the session lives, another one afterwards."""
    keys = HandleKeys()
    first = keys.of("ses_1")
    assert len(first) == 32
    assert keys.of("ses_1") == first
    assert keys.of("ses_2") != first
    keys.drop("ses_1")
    assert keys.of("ses_1") != first
    keys.drop("ses_unknown")


@given(st.text(max_size=60) | st.from_regex(r"mh1\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*", fullmatch=True))
def test_no_guess_is_ever_valid(token: str) -> None:
    """Any text is malformed or not valid, and nothing else happens."""
    assert code_of(token) in {"malformed_handle", "handle_not_valid"}


@given(st.text(max_size=20), st.text(max_size=20), st.integers(min_value=1), st.text(max_size=20))
def test_what_is_minted_is_verified(issuer: str, path: str, expires: int, audience: str) -> None:
    """Minting and verifying agree on every text."""
    claims = Claims(issuer, path, expires, CLAIMS.nonce)
    token = mint(KEY, claims, audience_of(audience))
    assert verify(parse(token), KEY, audience_of(audience), issuer=issuer, now_ms=0) == claims
