"""The cards of a capsule: one entry per view, for whoever lists them all. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.cards.reference import card_bytes

if TYPE_CHECKING:
    from sidecar.model import Capsule


@dataclass(frozen=True, slots=True)
class View:
    """One card as its clients see it: what it is called, for whom it is, where it is served, and its JSON."""

    name: str
    audience: str
    url: str
    body: bytes


def views(capsule: Capsule) -> tuple[View, ...]:
    """Return every card that is served of a capsule; its port must be known."""
    base = f"http://{capsule.url}"
    return (
        View(
            "murmur",
            "murmur peers, and whoever looks at the capsule's own port",
            f"{base}/.well-known/agent-card.json",
            card_bytes(capsule),
        ),
    )
