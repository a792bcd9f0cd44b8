"""Requests of one worker to the desk of a sidecar."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import ssl
import uuid
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import aiohttp

from sidecar.worker.errors import AwayError, LostError, WorkerError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SLACK: Final = 15.0
"""Seconds that an answer may take beyond what it was to wait for."""
SHORTEST_PAUSE: Final = 0.1

log = logging.getLogger("sidecar.worker")


class Client:
    """Posts to the paths below `/workers/{capsule}` of the desk.

    `url` None means that the state directory says where the desk is and, where `token` is None too, has the token. It
    also says which certificate the desk has; `cafile` has those that vouch for a desk at a `url`, None: the system's.
    """

    def __init__(
        self, capsule: str, url: str | None, token: str | None, state: Path | None, cafile: str | None = None
    ) -> None:
        self._capsule = quote(capsule, safe="~")
        self._url = url
        self._token = token
        self._state = state
        self._tls: ssl.SSLContext | bool = True
        if cafile is not None:
            self._tls = ssl.create_default_context(cafile=cafile)
        self._name = uuid.uuid4().hex
        self._http: aiohttp.ClientSession | None = None
        self._away = False

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Have connections; a client has them once at a time."""
        if self._http is not None:
            raise RuntimeError("this worker is at work already")
        self._http = aiohttp.ClientSession()
        try:
            async with self._http:
                yield
        finally:
            self._http = None

    async def call(
        self,
        path: str,
        *,
        lease: str | None = None,
        wait: float = 0.0,
        heard: int | None = None,
        body: bytes | None = None,
    ) -> dict[str, Any] | None:
        """Post, have the sidecar wait so many seconds for news, and return the document; None for an empty answer.

        Raises AwayError, LostError, and WorkerError for what is refused for good.
        """
        if self._http is None:
            raise AwayError("this worker is not at work")
        url, token, tls = self._place()
        headers = {"x-sidecar-worker": self._name, "content-type": "application/jsonl"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        if lease is not None:
            headers["x-sidecar-lease"] = lease
        params = {"wait": f"{wait:.3f}"}
        if heard is not None:
            params["heard"] = str(heard)
        try:
            async with self._http.post(
                f"{url}/workers/{self._capsule}/{path}",
                params=params,
                headers=headers,
                data=body,
                ssl=tls,
                allow_redirects=False,  # the token is for this place alone
                timeout=aiohttp.ClientTimeout(total=wait + SLACK),
            ) as answer:
                found = _judged(answer.status, await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise AwayError(f"{url} does not answer: {_why(error)}") from None
        if self._away:
            self._away = False
            log.info("the sidecar is back")
        return found

    def note(self, error: Exception) -> None:
        """Log that the sidecar is away, once each time."""
        if not self._away:
            self._away = True
            log.warning("%s; it is tried again", str(error).rstrip("."))

    def _place(self) -> tuple[str, str | None, ssl.SSLContext | aiohttp.Fingerprint | bool]:
        """Return the desk's URL, the token and whom to trust as they are now: a restart may move the desk."""
        url, token, tls = self._url, self._token, self._tls
        if self._state is None:
            return (url or "").rstrip("/"), token, tls
        try:
            if url is None:
                desk = json.loads((self._state / "run.json").read_bytes())["desk"]
                url = str(desk["url"])
                if (digest := desk.get("certificate_sha256")) is not None:
                    return url, token or self._admin_token(), aiohttp.Fingerprint(bytes.fromhex(digest))
            return url.rstrip("/"), token or self._admin_token(), tls
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise AwayError(f"no sidecar is known by {self._state}: {error}") from None

    def _admin_token(self) -> str:
        assert self._state is not None  # noqa: S101 - nobody asks without one
        return (self._state / "admin.token").read_text().strip()


class Pause:
    """Longer and longer pauses while the sidecar is away."""

    def __init__(self, client: Client, longest: float) -> None:
        self._client = client
        self._longest = longest
        self._next = SHORTEST_PAUSE

    def reset(self) -> None:
        """Begin anew: it answered."""
        self._next = SHORTEST_PAUSE

    async def after(self, error: Exception) -> None:
        """Wait, somewhat by chance, so that many workers do not come back at once."""
        self._client.note(error)
        await asyncio.sleep(self._next * random.uniform(0.5, 1.0))  # noqa: S311 - spreads, keeps no secret
        self._next = min(self._next * 2, self._longest)


def state_directory(given: str | os.PathLike[str] | None) -> Path:
    """Return the state directory of the sidecar: the one given, `$SIDECAR_STATE`, else the default of this user."""
    found = given or os.environ.get("SIDECAR_STATE")
    if found:
        return Path(found).expanduser()
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if base.startswith("/") else Path("~/.local/state").expanduser()) / "sidecar"


def _why(error: Exception) -> str:
    """Return why nothing came; where no connection did, what the system says: aiohttp speaks of TLS in any case."""
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
        error, ssl.SSLError | aiohttp.ClientSSLError
    ):
        number = error.os_error.errno or 0
        return os.strerror(number) if number > 0 else str(error.os_error.strerror)  # below 0: of a name
    return str(error) or type(error).__name__


def _judged(status: int, body: bytes) -> dict[str, Any] | None:
    """Return the document of an answer, None for an empty one; raise what else it means."""
    if status == 204:  # noqa: PLR2004 - no content
        return None
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise AwayError(f"an answer of status {status} is none of a sidecar's")
    if status == 200:  # noqa: PLR2004 - fine
        return document
    text = str(document.get("message", document))
    if status == 409:  # noqa: PLR2004 - lease_lost
        raise LostError(text)
    if status in (400, 401, 403, 405, 413, 415):
        raise WorkerError(text)
    raise AwayError(text)
