"""A stream of frames from a door elsewhere, bounded in silence and size."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp

from sidecar.dialects.reading import UnreadableError
from sidecar.dialects.sse_reader import SseReader
from sidecar.tasks.forwarding.trouble import AwayError, WrongError, reason_of

if TYPE_CHECKING:
    from sidecar.dialects.sse_reader import Frame


class Stream:
    """An open stream of frames. `wake` ends the wait for the next ones."""

    def __init__(self, response: aiohttp.ClientResponse, where: str, silence: float) -> None:
        self._response = response
        self._where = where
        self._silence = silence
        self._reader = SseReader()
        self._scope: asyncio.Timeout | None = None
        self._woken = False

    async def next(self, within: float | None = None) -> list[Frame] | None:
        """Return the next frames, none where the wait was ended or only a comment came; None at the end.

        With `within` the wait also ends, with none, after so many seconds.

        Raises AwayError where the connection breaks or falls silent, WrongError for what is no such stream.
        """
        if self._taken():
            return []
        try:
            async with asyncio.timeout(self._silence if within is None else within) as self._scope:
                chunk = await self._response.content.readany()
        except TimeoutError:
            if self._taken() or within is not None:
                return []
            raise AwayError(f"{self._where} said nothing for {self._silence:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise AwayError(f"the connection to {self._where} broke: {reason_of(error)}") from None
        finally:
            self._scope = None
        return self._read(chunk) if chunk else None

    def at_once(self) -> list[Frame]:
        """Return the frames that are here already. Raises WrongError for what is no such stream."""
        content = self._response.content
        return self._read(content.read_nowait()) if content.exception() is None else []

    def _read(self, chunk: bytes) -> list[Frame]:
        try:
            return self._reader.feed(chunk)
        except UnreadableError as error:
            raise WrongError(f"{self._where} is not understood: {error}") from None

    def _taken(self) -> bool:
        woken, self._woken = self._woken, False
        return woken

    def wake(self) -> None:
        """Have `next` return, now or at its next call."""
        self._woken = True
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())
