"""Cards for clients that know A2A alone: of 0.3, of 1.0, and of both for a port that serves nothing else. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sidecar.cards.members import (
    JSONRPC,
    OUTPUT_MODES,
    PATH_03,
    PATH_10,
    PATH_EITHER,
    VERSION_03,
    description,
    interface_03,
    interface_10,
    security,
    skills,
    takes_tasks,
)
from sidecar.model import served_methods, served_planes

if TYPE_CHECKING:
    from sidecar.model import Capsule

MURMUR: Final = "https://docs.murmur.nexus/reference/agent-card"
"""The name of the extension that announces the murmur door: where its documentation begins."""


def card_03(capsule: Capsule) -> dict[str, Any]:
    """Return a card of A2A 0.3 and nothing else (section 5.5). The capsule's port must be known."""
    url = capsule.base + PATH_03
    return (
        _who(capsule)
        | _members_03(url)
        | {"capabilities": _capabilities(capsule) | _OLD_CAPABILITIES}
        | _what(capsule)
        | {"supportsAuthenticatedExtendedCard": bool(capsule.credentials)}
        | security(capsule, v03=True, v10=False)
    )


def card_10(capsule: Capsule) -> dict[str, Any]:
    """Return a card of A2A 1.0 and nothing else (section 4.4.1). The capsule's port must be known."""
    return (
        _who(capsule)
        | _members_10(capsule.base + PATH_10, capsule.base + PATH_03)
        | {"capabilities": _capabilities(capsule) | _extended(capsule)}
        | _what(capsule)
        | security(capsule, v03=False, v10=True)
    )


def root_url(capsule: Capsule) -> str:
    """Return where clients find A2A that look at the root alone: at the second port of the capsule.

    Behind a proxy whose public URL does not tell ports apart the root is the murmur door's, so that the place on the
    capsule's own port is named which takes either version.
    """
    public = capsule.settings.public_url
    if public is not None and "{port}" not in public:
        return capsule.base + PATH_EITHER
    return capsule.base_at(capsule.settings.a2a_port) + "/"


def root_card(capsule: Capsule, url: str) -> dict[str, Any]:
    """Return the one card of a port that speaks A2A at its root, with the members of both versions; all name `url`."""
    return (
        _who(capsule)
        | _members_03(url)
        | _members_10(url, url)
        | {"capabilities": _capabilities(capsule) | _OLD_CAPABILITIES | _extended(capsule)}
        | _what(capsule)
        | {"supportsAuthenticatedExtendedCard": bool(capsule.credentials)}
        | security(capsule, v03=True, v10=True)
    )


_OLD_CAPABILITIES: Final = {"stateTransitionHistory": False}


def _who(capsule: Capsule) -> dict[str, Any]:
    manifest = capsule.manifest
    return {"name": manifest.name, "description": description(manifest), "version": manifest.version}


def _members_03(url: str) -> dict[str, Any]:
    return {
        "protocolVersion": VERSION_03,
        "url": url,
        "preferredTransport": JSONRPC,
        # the main place belongs to the list too (A2A 0.3 section 5.6.3)
        "additionalInterfaces": [interface_03(url)],
    }


def _members_10(newer: str, older: str) -> dict[str, Any]:
    """Return the interfaces; the preferred one comes first, and some clients take the first whatever it is."""
    return {"supportedInterfaces": [interface_10(newer, "1.0"), interface_10(older, "0.3")]}


def _capabilities(capsule: Capsule) -> dict[str, Any]:
    return {
        "streaming": takes_tasks(capsule.manifest),
        "pushNotifications": False,
        "extensions": [_murmur(capsule)],
    }


def _extended(capsule: Capsule) -> dict[str, bool]:
    """Say that there is a card for those who show a credential, where one is asked for (A2A 1.0 section 4.4.3)."""
    return {"extendedAgentCard": True} if capsule.credentials else {}


def _murmur(capsule: Capsule) -> dict[str, Any]:
    """Announce the door of the reference card: what only it answers, and to whom."""
    manifest = capsule.manifest
    return {
        "uri": MURMUR,
        "description": "The murmur door of the same capsule: its card, its methods, its session, its planes",
        "required": False,
        "params": {
            "url": f"{capsule.base}/",
            "session_id": capsule.session_id,
            "tools": [a.name for a in manifest.artifacts if a.model_visible],
            "methods": [m.name for m in served_methods(manifest.lifecycle.task_acceptance)],
            "planes": list(served_planes(manifest)),
        },
    }


def _what(capsule: Capsule) -> dict[str, Any]:
    return {
        "defaultInputModes": list(capsule.settings.input_modes),
        "defaultOutputModes": list(OUTPUT_MODES),
        "skills": skills(capsule.manifest),
    }
