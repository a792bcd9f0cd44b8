"""What the keys about credentials say about each other, and where a provider must not be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from sidecar.config.backend_checks import OVERHEARD, UNUSED
from sidecar.config.checks import CONTRADICTION, Finding
from sidecar.config.hosts import address_of, is_loopback, is_public

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.config.credentials import Provider
    from sidecar.config.schema import Keys

OPEN: Final = "W-CFG-016"
SYSTEM: Final = "system"
"""The MOI workspace whose capsules everybody sees."""
INSIDE: Final = (".local", ".internal", ".lan", ".home.arpa")
"""Names that lead nowhere but inside (RFC 6762, RFC 8375, and the reserved `internal`)."""


def credential_findings(keys: Keys) -> Iterator[Finding]:
    """Yield everything that is odd about who is let in."""
    seen: dict[tuple[str, str | None], int] = {}
    for index, provider in enumerate(keys.auth.providers):
        place = ("auth", "providers", index)
        yield from _provider(place, provider)
        named = (provider.kind, provider.issuer if provider.kind == "oidc" else provider.url)
        if seen.setdefault(named, index) != index:
            message = f"auth.providers[{seen[named]}] is the same {provider.kind} provider already"
            yield Finding((*place, "kind"), CONTRADICTION, message)
    yield from _tokens(keys)
    yield from _moi_keys(keys)
    for capsule_id, own in keys.capsules.items():
        has = bool(keys.auth.providers) or own.members
        if own.door == "open" and has:
            message = (
                "anyone may use POST / and read the files although the capsule has credentials, "
                "which then guard its other doors alone"
            )
            yield Finding(("capsules", capsule_id, "door"), OPEN, message)
        if own.members and not keys.auth.personal_tokens:
            message = "lets nobody in: auth.personal_tokens is empty"
            yield Finding(("capsules", capsule_id, "members"), UNUSED, message)


def _provider(place: tuple[str | int, ...], provider: Provider) -> Iterator[Finding]:
    oidc = provider.kind == "oidc"
    where, other = ("issuer", "url") if oidc else ("url", "issuer")
    url = getattr(provider, where)
    if url is None:
        yield Finding((*place, "kind"), CONTRADICTION, f"{provider.kind} needs to know where: set {where}")
    if getattr(provider, other) is not None:
        yield Finding((*place, other), CONTRADICTION, f"is for the other kind; {provider.kind} has {where}")
    if oidc and not provider.audience:
        message = "needs audience: without one, tokens that were made for another service would be taken"
        yield Finding((*place, "kind"), CONTRADICTION, message)
    given = {"client_id": provider.client_id, "client_secret": provider.client_secret}
    for name, value in given.items():
        if oidc and value is not None:
            yield Finding((*place, name), CONTRADICTION, "is for introspection; take it out")
    if not oidc and None in given.values():
        missing = " and ".join(name for name, value in given.items() if value is None)
        message = f"the endpoint answers only whom it knows (RFC 7662 section 2.1): set {missing}"
        yield Finding((*place, "kind"), CONTRADICTION, message)
    if url is not None:
        yield from _where((*place, where), url, provider)


def _where(place: tuple[str | int, ...], url: str, provider: Provider) -> Iterator[Finding]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not provider.allow_private and _is_inside(host):
        message = (
            f"{host} is no public address, and a provider there is not asked: "
            "set allow_private to true where it is meant to be there"
        )
        yield Finding(place, CONTRADICTION, message)
    elif parts.scheme == "http" and not provider.allow_private:
        yield Finding(place, CONTRADICTION, "whoever is on the way could vouch for anyone; write https://")
    elif parts.scheme == "http" and not is_loopback(host):
        message = f"whoever is on the way to {parts.netloc} could vouch for anyone; write https://"
        yield Finding(place, OVERHEARD, message)


def _is_inside(host: str) -> bool:
    """Whether a host is inside by its name alone; where other names lead is looked at for each connection."""
    address = address_of(host)
    if address is not None:
        return not is_public(str(address))
    name = host.lower().removesuffix(".")
    if name.isdigit() or name.startswith("0x"):
        return True  # resolvers take it for an address, and no name looks so
    return is_loopback(host) or name.endswith(INSIDE)


def _tokens(keys: Keys) -> Iterator[Finding]:
    tokens = keys.auth.personal_tokens
    seen: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if seen.setdefault(token.sha256, index) != index:
            message = f"auth.personal_tokens[{seen[token.sha256]}] is this token already"
            yield Finding(("auth", "personal_tokens", index, "sha256"), CONTRADICTION, message)
    if tokens and not any(own.members for own in keys.capsules.values()):
        message = "is not used: no capsule takes them; set capsules.<id>.members to true"
        yield Finding(("auth", "personal_tokens"), UNUSED, message)


def _moi_keys(keys: Keys) -> Iterator[Finding]:
    seen: dict[object, int] = {}
    for index, one in enumerate(keys.auth.moi_keys):
        place = ("auth", "moi_keys", index, "key")
        if one.key is None:
            yield Finding(place, CONTRADICTION, "is blank; write {env: NAME} or {file: PATH}")
        elif seen.setdefault(one.key, index) != index:
            yield Finding(place, CONTRADICTION, f"auth.moi_keys[{seen[one.key]}] is this key already")
    open_to = {SYSTEM, *(one.workspace for one in keys.auth.moi_keys)}
    for capsule_id, own in keys.capsules.items():
        if keys.auth.moi_keys and own.moi_workspace not in open_to:
            message = f"no key of auth.moi_keys belongs to {own.moi_workspace}, so that none of them sees the capsule"
            yield Finding(("capsules", capsule_id, "moi_workspace"), UNUSED, message)
