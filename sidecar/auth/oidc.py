"""Tokens that an OpenID Connect issuer signs. Imported only where one is configured: joserfc is big."""

from __future__ import annotations

import base64
import binascii
import re
import time
import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import orjson
from joserfc import jws
from joserfc.errors import JoseError, SecurityWarning

from sidecar.auth.jwks import IssuerKeys
from sidecar.auth.vouching import TokenRefusedError, Vouched, check_claims, subject_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.auth.fetch import Fetcher
    from sidecar.auth.jwks import Key
    from sidecar.model import ProviderSettings

ALGORITHMS: Final = (
    *(f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)),
    "EdDSA",
    "Ed25519",
)
"""Algorithms whose checking key cannot sign (RFC 7518 section 3.1, RFC 8037, RFC 9864)."""
LONGEST_KID: Final = 1024

_SHAPE: Final = re.compile(r"([\w-]+)\.([\w-]+)\.([\w-]+)", re.ASCII)


class Oidc:
    """One issuer. `clock` is in Unix seconds, `monotonic` in seconds that never go back."""

    def __init__(
        self,
        settings: ProviderSettings,
        fetcher: Fetcher,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._keys = IssuerKeys(settings, fetcher, monotonic)
        self._registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        self._registry.max_header_length = 8 * 1024

    async def check(self, token: str) -> Vouched | None:
        """Return whose a token is, None where it is none of this issuer's.

        A token is looked at before it is checked only to see whose it is and which key it names; where a key is
        fetched from, no token can say. Raises TokenRefusedError, ProviderError.
        """
        match = _SHAPE.fullmatch(token)
        if match is None:
            return None
        header, claims = _json(match[1]), _json(match[2])
        if header is None or claims is None or claims.get("iss") != self._settings.url:
            return None
        if "crit" in header or "b64" in header:
            raise TokenRefusedError("it asks for what is not known here")
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise TokenRefusedError("it is signed with an algorithm that is not taken")
        if not isinstance(kid, str) or not 1 <= len(kid) <= LONGEST_KID:
            raise TokenRefusedError("it names no key")
        key = await self._keys.get(kid, algorithm)
        if key is None:
            raise TokenRefusedError("it names a key that the issuer does not have")
        return self._vouched(orjson.loads(self._payload(token, algorithm, key)))

    def _payload(self, token: str, algorithm: str, key: Key) -> bytes:
        """Return what a token says; raises TokenRefusedError unless the key has signed it."""
        with warnings.catch_warnings() if algorithm == "EdDSA" else nullcontext():
            if algorithm == "EdDSA":
                # it is called by its newer names since RFC 9864; issuers still use this one
                warnings.simplefilter("ignore", SecurityWarning)
            try:
                return jws.deserialize_compact(token, key, [algorithm], registry=self._registry).payload
            except (JoseError, ValueError, TypeError):
                raise TokenRefusedError("its signature is not the issuer's") from None

    def _vouched(self, claims: dict[str, Any]) -> Vouched:
        for name in ("exp", "aud"):
            if claims.get(name) is None:
                raise TokenRefusedError(f"it has no {name}")
        check_claims(claims, self._settings, self._clock())
        return Vouched(subject_of(claims, "sub"), float(claims["exp"]))

    @property
    def busy(self) -> bool:
        """Whether keys are being fetched."""
        return self._keys.busy

    async def aclose(self) -> None:
        """End a fetch that is under way."""
        await self._keys.aclose()


def _json(part: str) -> dict[str, Any] | None:
    try:
        found = orjson.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError):
        return None
    return found if isinstance(found, dict) else None
