"""The operator's plane: `GET /resources/files` lists an export, `GET /resources/files/<path>` reads from it."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import orjson

from sidecar.errors import RefusedError, refusal
from sidecar.model import Answer
from sidecar.planes import listing, paths
from sidecar.planes.reads import tree
from sidecar.web.answers import JSON, Streamed, etag_matches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecar.model import Capsule, FilesExport
    from sidecar.planes.audit import Audit
    from sidecar.planes.reads import Reads

LISTINGS: Final = 1
"""How many listings may be in the threads at once for one capsule: they take long, and the second finds the hashes of the first."""
SMALL_LISTING: Final = 256 * 1024
"""Bytes up to which a listing is held by each client's answer; clients share bigger ones."""

_NO_PLANE: Final = refusal(
    "no_resource_plane", "This capsule exports no files: its manifest has no exports.files."
)


@lru_cache(maxsize=1024)
def visible(text: str) -> str:
    """Return a text that can stand in a header: what cannot is shown by its escape."""
    if text.isascii() and text.isprintable():
        return text
    text = text.encode(errors="backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True, slots=True)
class FilesPlane:
    """Lists and reads `exports.files`."""

    reads: Reads
    audit: Audit

    async def list(
        self, capsule: Capsule, generation: int, if_none_match: str | None = None
    ) -> Answer | Streamed:
        """Answer a listing. `generation` counts the session's ended tasks. Raises RefusedError.

        Its etag is that of the whole body, so that an answer of 304 means: no file and no fact has changed.
        """
        try:
            answer, size, etag = await self._list(capsule, generation, if_none_match)
        except RefusedError as error:
            self.audit.files(capsule.id, None, error.refusal.code)
            raise
        except asyncio.CancelledError:
            self.audit.files(capsule.id, None, "cut")
            raise
        self.audit.files(capsule.id, None, "ok" if answer.status == 200 else "not_modified", size, etag)  # noqa: PLR2004 -- the status
        return answer

    async def _list(
        self, capsule: Capsule, generation: int, if_none_match: str | None
    ) -> tuple[Answer | Streamed, int, str]:
        reads, export = self.reads, files_export(capsule)
        stop = threading.Event()
        try:
            pieces, length, digest = await reads.pool.run(
                ("list", capsule.session_id), LISTINGS, self._body, capsule, export, generation, stop.is_set
            )
        finally:  # a caller that left: the thread ends after the file at hand
            stop.set()
        etag = f'"sha256:{digest.hex()}"'
        if etag_matches(if_none_match, etag):
            return Answer(304, (("etag", etag),)), 0, etag
        headers = (JSON, ("etag", etag))
        if length > SMALL_LISTING:
            return Streamed(200, headers, reads.places.share(digest, pieces, length)), length, etag
        return Answer(200, headers, b"".join(pieces)), length, etag

    async def read(
        self, capsule: Capsule, raw_rest: str, generation: int, if_none_match: str | None = None
    ) -> Answer | Streamed:
        """Answer a read. `raw_rest` is what follows `/resources/files/` in the raw target, without the query.

        Raises RefusedError.
        """

        def note(outcome: str, size: int, etag: str) -> None:
            self.audit.files(capsule.id, raw_rest, outcome, size, etag)

        try:
            export = files_export(capsule)
            return await self.reads.answer(
                capsule,
                export.root,
                paths.from_target(raw_rest),
                export.max_bytes,
                if_none_match=if_none_match,
                facts=(
                    ("x-murmur-generation", str(generation)),
                    ("x-murmur-containment", capsule.containment.value),
                    ("x-murmur-export-root", visible(export.root)),
                ),
                note=note,
            )
        except RefusedError as error:
            self.audit.files(capsule.id, raw_rest, error.refusal.code)
            raise
        except asyncio.CancelledError:
            self.audit.files(capsule.id, raw_rest, "cut")
            raise

    def _body(
        self, capsule: Capsule, export: FilesExport, generation: int, stopped: Callable[[], bool]
    ) -> tuple[Sequence[bytes], int, bytes]:
        """Build the body in the thread, keys in the order of the reference: its pieces, its length, its SHA-256."""
        head = orjson.dumps(
            {
                "root": export.root,
                "mode": "read-only",
                "max_bytes": export.max_bytes,
                "generation": generation,
                "containment_achieved": capsule.containment.value,
                "entries": [],
            }
        ).removesuffix(b"]}")
        pieces = [head]
        reads = self.reads
        where = tree(capsule, export.root)
        pieces += listing.pieces(reads.resolver, where, reads.memory, stopped)
        pieces.append(b"]}")
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        return pieces, sum(map(len, pieces)), digest.digest()


def files_export(capsule: Capsule) -> FilesExport:
    """Return the export that is listed and read. Raises RefusedError `no_resource_plane`."""
    export = capsule.manifest.files
    if export is None:
        raise RefusedError(_NO_PLANE)
    return export
