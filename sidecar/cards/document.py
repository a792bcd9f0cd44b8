"""A card as it is served: bytes and validators, built once per change."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Final

from sidecar.model import Answer
from sidecar.web.answers import JSON, etag_matches, unmodified_since, wire

if TYPE_CHECKING:
    from sidecar.web.answers import Wire

CACHE_CONTROL: Final = "public, max-age=10"


@dataclass(frozen=True, slots=True)
class CardDocument:
    """The two answers that a card has: `whole`, and `unchanged` (304) for those who hold it already.

    What they hold they name by `etag`, or by when it was modified, in whole Unix seconds.
    """

    etag: str
    modified: int | None
    whole: Wire
    unchanged: Wire

    def answer(self, if_none_match: str | None, if_modified_since: str | None = None) -> Wire:
        """Return the answer to a `GET` or `HEAD` with these conditions (RFC 9110 section 13.2.2)."""
        if if_none_match is not None:
            known = etag_matches(if_none_match, self.etag)
        else:
            known = self.modified is not None and unmodified_since(if_modified_since, self.modified)
        return self.unchanged if known else self.whole


def document(body: bytes, changed_at: float | None, *, cache_control: str = CACHE_CONTROL) -> CardDocument:
    """Make the document of a card's JSON bytes; `changed_at` (Unix seconds) is its `Last-Modified`.

    Where that is None, as with cards that change with more than their capsule, the entity tag alone is compared.
    """
    # a copy: what the serializer returns keeps all the room that it was written in, many times a card's size
    body = bytes(memoryview(body))
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    validators: tuple[tuple[str, str], ...] = (("etag", etag), ("cache-control", cache_control))
    if changed_at is not None:
        validators += (("last-modified", formatdate(int(changed_at), usegmt=True)),)
    return CardDocument(
        etag=etag,
        modified=None if changed_at is None else int(changed_at),
        whole=wire(Answer(200, (JSON, *validators), body)),
        unchanged=wire(Answer(304, validators)),
    )
