"""The dialect of the MOI platform: A2A 0.3 with the states that a task went through, and refusals of its own (MOI, Agent Card)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import parse_qs

import orjson

from sidecar.dialects import a2a_reading as reading
from sidecar.dialects.a2a03_server import A2A03
from sidecar.dialects.a2a_server import timestamp
from sidecar.errors import Refusal, RefusedError, refusal
from sidecar.model import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.dialects.a2a import Sending
    from sidecar.dialects.a2a_server import Dialect, Object
    from sidecar.events import Record

REQUEST_ID: Final = "X-Request-ID"
SELECTORS: Final = ("agent_id", "agent_code", "agent_workspace_id")
RETRY_AFTER: Final = "1"
"""Seconds after which whoever was turned away may try again."""

_CODES: Final[Mapping[int, str]] = {
    400: "ErrParamInvalid",
    401: "ErrUnauthorized",
    403: "ErrForbidden",
    404: "ErrNotFound",
    409: "ErrConflict",
    429: "ErrTooManyRequests",
    500: "ErrServer",
    503: "ErrServiceUnavailable",
}
_REQUEST_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
_WAITS: Final = frozenset({429, 503})

MULTIPLE: Final = refusal(
    "bad_request", "Send one credential: moi-key, X-API-Key or Authorization, and that one once."
)


class _Moi(A2A03):
    name: ClassVar = "moi"

    def read_send(self, params: Mapping[str, Any]) -> Sending:
        # answered on acceptance, whatever the client says
        return replace(super().read_send(params), blocking=False)

    def read_get(self, params: Mapping[str, Any]) -> Any:
        return super().read_get(_with_id(params))

    def read_task_id(self, params: Mapping[str, Any]) -> str:
        return super().read_task_id(_with_id(params))

    def task(self, record: Record, history_length: int | None = None, *, artifacts: bool = True) -> Object:
        states = [{"state": state.value, "timestamp": timestamp(at)} for state, at in record.states]
        made = super().task(record, history_length, artifacts=artifacts)
        return made | {"metadata": {"stateTransitions": states}}


MOI: Final[Dialect] = _Moi()


def read_after(params: Mapping[str, Any]) -> int | None:
    """Return behind which number a stream is taken up again; None where that is not said. Raises RpcError."""
    after = params.get("afterSeq")
    if after is not None and (type(after) is not int or after < 0):
        raise reading.invalid("afterSeq must be the number of a frame")
    return after


def _with_id(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return params if params.get("id") else {**params, "id": params.get("taskId")}


@dataclass(frozen=True, slots=True)
class Selection:
    """Which agent a request is about: by its id, its code or both, and in which workspace; None: not said."""

    agent_id: str | None
    agent_code: str | None
    workspace: str | None


def selection_in_query(query: str) -> Selection:
    """Read the selectors of a query. Raises RefusedError (400) for one that comes twice, or none of an agent."""
    found: dict[str, str | None] = {}
    for name, values in parse_qs(query, keep_blank_values=True).items():
        if name in SELECTORS:
            if len(values) > 1:
                raise RefusedError(refusal("bad_request", f"{name} must come once."))
            found[name] = values[0]
    return _selection(found)


def selection_in_body(envelope: Mapping[str, Any]) -> Selection:
    """Read the selectors that stand beside `jsonrpc`. Raises RefusedError (400)."""
    found = {name: envelope.get(name) for name in SELECTORS}
    for name, value in found.items():
        if value is not None and type(value) is not str:
            raise RefusedError(refusal("bad_request", f"{name} must be a string."))
    return _selection(found)


def _selection(found: Mapping[str, str | None]) -> Selection:
    agent_id, agent_code, workspace = (found.get(name) or None for name in SELECTORS)
    if agent_id is None and agent_code is None:
        raise RefusedError(refusal("bad_request", "Say which agent: agent_id or agent_code."))
    return Selection(agent_id, agent_code, workspace)


def request_id_in(given: str | None) -> str | None:
    """Return the id that a client gave its request; None where it gave none that a header can hold."""
    return given if given is not None and _REQUEST_ID.fullmatch(given) else None


def refused(found: Refusal, request_id: str) -> Answer:
    """Return a refusal as this view tells it: `{"code", "msg", "request_id"}`."""
    if found is MULTIPLE:
        code = "ErrMultipleAuthCredentials"
    else:
        # what has no code of its own is about the request where it is the client's, else about the server
        code = _CODES.get(found.status) or _CODES[400 if found.status < 500 else 500]  # noqa: PLR2004 - where 5xx begins
    headers = (("content-type", "application/json"), ("cache-control", "no-store"), *found.headers)
    if found.status in _WAITS and all(name.lower() != "retry-after" for name, _ in headers):
        headers += (("retry-after", RETRY_AFTER),)
    # a lone surrogate (bytes that are no UTF-8) has no place in JSON
    message = found.message.encode(errors="backslashreplace").decode()
    body = orjson.dumps({"code": code, "msg": message, "request_id": request_id})
    return Answer(found.status, headers, body)
