"""Catalogs of all capsules: for those who look for agents (AI Catalog), and for interfaces (RFC 9727). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from sidecar.cards.members import PATH_10

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sidecar.model import Capsule

VERSION: Final = "1.0"
A2A_CARD: Final = "application/a2a-agent-card+json"
A2A_CARD_PATH: Final = "/a2a/.well-known/agent-card.json"
"""Where a card of A2A is on a capsule's port whatever `card` says."""
JSON: Final = "application/json"

_PUBLISHER: Final = re.compile("[A-Za-z0-9.-]+", re.ASCII)


def ai_catalog(capsules: Iterable[Capsule], *, base: str) -> dict[str, Any]:
    """Return the AI Catalog (its specification, Top-Level Structure): an entry for the A2A card of each capsule.

    `base` is where clients reach the desk; its host is who publishes, in the names of entries.
    """
    host = urlsplit(base).hostname or ""
    publisher = host if _PUBLISHER.fullmatch(host) else "localhost"
    return {
        "specVersion": VERSION,
        "entries": [
            {
                # an id may hold a ~, which such a name may not; it parts an id as the colon parts a name
                "identifier": f"urn:air:{publisher}:capsule:{capsule.id.replace('~', ':')}",
                "displayName": capsule.manifest.name,
                "type": A2A_CARD,
                "url": capsule.base + A2A_CARD_PATH,
            }
            for capsule in capsules
        ],
    }


def api_catalog(
    capsules: Iterable[Capsule], *, catalog: str, moi: str, health: str, channel: Callable[[Capsule], str]
) -> dict[str, Any]:
    """Return the API catalog as a linkset (RFC 9727 section 4, RFC 9264 section 4.2).

    `catalog` is its own URL, `moi` that of the door which all agents share, `channel` returns where Everruns clients
    find a capsule, `health` tells whether the desk is there.
    """
    status = [{"href": health, "type": JSON}]
    apis = [{"anchor": moi, "status": status}]
    for capsule in capsules:
        described = [{"href": capsule.base + A2A_CARD_PATH, "type": JSON}]
        apis.append({"anchor": capsule.base + PATH_10, "service-desc": described})
        described = [{"href": channel(capsule), "type": JSON}]
        apis.append({"anchor": channel(capsule), "service-desc": described, "status": status})
    items = [{"href": api["anchor"]} for api in apis]
    return {"linkset": [{"anchor": catalog, "item": items}, *apis]}
