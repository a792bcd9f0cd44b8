"""The operator's plane: `GET /resources/files` lists an export, `GET /resources/files/<path>` reads from it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from sidecar.errors import RefusedError, refusal
from sidecar.model import Answer, Containment, FilesExport
from sidecar.planes import listing, paths, reading
from sidecar.planes.beneath import Rules
from sidecar.web.answers import JSON, etag_matches

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.model import Capsule
    from sidecar.planes.beneath import Resolver
    from sidecar.planes.pool import Pool
    from sidecar.planes.reading import Content, Memory

READS: Final = 4
LISTINGS: Final = 1
"""How many of each may be in the threads at once for one capsule: listings take long, and the second finds the hashes of the first."""

_NO_PLANE: Final = refusal(
    "no_resource_plane", "This capsule exports no files: its manifest has no exports.files."
)
_OCTETS: Final = ("content-type", "application/octet-stream")


def rules_of(capsule: Capsule) -> Rules:
    """Return what may lie on the way to a file: `scoped` follows no link (murmur reference, containment)."""
    return Rules(links=capsule.containment is not Containment.SCOPED, mounts=capsule.settings.cross_mounts)


def tree_of(capsule: Capsule, root: str) -> reading.Tree:
    """Return an export root of a capsule as the disk sees it."""
    return reading.Tree(capsule.workspace, root.encode(errors="surrogateescape"), rules_of(capsule))


def file_answer(content: Content, if_none_match: str | None, *facts: tuple[str, str]) -> Answer:
    """Make the answer of a read: 200 with the bytes, or 304 with the same validators (RFC 9110 section 13.1.2)."""
    etag = f'"sha256:{content.sha256}"'
    headers = (("etag", etag), ("x-murmur-mtime-ms", str(content.mtime_ms)), *facts)
    if etag_matches(if_none_match, etag):
        return Answer(304, headers)
    return Answer(200, (_OCTETS, *headers), content.data)


def visible(text: str) -> str:
    """Return a text that can stand in a header: what cannot is shown by its escape."""
    if text.isascii() and text.isprintable():
        return text
    text = text.encode(errors="backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True, slots=True)
class FilesPlane:
    """Lists and reads `exports.files`. Pool, resolver and memory are shared with the other plane, and the owner's."""

    pool: Pool
    resolver: Resolver
    memory: Memory

    async def list(self, capsule: Capsule, generation: int) -> Answer:
        """Answer a listing. `generation` counts the session's ended tasks. Raises RefusedError."""
        export = _export(capsule)
        stop = threading.Event()
        try:
            body = await self.pool.run(
                ("list", capsule.session_id),
                LISTINGS,
                self._listing,
                capsule,
                export,
                generation,
                stop.is_set,
            )
        finally:  # a caller that left: the thread ends after the file at hand
            stop.set()
        return Answer(200, (JSON,), body)

    async def read(
        self, capsule: Capsule, raw_rest: str, generation: int, if_none_match: str | None = None
    ) -> Answer:
        """Answer a read. `raw_rest` is what follows `/resources/files/` in the raw target, without the query.

        Raises RefusedError.
        """
        export = _export(capsule)
        content = await self.pool.run(
            ("read", capsule.session_id),
            READS,
            reading.read,
            self.resolver,
            tree_of(capsule, export.root),
            paths.from_target(raw_rest),
            export.max_bytes,
            self.memory,
        )
        return file_answer(
            content,
            if_none_match,
            ("x-murmur-generation", str(generation)),
            ("x-murmur-containment", capsule.containment.value),
            ("x-murmur-export-root", visible(export.root)),
        )

    def _listing(
        self, capsule: Capsule, export: FilesExport, generation: int, stopped: Callable[[], bool]
    ) -> bytes:
        """Build the body in the thread, keys in the order of the reference."""
        return orjson.dumps(
            {
                "root": export.root,
                "mode": "read-only",
                "max_bytes": export.max_bytes,
                "generation": generation,
                "containment_achieved": capsule.containment.value,
                "entries": listing.entries(
                    self.resolver, tree_of(capsule, export.root), self.memory, stopped
                ),
            }
        )


def _export(capsule: Capsule) -> FilesExport:
    export = capsule.manifest.files
    if export is None:
        raise RefusedError(_NO_PLANE)
    return export
