"""Peer handles: who holds one may read one file, as one audience, until it expires. Pure, but for the keys.

A handle is `mh1.<payload>.<mac>`, both parts base64url without padding (murmur reference, peer handles).
The audience is under the MAC and not inside.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass
from typing import Final

from sidecar.errors import RefusedError, refusal

MALFORMED: Final = refusal(
    "malformed_handle", "This is not a peer handle: ask for one that was copied whole."
)
NOT_VALID: Final = refusal(
    "handle_not_valid",
    "The handle is not valid here for this audience: ask the capsule's operator for a new one.",
)
EXPIRED: Final = refusal(
    "handle_expired", "The handle has expired or was revoked: ask the capsule's operator for a new one."
)

_PREFIX: Final = "mh1"
_DOMAIN: Final = b"murmur-peer-handle-v1"
_KEY_BYTES: Final = 32
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_NONCE: Final = re.compile(r"[0-9a-f]{32}\Z")


@dataclass(frozen=True, slots=True)
class Claims:
    """What a handle says: `issuer` is a session id, `path` lies under the peer root, `expires_at_ms` is Unix time."""

    issuer: str
    path: str
    expires_at_ms: int
    nonce: str


@dataclass(frozen=True, slots=True)
class Handle:
    """A handle of the right shape, of which nothing else is known yet."""

    payload: str
    mac: bytes


def audience_of(text: str) -> str:
    """Return an audience (`name@host:port`) as it is under the MAC: trimmed and in lower case."""
    return text.strip().lower()


def handle_id(token: str) -> str:
    """Return the name of a handle that may be logged: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()[:16]


def mint(key: bytes, claims: Claims, audience: str) -> str:
    """Return the handle of these claims for this audience: the same for the same arguments."""
    document = {
        "v": 1,
        "iss": claims.issuer,
        "p": claims.path,
        "exp": claims.expires_at_ms,
        "n": claims.nonce,
    }
    payload = _encode(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())
    return f"{_PREFIX}.{payload}.{_encode(_mac(key, payload, audience))}"


def parse(token: str) -> Handle:
    """Check the shape of a handle. Raises RefusedError `malformed_handle`."""
    prefix, *segments = token.split(".")
    if prefix != _PREFIX or len(segments) != 2:  # noqa: PLR2004 -- payload and MAC
        raise RefusedError(MALFORMED)
    payload, mac = segments
    _decode(payload)
    return Handle(payload, _decode(mac))


def verify(handle: Handle, key: bytes, audience: str, *, issuer: str, now_ms: int) -> Claims:
    """Return what a handle says, once its MAC, its payload, its issuer and its time hold, looked at in this order.

    Raises RefusedError: `handle_not_valid` alike for a wrong MAC, whatever made it wrong, and a foreign issuer;
    `malformed_handle` for a payload of another kind; `handle_expired`.
    """
    if not hmac.compare_digest(handle.mac, _mac(key, handle.payload, audience)):
        raise RefusedError(NOT_VALID)
    claims = _claims(_decode(handle.payload))
    if claims.issuer != issuer:
        raise RefusedError(NOT_VALID)
    if claims.expires_at_ms <= now_ms:
        raise RefusedError(EXPIRED)
    return claims


class HandleKeys:
    """One secret per session, made when first needed and never written down: a restart ends every handle."""

    def __init__(self) -> None:
        self._keys: dict[str, bytes] = {}

    def of(self, session_id: str) -> bytes:
        """Return the session's key."""
        key = self._keys.get(session_id)
        if key is None:
            key = self._keys[session_id] = secrets.token_bytes(_KEY_BYTES)
        return key

    def drop(self, session_id: str) -> None:
        """Forget a closed session's key: its handles are void."""
        self._keys.pop(session_id, None)


def _mac(key: bytes, payload: str, audience: str) -> bytes:
    text = b"\x1f".join((_DOMAIN, payload.encode(), audience.encode(errors="surrogatepass")))
    return hmac.digest(key, text, "sha256")


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(segment: str) -> bytes:
    """Decode base64url in its one canonical spelling: a second spelling would be a second handle id."""
    if not _SEGMENT.match(segment):
        raise RefusedError(MALFORMED)
    try:
        data = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except binascii.Error:
        raise RefusedError(MALFORMED) from None
    if _encode(data) != segment:
        raise RefusedError(MALFORMED)
    return data


def _claims(payload: bytes) -> Claims:
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        raise RefusedError(MALFORMED) from None
    match document:
        case {
            "v": int(version),
            "iss": str(issuer),
            "p": str(path),
            "exp": int(expires),
            "n": str(nonce),
        } if version == 1 and not {type(version), type(expires)} & {bool} and _NONCE.match(nonce):
            return Claims(issuer, path, expires, nonce)
    raise RefusedError(MALFORMED)
