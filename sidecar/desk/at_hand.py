"""Cards that were asked for before: answered at once where nothing needs to be found out about who asks.

The views of the desk decide all else; what they answer with is kept by the target of the request, a bounded number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from sidecar.auth.access import Access
    from sidecar.cards.document import CardDocument
    from sidecar.model import Capsule
    from sidecar.web.answers import Wire

MOST: Final = 1024
LONGEST: Final = 512
"""Bytes of a target that is kept."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a view answered with, and for which capsule, as it was then; `base` is where the desk was."""

    capsule: Capsule
    base: str
    card: CardDocument

    def answer(self, request: web.BaseRequest) -> Wire:
        """Return the card, or that the client has it."""
        headers = request.headers
        if hdrs.IF_NONE_MATCH not in headers:
            return self.card.whole
        return self.card.answer(", ".join(headers.getall(hdrs.IF_NONE_MATCH)))


class AtHand:
    """The cards of one view. `now` returns the capsule that is served under an id: another one after each change."""

    def __init__(
        self, access: Access, now: Callable[[str], Capsule | None], base: Callable[[], str] = str
    ) -> None:
        self._access = access
        self._now = now
        self._base = base
        self._kept: dict[str, Kept] = {}

    def find(self, request: web.BaseRequest, *, closed: bool = False) -> Kept | None:
        """Return what a request to read was answered with, if that is still true, and so for everybody.

        That is where the capsule asks for no credential, or the view has done so itself (`closed`), and its callers
        are not counted.
        """
        kept = self._kept.get(request.raw_path)
        if kept is None or request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            return None
        capsule = kept.capsule
        if (
            self._now(capsule.id) is not capsule
            or self._base() != kept.base
            or capsule.settings.auth.rate is not None
            or (not closed and self._access.wants(capsule))
        ):
            return None
        return kept

    def keep(self, request: web.BaseRequest, capsule: Capsule, card: CardDocument) -> None:
        """Keep an answer in the place of the oldest."""
        target = request.raw_path
        if len(target) > LONGEST:
            return
        self._kept.pop(target, None)
        if len(self._kept) >= MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[target] = Kept(capsule, self._base(), card)
