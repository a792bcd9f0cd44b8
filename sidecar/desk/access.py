"""Who may use the operator's part of the desk: whoever has the admin token."""

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
    """The check of `Authorization: Bearer <admin token>` (RFC 6750 section 2.1). `token` None lets everyone in."""

    __slots__ = ("_digest",)

    def __init__(self, token: str | None) -> None:
        self._digest = None if token is None else sha256(token.encode()).digest()

    def require(self, headers: CIMultiDictProxy[str]) -> None:
        """Raise RefusedError (401 `unauthorized`) unless exactly one header brings the right token.

        Tokens are compared by their hashes in constant time, so that neither length nor content can be measured.
        """
        if self._digest is None:
            return
        given = headers.getall(hdrs.AUTHORIZATION, [])
        if not given:
            raise _refused("Send the admin token: Authorization: Bearer TOKEN.", CHALLENGE)
        match = BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
        if match is None:
            text = "Exactly one Authorization header is taken, and it must read: Bearer TOKEN."
            raise _refused(text, f'{CHALLENGE}, error="invalid_request"')
        if not hmac.compare_digest(sha256(match[1].encode()).digest(), self._digest):
            text = "This is not the admin token; it is in admin.token in the state directory."
            raise _refused(text, f'{CHALLENGE}, error="invalid_token"')


def _refused(text: str, challenge: str) -> RefusedError:
    return RefusedError(refusal("unauthorized", text, ("www-authenticate", challenge)))
