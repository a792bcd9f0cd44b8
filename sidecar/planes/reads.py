"""What both planes do with a file that was asked for: read it, and answer with it whole or piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from sidecar.model import Answer, Containment
from sidecar.planes import reading
from sidecar.planes.beneath import Rules
from sidecar.planes.bodies import FileBody, Lane, hash_of
from sidecar.planes.opened import Opened
from sidecar.web.answers import Streamed, etag_matches

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.model import Capsule
    from sidecar.planes.beneath import Resolver
    from sidecar.planes.bodies import Places
    from sidecar.planes.cached import Cached
    from sidecar.planes.memory import Memory
    from sidecar.planes.pool import Pool
    from sidecar.planes.turns import Turns

    Note = Callable[[str, int, str], None]
    """Is told the outcome of a read (`ok`, `not_modified`, `cut`), how many bytes were sent, and the etag."""

READS: Final = 4
"""How many reads may be in the threads at once for one capsule."""

_OCTETS: Final = ("content-type", "application/octet-stream")


@lru_cache(maxsize=1024)
def tree_of(workspace: str, root: str, containment: Containment, *, mounts: bool) -> reading.Tree:
    """Return an export root as the disk sees it: `scoped` follows no link (murmur reference, containment)."""
    rules = Rules(links=containment is not Containment.SCOPED, mounts=mounts)
    return reading.Tree(workspace, root.encode(errors="surrogateescape"), rules)


def tree(capsule: Capsule, root: str) -> reading.Tree:
    """Return an export root of a capsule as the disk sees it."""
    return tree_of(capsule.workspace, root, capsule.containment, mounts=capsule.settings.cross_mounts)


@dataclass(frozen=True, slots=True)
class Reads:
    """Reads files for both planes. Pool, resolver, memory, places and turns are the owner's.

    `cached` is the quick way for small files, None where there is none.
    """

    pool: Pool
    resolver: Resolver
    memory: Memory
    places: Places
    turns: Turns
    cached: Cached | None = None

    async def answer(
        self,
        capsule: Capsule,
        root: str,
        path: bytes,
        max_bytes: int,
        *,
        if_none_match: str | None,
        facts: tuple[tuple[str, str], ...],
        note: Note,
    ) -> Answer | Streamed:
        """Answer with the file at `path` beneath an export root: 200, or 304 with the same validators.

        `facts` are further headers. `note` is called once, when the answer is made or its body is closed.
        Raises RefusedError.
        """
        lane = ("read", capsule.session_id)
        where = tree(capsule, root)
        cached = self.cached
        content: reading.Content | Opened | None = None
        if cached is not None:
            content = cached.read(where, path, max_bytes)
        if content is None:
            learn = cached.learn if cached is not None else None
            content = await self.pool.run(
                lane, READS, reading.read, self.resolver, where, path, max_bytes, self.memory, learn
            )
        if isinstance(content, Opened):
            return await self._big(
                content, Lane(self.pool, lane, READS), max_bytes, if_none_match, facts, note
            )
        etag = f'"sha256:{content.sha256}"'
        headers = (("etag", etag), ("x-murmur-mtime-ms", str(content.mtime_ms)), *facts)
        if if_none_match is not None and etag_matches(if_none_match, etag):
            note("not_modified", 0, etag)
            return Answer(304, headers)
        note("ok", len(content.data), etag)
        return Answer(200, (_OCTETS, *headers), content.data)

    async def check(self, capsule: Capsule, root: str, path: bytes, max_bytes: int) -> None:
        """Check that a file could be read now. Raises RefusedError where it could not."""
        lane = ("read", capsule.session_id)
        await self.pool.run(lane, READS, reading.look, self.resolver, tree(capsule, root), path, max_bytes)

    async def _big(
        self,
        opened: Opened,
        lane: Lane,
        max_bytes: int,
        if_none_match: str | None,
        facts: tuple[tuple[str, str], ...],
        note: Note,
    ) -> Answer | Streamed:
        kept = False
        try:
            give_back = self.places.take(lane.key)
            try:
                known = self.memory.find(opened.facts)
                digest = known or await self._hash(opened, max_bytes, lane)
                etag = f'"sha256:{digest.hex()}"'
                headers = (("etag", etag), ("x-murmur-mtime-ms", str(opened.mtime_ms)), *facts)
                if etag_matches(if_none_match, etag):
                    note("not_modified", 0, etag)
                    return Answer(304, headers)
                kept = True
            finally:
                if not kept:
                    give_back()
        finally:
            if not kept:
                opened.close()

        def closed(sent: int, whole: bool) -> None:  # noqa: FBT001 -- called by one place, in this order
            give_back()
            note("ok" if whole else "cut", sent, etag)

        return Streamed(200, (_OCTETS, *headers), FileBody(opened, digest, lane, self.memory, closed))

    async def _hash(self, opened: Opened, max_bytes: int, lane: Lane) -> bytes:
        async with self.turns.at(opened.facts) as moved:
            return await hash_of(opened, max_bytes, lane, self.memory, moved)
