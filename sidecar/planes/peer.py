"""The peers' plane: `GET /resources/peer/<handle>` gives one file to who holds a handle for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sidecar.errors import RefusedError, refusal
from sidecar.planes import handles, paths
from sidecar.planes.sharing import peer_files

if TYPE_CHECKING:
    from sidecar.model import Answer, Capsule
    from sidecar.planes.audit import Audit
    from sidecar.planes.reads import Reads
    from sidecar.planes.sharing import Sharing
    from sidecar.web.answers import Streamed

_NO_HANDLE: Final = refusal("not_found", "A peer handle must follow: /resources/peer/<handle>.")
_NO_AUDIENCE: Final = refusal(
    "missing_audience",
    "The x-murmur-audience header is missing: send the fetching capsule's <name>@<host:port>.",
)


@dataclass(frozen=True, slots=True)
class PeerPlane:
    """Redeems handles for `exports.peer_files`."""

    reads: Reads
    sharing: Sharing
    audit: Audit

    async def redeem(
        self,
        capsule: Capsule,
        token: str,
        generation: int,
        *,
        audience: str | None,
        if_none_match: str | None = None,
    ) -> Answer | Streamed:
        """Answer a handle with its file. `token` is what follows `/resources/peer/` in the raw target, without the query.

        The checks come in the reference's order, and no answer repeats the token. Raises RefusedError.
        """
        if not token:
            self.audit.redeemed(capsule.id, None, _NO_HANDLE.code)
            raise RefusedError(_NO_HANDLE)
        handle_id = handles.handle_id(token)

        def note(outcome: str, size: int = 0, etag: str | None = None) -> None:
            self.audit.redeemed(capsule.id, handle_id, outcome, size, etag)

        try:
            export = peer_files(capsule)
            claims = self._claims(capsule.session_id, token, handle_id, audience)
            return await self.reads.answer(
                capsule,
                export.root,
                paths.checked(claims.path.encode(errors="surrogatepass")),
                export.max_bytes,
                if_none_match=if_none_match,
                facts=(
                    ("x-murmur-generation", str(generation)),
                    ("x-murmur-containment", capsule.containment.value),
                    ("x-murmur-handle-id", handle_id),
                ),
                note=note,
            )
        except RefusedError as error:
            note(error.refusal.code)
            raise
        except asyncio.CancelledError:
            note("cut")
            raise

    def _claims(self, session: str, token: str, handle_id: str, audience: str | None) -> handles.Claims:
        """Return what a handle says, once all of it holds."""
        handle = handles.parse(token)
        audience = handles.audience_of(audience or "")
        if not audience:
            raise RefusedError(_NO_AUDIENCE)
        sharing = self.sharing
        claims = handles.verify(
            handle, sharing.keys.of(session), audience, issuer=session, now_ms=sharing.now_ms()
        )
        if sharing.is_revoked(session, handle_id):
            raise RefusedError(handles.EXPIRED)
        return claims
