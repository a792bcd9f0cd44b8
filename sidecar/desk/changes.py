"""What has changed in the registry, for pages that show it: looked at often while somebody watches, told once."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.desk import api
from sidecar.dialects import sse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.model import CapsuleStatus, ConfigStatus, RegistryView, RootStatus

    Rest = tuple[ConfigStatus, tuple[RootStatus, ...], bool]

PAUSE: Final = 0.2
"""Seconds between two looks; whatever happened in between is one change."""
SHARE: Final = 0.05
"""The most of the event loop's time that looking may take, however many capsules there are."""
BATCH: Final = 100
"""Capsules in one frame."""
HEARTBEAT: Final = 15.0
MOST: Final = 32
"""Streams that may be open at a time."""

_ALIVE: Final = sse.comment("heartbeat")
_CLOSED: Final = sse.frame("closed", b"{}")


class Changes:
    """Looks at the registry while streams are open, and wakes them when it has changed. One event loop.

    `rows` are by id and in its order; a row is the same object for as long as nothing about it changes.
    """

    def __init__(self, view: RegistryView, *, pause: float = PAUSE, heartbeat: float = HEARTBEAT) -> None:
        self.rows: dict[str, CapsuleStatus] = {}
        self.rest: Rest | None = None
        self.heartbeat = heartbeat
        self._view = view
        self._pause = pause
        self._streams: set[RowStream] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Streams that are open."""
        return len(self._streams)

    def subscribe(self) -> RowStream:
        """Open a stream; close it in the end."""
        stream = RowStream(self)
        self._streams.add(stream)
        if self._timer is None:
            self._look()
        return stream

    def leave(self, stream: RowStream) -> None:
        """Forget a stream; without any there is nothing to look for."""
        self._streams.discard(stream)
        if not self._streams and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self) -> None:
        """Have every stream end with its closing frame."""
        for stream in tuple(self._streams):
            stream.end()

    def _look(self) -> None:
        began = time.perf_counter()
        view, before = self._view, self.rows
        # a row with live tasks is made anew each time that it is asked for
        rows = {row.id: same if (same := before.get(row.id)) == row else row for row in view.capsules()}
        rest = (view.config(), tuple(view.roots()), view.ready())
        changed = len(rows) != len(before) or any(before.get(id_) is not row for id_, row in rows.items())
        if changed or rest != self.rest:
            self.rows, self.rest = rows, rest
            for stream in self._streams:
                stream.wake()
        pause = max(self._pause, (time.perf_counter() - began) / SHARE)
        self._timer = asyncio.get_running_loop().call_later(pause, self._look)


class RowStream:
    """One page's stream: knows what it has shown, and shows the difference to what is.

    A slow reader misses nothing but states in between, and holds no more than the rows that there are.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._shown: dict[str, CapsuleStatus] = {}
        self._seen: dict[str, CapsuleStatus] | None = None
        self._rest: Rest | None = None
        self._alive = False
        self._ending = False
        self._over = False
        self._wake = asyncio.Event()
        self._timer = asyncio.get_running_loop().call_later(changes.heartbeat, self._beat)

    async def next(self) -> bytes | None:
        """Return the next frame as soon as there is something to say, a heartbeat now and then; None at the end."""
        while not self._over:
            if self._ending:
                self._over = True
                return _CLOSED
            self._wake.clear()
            if frame := self._difference():
                await asyncio.sleep(
                    0
                )  # thousands of rows are many frames, and the socket may take them all at once
                return frame
            if self._alive:
                self._alive = False
                return _ALIVE
            await self._wake.wait()
        return None

    def wake(self) -> None:
        """Have it look again."""
        self._wake.set()

    def end(self) -> None:
        """Have it end with its closing frame."""
        self._ending = True
        self.wake()

    def close(self) -> None:
        """Let go of it; may be called twice."""
        self._over = True
        self._timer.cancel()
        self._changes.leave(self)
        self.wake()

    def _beat(self) -> None:
        self._alive = True
        self._timer = asyncio.get_running_loop().call_later(self._changes.heartbeat, self._beat)
        self.wake()

    def _difference(self) -> bytes | None:
        """Return a frame about what the reader does not know yet, or None."""
        changes = self._changes
        if changes.rest is not None and changes.rest != self._rest:
            self._rest = changes.rest
            return sse.frame("registry", orjson.dumps(registry_frame(*changes.rest)))
        if changes.rows is self._seen:
            return None
        rows, shown = changes.rows, self._shown
        due: list[CapsuleStatus] = []
        for id_, row in rows.items():
            if shown.get(id_) is not row:
                if len(due) == BATCH:
                    return self._frame(due, [], more=True)
                due.append(row)
        gone = [id_ for id_ in shown if id_ not in rows] if len(shown) + len(due) > len(rows) else []
        for id_ in gone:
            del shown[id_]
        self._seen = rows
        return self._frame(due, gone, more=False)

    def _frame(self, due: Sequence[CapsuleStatus], gone: Sequence[str], *, more: bool) -> bytes:
        self._shown.update((row.id, row) for row in due)
        return sse.frame(
            "capsules",
            orjson.dumps(
                {
                    "capsules": [api.watched_document(row) for row in due],
                    "gone": gone,
                    "total": len(self._changes.rows),
                    "more": more,
                }
            ),
        )


def registry_frame(config: ConfigStatus, roots: Sequence[RootStatus], ready: bool) -> dict[str, Any]:  # noqa: FBT001 - a value to show
    """Return what a page is told beside the capsules."""
    return {
        "ready": ready,
        "config": api.config_document(config),
        "roots": [api.root_document(root) for root in roots],
    }
