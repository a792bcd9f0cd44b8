"""Asking a provider: bounded in bytes and time, without redirects and proxies, and only at addresses that may be."""

from __future__ import annotations

import asyncio
import errno
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson
from aiohttp import hdrs

from sidecar.auth.vouching import ProviderError
from sidecar.config.hosts import is_public

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.abc import AbstractResolver

TIMEOUT: Final = 5.0
MOST: Final = 256 * 1024
"""Seconds and bytes that an answer may take."""
AT_ONCE: Final = 20
"""Questions that may be under way at one provider."""


class Fetcher:
    """Asks for JSON. `within` are seconds, `most` bytes. `resolver` looks names up, None: as the system does.

    Where an address leads is decided when it is connected to, so that no name can change its mind in between.
    """

    def __init__(
        self, *, within: float = TIMEOUT, most: int = MOST, resolver: AbstractResolver | None = None
    ) -> None:
        self._within = within
        self._most = most
        self._resolver = resolver
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def aclose(self) -> None:
        """Close every connection."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def get(self, url: str, *, allow_private: bool) -> Any:
        """Return the JSON document at a URL. Raises ProviderError."""
        return await self._ask(hdrs.METH_GET, url, allow_private=allow_private)

    async def post(
        self, url: str, fields: Mapping[str, str], headers: Mapping[str, str], *, allow_private: bool
    ) -> Any:
        """Send a form and return the JSON document that comes back. Raises ProviderError."""
        return await self._ask(hdrs.METH_POST, url, fields, headers, allow_private=allow_private)

    async def _ask(
        self,
        method: str,
        url: str,
        fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        allow_private: bool,
    ) -> Any:
        try:
            async with (
                asyncio.timeout(self._within),
                self._session(allow_private=allow_private).request(
                    method,
                    url,
                    data=fields,
                    headers={hdrs.ACCEPT: "application/json", **(headers or {})},
                    allow_redirects=False,
                ) as response,
            ):
                _check_status(response.status)
                return _json(await self._whole(response))
        except TimeoutError:
            raise ProviderError(f"it did not answer within {self._within:g} s") from None
        except aiohttp.ClientConnectorCertificateError:
            raise ProviderError("its certificate is not one that is trusted here") from None
        except aiohttp.ClientConnectorError as error:
            if error.os_error.errno == errno.EACCES:
                raise ProviderError(
                    "its address is not public, and allow_private is not set for it"
                ) from None
            raise ProviderError(f"it cannot be reached: {error.os_error.strerror or 'no address'}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ProviderError(f"it does not speak HTTP as it should ({type(error).__name__})") from None

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        while chunk := await response.content.readany():
            body += chunk
            if len(body) > self._most:
                raise ProviderError(f"its answer is over {self._most} bytes")
        return bytes(body)

    def _session(self, *, allow_private: bool) -> aiohttp.ClientSession:
        if allow_private not in self._sessions:
            self._sessions[allow_private] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,
                    limit_per_host=AT_ONCE,  # one that hangs keeps nobody from the others
                    force_close=True,
                    use_dns_cache=False,
                    resolver=self._resolver or aiohttp.ThreadedResolver(),
                    socket_factory=_any_socket if allow_private else _public_socket,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=self._within),
                auto_decompress=False,
                trust_env=False,
                headers={hdrs.USER_AGENT: "sidecar", hdrs.ACCEPT_ENCODING: "identity"},
            )
        return self._sessions[allow_private]


def _any_socket(info: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, *_ = info
    return socket.socket(family, kind, protocol)


def _public_socket(info: tuple[Any, ...]) -> socket.socket:
    """Make the socket for a connection, unless it would lead to where nobody outside may send us."""
    address = info[4][0]
    if not is_public(address):
        raise PermissionError(errno.EACCES, "the address is not public")
    return _any_socket(info)


def _check_status(status: int) -> None:
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        raise ProviderError(f"it answers with a redirect ({status}), and those are not followed")
    if status != HTTPStatus.OK:
        raise ProviderError(f"it answers with HTTP status {status}")


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise ProviderError("its answer is not JSON") from None
