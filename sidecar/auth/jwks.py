"""The keys of an OpenID Connect issuer: found by discovery, kept for a while, fetched by one at a time."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from sidecar.auth.vouching import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.auth.fetch import Fetcher
    from sidecar.model import ProviderSettings

    Key = RSAKey | ECKey | OKPKey
    Keys = dict[str, list[tuple[dict[str, Any], Key]]]

KEPT: Final = 15 * 60.0
"""Seconds for which keys are kept."""
COOL_DOWN: Final = 15.0
"""Seconds between two fetches for a key that was not there."""
PAUSE: Final = 2.0
"""Seconds after a failure for which the next one is told the same."""
MOST_KEYS: Final = 100
LEAST_RSA_BYTES: Final = 256
DISCOVERY: Final = "/.well-known/openid-configuration"

_KINDS: Final[dict[str, type[RSAKey | ECKey | OKPKey]]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}


class IssuerKeys:
    """The keys of one issuer. `clock` is in seconds and never goes back."""

    def __init__(self, settings: ProviderSettings, fetcher: Fetcher, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._fetcher = fetcher
        self._clock = clock
        self._keys: Keys = {}
        self._until = float("-inf")
        self._looked_again = float("-inf")
        self._failed: ProviderError | None = None
        self._failed_until = float("-inf")
        self._fetching: asyncio.Task[Keys] | None = None

    @property
    def busy(self) -> bool:
        """Whether keys are being fetched."""
        return self._fetching is not None

    async def aclose(self) -> None:
        """End a fetch that is under way."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait((self._fetching,))

    async def get(self, kid: str, algorithm: str) -> Key | None:
        """Return the key of an id for an algorithm, None where the issuer has none. Raises ProviderError.

        A key that is not there is looked for once more at the issuer, but not again and again.
        """
        if self._clock() >= self._until:
            await self._fetch()
        elif kid not in self._keys and self._clock() - self._looked_again >= COOL_DOWN:
            self._looked_again = self._clock()
            await self._fetch()
        fitting = (key for facts, key in self._keys.get(kid, ()) if _fits(facts, algorithm))
        return next(fitting, None)

    async def _fetch(self) -> None:
        if self._failed is not None and self._clock() < self._failed_until:
            raise ProviderError(str(self._failed))
        if self._fetching is None:
            loop = asyncio.get_running_loop()
            self._fetching = loop.create_task(self._fetched(), name="fetch the keys of an issuer")
            self._fetching.add_done_callback(self._take)
        # who leaves does not end it for the others
        await asyncio.shield(self._fetching)

    def _take(self, done: asyncio.Task[Keys]) -> None:
        self._fetching = None
        if done.cancelled():
            return
        if (error := done.exception()) is None:
            self._keys, self._until, self._failed = done.result(), self._clock() + KEPT, None
        elif isinstance(error, ProviderError):
            self._failed, self._failed_until = error, self._clock() + PAUSE

    async def _fetched(self) -> Keys:
        """Fetch the discovery document and then the keys (OpenID Connect Discovery, section 4)."""
        issuer, private = self._settings.url, self._settings.allow_private
        found = await self._fetcher.get(issuer.removesuffix("/") + DISCOVERY, allow_private=private)
        if not isinstance(found, dict) or found.get("issuer") != issuer:
            raise ProviderError("its discovery document is not that of this issuer")
        where = found.get("jwks_uri")
        schemes = ("https", urlsplit(issuer).scheme)
        if not isinstance(where, str) or not where.startswith(tuple(f"{one}://" for one in schemes)):
            raise ProviderError("its discovery document names no place for keys that can be used")
        listed = await self._fetcher.get(where, allow_private=private)
        keys = listed.get("keys") if isinstance(listed, dict) else None
        if not isinstance(keys, list) or len(keys) > MOST_KEYS:
            raise ProviderError("its keys are no key set")
        return _read(keys)


def _read(listed: list[Any]) -> Keys:
    """Return the keys that can check a signature, by id; others are left out (RFC 7517 section 5)."""
    found: Keys = {}
    for facts in listed:
        if not isinstance(facts, dict) or not isinstance(facts.get("kid"), str):
            continue
        kind = _KINDS.get(str(facts.get("kty")))
        if kind is None or facts.get("use", "sig") != "sig" or not _strong(facts):
            continue
        try:
            key = kind.import_key(facts)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        found.setdefault(facts["kid"], []).append((facts, key))
    return found


def _strong(facts: dict[str, Any]) -> bool:
    """Whether an RSA key is as long as signatures want it (RFC 7518 section 3.3)."""
    if facts.get("kty") != "RSA":
        return True
    modulus = facts.get("n")
    try:
        data = base64.urlsafe_b64decode(modulus + "==") if isinstance(modulus, str) else b""
    except (binascii.Error, ValueError):
        return False
    return len(data.lstrip(b"\0")) >= LEAST_RSA_BYTES


def _fits(facts: dict[str, Any], algorithm: str) -> bool:
    operations = facts.get("key_ops")
    return (
        facts["kty"] == kind_for(algorithm)
        and facts.get("alg", algorithm) == algorithm
        and (operations is None or (isinstance(operations, list) and "verify" in operations))
    )


def kind_for(algorithm: str) -> str:
    """Return the type of key that an algorithm signs with (RFC 7518 section 3.1, RFC 8037 section 3.1)."""
    return {"R": "RSA", "P": "RSA"}.get(algorithm[0], "OKP" if algorithm.startswith("Ed") else "EC")
