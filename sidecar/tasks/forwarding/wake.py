"""What wakes a courier that waits: for its next frame, or for its next try."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.tasks.forwarding.stream import Stream


class Wake:
    """Ends one courier's waits. Once rung, every wait returns at once until `hush`."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._stream: Stream | None = None

    @property
    def rung(self) -> bool:
        """Whether it was rung, and not hushed since."""
        return self._rung.is_set()

    def ring(self) -> None:
        """End the wait that is, and those to come."""
        self._rung.set()
        if self._stream is not None:
            self._stream.wake()

    def hush(self) -> None:
        """Let waits be waits again."""
        self._rung.clear()

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        """Wake whoever reads this stream, for as long as it is open."""
        self._stream = stream
        if self._rung.is_set():
            stream.wake()
        try:
            yield
        finally:
            self._stream = None

    async def sleep(self, seconds: float) -> None:
        """Wait so long, or until it is rung."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
