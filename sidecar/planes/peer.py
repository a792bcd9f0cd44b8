"""The peers' plane: `GET /resources/peer/<handle>` gives one file to who holds a handle for it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sidecar.errors import RefusedError, refusal
from sidecar.planes import handles, paths, reading
from sidecar.planes.files import READS, file_answer, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.model import Answer, Capsule
    from sidecar.planes.beneath import Resolver
    from sidecar.planes.handles import HandleKeys
    from sidecar.planes.pool import Pool
    from sidecar.planes.reading import Memory

_NO_PLANE: Final = refusal(
    "no_peer_plane", "This capsule shares no files with peers: its manifest has no exports.peer_files."
)
_NO_HANDLE: Final = refusal("not_found", "A peer handle must follow: /resources/peer/<handle>.")
_NO_AUDIENCE: Final = refusal(
    "missing_audience",
    "The x-murmur-audience header is missing: send the fetching capsule's <name>@<host:port>.",
)


@dataclass(frozen=True, slots=True)
class PeerPlane:
    """Redeems handles for `exports.peer_files`. `now` is the clock, in Unix seconds."""

    pool: Pool
    resolver: Resolver
    memory: Memory
    keys: HandleKeys
    now: Callable[[], float] = time.time

    async def redeem(
        self,
        capsule: Capsule,
        token: str,
        generation: int,
        *,
        audience: str | None,
        if_none_match: str | None = None,
    ) -> Answer:
        """Answer a handle with its file. `token` is what follows `/resources/peer/` in the raw target, without the query.

        The checks come in the reference's order, and no answer repeats the token. Raises RefusedError.
        """
        if not token:
            raise RefusedError(_NO_HANDLE)
        export = capsule.manifest.peer_files
        if export is None:
            raise RefusedError(_NO_PLANE)
        handle = handles.parse(token)
        audience = handles.audience_of(audience or "")
        if not audience:
            raise RefusedError(_NO_AUDIENCE)
        session = capsule.session_id
        claims = handles.verify(
            handle, self.keys.of(session), audience, issuer=session, now_ms=int(self.now() * 1000)
        )
        content = await self.pool.run(
            ("read", session),
            READS,
            reading.read,
            self.resolver,
            tree_of(capsule, export.root),
            paths.checked(claims.path.encode(errors="surrogatepass")),
            export.max_bytes,
            self.memory,
        )
        return file_answer(
            content,
            if_none_match,
            ("x-murmur-generation", str(generation)),
            ("x-murmur-containment", capsule.containment.value),
            ("x-murmur-handle-id", handles.handle_id(token)),
        )
