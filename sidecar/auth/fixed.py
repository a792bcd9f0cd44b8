"""Tokens that stand in the configuration: those of members, by their hashes, and the keys of the MOI view."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sidecar.model import PersonalToken, Secret

PREFIX: Final = "sc_pat_"
SYSTEM: Final = "system"
"""The workspace of the MOI view whose agents everybody sees."""


def member_with(tokens: Sequence[PersonalToken], text: str) -> PersonalToken | None:
    """Return which of the personal access tokens a text is, None for none. Takes as long for each of them."""
    digest = sha256(text.encode(errors="surrogateescape")).digest()
    found = None
    for one in tokens:
        if hmac.compare_digest(digest, one.sha256):
            found = one
    return found


@dataclass(frozen=True, slots=True)
class MoiKey:
    """A key of the MOI view, by its SHA-256, and the workspace that it belongs to."""

    sha256: bytes
    workspace: str

    @property
    def owner(self) -> str:
        """Whose the tasks of its callers are."""
        return f"moi:{self.sha256.hex()[:32]}"

    def sees(self, workspace: str) -> bool:
        """Whether its callers see the agents of a workspace."""
        return workspace in (self.workspace, SYSTEM)


class MoiKeys:
    """The keys of the MOI view, each with its workspace."""

    def __init__(self, keys: Iterable[tuple[Secret, str]] = ()) -> None:
        self._keys = tuple(
            MoiKey(sha256(key.reveal().encode()).digest(), workspace) for key, workspace in keys
        )

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def find(self, text: str) -> MoiKey | None:
        """Return which of the keys a text is, None for none. Takes as long for each of them."""
        digest = sha256(text.encode(errors="surrogateescape")).digest()
        found = None
        for known in self._keys:
            if hmac.compare_digest(digest, known.sha256):
                found = known
        return found
