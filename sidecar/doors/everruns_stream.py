"""A stream of one session of the Everruns view: read from what is kept, at the pace of whoever takes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sidecar.dialects import everruns
from sidecar.doors.everruns_log import PAGE_BYTES
from sidecar.errors import StoreError

if TYPE_CHECKING:
    from sidecar.doors.everruns_log import EverrunsLog

PAGE: Final = 256
"""Events that are read at once."""
RETRY_MS: Final = 1000
"""Milliseconds after which a client that was sent away comes back."""
TURN_CANCELLED: Final = "turn_cancelled"
STOPPING: Final = "server_shutdown"
UNAVAILABLE: Final = "unavailable"
CREDENTIAL_ENDED: Final = "credential_ended"


class SessionStream:
    """An open stream, pulled by whoever writes it to the socket. It holds no more than one page of events.

    It shows the events of the session behind `after`. It ends by itself behind a cancelled turn that nothing follows.
    `session_id` is the capsule's; `heartbeat` is in seconds.
    """

    def __init__(
        self,
        log: EverrunsLog,
        everruns_id: str,
        after: int,
        *,
        session_id: str,
        heartbeat: float,
    ) -> None:
        self._log = log
        self._id = everruns_id
        self._cursor = after
        self._heartbeat = heartbeat
        self._session_id = session_id
        self._first: bytes | None = everruns.connected_frame(everruns_id, after)
        self._news = True
        self._beat = False
        self._reason: str | None = None
        self._at_once = False
        self._over = False
        self._wake = asyncio.Event()
        self._timer = asyncio.get_running_loop().call_later(heartbeat, self._tick)
        log.listen(everruns_id, self._heard)
        log.streams[session_id].add(self)

    async def next(self) -> bytes | None:
        """Return the next whole frames or a heartbeat as soon as there is something; None at the end."""
        while not self._over:
            if self._first is not None:
                first, self._first = self._first, None
                return first
            self._wake.clear()
            # what is committed goes out before the end: a turn's last event above all
            if self._news and not self._at_once and (frames := await self._read()):
                return frames
            if self._reason is not None:
                self._over = True
                return everruns.disconnecting_frame(self._reason, RETRY_MS)
            if self._beat:
                self._beat = False
                return everruns.HEARTBEAT
            await self._wake.wait()
        return None

    def end(self, reason: str = STOPPING, *, at_once: bool = False) -> None:
        """Have it end with its closing frame, behind what is committed, or without another look at that."""
        self._reason = self._reason or reason
        self._at_once = self._at_once or at_once
        self._wake.set()

    def close(self) -> None:
        """Let go of everything; may be called twice."""
        if self._timer.cancelled():
            return
        self._over = True
        self._timer.cancel()
        self._log.leave(self._id, self._heard)
        streams = self._log.streams[self._session_id]
        streams.discard(self)
        if not streams:
            del self._log.streams[self._session_id]
        self._wake.set()

    async def _read(self) -> bytes:
        """Return the next events; if that fails the stream ends, and the client comes back with its last id."""
        self._news = False
        try:
            events = await self._log.events(self._id, self._cursor, PAGE, PAGE_BYTES)
        except StoreError:
            self.end(UNAVAILABLE)
            return b""
        if not events:
            return b""
        self._cursor = events[-1].sequence
        self._news = True
        if events[-1].type == everruns.CANCELLED and await self._is_quiet():
            self.end(TURN_CANCELLED)
        return b"".join(everruns.event_frame(self._id, event) for event in events)

    async def _is_quiet(self) -> bool:
        """Whether nothing follows the newest event that was read, and nothing is about to."""
        try:
            return await self._log.is_quiet(self._id, self._cursor)
        except StoreError:
            return True

    def _heard(self) -> None:
        self._news = True
        self._wake.set()

    def _tick(self) -> None:
        self._beat = True
        self._timer = asyncio.get_running_loop().call_later(self._heartbeat, self._tick)
        self._wake.set()
