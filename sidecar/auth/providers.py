"""The providers that are asked, each made when it is asked first, and what the log says of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import structlog

from sidecar.auth.vouching import ProviderError, TokenRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecar.auth.fetch import Fetcher
    from sidecar.auth.vouching import Provider, Vouched
    from sidecar.model import ProviderSettings

QUIET: Final = 10.0
"""Seconds for which the log does not repeat what it said of a provider."""

log = structlog.get_logger()


class Providers:
    """Asks providers about tokens. `clock` is in Unix seconds, `monotonic` in seconds that never go back."""

    def __init__(
        self,
        fetcher: Fetcher | None = None,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetcher = fetcher
        self._clock = clock
        self._monotonic = monotonic
        self._made: dict[ProviderSettings, Provider] = {}
        self._left: list[Provider] = []
        self._said: dict[tuple[ProviderSettings, str], tuple[float, int]] = {}

    async def aclose(self) -> None:
        """End everything that is under way."""
        for provider in (*self._made.values(), *self._left):
            await provider.aclose()
        self._made.clear()
        self._left.clear()
        if self._fetcher is not None:
            await self._fetcher.aclose()

    def keep(self, settings: Sequence[ProviderSettings]) -> None:
        """Keep nothing of providers that are none of these; what is being asked of them goes on to its end."""
        gone = [self._made.pop(one) for one in tuple(self._made) if one not in settings]
        self._left = [one for one in (*self._left, *gone) if one.busy]
        self._said = {key: said for key, said in self._said.items() if key[0] in settings}

    async def check(
        self, settings: Sequence[ProviderSettings], token: str
    ) -> tuple[ProviderSettings, Vouched] | None:
        """Return the first of these that vouches for a token, and what it says; None where none does.

        One that fails is logged and passed over.
        """
        for one in settings:
            if (vouched := await self.ask(one, token)) is not None:
                return one, vouched
        return None

    async def ask(self, settings: ProviderSettings, token: str) -> Vouched | None:
        """Return what a provider says of a token, None where it does not vouch for it."""
        try:
            return await self._provider(settings).check(token)
        except ProviderError as error:
            self._say(settings, "provider_failed", str(error))
        except TokenRefusedError as error:
            self._say(settings, "token_refused", str(error))
        return None

    def _provider(self, settings: ProviderSettings) -> Provider:
        if settings not in self._made:
            self._made[settings] = self._make(settings)
        return self._made[settings]

    def _make(self, settings: ProviderSettings) -> Provider:
        if self._fetcher is None:
            from sidecar.auth.fetch import Fetcher  # noqa: PLC0415 - a client, which few have a use for

            self._fetcher = Fetcher()
        if settings.kind == "oidc":
            from sidecar.auth.oidc import Oidc  # noqa: PLC0415 - what it needs is big

            return Oidc(settings, self._fetcher, clock=self._clock, monotonic=self._monotonic)
        from sidecar.auth.introspection import Introspection  # noqa: PLC0415 - as above

        return Introspection(settings, self._fetcher, clock=self._clock, monotonic=self._monotonic)

    def _say(self, settings: ProviderSettings, event: str, reason: str) -> None:
        now = self._monotonic()
        until, unsaid = self._said.get((settings, reason), (float("-inf"), 0))
        if now < until:
            self._said[settings, reason] = until, unsaid + 1
            return
        self._said[settings, reason] = now + QUIET, 0
        parts = urlsplit(settings.url)
        say = log.warning if event == "provider_failed" else log.info
        more = {"not_logged": unsaid} if unsaid else {}
        say(event, provider=settings.kind, at=f"{parts.scheme}://{parts.netloc}", reason=reason, **more)
