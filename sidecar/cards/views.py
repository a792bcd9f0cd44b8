"""All cards of a capsule in one list, for whoever looks at them side by side. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sidecar.cards import served
from sidecar.cards.members import PATH_03, takes_tasks

if TYPE_CHECKING:
    from sidecar.model import Capsule

_CARD: Final = "/.well-known/agent-card.json"
_OF_A2A: Final = (
    (served.View.A2A_10, "a2a 1.0", "clients of A2A 1.0", f"/a2a{_CARD}"),
    (served.View.A2A_03, "a2a 0.3", "clients of A2A 0.3", f"{PATH_03}{_CARD}"),
)


@dataclass(frozen=True, slots=True)
class View:
    """One card as its clients see it: what it is called, for whom it is, where it is served, and its JSON."""

    name: str
    audience: str
    url: str
    body: bytes


def views(capsule: Capsule) -> tuple[View, ...]:
    """Return every card that is served of a capsule; its port must be known."""
    cards = served.Cards(capsule)
    audience = "whoever asks the capsule's own port: murmur peers, and with its A2A members other clients"
    found = [View("murmur", audience, capsule.base + _CARD, cards.reference.whole.body)]
    if takes_tasks(capsule.manifest):
        found += [
            View(name, audience, capsule.base + path, cards.of(view).whole.body)
            for view, name, audience, path in _OF_A2A
        ]
    return tuple(found)
