"""A card as it is served: bytes and validators, built once per change."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from email.utils import formatdate
from typing import TYPE_CHECKING, Final

from sidecar.model import Answer
from sidecar.web.answers import JSON, etag_matches, wire

if TYPE_CHECKING:
    from sidecar.web.answers import Wire

CACHE_CONTROL: Final = "public, max-age=10"


@dataclass(frozen=True, slots=True)
class CardDocument:
    """The two answers that a card has: `whole`, and `unchanged` (304) for those who hold `etag` already."""

    etag: str
    whole: Wire
    unchanged: Wire

    def answer(self, if_none_match: str | None) -> Wire:
        """Return the answer to a `GET` or `HEAD` with this `If-None-Match` (RFC 9110 section 13.1.2)."""
        return self.unchanged if etag_matches(if_none_match, self.etag) else self.whole


def document(body: bytes, changed_at: float) -> CardDocument:
    """Make the document of a card's JSON bytes; `changed_at` (Unix seconds) is its `Last-Modified`."""
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    validators = (
        ("etag", etag),
        ("cache-control", CACHE_CONTROL),
        ("last-modified", formatdate(int(changed_at), usegmt=True)),
    )
    return CardDocument(
        etag=etag,
        whole=wire(Answer(200, (JSON, *validators), body)),
        unchanged=wire(Answer(304, validators)),
    )
