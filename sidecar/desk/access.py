"""Who may use which part of the desk: the operator with the admin token, workers with theirs too."""

from __future__ import annotations

import hmac
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs

from sidecar.errors import RefusedError, refusal

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
CHALLENGE: Final = 'Bearer realm="sidecar desk"'


class Access:
    """The check of `Authorization: Bearer <admin token>` (RFC 6750 section 2.1). `token` None lets everyone in.

    `worker` is what workers may show instead; give it where they are let in.
    """

    __slots__ = ("_digests", "_wanted", "_wrong")

    def __init__(self, token: str | None, *, worker: str | None = None) -> None:
        tokens = (token,) if worker is None else (token, worker)
        self._digests = tuple(sha256(t.encode()).digest() for t in tokens if t is not None)
        if token is None:
            self._digests = ()
        self._wanted = "the admin token" if worker is None else "the admin token or the workers' token"
        self._wrong = (
            "This is not the admin token; it is in admin.token in the state directory."
            if worker is None
            else "This is neither the admin token (admin.token in the state directory) nor auth.worker_token."
        )

    @property
    def open(self) -> bool:
        """Whether it lets everyone in."""
        return not self._digests

    def require(self, headers: CIMultiDictProxy[str]) -> None:
        """Raise RefusedError (401 `unauthorized`) unless exactly one header brings the right token.

        Tokens are compared by their hashes in constant time, so that neither length nor content can be measured.
        """
        if not self._digests:
            return
        given = headers.getall(hdrs.AUTHORIZATION, [])
        if not given:
            raise _refused(f"Send {self._wanted}: Authorization: Bearer TOKEN.", CHALLENGE)
        match = BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
        if match is None:
            text = "Exactly one Authorization header is taken, and it must read: Bearer TOKEN."
            raise _refused(text, f'{CHALLENGE}, error="invalid_request"')
        given_digest = sha256(match[1].encode()).digest()
        if not any([hmac.compare_digest(given_digest, digest) for digest in self._digests]):  # noqa: C419 - all are compared, whichever it is
            raise _refused(self._wrong, f'{CHALLENGE}, error="invalid_token"')


def _refused(text: str, challenge: str) -> RefusedError:
    return RefusedError(refusal("unauthorized", text, ("www-authenticate", challenge)))
