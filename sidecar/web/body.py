"""Reading a JSON body: its type, its size and its time are limited, each before more is read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from aiohttp import hdrs
from aiohttp.http import HttpVersion11
from aiohttp.web_protocol import RequestPayloadError

from sidecar.errors import RefusedError, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from sidecar.errors import Refusal
    from sidecar.web.connection import Connection

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LINES: Final = frozenset({"application/jsonl", "application/x-jsonlines", "application/x-ndjson"})
"""The media types by which JSON lines go; none of them is registered."""


async def read_json_body(
    request: web.BaseRequest,
    *,
    limit: int,
    within: float,
    lines: bool = False,
    late: Callable[[], object] | None = None,
) -> bytes:
    """Return the body of a request that must be JSON: at most `limit` bytes, whole `within` that many seconds.

    With `lines` it may be called JSON lines too. The time counts from the first look and no trickle extends it. A
    client that waits for `100 Continue` gets it once nothing else stands in the way. `late` is called behind a body
    that had to be waited for: what held when its head came may hold no more. Raises
    RefusedError: 415, 413, 408, 400 for a body that is no HTTP, or 503 where the listener ends before it is there; and
    whatever `late` raises.
    """
    headers = request.headers
    _check_type(headers.get(hdrs.CONTENT_TYPE, ""), lines=lines)
    coding = headers.get(hdrs.CONTENT_ENCODING, "identity")
    if coding.strip().lower() not in ("identity", ""):
        # what is not inflated cannot swell
        text = "A compressed body is not taken; send it as it is."
        raise RefusedError(refusal("unsupported_media_type", text, ("accept-encoding", "identity")))
    if (request.content_length or 0) > limit:
        raise RefusedError(_too_large(limit))
    connection = cast("Connection", request.protocol)
    content = request.content
    if hdrs.EXPECT in headers:
        await _answer_expectation(request)
    if not content.is_eof() or content.exception() is not None or connection.body_is_broken(request):
        body = await _waited_for(request, connection, limit=limit, within=within)
        if late is not None:
            late()
        return body
    body = content.read_nowait()  # it came with its head, as most do: there is nothing to wait for
    if len(body) > limit:
        raise RefusedError(_too_large(limit))
    return body


async def _waited_for(
    request: web.BaseRequest, connection: Connection, *, limit: int, within: float
) -> bytes:
    content = request.content
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(0.0 if connection.given_up else within) as connection.reading:
            while not connection.body_is_broken(request) and (piece := await content.readany()):
                size += len(piece)
                if size > limit:
                    raise RefusedError(_too_large(limit))
                pieces.append(piece)
    except TimeoutError:
        if connection.given_up:
            raise RefusedError(_ENDS) from None
        text = f"The body did not arrive within {within:g} seconds."
        raise RefusedError(refusal("timeout", text)) from None
    except RequestPayloadError:
        connection.body_is_broken(request)
        raise RefusedError(_BROKEN) from None
    finally:
        connection.reading = None
    if connection.body_is_broken(request):
        raise RefusedError(_BROKEN)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(limit: int) -> Refusal:
    return refusal("body_too_large", f"The body is larger than {limit} bytes.")


def _check_type(content_type: str, *, lines: bool) -> None:
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.endswith("+json") and "/" in kind):
        if lines and kind in LINES:
            return
        text = "The body must be JSON: send it with content-type: application/json."
        raise RefusedError(refusal("unsupported_media_type", text))


async def _answer_expectation(request: web.BaseRequest) -> None:
    if request.version != HttpVersion11:
        return
    if request.headers[hdrs.EXPECT].strip().lower() != "100-continue":
        raise RefusedError(refusal("bad_request", "The only expectation taken is 100-continue."))
    if not request.content.is_eof():
        await request.writer.write(CONTINUE)
        request.writer.output_size = 0  # an interim answer is none: the real one is still to come


_BROKEN: Final = refusal("bad_request", "The body is not valid HTTP.")
_ENDS: Final = refusal("unavailable", "The listener ends, and the body had not arrived; try again later.")
