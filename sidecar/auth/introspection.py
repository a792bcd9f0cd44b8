"""Tokens that an endpoint is asked about: OAuth 2.0 Token Introspection (RFC 7662)."""

from __future__ import annotations

import asyncio
import base64
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus

from sidecar.auth.vouching import ProviderError, TokenRefusedError, Vouched, check_claims, subject_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.auth.fetch import Fetcher
    from sidecar.model import ProviderSettings

KEPT: Final = 60.0
"""Seconds for which a good answer is kept at most (RFC 7662 section 4)."""
MOST_KEPT: Final = 10_000


class Introspection:
    """One endpoint. `clock` is in Unix seconds, `monotonic` in seconds that never go back."""

    def __init__(
        self,
        settings: ProviderSettings,
        fetcher: Fetcher,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._fetcher = fetcher
        self._clock = clock
        self._monotonic = monotonic
        self._kept: dict[bytes, tuple[float, Vouched]] = {}
        self._asking: dict[bytes, asyncio.Task[Vouched]] = {}
        secret = settings.client_secret
        pair = f"{quote_plus(settings.client_id or '')}:{quote_plus(secret.reveal() if secret else '')}"
        self._headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    async def check(self, token: str) -> Vouched:
        """Return whose a token is. Raises TokenRefusedError, ProviderError."""
        digest = sha256(token.encode(errors="surrogateescape")).digest()
        until, known = self._kept.get(digest, (0.0, None))
        if known is not None:
            expired = known.expires_at is not None and self._clock() >= known.expires_at
            if self._monotonic() < until and not expired:
                return known
            del self._kept[digest]
        asking = self._asking.get(digest)
        if asking is None:
            loop = asyncio.get_running_loop()
            asking = loop.create_task(self._asked(token), name="ask about a token")
            self._asking[digest] = asking
            asking.add_done_callback(lambda done: self._take(digest, done))
        # who leaves does not end it for the others
        return await asyncio.shield(asking)

    @property
    def busy(self) -> bool:
        """Whether something is being asked."""
        return bool(self._asking)

    async def aclose(self) -> None:
        """End the questions that are under way."""
        asking = tuple(self._asking.values())
        for one in asking:
            one.cancel()
        if asking:
            await asyncio.wait(asking)

    def _take(self, digest: bytes, done: asyncio.Task[Vouched]) -> None:
        del self._asking[digest]
        if done.cancelled() or done.exception() is not None:
            return
        if len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[digest] = (self._monotonic() + KEPT, done.result())

    async def _asked(self, token: str) -> Vouched:
        said = await self._fetcher.post(
            self._settings.url,
            {"token": token, "token_type_hint": "access_token"},
            self._headers,
            allow_private=self._settings.allow_private,
        )
        if not isinstance(said, dict):
            raise ProviderError("its answer is no JSON object")
        return self._vouched(said)

    def _vouched(self, said: dict[str, Any]) -> Vouched:
        if said.get("active") is not True:
            raise TokenRefusedError("it is not active")
        check_claims(said, self._settings, self._clock())
        expires_at = said.get("exp")
        # a client's own token need not name a person
        subject = subject_of(said, "sub", "username", "client_id")
        return Vouched(subject, None if expires_at is None else float(expires_at))
