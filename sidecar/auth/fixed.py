"""Tokens that stand in the configuration: those of members, by their hashes, and the keys of the MOI view."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sidecar.model import PersonalToken, Secret

PREFIX: Final = "sc_pat_"


def member_with(tokens: Sequence[PersonalToken], text: str) -> PersonalToken | None:
    """Return which of the personal access tokens a text is, None for none. Takes as long for each of them."""
    digest = sha256(text.encode(errors="surrogateescape")).digest()
    found = None
    for one in tokens:
        if hmac.compare_digest(digest, one.sha256):
            found = one
    return found


class MoiKeys:
    """The keys of the MOI view, each with its workspace."""

    def __init__(self, keys: Iterable[tuple[Secret, str]] = ()) -> None:
        self._keys = tuple((sha256(key.reveal().encode()).digest(), workspace) for key, workspace in keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def workspace(self, text: str) -> str | None:
        """Return the workspace of a key, None for none. Takes as long for each of them."""
        digest = sha256(text.encode(errors="surrogateescape")).digest()
        found = None
        for known, workspace in self._keys:
            if hmac.compare_digest(digest, known):
                found = workspace
        return found
