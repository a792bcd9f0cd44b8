"""The Everruns card: `GET` on the agent base URL, below the desk. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.cards.document import CardDocument, document
from sidecar.cards.members import takes_tasks
from sidecar.model import served_methods

if TYPE_CHECKING:
    from sidecar.model import AuthKind, Capsule

CACHE_CONTROL: Final = "private, max-age=10"


def card(capsule: Capsule, *, sessions: str, a2a: str | None) -> dict[str, Any]:
    """Return the card of a capsule, its members in the order of the reference (Everruns, `agent_api_get_card`).

    `sessions` is the root-relative URL of the session collection, `a2a` the absolute one of the capsule's A2A 1.0
    card, None where that does not answer. Members without a value are left out.
    """
    manifest = capsule.manifest
    methods = served_methods(manifest.lifecycle.task_acceptance)
    made: dict[str, Any] = {"name": manifest.name}
    if manifest.description:
        made["description"] = manifest.description
    made |= {
        "streaming": any(method.starts_tasks and method.streams for method in methods),
        "input": {"text": takes_tasks(manifest), "images": False, "files": False},
        "auth": [_kind(kind) for kind in dict.fromkeys(capsule.credentials)],
    }
    if starters := capsule.settings.conversation_starters:
        made["conversation_starters"] = list(starters)
    made["links"] = {"sessions": sessions} | ({} if a2a is None else {"a2a": a2a})
    return made


def card_document(capsule: Capsule, *, sessions: str, a2a: str | None) -> CardDocument:
    """Return the card ready to be served; built once per change."""
    body = orjson.dumps(card(capsule, sessions=sessions, a2a=a2a))
    return document(body, None, cache_control=CACHE_CONTROL)


def _kind(kind: AuthKind) -> dict[str, str]:
    return {"type": kind.type} | ({} if kind.issuer is None else {"issuer": kind.issuer})
