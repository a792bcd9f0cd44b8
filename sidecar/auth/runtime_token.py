"""Runtime tokens: an agent key's word for one end user, signed, short, and good on one channel alone.

`sc_rt_<payload>.<mac>`, both base64url without padding, in their only spelling. The key that signs lives in memory:
tokens end with the process.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import orjson

PREFIX: Final = "sc_rt_"
LASTS: Final = 900
"""Seconds that a token is good for."""

_CONTEXT: Final = b"sidecar-runtime-token-v1\x1f"
_SHAPE: Final = re.compile(rf"{PREFIX}([\w-]+)\.([\w-]{{43}})", re.ASCII)


@dataclass(frozen=True, slots=True)
class RuntimeClaims:
    """What a token says: which key speaks for whom, and until when (Unix seconds)."""

    key_id: str
    end_user: str
    expires_at: float


class RuntimeTokens:
    """Issues tokens and reads them back. `key` is 32 random bytes."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(32) if key is None else key

    def issue(self, channel: str, key_id: str, end_user: str, now: float) -> str:
        """Return a token for an end user of a key, good on one channel for `LASTS` seconds from `now` on."""
        claims = {
            "v": 1,
            "c": channel,
            "k": key_id,
            "u": end_user,
            "e": int((now + LASTS) * 1000),
            "n": secrets.token_hex(16),
        }
        payload = _encode(orjson.dumps(claims))
        return f"{PREFIX}{payload}.{_encode(self._mac(payload))}"

    def read(self, token: str, channel: str | None, now: float) -> RuntimeClaims | None:
        """Return what a token says; None where it is none of ours, of another channel (None: of any), or over."""
        match = _SHAPE.fullmatch(token)
        if match is None:
            return None
        payload, mac = match.groups()
        given = _decode(mac)
        if given is None or not hmac.compare_digest(given, self._mac(payload)):
            return None
        # signed, so it is as it was written
        claims = orjson.loads(_decode(payload) or b"null")
        expires_at = claims["e"] / 1000
        ours = channel is None or hmac.compare_digest(claims["c"].encode(), channel.encode())
        if not ours or now >= expires_at:
            return None
        return RuntimeClaims(claims["k"], claims["u"], expires_at)

    def _mac(self, payload: str) -> bytes:
        return hmac.digest(self._key, _CONTEXT + payload.encode(), sha256)


def virtual_user(key_id: str, end_user: str) -> str:
    """Return the id under which an end user of a key is known: always the same, and telling nothing."""
    return "vuser_" + sha256(f"{key_id}\x1f{end_user}".encode()).hexdigest()[:32]


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes | None:
    """Return the bytes of a text in its only spelling, else None."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None
    return data if _encode(data) == text else None
