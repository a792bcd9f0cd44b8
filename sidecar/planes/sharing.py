"""The handles that an operator made for peers: minting, listing, revoking. In memory only."""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sidecar.errors import RefusedError, refusal
from sidecar.planes import handles, paths
from sidecar.planes.handles import Claims, HandleKeys, handle_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecar.model import Capsule, PeerFilesExport
    from sidecar.planes.audit import Audit
    from sidecar.planes.reads import Reads

MOST: Final = 10_000
"""Handles of one session that are remembered at once, until they expire."""
LONGEST_AUDIENCE: Final = 512

_NO_PLANE: Final = refusal(
    "no_peer_plane", "This capsule shares no files with peers: its manifest has no exports.peer_files."
)
_NO_AUDIENCE: Final = refusal(
    "missing_audience", "Say who may use the handle: the fetching capsule's <name>@<host:port>."
)
_BAD_AUDIENCE: Final = refusal(
    "bad_request",
    "The audience must read <name>@<host:port>, such as reader@localhost:24001, in at most 512 characters.",
)
_BAD_TTL: Final = refusal("bad_request", "The time to live must be at least one second.")
_TOO_MANY: Final = refusal(
    "unavailable", f"This session has {MOST} handles that have not expired; try again when some have."
)
_UNKNOWN: Final = refusal("not_found", "There is no handle with this id, or it has expired.")
_REVOKED: Final = refusal("not_found", "This handle is revoked already.")
_AUDIENCE: Final = re.compile(r"[^\x00-\x1f\x7f]+@[^\s@]+:[0-9]{1,5}\Z")


@dataclass(frozen=True, slots=True)
class Shared:
    """One handle as it is listed: never the token. Times are Unix milliseconds."""

    handle_id: str
    path: str
    audience: str
    minted_at_ms: int
    expires_at_ms: int
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class Minted:
    """A new handle: the only place that ever holds the token."""

    token: str
    shared: Shared


class Sharing:
    """Keys and handles by session: both go when the session is closed, and with the process.

    `now` is the clock in Unix seconds. One event loop.
    """

    def __init__(self, reads: Reads, audit: Audit, now: Callable[[], float] = time.time) -> None:
        self.keys = HandleKeys()
        self._reads = reads
        self._audit = audit
        self._now = now
        self._of: dict[str, dict[str, Shared]] = {}

    def now_ms(self) -> int:
        """Return the time."""
        return int(self._now() * 1000)

    async def mint(self, capsule: Capsule, path: str, audience: str, ttl: int | None = None) -> Minted:
        """Make a handle for one regular file beneath the peer root and one audience.

        `path` is taken as it is written (nothing is decoded). `ttl` is in seconds, cut to the export's `max_ttl`,
        which is also the default. Raises RefusedError, with the codes of a read where the path is refused.
        """
        audience = handles.audience_of(audience)
        try:
            minted = await self._mint(capsule, path, audience, ttl)
        except RefusedError as error:
            self._audit.not_minted(capsule.id, path, audience, error.refusal.code)
            raise
        shared = minted.shared
        self._audit.minted(capsule.id, shared.handle_id, path, audience, shared.expires_at_ms)
        return minted

    async def _mint(self, capsule: Capsule, path: str, audience: str, ttl: int | None) -> Minted:
        export = peer_files(capsule)
        if not audience:
            raise RefusedError(_NO_AUDIENCE)
        if len(audience) > LONGEST_AUDIENCE or not _AUDIENCE.match(audience):
            raise RefusedError(_BAD_AUDIENCE)
        if ttl is not None and ttl < 1:
            raise RefusedError(_BAD_TTL)
        session = capsule.session_id
        if len(self._alive(session)) >= MOST:
            raise RefusedError(_TOO_MANY)
        checked = paths.checked(path.encode(errors="surrogatepass"))
        await self._reads.check(capsule, export.root, checked, export.max_bytes)
        lifetime = export.max_ttl if ttl is None else min(ttl, export.max_ttl)
        now = self.now_ms()
        claims = Claims(session, checked.decode(), now + lifetime * 1000, secrets.token_hex(16))
        token = handles.mint(self.keys.of(session), claims, audience)
        shared = Shared(handle_id(token), claims.path, audience, now, claims.expires_at_ms)
        self._of.setdefault(session, {})[shared.handle_id] = shared
        return Minted(token, shared)

    def listed(self, capsule: Capsule) -> Sequence[Shared]:
        """Return the handles of a capsule's session that have not expired, oldest first. Raises RefusedError."""
        peer_files(capsule)
        return tuple(self._alive(capsule.session_id).values())

    def revoke(self, capsule: Capsule, wanted: str) -> Shared:
        """End a handle before its time. Raises RefusedError `not_found`, also for one that was ended before."""
        peer_files(capsule)
        known = self._alive(capsule.session_id)
        if wanted not in known:
            raise RefusedError(_UNKNOWN)
        if known[wanted].revoked:
            raise RefusedError(_REVOKED)
        known[wanted] = replace(known[wanted], revoked=True)
        self._audit.revoked(capsule.id, wanted)
        return known[wanted]

    def is_revoked(self, session_id: str, wanted: str) -> bool:
        """Whether a handle was ended before its time."""
        found = self._of.get(session_id, {}).get(wanted)
        return found is not None and found.revoked

    def drop(self, session_id: str) -> None:
        """Forget a closed session: its handles are void."""
        self.keys.drop(session_id)
        self._of.pop(session_id, None)

    def _alive(self, session_id: str) -> dict[str, Shared]:
        """Return the handles of a session, those that have expired let go of."""
        known, now = self._of.get(session_id, {}), self.now_ms()
        for one in [one for one in known.values() if one.expires_at_ms <= now]:
            del known[one.handle_id]
        if not known:
            self._of.pop(session_id, None)
        return known


def peer_files(capsule: Capsule) -> PeerFilesExport:
    """Return the export that handles give files of. Raises RefusedError `no_peer_plane`."""
    export = capsule.manifest.peer_files
    if export is None:
        raise RefusedError(_NO_PLANE)
    return export
