"""What several views say of a capsule: its description, its skills, its interfaces, what it wants to be shown. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sidecar.model import served_methods

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.model import Capsule, Manifest

VERSION_03: Final = "0.3.0"
JSONRPC: Final = "JSONRPC"
OUTPUT_MODES: Final = ("text/plain",)
PATH_10: Final = "/a2a/v1"
PATH_03: Final = "/a2a/v0.3"
PATH_EITHER: Final = "/a2a"
"""Where a capsule's port takes calls of A2A, by version."""

_DISCOVERY: Final = "/.well-known/openid-configuration"
_BEARER: Final = "bearer"


def description(manifest: Manifest) -> str:
    """Return what the manifest says about the capsule, or who it is."""
    return manifest.description or f"Murmur capsule {manifest.name} {manifest.version}"


def takes_tasks(manifest: Manifest) -> bool:
    """Whether anything starts a task, so that there is something to send to, and to stream."""
    return any(method.starts_tasks for method in served_methods(manifest.lifecycle.task_acceptance))


def skills(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the A2A skills: one per artifact that the model can call, else one for tasks as such.

    Under `task_acceptance: none` nothing starts a task, so there is none (A2A 0.3, AgentSkill).
    """
    if not takes_tasks(manifest):
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


def interface_03(url: str) -> dict[str, str]:
    """Return an entry of `additionalInterfaces` (A2A 0.3 section 5.5.5)."""
    return {"transport": JSONRPC, "url": url}


def interface_10(url: str, version: str) -> dict[str, str]:
    """Return an entry of `supportedInterfaces` (A2A 1.0 section 4.4.6)."""
    return {"url": url, "protocolBinding": JSONRPC, "protocolVersion": version}


def security(capsule: Capsule, *, v03: bool, v10: bool) -> dict[str, Any]:
    """Return the members that say what a caller must show, in the shape of one version or of both; often none.

    Every credential is a Bearer token; an OpenID provider's has a scheme of its own on top, which says where clients
    get one. One scheme in both shapes is one object: some clients of 0.3 that find the newer members alone take it
    for mutual TLS.
    """
    schemes = dict(_schemes(capsule, v03=v03, v10=v10))
    if not schemes:
        return {}
    made: dict[str, Any] = {"securitySchemes": schemes}
    if v03:
        made["security"] = [{name: []} for name in schemes]
    if v10:
        made["securityRequirements"] = [{"schemes": {name: {"list": []}}} for name in schemes]
    return made


def _schemes(capsule: Capsule, *, v03: bool, v10: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    if not capsule.credentials:
        return
    bearer = {"scheme": _BEARER}
    yield (
        _BEARER,
        ({"type": "http"} | bearer if v03 else {}) | ({"httpAuthSecurityScheme": bearer} if v10 else {}),
    )
    issuers = dict.fromkeys(kind.issuer for kind in capsule.credentials if kind.issuer is not None)
    for number, issuer in enumerate(issuers, 1):
        found = {"openIdConnectUrl": issuer.rstrip("/") + _DISCOVERY}
        yield (
            f"oidc{number}" if number > 1 else "oidc",
            ({"type": "openIdConnect"} | found if v03 else {})
            | ({"openIdConnectSecurityScheme": found} if v10 else {}),
        )
