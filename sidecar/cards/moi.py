"""The card for clients of the MOI platform, below the desk. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.cards.document import CardDocument, document
from sidecar.cards.members import JSONRPC, OUTPUT_MODES, VERSION_03, description, skills, takes_tasks

if TYPE_CHECKING:
    from sidecar.model import Capsule

CACHE_CONTROL: Final = "private, max-age=10"


def card(capsule: Capsule, *, url: str) -> dict[str, Any]:
    """Return the card of a capsule (MOI, Agent Card): a card of A2A 0.3 that leads to the door all agents share.

    `url` is where that door is.
    """
    manifest = capsule.manifest
    return {
        "name": manifest.name,
        "description": description(manifest),
        "url": url,
        "version": manifest.version,
        "protocolVersion": VERSION_03,
        "preferredTransport": JSONRPC,
        "capabilities": {
            "streaming": takes_tasks(manifest),
            "stateTransitionHistory": True,
            "pushNotifications": False,
        },
        "defaultInputModes": list(capsule.settings.input_modes),
        "defaultOutputModes": list(OUTPUT_MODES),
        "skills": skills(manifest),
    }


def card_document(capsule: Capsule, *, url: str) -> CardDocument:
    """Return the card ready to be served; built once per change."""
    return document(orjson.dumps(card(capsule, url=url)), None, cache_control=CACHE_CONTROL)
