"""The desk's calls for peer handles: making one, listing them, revoking one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import hdrs

from sidecar.desk import api
from sidecar.errors import RefusedError, refusal
from sidecar.web.answers import json_answer
from sidecar.web.body import read_json_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from sidecar.model import Answer, Capsule
    from sidecar.ops.metrics import Metrics
    from sidecar.planes.sharing import Shared, Sharing

    Action = Callable[[web.BaseRequest, Capsule, str], Awaitable[Answer]]

HANDLES: Final = "/api/capsules/{id}/handles"
HANDLE: Final = "/api/capsules/{id}/handles/{handle_id}"
METHODS: Final = {HANDLES: (hdrs.METH_GET, hdrs.METH_POST), HANDLE: (hdrs.METH_DELETE,)}
BODY: Final = 64 * 1024
BODY_TIMEOUT: Final = 15.0

_KEYS: Final = frozenset({"path", "audience", "ttl"})
_NOT_SERVED: Final = refusal("unavailable", "The capsule is not served now: sidecar list says why.")
_SHAPE: Final = refusal(
    "bad_request",
    'Send a JSON object with "path" and "audience", both text, and if you like "ttl", whole seconds.',
)


class Handles:
    """What `handles` below a capsule's path on the desk does.

    `served` returns the capsule that is served now under an id, None where there is none.
    """

    def __init__(self, sharing: Sharing, served: Callable[[str], Capsule | None], metrics: Metrics) -> None:
        self._sharing = sharing
        self._served = served
        self._metrics = metrics

    async def answer(self, request: web.BaseRequest, capsule_id: str, handle_id: str) -> Answer:
        """Answer a request below a capsule that there is; `handle_id` is empty for all of them. Raises RefusedError."""
        if request.method == hdrs.METH_GET:
            return self._list(self._capsule(capsule_id))
        action: Action = self._mint if request.method == hdrs.METH_POST else self._revoke
        name = "mint" if request.method == hdrs.METH_POST else "revoke"
        try:
            answer = await action(request, self._capsule(capsule_id), handle_id)
        except RefusedError as error:
            self._metrics.handle(name, error.refusal.code)
            raise
        self._metrics.handle(name, "ok")
        return answer

    def _capsule(self, capsule_id: str) -> Capsule:
        capsule = self._served(capsule_id)
        if capsule is None:
            raise RefusedError(_NOT_SERVED)
        return capsule

    def _list(self, capsule: Capsule) -> Answer:
        return json_answer(
            {"handles": [document(one) for one in self._sharing.listed(capsule)]}, api.UNCACHED
        )

    async def _mint(self, request: web.BaseRequest, capsule: Capsule, _handle_id: str) -> Answer:
        path, audience, ttl = wishes(await read_json_body(request, limit=BODY, within=BODY_TIMEOUT))
        minted = await self._sharing.mint(capsule, path, audience, ttl)
        shared = minted.shared
        told = {
            "handle": minted.token,
            "handle_id": shared.handle_id,
            "expires_at_ms": shared.expires_at_ms,
            "audience": api.text(shared.audience),
        }
        return json_answer(told, api.UNCACHED)

    async def _revoke(self, _request: web.BaseRequest, capsule: Capsule, handle_id: str) -> Answer:
        return json_answer(document(self._sharing.revoke(capsule, handle_id)), api.UNCACHED)


def document(shared: Shared) -> dict[str, Any]:
    """Return a handle as it is listed: all but the handle itself."""
    return {
        "handle_id": shared.handle_id,
        "path": api.text(shared.path),
        "audience": api.text(shared.audience),
        "minted_at_ms": shared.minted_at_ms,
        "expires_at_ms": shared.expires_at_ms,
        "revoked": shared.revoked,
    }


def wishes(body: bytes) -> tuple[str, str, int | None]:
    """Return path, audience and time to live (seconds) of a wish for a handle. Raises RefusedError `bad_request`."""
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise RefusedError(_SHAPE) from None
    if not isinstance(told, dict) or not told.keys() <= _KEYS:
        raise RefusedError(_SHAPE)
    path, audience, ttl = told.get("path"), told.get("audience", ""), told.get("ttl")
    if not isinstance(path, str) or not isinstance(audience, str):
        raise RefusedError(_SHAPE)
    if ttl is not None and type(ttl) is not int:
        raise RefusedError(_SHAPE)
    return path, audience, ttl
