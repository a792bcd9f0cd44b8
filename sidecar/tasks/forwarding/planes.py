"""Planes of a capsule read from the door elsewhere: `forward.planes: forward`."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import aiohttp
import orjson
from aiohttp import hdrs

from sidecar.errors import STATUS_OF, Refusal, RefusedError, refusal
from sidecar.model import Answer
from sidecar.tasks.forwarding.trouble import TroubleError
from sidecar.web.answers import Streamed

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.tasks.forwarding.where import Whereabouts

MOST: Final = 16 * 1024 * 1024
"""Bytes of an answer without a length, such as a listing, and of a refusal."""
STALL: Final = 30.0
"""Seconds without a byte after which a body is given up."""

_PASSED: Final = frozenset({200, 304, 400, 403, 404, 405, 410, 413, 500})
_ASKED: Final = ("if-none-match", "x-murmur-audience")
_TOLD: Final = ("content-type", "etag", "allow")
_OURS: Final = "x-murmur-"
_UNDECLARED: Final = {
    "files": refusal("no_resource_plane", "This capsule exports no files."),
    "peer_files": refusal("no_peer_plane", "This capsule exports no files to peers."),
}
_AWAY: Final = refusal("unavailable", "The door that this capsule's files are read from cannot be used now.")


class PassedPlanes:
    """Passes reads on to a murmur door. Nothing of the caller goes along but what the planes themselves read."""

    def __init__(self, where: Callable[[], Whereabouts | None]) -> None:
        self._where = where

    @property
    def on(self) -> bool:
        """Whether reads are to be passed on at all."""
        return self._where() is not None

    async def read(
        self, plane: str, raw_target: str, header: Callable[[str], str | None]
    ) -> Answer | Streamed:
        """Answer a GET below `/resources/` with what the door answers to it. Raises RefusedError.

        What the door itself refuses in the one shape is raised, so that it is counted as what it is.
        """
        where = self._where()
        if where is None:
            raise RefusedError(_AWAY)
        asked = {name: value for name in _ASKED if (value := header(name)) is not None}
        try:
            door = await where.look()
            if plane not in door.planes:
                raise RefusedError(_UNDECLARED[plane])
            url = door.caller.at(f"{door.url.raw_path.rstrip('/')}{raw_target}")
            response = await door.caller.ask(hdrs.METH_GET, url, asked)
        except TroubleError:
            raise RefusedError(_AWAY) from None
        return await _passed_on(response)


class PassedBody:
    """The bytes of a body as they come from elsewhere."""

    def __init__(self, response: aiohttp.ClientResponse, length: int) -> None:
        self.length = length
        self._response = response
        self._left = length

    async def next(self) -> bytes:
        """Return the next piece, empty at the end. Raises ConnectionError where the rest does not come."""
        if not self._left:
            return b""
        try:
            async with asyncio.timeout(STALL):
                data = await self._response.content.readany()
        except (TimeoutError, aiohttp.ClientError, OSError):
            raise ConnectionAbortedError("the door elsewhere did not send the rest") from None
        if not data or len(data) > self._left:
            raise ConnectionAbortedError("the door elsewhere sent another length than it said")
        self._left -= len(data)
        return data

    def close(self) -> None:
        """Close the connection."""
        self._response.close()


def _headers(response: aiohttp.ClientResponse) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name.lower(), value)
        for name, value in response.headers.items()
        if name.lower() in _TOLD or name.lower().startswith(_OURS)
    )


async def _passed_on(response: aiohttp.ClientResponse) -> Answer | Streamed:
    """Return an answer of the door's as one of ours; what has no length, and every refusal, is read whole."""
    length = response.content_length
    try:
        usable = response.status in _PASSED and hdrs.CONTENT_ENCODING not in response.headers
        if not usable or response.status != HTTPStatus.OK or length is None:
            answer = Answer(response.status, _headers(response), await _whole(response, usable=usable))
            return _judged(answer)
    except (TimeoutError, aiohttp.ClientError, OSError):
        response.close()
        raise RefusedError(_AWAY) from None
    except BaseException:
        response.close()
        raise
    return Streamed(response.status, _headers(response), PassedBody(response, length))


def _judged(answer: Answer) -> Answer:
    """Return an answer that is no refusal, or one in a shape of the door's own. Raises the others as RefusedError."""
    try:
        document = orjson.loads(answer.body) if answer.status >= HTTPStatus.BAD_REQUEST else None
        code, message = (document or {}).get("error"), (document or {}).get("message")
    except (orjson.JSONDecodeError, AttributeError):
        return answer
    if not (isinstance(code, str) and isinstance(message, str)) or STATUS_OF.get(code) != answer.status:
        return answer
    headers = tuple((name, value) for name, value in answer.headers if name != "content-type")
    raise RefusedError(Refusal(answer.status, code, message, headers))


async def _whole(response: aiohttp.ClientResponse, *, usable: bool) -> bytes:
    """Read a body to its end, and close it. Raises RefusedError where it is too long, or of no use."""
    if not usable:
        raise RefusedError(_AWAY)
    body = bytearray()
    async with asyncio.timeout(STALL):
        while chunk := await response.content.readany():
            body += chunk
            if len(body) > MOST:
                raise RefusedError(_AWAY)
    response.close()
    return bytes(body)
