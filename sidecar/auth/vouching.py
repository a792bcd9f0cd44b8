"""What every kind of provider has in common: what it says of a token, and why it may not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.model import ProviderSettings

SKEW: Final = 30.0
"""Seconds that a provider's clock may be ahead."""
MARK: Final = "\x1f"
"""Stands in no subject: those are printable."""
LONGEST_SUBJECT: Final = 255
"""Characters of a subject (OpenID Connect Core, section 2)."""


@dataclass(frozen=True, slots=True)
class Vouched:
    """Whose a token is, and until when (Unix seconds; None where nothing was said)."""

    subject: str
    expires_at: float | None


class TokenRefusedError(Exception):
    """A token is not good enough; the text says why, for the log, and holds nothing of it."""


class ProviderError(Exception):
    """A provider cannot say anything now; the text says why, for the log."""


class Provider(Protocol):
    """A service that vouches for callers."""

    async def check(self, token: str) -> Vouched | None:
        """Return whose a token is, None where it is visibly not this provider's.

        Raises TokenRefusedError, ProviderError.
        """

    @property
    def busy(self) -> bool:
        """Whether something is being asked."""

    async def aclose(self) -> None:
        """Let go of what is under way."""


def check_claims(claims: Mapping[str, Any], settings: ProviderSettings, now: float) -> None:
    """Raise TokenRefusedError unless a token is for us, now, with every scope and from one of the subjects.

    The names of the claims are those of RFC 7519 section 4.1 and RFC 7662 section 2.2; a clock of theirs may be
    ahead of ours by `SKEW`.
    """
    expires_at, not_before = claims.get("exp"), claims.get("nbf")
    if expires_at is not None and (not _is_time(expires_at) or now >= expires_at):
        raise TokenRefusedError("it has expired")
    if not_before is not None and (not _is_time(not_before) or now + SKEW < not_before):
        raise TokenRefusedError("it is not valid yet")
    if settings.audiences and not set(_texts(claims.get("aud"))) & set(settings.audiences):
        raise TokenRefusedError("it is for another audience")
    if missing := set(settings.scopes) - _scopes(claims):
        raise TokenRefusedError(f"it lacks the scope {min(missing)}")
    if settings.subjects and claims.get("sub") not in settings.subjects:
        raise TokenRefusedError("its subject is not one of those that are let in")


def subject_of(claims: Mapping[str, Any], *names: str) -> str:
    """Return the first of these claims that says whose a token is; raises TokenRefusedError where none does.

    What another claim than the first says is marked by its name, so that no client is taken for the person whose `sub`
    it is called like: a subject holds no such mark.
    """
    for name in names:
        if name in claims:
            found = claims[name]
            if (
                not isinstance(found, str)
                or not 1 <= len(found) <= LONGEST_SUBJECT
                or not found.isprintable()
            ):
                raise TokenRefusedError(f"its {name} is no name")
            return found if name == names[0] else f"{name}{MARK}{found}"
    raise TokenRefusedError("it does not say whose it is")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _scopes(claims: Mapping[str, Any]) -> set[str]:
    """Return the scopes of a token: `scope`, words in a text (RFC 8693 section 4.2), or a list as some write it."""
    found: set[str] = set()
    for name in ("scope", "scp"):
        found.update(word for text in _texts(claims.get(name)) for word in text.split())
    return found
