"""The reference card: `GET /.well-known/agent-card.json`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from sidecar.cards.document import CardDocument, document
from sidecar.model import served_methods, served_planes

if TYPE_CHECKING:
    from sidecar.model import Capsule, Manifest


def card(capsule: Capsule) -> dict[str, Any]:
    """Return the card of a capsule, keys in the order of the reference (murmur reference, Agent Card).

    With the setting `card: full`, the members follow that A2A clients want and that already hold; `card: reference`
    leaves the reference's keys alone. The capsule's port must be known.
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
    return reference | {
        "description": description(manifest),
        "protocolVersion": "0.3.0",
        "preferredTransport": "MURMUR",
        "defaultInputModes": list(capsule.settings.input_modes),
        "defaultOutputModes": ["text/plain"],
        "skills": skills(manifest),
    }


def description(manifest: Manifest) -> str:
    """Return what the manifest says about the capsule, or who it is."""
    return manifest.description or f"Murmur capsule {manifest.name} {manifest.version}"


def skills(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the A2A skills: one per artifact that the model can call, else one for tasks as such.

    Under `task_acceptance: none` nothing starts a task, so there is none (A2A 0.3, AgentSkill).
    """
    if not any(m.starts_tasks for m in served_methods(manifest.lifecycle.task_acceptance)):
        return []
    visible = {a.name: a for a in reversed(manifest.artifacts) if a.model_visible}
    named = [
        {
            "id": a.name,
            "name": a.name,
            "description": f"Uses the {a.runtime.value} {a.name}" + (f" {a.version}" if a.version else ""),
            "tags": [a.runtime.value],
        }
        for a in reversed(visible.values())
    ]
    return named or [
        {"id": "task", "name": "task", "description": "Takes a task in plain text", "tags": ["task"]}
    ]


def card_bytes(capsule: Capsule) -> bytes:
    """Return the card as it goes over the wire: compact JSON."""
    return orjson.dumps(card(capsule))


def card_document(capsule: Capsule) -> CardDocument:
    """Return the card ready to be served; built once per change."""
    return document(card_bytes(capsule), capsule.changed_at)
