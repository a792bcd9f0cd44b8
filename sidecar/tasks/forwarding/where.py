"""Where a capsule's work is done and what is spoken there: a configured URL or a live capsule of this host, and its card."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from yarl import URL

from sidecar.dialects import a2a03, a2a10
from sidecar.dialects.agent_card import MurmurCard, read_card
from sidecar.dialects.reading import UnreadableError
from sidecar.tasks.forwarding.caller import Caller, client_session, status_trouble
from sidecar.tasks.forwarding.trouble import AwayError, TroubleError, WrongError

if TYPE_CHECKING:
    import aiohttp

    from sidecar.dialects.agent import A2a
    from sidecar.model import ForwardSettings
    from sidecar.tasks.backends.live import Records
    from sidecar.tasks.forwarding.caller import Patience

CARD: Final = "/.well-known/agent-card.json"
OLD_CARD: Final = "/.well-known/agent.json"
"""What agents before A2A 0.3 call it."""

_VERSIONS: Final[dict[str, A2a]] = {"0.3": a2a03, "1.0": a2a10}


@dataclass(frozen=True, slots=True)
class Door:
    """A door elsewhere, as its card showed it last. `url` is where calls go.

    A murmur door has a `session` and no `a2a`; an A2A agent the other way round, and may not stream.
    """

    caller: Caller
    url: URL
    session: str | None = None
    planes: tuple[str, ...] = ()
    a2a: A2a | None = None
    streaming: bool = True

    @property
    def where(self) -> str:
        """How messages name it."""
        return self.caller.where

    @property
    def kind(self) -> str:
        """What it speaks: murmur, A2A 0.3 or A2A 1.0."""
        return "murmur" if self.a2a is None else f"A2A {self.a2a.VERSION}"


class Whereabouts:
    """Finds the door of one capsule, and keeps the connections to it."""

    def __init__(
        self, settings: ForwardSettings, directory: str, records: Records, patience: Patience
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._records = records
        self._patience = patience
        self._session: aiohttp.ClientSession | None = None

    @property
    def named(self) -> str:
        """How messages name the place while it is not found."""
        if self._settings.url is None:
            return "the live capsule on this host"
        return str(URL(self._settings.url).origin())

    async def look(self) -> Door:
        """Return the door as it is now. Raises AwayError where there is none, WrongError where it will not do."""
        if self._settings.url is not None:
            return await self._at(self._caller(self._settings.url))
        found = await asyncio.to_thread(self._records.belonging_to, self._directory)
        trouble: TroubleError = AwayError("no live capsule of this manifest runs on this host", sent=False)
        for record in found:
            try:
                door = await self._at(self._caller(record.url))
            except TroubleError as error:
                trouble = error
                continue
            if door.session == record.session_id:
                return door
            trouble = AwayError(f"{door.where} is another session than its record says", sent=False)
        raise trouble

    async def aclose(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    def _caller(self, base: str) -> Caller:
        if self._session is None:
            self._session = client_session(self._patience, loopback=self._settings.url is None)
        return Caller(base, self._session, self._settings.token, self._patience)

    async def _at(self, caller: Caller) -> Door:
        try:
            card = read_card(await self._card(caller))
        except UnreadableError as error:
            raise WrongError(f"{caller.where} cannot be used: {error}") from None
        prefix = "" if _names_a_card(caller) else caller.base.raw_path.rstrip("/")
        if isinstance(card, MurmurCard):
            return Door(caller, caller.at(f"{prefix}/"), card.session_id, card.planes)
        # The configured origin is kept, whatever host the card names: nothing of ours goes anywhere else.
        target = urlsplit(card.url)
        path = (target.path or "/") + (f"?{target.query}" if target.query else "")
        return Door(caller, caller.at(path), a2a=_VERSIONS[card.version], streaming=card.streaming)

    async def _card(self, caller: Caller) -> bytes:
        if _names_a_card(caller):
            paths = [caller.base.raw_path]
        else:
            prefix = caller.base.raw_path.rstrip("/")
            paths = [f"{prefix}{CARD}", f"{prefix}{OLD_CARD}"]
        for path in paths:
            fetched = await caller.get(caller.at(path))
            if fetched.status == HTTPStatus.OK:
                return fetched.body
            if fetched.status != HTTPStatus.NOT_FOUND:
                raise status_trouble(fetched.status, caller.where)
        raise WrongError(f"{caller.where} has no agent card")


def _names_a_card(caller: Caller) -> bool:
    return caller.base.raw_path.endswith(".json")
