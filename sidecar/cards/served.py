"""The cards of a capsule as it is served now: made once, the rarely read ones when somebody asks for them."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING

import orjson

from sidecar.cards.a2a import card_03, card_10, root_card, root_url
from sidecar.cards.document import document
from sidecar.cards.reference import card_document

if TYPE_CHECKING:
    from sidecar.cards.document import CardDocument
    from sidecar.model import Capsule


class View(Enum):
    """For whom a card is made."""

    REFERENCE = auto()
    A2A_03 = auto()
    A2A_10 = auto()
    ROOT = auto()


class Cards:
    """Every card of one capsule, whose port must be known; another change of the capsule has other ones.

    Only the reference card is made at once: what an idle capsule holds, it holds a thousand times.
    """

    __slots__ = ("_behind", "_capsule", "_made", "reference")

    def __init__(self, capsule: Capsule) -> None:
        self.reference = card_document(capsule)
        self._capsule = capsule
        self._made: dict[View, CardDocument] | None = None
        self._behind: tuple[str, Cards] | None = None

    def of(self, view: View, base: str | None = None) -> CardDocument:
        """Return a card.

        `base` is where a trusted proxy says that it was asked for; it counts where no public URL is configured. The
        cards of the base that was asked for last are kept.
        """
        if base is not None and self._capsule.settings.public_url is None:
            if self._behind is None or self._behind[0] != base:
                settings = replace(self._capsule.settings, public_url=base)
                self._behind = base, Cards(replace(self._capsule, settings=settings))
            if view is View.ROOT:
                # the second port was asked, whose root is there; the first one is not known to be anywhere but here
                return document(_bytes(root_card(self._capsule, base + "/")), self._capsule.changed_at)
            return self._behind[1].of(view)
        if view is View.REFERENCE:
            return self.reference
        if self._made is None:
            self._made = {}
        if view not in self._made:
            self._made[view] = document(_bytes(self._card(view)), self._capsule.changed_at)
        return self._made[view]

    def _card(self, view: View) -> dict[str, object]:
        if view is View.A2A_03:
            return card_03(self._capsule)
        if view is View.A2A_10:
            return card_10(self._capsule)
        return root_card(self._capsule, root_url(self._capsule))


def _bytes(card: dict[str, object]) -> bytes:
    return orjson.dumps(card)
