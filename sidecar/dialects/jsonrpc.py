"""JSON-RPC 2.0 over HTTP, without batches and notifications: requests, results and errors, read and written."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple, NoReturn

import orjson

from sidecar.dialects.reading import UnreadableError, an_object, parsed, text_or

Id = str | int | None

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
TASK_NOT_FOUND: Final = -32001

_LOWEST_ID: Final = -(2**63)
_HIGHEST_ID: Final = 2**64 - 1
LOOKED_AT_AGAIN: Final = 1 << 20
"""Longer bodies that cannot be taken are a parse error without a second look."""
_LONG_NUMBER: Final = re.compile("([0-9])[0-9]{4000,}")
"""More digits than Python makes an integer of, to be on the safe side: it takes quadratic time."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_STILL: Final = "1" * 400
_STILL_LONG: Final = rf"\g<1>{_STILL}"


class RpcError(Exception):
    """What the caller is told instead of a result: a code of JSON-RPC 2.0 section 5.1 or of the murmur reference."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class RequestError(RpcError):
    """The bytes are no request. `id` is the one to echo: the caller's where it is a valid one, else None."""

    def __init__(self, code: int, message: str, request_id: Id = None) -> None:
        super().__init__(code, message)
        self.id = request_id


class Request(NamedTuple):
    """A request whose envelope is right. `params` may still be anything; see `params_of`.

    `id` is None only where `parse` was told to take a request without one.
    """

    id: Id
    method: str
    params: Any


def parse(body: bytes, *, nameless: bool = False) -> Request:
    """Read a request (JSON-RPC 2.0 section 4). A member that comes twice counts as its last.

    `nameless` takes a request without an id, or with null, as one that is answered all the same.
    Raises RequestError: -32700 for what is no JSON in UTF-8, or nested too deeply to tell; -32600 for what is no
    single request with an id that is a string or an integer of at most 64 bits, and for a number or a text anywhere
    in it that cannot be taken.
    """
    try:
        envelope = orjson.loads(body)
    except orjson.JSONDecodeError:
        request = _request(_looked_at_again(body), nameless=nameless)
        what = "it holds a number that no double can be, or half of a surrogate pair"
        raise RequestError(INVALID_REQUEST, f"Invalid Request: {what}", request.id) from None
    return _request(envelope, nameless=nameless)


def _looked_at_again(body: bytes) -> object:
    """Return what JSON says whose values cannot be taken. Raises RequestError -32700 where it is no JSON.

    A number too long for a double need not come out as it is: it is no id in any case.
    """
    if len(body) <= LOOKED_AT_AGAIN:
        try:
            text = body.decode()
            try:
                return json.loads(text, parse_constant=_no_json)
            except json.JSONDecodeError:
                raise
            except ValueError:  # too many digits
                return _without_long_id(json.loads(_shortened(text), parse_constant=_no_json))
        except (ValueError, RecursionError):
            pass
    raise RequestError(PARSE_ERROR, "Parse error")


def _shortened(text: str) -> str:
    return _LONG_NUMBER.sub(_STILL_LONG, text)


def _without_long_id(envelope: object) -> object:
    """Leave out an id of text that was shortened with the numbers."""
    if type(envelope) is dict and type(found := envelope.get("id")) is str and _STILL in found:
        return {**envelope, "id": None}
    return envelope


def _no_json(constant: str) -> NoReturn:
    raise json.JSONDecodeError(f"{constant} is no JSON", constant, 0)


def _request(envelope: object, *, nameless: bool) -> Request:
    """Return the request that a JSON value is. Raises RequestError -32600."""
    if type(envelope) is not dict:
        what = "batches are not taken" if type(envelope) is list else "a request is a JSON object"
        raise RequestError(INVALID_REQUEST, f"Invalid Request: {what}")
    request_id = _valid_id(envelope.get("id"))
    method = envelope.get("method")
    if envelope.get("jsonrpc") != "2.0":
        raise RequestError(INVALID_REQUEST, 'Invalid Request: jsonrpc must be "2.0"', request_id)
    if request_id is None and not (nameless and envelope.get("id") is None):
        raise RequestError(
            INVALID_REQUEST, "Invalid Request: id must be a string or an integer of at most 64 bits"
        )
    if type(method) is not str:
        raise RequestError(INVALID_REQUEST, "Invalid Request: method must be a string", request_id)
    return Request(request_id, method, envelope.get("params"))


def params_of(request: Request) -> dict[str, Any]:
    """Return the named parameters; missing and null ones are none. Raises RpcError for anything but an object."""
    if request.params is None:
        return {}
    if type(request.params) is not dict:
        raise RpcError(INVALID_PARAMS, "Invalid params: params must be an object")
    return request.params


def result(request_id: Id, value: object) -> bytes:
    """Return a successful answer."""
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "result": value})


def error(request_id: Id, code: int, message: str) -> bytes:
    """Return an answer that says what was wrong."""
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})


def call(request_id: str | int, method: str, params: object) -> bytes:
    """Return a request, for a server elsewhere."""
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def result_in(answer: bytes, what: str) -> object:
    """Return the result in a server's answer; `what` begins the sentence where it is none.

    Raises RpcError where the server answers with an error, UnreadableError for what is no answer at all.
    """
    envelope = an_object(parsed(answer, what), what)
    if (found := envelope.get("error")) is not None:
        reason = an_object(found, f"the error in {what}")
        code = reason.get("code")
        raise RpcError(code if type(code) is int else INTERNAL_ERROR, text_or(reason, "message", "no reason"))
    if "result" not in envelope:
        raise UnreadableError(f"{what} has neither a result nor an error")
    found_result: object = envelope["result"]
    return found_result


def _valid_id(value: object) -> str | int | None:
    """Return a valid id, else None. The parser turns longer integers into floats, which no id may be.

    Nor may text be with half of a surrogate pair in it, which cannot be sent back.
    """
    if type(value) is str:
        return None if _SURROGATE.search(value) else value
    if type(value) is int and _LOWEST_ID <= value <= _HIGHEST_ID:
        return value
    return None
