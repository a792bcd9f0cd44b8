"""The `auth` block: who vouches for callers, whose tokens are taken. No secret stands in it, only where one is."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, TypeAlias

from sidecar.config import backend_values as b
from sidecar.config import hosts
from sidecar.config import values as v
from sidecar.config.blocks import Block
from sidecar.config.quantities import quoted
from sidecar.model import AuthSettings, PersonalToken, ProviderSettings, Rate
from sidecar.shapes import After, Before, Plain, Schema, key, required

_SHA256: Final = re.compile("[0-9a-fA-F]{64}", re.ASCII)
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+", re.ASCII)
"""A scope token (RFC 6749 section 3.3)."""


def _issuer(written: str) -> str:
    """Return an issuer as it stands, since tokens must name it letter by letter (OpenID Connect Core, section 2)."""
    hosts.parse_url(written)
    if "?" in written:
        raise ValueError(f"{quoted(written)}: an issuer has no query; leave out the ? and what follows it")
    return written


def _digest(written: str) -> str:
    if _SHA256.fullmatch(written) is None:
        # what stands here may be the token itself
        raise ValueError("must be a SHA-256 in 64 hex digits: printf %s TOKEN | sha256sum")
    return written.lower()


def _scope(written: str) -> str:
    if _SCOPE.fullmatch(written) is None:
        raise ValueError(f"{quoted(written)} is no scope: one word, with a list item for each")
    return written


def _word(written: str) -> str:
    if not written.strip():
        raise ValueError("is blank")
    return written


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _schema(**more: Any) -> Schema:
    return Schema({"type": "string", "minLength": 1, **more})


Issuer: TypeAlias = Annotated[
    str,
    Plain(v.text(_issuer, "a URL, such as https://id.example.org")),
    _schema(pattern="^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@]+[^?#]*$"),
]
Digest: TypeAlias = Annotated[
    str, Plain(v.text(_digest, "64 hex digits")), _schema(pattern=f"^{_SHA256.pattern}$")
]
Scope: TypeAlias = Annotated[str, Plain(v.text(_scope, "a scope")), _schema()]
Word: TypeAlias = Annotated[str, Plain(v.text(_word, "text")), _schema()]
OneOrMore: TypeAlias = Annotated[
    tuple[Word, ...],
    Before(_listed),
    After(v.no_twins),
    Schema({"type": ["string", "array"], "items": {"type": "string", "minLength": 1}, "uniqueItems": True}),
]
Scopes: TypeAlias = Annotated[tuple[Scope, ...], After(v.no_twins)]
Words: TypeAlias = Annotated[tuple[Word, ...], After(v.no_twins)]


class Provider(Block):
    """A service that vouches for callers: by signed tokens (oidc), or by answering when asked (introspection)."""

    kind: Literal["oidc", "introspection"] = required(
        "oidc: an OpenID Connect issuer; introspection: an endpoint as in RFC 7662."
    )
    issuer: Issuer | None = key(None, "oidc: the issuer, exactly as tokens name it.")
    url: b.Url | None = key(None, "introspection: the endpoint.")
    audience: OneOrMore = key(
        (), "Of these audiences a token must name one; at least one is needed for oidc.", written=[]
    )
    scopes: Scopes = key((), "A token must have all of these scopes.", written=[])
    subjects: Words = key((), "Whose tokens are taken; none named: anybody's.", written=[])
    client_id: Word | None = key(None, "introspection: who asks.")
    client_secret: b.MaybeSecret = key(
        None, "introspection: the secret of who asks: {env: NAME} or {file: PATH}."
    )
    allow_private: v.Flag = key(
        default=False, description="Whether it may be at an address that is not public, such as 10.0.0.5."
    )

    @property
    def settings(self) -> ProviderSettings:
        """What it comes to for those who ask it."""
        return ProviderSettings(
            kind=self.kind,
            url=(self.issuer if self.kind == "oidc" else self.url) or "",
            audiences=self.audience,
            scopes=self.scopes,
            subjects=self.subjects,
            allow_private=self.allow_private,
            client_id=self.client_id,
            client_secret=self.client_secret,
        )


class PersonalTokenEntry(Block):
    """The personal access token of a member."""

    sha256: Digest = required("SHA-256 of the token, which begins with sc_pat_, in hex.")
    member: v.Name = required("Whose it is.")


class MoiKeyEntry(Block):
    """A key of the MOI view."""

    key: b.MaybeSecret = required("The key: {env: NAME} or {file: PATH}.")
    workspace: v.Name = required("The workspace that it belongs to.")


class Auth(Block):
    """Credentials. A secret is never a literal: {env: NAME} or {file: PATH}."""

    providers: tuple[Provider, ...] = key(
        (), "Who vouches for callers of all capsules, asked in this order.", written=[]
    )
    personal_tokens: tuple[PersonalTokenEntry, ...] = key(
        (), "Tokens of members, for the capsules that take them.", written=[]
    )
    moi_keys: tuple[MoiKeyEntry, ...] = key((), "Keys of the MOI view.", written=[])
    worker_token: b.MaybeSecret = key(
        None, "What workers of the inbox may show; the admin token always works."
    )


def general_auth(auth: Auth, rate: Rate | None) -> AuthSettings:
    """Return whom a capsule without settings of its own lets in."""
    return AuthSettings(providers=tuple(provider.settings for provider in auth.providers), rate=rate)


def members_of(auth: Auth) -> tuple[PersonalToken, ...]:
    """Return the personal access tokens, for the capsules that take them."""
    return tuple(PersonalToken(bytes.fromhex(one.sha256), one.member) for one in auth.personal_tokens)
