"""Hints of where to look: one inotify watcher for all places, kept alive. Nothing relies on it.

What watchfiles does and does not tell decides the shape: files are never watched, only directories, without
recursion and without a filter; an event says "look there again", whatever its kind; a lost event is made up for by the
tick of the scan.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Final

import structlog
from watchfiles._rust_notify import RustNotify

from sidecar.errors import visible
from sidecar.model import LastError
from sidecar.watch.thread import OwnThread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from sidecar.watch.paths import Ident

STEP_MS: Final = 20
DEBOUNCE_MS: Final = 1
"""Events are handed on after one quiet step, or after two steps however many there are."""
FOREVER: Final = 0

SHARE: Final = 10
"""Replacing the watcher may take one part in so many of the time."""
BACK_OFF: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds to wait after so many deaths in a row."""
STEADY: Final = 60.0
"""A watcher that lived so long (seconds) has recovered; a directory that killed two within it is left out so long."""
MOST_TOLD: Final = 64

ADDED, DELETED = 1, 3

UNDECODABLE: Final = re.compile(r'Unable to decode path "(.*)/')
INSTANCES: Final = (
    "raise fs.inotify.max_user_instances (and user.max_inotify_instances in a container), or LimitNOFILE"
)
WATCHES: Final = "raise fs.inotify.max_user_watches (and user.max_inotify_watches in a container)"


class Hints:
    """Watches a set of directories and calls back, in the event loop, with the paths of events.

    `notice` gets the paths, or None where anything may have happened: a watcher has begun, or has died. Whenever
    there is no watcher `last_error` says why; one is tried again with growing pauses. Directories whose names are
    not UTF-8 are not watched: the library cannot name them.
    """

    def __init__(self, notice: Callable[[Collection[str] | None], None]) -> None:
        self.last_error: LastError | None = None
        self._notice = notice
        self._thread = OwnThread("watch-hints")
        self._wanted: Mapping[str, Ident] = {}
        self._armed: dict[str, Ident] = {}
        self._renew = asyncio.Event()
        self._stop = threading.Event()
        self._closing = False
        self._rest_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._let_in: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._deaths = 0
        self._killers: dict[str, float] = {}
        self._left_out: dict[str, float] = {}
        self._told: set[str] = set()
        self._lost = False
        self._active = False

    @property
    def watching(self) -> bool:
        """Whether the watcher is at work and watches all that is wanted of it."""
        return self._active and self._armed == self._watchable()

    def arm(self, places: Mapping[str, Ident]) -> None:
        """Watch exactly these directories (device and inode by path) from now on, soon."""
        self._wanted = places
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="watch-hints")
        self._consider()

    async def aclose(self) -> None:
        """Stop watching and leave nothing behind."""
        self._closing = True
        for timer in (self._timer, self._let_in):
            if timer is not None:
                timer.cancel()
        self._stop.set()
        self._renew.set()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=1.0)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._thread.aclose()

    def _consider(self) -> None:
        """Have the watcher replaced if it watches anything but what is wanted; not before it had some rest."""
        if self._closing or self._timer is not None or self._watchable() == self._armed:
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(max(loop.time(), self._rest_until), self._replace)

    def _replace(self) -> None:
        self._timer = None
        if self._watchable() != self._armed:
            self._stop.set()
            self._renew.set()

    def _watchable(self) -> dict[str, Ident]:
        now = time.monotonic()
        self._left_out = {path: until for path, until in self._left_out.items() if until > now}
        return {
            path: ident
            for path, ident in self._wanted.items()
            if path not in self._left_out and (path.isascii() or _is_utf8(path))
        }

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._renew.wait()
            self._renew.clear()
            if self._closing:
                return
            if not (places := self._watchable()):
                continue
            begun = loop.time()
            try:
                await self._watch(places)
            except (OSError, RuntimeError, UnicodeError) as error:
                self._died(error, lived=loop.time() - begun)

    async def _watch(self, places: dict[str, Ident]) -> None:
        loop = asyncio.get_running_loop()
        self._stop.clear()
        self._armed = places
        watcher = None
        try:
            begun = loop.time()
            watcher = await self._thread.run(_open, list(places))
            self._rest_until = loop.time() + SHARE * (loop.time() - begun)
            self._began()
            while not self._stop.is_set():
                events = await self._thread.run(watcher.watch, DEBOUNCE_MS, STEP_MS, FOREVER, self._stop)
                if isinstance(events, set):
                    self._hand_on(events)
        finally:
            self._armed, self._active = {}, False
            if watcher is not None:
                watcher.close()

    def _hand_on(self, events: set[tuple[int, str]]) -> None:
        for kind, path in events:
            # A directory made anew may have the inode of the old one, and is not watched.
            if path in self._armed and kind in (ADDED, DELETED):
                self._armed[path] = (0, 0)
                self._consider()
        self._notice({path for _, path in events})

    def _began(self) -> None:
        self.last_error = None
        self._active = True
        self._told -= {WATCHES, INSTANCES}
        if self._lost:
            self._lost = False
            structlog.get_logger().info("watch_restored", directories=len(self._armed))
        self._notice(None)

    def _died(self, error: Exception, *, lived: float) -> None:
        self._deaths = 1 if lived > STEADY else self._deaths + 1
        cause, message = self._reason(str(error))
        self.last_error = LastError(time.time(), message)
        if cause not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(cause)
            self._lost = True
            structlog.get_logger().warning("watch_lost", reason=message)
        self._notice(None)
        loop = asyncio.get_running_loop()
        pause = BACK_OFF[min(self._deaths, len(BACK_OFF)) - 1]
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(max(loop.time() + pause, self._rest_until), self._replace)

    def _reason(self, text: str) -> tuple[str, str]:
        """Return what an error is told apart by, and what to say: what, why, and what to do."""
        by_tick = "changes are found by the tick alone"
        if "file watch limit" in text:
            return WATCHES, f"the kernel's table of inotify watches is full; {by_tick}; {WATCHES}"
        if "Too many open files" in text:
            return INSTANCES, f"the kernel gives no further inotify instance; {by_tick}; {INSTANCES}"
        if (match := UNDECODABLE.search(text)) is not None:
            return match[1], self._undecodable(match[1])
        return text, f"the watcher ended: {visible(text)}; {by_tick} until it is back"

    def _undecodable(self, directory: str) -> str:
        now = time.monotonic()
        if now - self._killers.get(directory, -STEADY) < STEADY:
            self._left_out[directory] = now + STEADY
            self._deaths = 1
            if self._let_in is not None:
                self._let_in.cancel()
            self._let_in = asyncio.get_running_loop().call_later(STEADY + 1, self._consider)
        self._killers = {path: at for path, at in self._killers.items() if now - at < STEADY}
        self._killers[directory] = now
        return (
            f"{directory}: a file whose name is not UTF-8 ended the watcher; it is started again, and changes "
            "in that directory may take a tick to be found; rename the file"
        )


def _open(places: list[str]) -> RustNotify:
    try:
        return RustNotify(places, False, False, 0, False, False)
    except (FileNotFoundError, PermissionError):
        # Gone since it was looked at, or may be searched but not read.
        there = [path for path in places if os.access(path, os.R_OK)]
        return RustNotify(there, False, False, 0, False, False)


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
