"""The reference card: `GET /.well-known/agent-card.json`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.cards.document import CardDocument, document
from sidecar.cards.members import (
    OUTPUT_MODES,
    PATH_03,
    PATH_10,
    VERSION_03,
    description,
    interface_03,
    interface_10,
    security,
    skills,
)
from sidecar.model import served_methods, served_planes

if TYPE_CHECKING:
    from sidecar.model import Capsule

TRANSPORT: Final = "MURMUR"
"""Keeps clients of A2A off the flat `url`, where the murmur door is: none of them knows this transport."""


def card(capsule: Capsule) -> dict[str, Any]:
    """Return the card of a capsule, keys in the order of the reference (murmur reference, Agent Card).

    With the setting `card: full` the members follow that A2A clients of either version want; `card: reference` leaves
    the reference's keys alone. The capsule's port must be known.
    """
    manifest = capsule.manifest
    methods = served_methods(manifest.lifecycle.task_acceptance)
    reference = {
        "name": manifest.name,
        "version": manifest.version,
        "url": capsule.url,
        "session_id": capsule.session_id,
        "capabilities": {
            "tools": [a.name for a in manifest.artifacts if a.model_visible],
            "shell": bool(manifest.shell_allow),
            "network": bool(manifest.network_allow),
            "streaming": any(m.starts_tasks and m.streams for m in methods),
        },
        "serves": {"methods": [m.name for m in methods], "planes": list(served_planes(manifest))},
    }
    if capsule.settings.card == "reference":
        return reference
    newer, older = capsule.base + PATH_10, capsule.base + PATH_03
    return (
        reference
        | {
            "description": description(manifest),
            "protocolVersion": VERSION_03,
            "preferredTransport": TRANSPORT,
            "additionalInterfaces": [interface_03(older)],
            "supportedInterfaces": [interface_10(newer, "1.0"), interface_10(older, "0.3")],
            "defaultInputModes": list(capsule.settings.input_modes),
            "defaultOutputModes": list(OUTPUT_MODES),
            "skills": skills(manifest),
        }
        | security(capsule, v03=True, v10=True)
    )


def card_bytes(capsule: Capsule) -> bytes:
    """Return the card as it goes over the wire: compact JSON."""
    return orjson.dumps(card(capsule))


def card_document(capsule: Capsule) -> CardDocument:
    """Return the card ready to be served; built once per change."""
    return document(card_bytes(capsule), capsule.changed_at)
