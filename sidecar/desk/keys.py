"""The desk's calls for agent keys: making one, listing them, giving one another secret, ending one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import orjson
import structlog
from aiohttp import hdrs

from sidecar.auth.keys import LONGEST_OVERLAP, USUAL_OVERLAP
from sidecar.desk import api
from sidecar.errors import RefusedError, StoreError, refusal
from sidecar.web.answers import json_answer
from sidecar.web.body import read_json_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from sidecar.auth.keys import AgentKey, Issued, KeyRing
    from sidecar.model import Answer

KEYS: Final = "/api/capsules/{id}/keys"
KEY: Final = "/api/capsules/{id}/keys/{key}"
ROTATE: Final = "/api/capsules/{id}/keys/{key}/rotate"
METHODS: Final = {
    KEYS: (hdrs.METH_GET, hdrs.METH_POST),
    KEY: (hdrs.METH_DELETE,),
    ROTATE: (hdrs.METH_POST,),
}
BODY: Final = 4 * 1024
BODY_TIMEOUT: Final = 15.0
LONGEST_LIFE: Final = 100 * 365 * 86400
"""Seconds after which a key ends at the latest, where it ends at all."""
FORGET: Final = "forget=true"

_CREATE_SHAPE: Final = refusal(
    "bad_request",
    'Send a JSON object with, if you like, "expires" (whole seconds from now), "end_users" and "operator" (flags).',
)
_ROTATE_SHAPE: Final = refusal(
    "bad_request", f'Send a JSON object with, if you like, "overlap": hours from 0 to {LONGEST_OVERLAP}.'
)
_NO_CAPSULE: Final = refusal(
    "not_found", "There is no capsule with this id, or its manifest has never been good."
)
_NO_KEY: Final = refusal("not_found", "This capsule has no key with this id: sidecar keys list shows them.")
_OVER: Final = refusal("bad_request", "This key has ended, and there is no going back: make another one.")

log = structlog.get_logger()


class Keys:
    """What `keys` below a capsule's path on the desk does.

    `capsule_of` returns the directory and name of the capsule with an id, also of one that is not served now.
    """

    def __init__(self, ring: KeyRing, capsule_of: Callable[[str], tuple[str, str] | None]) -> None:
        self._ring = ring
        self._capsule_of = capsule_of

    async def answer(self, request: web.BaseRequest, template: str, capsule_id: str, key_id: str) -> Answer:
        """Answer a request below a capsule; `key_id` is empty for all its keys. Raises RefusedError."""
        found = self._capsule_of(capsule_id)
        if found is None:
            raise RefusedError(_NO_CAPSULE)
        directory, name = found
        if key_id:
            key = self._ring.get(key_id)
            if key is None or (key.directory, key.name) != found:
                raise RefusedError(_NO_KEY)
        try:
            if template == ROTATE:
                return await self._rotate(request, capsule_id, key_id)
            if template == KEY:
                return await self._end(request, capsule_id, key_id)
            if request.method == hdrs.METH_POST:
                return await self._create(request, capsule_id, directory, name)
        except StoreError as error:
            raise RefusedError(refusal("unavailable", str(error))) from error
        return json_answer({"keys": [document(key) for key in self._ring.of(directory, name)]}, api.UNCACHED)

    async def _create(self, request: web.BaseRequest, capsule_id: str, directory: str, name: str) -> Answer:
        told = await _told(request, _CREATE_SHAPE, "expires", "end_users", "operator")
        lasts, flags = (
            told.get("expires"),
            {flag: told.get(flag, False) for flag in ("end_users", "operator")},
        )
        if lasts is not None and (type(lasts) is not int or not 1 <= lasts <= LONGEST_LIFE):
            raise RefusedError(_CREATE_SHAPE)
        if not all(isinstance(flag, bool) for flag in flags.values()):
            raise RefusedError(_CREATE_SHAPE)
        issued = await self._ring.create(directory, name, lasts=lasts, **flags)
        log.info("key_created", capsule=capsule_id, key=issued.key.id, **flags)
        return json_answer(shown_once(issued), api.UNCACHED)

    async def _rotate(self, request: web.BaseRequest, capsule_id: str, key_id: str) -> Answer:
        told = await _told(request, _ROTATE_SHAPE, "overlap")
        overlap = told.get("overlap", USUAL_OVERLAP)
        if type(overlap) not in (int, float) or not 0 <= overlap <= LONGEST_OVERLAP:
            raise RefusedError(_ROTATE_SHAPE)
        issued = await self._ring.rotate(key_id, overlap=overlap)
        if issued is None:
            raise RefusedError(_OVER)
        log.info("key_rotated", capsule=capsule_id, key=key_id, overlap_h=overlap)
        return json_answer(shown_once(issued), api.UNCACHED)

    async def _end(self, request: web.BaseRequest, capsule_id: str, key_id: str) -> Answer:
        forget = request.raw_path.partition("?")[2] == FORGET
        key = await (self._ring.forget(key_id) if forget else self._ring.revoke(key_id))
        if key is None:
            raise RefusedError(_NO_KEY)
        log.info("key_forgotten" if forget else "key_revoked", capsule=capsule_id, key=key_id)
        return json_answer(document(key), api.UNCACHED)


def document(key: AgentKey) -> dict[str, Any]:
    """Return a key as it is listed: all but its secrets. Times are Unix seconds.

    `rotated_until` is when the last secret but the newest ends, with its key at the latest; null where there is none left.
    """
    now = time.time()
    valid = key.is_valid(now)
    state = "revoked" if key.revoked_at is not None else "valid" if valid else "expired"
    ends = [key.ends_at(one.sha256) for one in key.secrets if one.until is not None and one.is_valid(now)]
    before = [at for at in ends if at is not None and valid]
    return {
        "key_id": key.id,
        "state": state,
        "end_users": key.end_users,
        "operator": key.operator,
        "created_at": round(key.created_at, 3),
        "expires_at": _rounded(key.expires_at),
        "revoked_at": _rounded(key.revoked_at),
        "rotated_until": _rounded(max(before, default=None)),
    }


def shown_once(issued: Issued) -> dict[str, Any]:
    """Return a key with its newest secret, which nothing shows again."""
    return {"key": issued.secret, **document(issued.key)}


def _rounded(at: float | None) -> float | None:
    return None if at is None else round(at, 3)


async def _told(request: web.BaseRequest, shape: Any, *names: str) -> dict[str, Any]:
    try:
        told = orjson.loads(await read_json_body(request, limit=BODY, within=BODY_TIMEOUT))
    except orjson.JSONDecodeError:
        raise RefusedError(shape) from None
    if not isinstance(told, dict) or not told.keys() <= set(names):
        raise RefusedError(shape)
    return told
