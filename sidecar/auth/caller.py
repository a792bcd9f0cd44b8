"""Who asks: the value that a header becomes, and the refusals of those that become none. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs

from sidecar.errors import refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from multidict import CIMultiDictProxy

    from sidecar.auth.fixed import MoiKey
    from sidecar.auth.vouching import Vouched
    from sidecar.errors import Refusal
    from sidecar.model import PersonalToken, ProviderSettings

END_USER: Final = "End-User"
LONGEST_END_USER: Final = 256
OPERATOR: Final = "operator"
"""Whose the tasks of the murmur door are, which shows a session whole, and of all who come without credentials."""
MOI_KEY: Final = "moi_key"
ANONYMOUS_KIND: Final = "anonymous"
ADMIN_KIND: Final = "admin"
AGENT_KEY: Final = "agent_key"
RUNTIME_TOKEN: Final = "runtime_token"  # noqa: S105 - the name of a kind
CHALLENGE: Final = 'Bearer realm="sidecar"'

_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KeyGrip:
    """What an agent key's caller holds: the key, and the hash of the secret; None for a runtime token."""

    key_id: str
    sha256: bytes | None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: `owner` is whose tasks and sessions it sees, `kind` the `AuthKind.type` or another of the kinds above.

    `operator`: it may use the murmur door and the files plane where these are closed. `end_user` is whom a key speaks
    for; `end_users` whether it may. `expires_at` (Unix seconds) is when the credential ends by itself. `grip` is
    what the credential rests on, and `again` asks its provider once more, where only that one knows.
    """

    owner: str
    kind: str
    operator: bool = False
    end_user: str | None = None
    end_users: bool = False
    expires_at: float | None = None
    grip: KeyGrip | PersonalToken | ProviderSettings | MoiKey | None = None
    again: Callable[[], Awaitable[Vouched | None]] | None = field(default=None, compare=False, repr=False)


ANONYMOUS: Final = Caller(OPERATOR, ANONYMOUS_KIND, operator=True)
STRANGER: Final = Caller(OPERATOR, ANONYMOUS_KIND)
"""Who comes without a credential to the MOI view, while that is open."""
ADMIN: Final = Caller(OPERATOR, ADMIN_KIND, operator=True)


def bearer_of(headers: CIMultiDictProxy[str]) -> str | None:
    """Return the token of the one `Authorization: Bearer` header (RFC 6750 section 2.1); None for anything else."""
    given = headers.getall(hdrs.AUTHORIZATION, ())
    match = _BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
    return None if match is None else match[1]


def owner_of_end_user(key_owner: str, end_user: str) -> str:
    """Return whose the tasks of a key's end user are."""
    return f"{key_owner}:{end_user}"


def speaking_for(caller: Caller, end_user: str) -> Caller:
    """Return a key's caller for one end user, who is nobody's operator."""
    owner = owner_of_end_user(caller.owner, end_user)
    return replace(caller, owner=owner, operator=False, end_user=end_user)


def is_end_user(text: str) -> bool:
    """Whether a text may name an end user."""
    return 1 <= len(text) <= LONGEST_END_USER and text == text.strip() and text.isprintable()


def _forbidden(text: str) -> Refusal:
    challenge = f'{CHALLENGE}, error="insufficient_scope"'
    return refusal("forbidden", text, ("www-authenticate", challenge))


UNAUTHORIZED: Final = refusal(
    "unauthorized",
    "This needs a credential that is good for this capsule, in one header: Authorization: Bearer TOKEN.",
    ("www-authenticate", CHALLENGE),
)
NOT_OPERATOR: Final = _forbidden(
    "This is the operator's: use the admin token, or an agent key that was made with --operator."
)
NO_END_USERS: Final = _forbidden(
    "This credential cannot speak for end users: leave End-User out, or use an agent key made with --end-users."
)
BAD_END_USER: Final = _forbidden(
    f"Name one end user: End-User, once, with 1 to {LONGEST_END_USER} characters and no blank at its edges."
)
