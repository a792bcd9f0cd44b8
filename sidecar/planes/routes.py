"""Everything under `/resources/` on a capsule's port."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from sidecar.errors import RefusedError, refusal
from sidecar.planes.audit import Audit
from sidecar.planes.beneath import Openat2, detect
from sidecar.planes.bodies import Places
from sidecar.planes.cached import Cached
from sidecar.planes.files import FilesPlane
from sidecar.planes.memory import Memory
from sidecar.planes.peer import PeerPlane
from sidecar.planes.pool import Pool
from sidecar.planes.reads import Reads
from sidecar.planes.sharing import Sharing
from sidecar.planes.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.model import Answer, Capsule
    from sidecar.planes.beneath import Resolver
    from sidecar.web.answers import Streamed

PREFIX: Final = "/resources/"

_PLANES: Final = (("/resources/files", "files"), ("/resources/peer", "peer_files"))
_METHOD: Final = refusal("method_not_allowed", "Resources are read-only: use GET.", ("allow", "GET"))
_UNKNOWN: Final = refusal(
    "not_found", "There is no such resource: there are /resources/files and /resources/peer/<handle>."
)


def asked(method: str, raw_target: str) -> tuple[str, str]:
    """Return which plane a request below `/resources/` is for, and what follows: a path, a handle, "" for a listing.

    Raises RefusedError: the method comes first, whatever is asked for (murmur reference, resource planes).
    """
    if method != "GET":
        raise RefusedError(_METHOD)
    path, _, _ = raw_target.partition("?")
    for prefix, plane in _PLANES:
        if path == prefix or path.startswith(prefix + "/"):
            return plane, path[len(prefix) + 1 :]
    raise RefusedError(_UNKNOWN)


class Planes:
    """The planes of all capsules: one resolver, one set of threads, one memory of hashes, one book of handles.

    `now` is the clock for handles, in Unix seconds. All methods belong to one event loop; `aclose` ends the threads.
    """

    def __init__(
        self,
        *,
        resolver: Resolver | None = None,
        pool: Pool | None = None,
        memory: Memory | None = None,
        audit: Audit | None = None,
        places: Places | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._pool = pool or Pool()
        self.resolver = resolver or detect()
        self.audit = audit or Audit()
        cached = Cached() if isinstance(self.resolver, Openat2) else None
        reads = Reads(self._pool, self.resolver, memory or Memory(), places or Places(), Turns(), cached)
        self.sharing = Sharing(reads, self.audit, now)
        self._files = FilesPlane(reads, self.audit)
        self._peer = PeerPlane(reads, self.sharing, self.audit)

    async def answer(
        self,
        capsule: Capsule,
        method: str,
        raw_target: str,
        header: Callable[[str], str | None],
        generation: int,
    ) -> Answer | Streamed:
        """Answer a request whose target begins with `/resources/` (murmur reference, resource planes).

        `raw_target` is the request target in origin form as it was received, not decoded, `header` looks up
        a request header by its lower-case name, `generation` counts the session's ended tasks.
        Raises RefusedError.
        """
        plane, rest = asked(method, raw_target)
        if plane == "peer_files":
            return await self._peer.redeem(
                capsule,
                rest,
                generation,
                audience=header("x-murmur-audience"),
                if_none_match=header("if-none-match"),
            )
        if rest:
            return await self._files.read(capsule, rest, generation, header("if-none-match"))
        return await self._files.list(capsule, generation, header("if-none-match"))

    def session_closed(self, session_id: str) -> None:
        """Forget what belongs to a session that is over: its handles are void from now on."""
        self.sharing.drop(session_id)

    async def aclose(self, within: float = 2.0) -> int:
        """End the threads; return how many were still stuck in the file system `within` seconds later."""
        self.audit.close()
        return await self._pool.aclose(within)
