"""The watch as a whole: directories go in, snapshots come out."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import structlog

from sidecar.model import LastError
from sidecar.watch.hints import Hints
from sidecar.watch.paths import inside, plain
from sidecar.watch.scan import Look, Scanner, Snapshot
from sidecar.watch.thread import OwnThread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence

    from sidecar.watch.paths import Ident
    from sidecar.watch.values import Root, Timing

T = TypeVar("T")

SHARE: Final = 10
"""Looks at everything that only hints ask for may take one part in so many of the time."""
PATIENCE: Final = 3.0
"""A look that stands still at one place for so many seconds, and not for twice as many, is told of."""
NO_ANSWER: Final = "does not answer: its disk or file server hangs"
MEANWHILE: Final = "what is served goes on, changes are found once it answers"


class Source(Generic[T]):
    """Watches roots: a scan in a thread of its own decides, a watcher only hints at where to look.

    Contract: the first snapshot is complete, in that all that was there and stood still is in it; then there is one
    whenever something changed, and none otherwise. Between this and its one reader is one slot: the latest wins.
    A change is handed on once its file has been still for the settle window; without a working watcher it is found
    within one tick.

    `load` makes content of a manifest's bytes (at most `max_bytes` and one more) and path, in the scanner's thread,
    once per new content; it should not raise. `files` are further files whose identity is wanted. Everything but
    `load` happens in one event loop.
    """

    def __init__(
        self,
        roots: Sequence[Root],
        *,
        load: Callable[[bytes, str], T],
        watch: Timing,
        max_bytes: int,
        files: Iterable[str] = (),
    ) -> None:
        self._scanner = Scanner(
            roots, load=load, max_bytes=max_bytes, settle=watch.settle, grace=watch.grace, files=tuple(files)
        )
        self._watch = watch
        self._thread = OwnThread("watch-scan")
        self._hints: Hints | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._news = asyncio.Event()
        self._latest: Snapshot[T] | None = None
        self._hinted: set[str] = set()
        self._now = True
        self._everything = False
        self._complete = False
        self._places: Mapping[str, Ident] | None = None
        self._changes: dict[str, Any] | None = None
        self._log = _RootLog()
        self._handed: Snapshot[T] | None = None
        self._stuck: str | None = None
        self._closing = False

    @property
    def last_error(self) -> LastError | None:
        """Why there is no watcher at present, so that changes wait for the tick; None where all is well."""
        return self._hints.last_error if self._hints is not None else None

    @property
    def watching(self) -> bool:
        """Whether a watcher is at work, and has been since the last change of what there is to watch."""
        return self._hints is not None and self._hints.watching

    async def snapshots(self) -> AsyncGenerator[Snapshot[T], None]:
        """Give the latest snapshot whenever there is a new one, until `aclose`. The watch begins with the first call.

        An error of the watch itself is raised here.
        """
        if self._task is None and not self._closing:
            self._task = asyncio.create_task(self._run(), name="watch")
            self._task.add_done_callback(lambda _: self._news.set())
        while self._task is not None:
            await self._news.wait()
            self._news.clear()
            if (latest := self._latest) is not None:
                self._latest = None
                yield latest
            if self._task.done():
                if not self._task.cancelled():
                    self._task.result()
                return

    def poke(self) -> None:
        """Look at everything now."""
        self._now = True
        self._wake.set()

    def reconfigure(
        self,
        roots: Sequence[Root],
        *,
        watch: Timing | None = None,
        files: Iterable[str],
        load: Callable[[bytes, str], T] | None = None,
        max_bytes: int | None = None,
    ) -> None:
        """Watch these roots and files from now on; what is not given stays. Looks at everything at once.

        With a `load` or `max_bytes` every manifest is read again. A snapshot follows only if something changed.
        """
        changes: dict[str, Any] = {"files": tuple(files)}
        if load is not None:
            changes["load"] = load
        if max_bytes is not None:
            changes["max_bytes"] = max_bytes
        if watch is not None:
            self._watch = watch
            changes |= {"settle": watch.settle, "grace": watch.grace}
        self._changes = {**(self._changes or {}), "roots": tuple(roots), **changes}
        self.poke()

    async def aclose(self) -> None:
        """Stop watching; `snapshots` ends. What hangs in a file system is left behind, in a daemon thread."""
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._hints is not None:
            await self._hints.aclose()
        if not await self._thread.aclose():
            structlog.get_logger().warning(
                "scan_abandoned", reason="a file system or the loader does not answer"
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    # The one task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        tick_at, rest_until = 0.0, 0.0
        due: float | None = None
        while True:
            now = loop.time()
            if self._now or now >= tick_at or (self._everything and now >= rest_until):
                look = await self._look_at_everything()
                tick_at = now + self._watch.tick
                rest_until = loop.time() + SHARE * (loop.time() - now)
            elif self._hinted or (due is not None and now >= due):
                hinted, self._hinted = self._hinted, set()
                look = await self._patiently(partial(self._scanner.look, hinted))
            else:
                times = [tick_at, due if due is not None else tick_at]
                await self._sleep(min(*times, rest_until if self._everything else tick_at))
                continue
            due = look.due
            await self._take(look)

    async def _sleep(self, until: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._wake.wait()
        self._wake.clear()

    async def _look_at_everything(self) -> Look[T]:
        self._now, self._everything = False, False
        self._hinted.clear()
        if (changes := self._changes) is not None:
            self._changes = None
            await self._thread.run(lambda: self._scanner.configure(**changes))
        return await self._patiently(self._scanner.look)

    async def _patiently(self, look: Callable[[], Look[T]]) -> Look[T]:
        """Look, and say where it stands still when it does, and that it goes on when it does."""
        job = asyncio.create_task(self._thread.run(look), name="watch: a look")
        at: str | None = None
        told = False
        try:
            while not job.done():
                await asyncio.wait((job,), timeout=PATIENCE)
                before, at = at, self._scanner.at
                if not job.done() and not told and at is not None and at == before:
                    told = True
                    self._stands_still(at)
        finally:
            job.cancel()
        found = job.result()
        if told:
            self._goes_on(found)
        return found

    def _stands_still(self, at: str) -> None:
        self._stuck = at
        structlog.get_logger().warning("scan_stuck", path=at, reason=f"{NO_ANSWER}; {MEANWHILE}")
        self._hand_on(self._handed)

    def _goes_on(self, found: Look[T]) -> None:
        structlog.get_logger().info("scan_goes_on", path=self._stuck)
        self._stuck = None
        if found.snapshot is None:
            self._hand_on(self._handed)

    def _hand_on(self, snapshot: Snapshot[T] | None) -> None:
        """Have the reader take a snapshot, with the error of the root in which the look stands still."""
        if snapshot is None:
            return
        self._handed = snapshot
        if (stuck := self._stuck) is not None:
            error = LastError(time.time(), f"{stuck} {NO_ANSWER}; {MEANWHILE}")
            roots = (replace(r, last_error=error) if _is_in(stuck, r.path) else r for r in snapshot.roots)
            snapshot = replace(snapshot, roots=tuple(roots))
        self._latest = snapshot.instead_of(self._latest)
        self._news.set()

    async def _take(self, look: Look[T]) -> None:
        if look.too_many:
            self._everything = True
        self._complete = self._complete or look.snapshot is not None
        if self._watch.force_tick:
            if self._hints is not None:
                await self._hints.aclose()
                self._hints = None
        else:
            self._places = look.places if look.places is not None else self._places
            # A watcher first of all would only hold up the first snapshot.
            if self._places is not None and self._complete:
                if self._hints is None:
                    self._hints = Hints(self._notice)
                self._hints.arm(self._places)
                self._places = None
        if look.snapshot is not None:
            self._log.tell(look.snapshot)
            self._hand_on(look.snapshot)

    def _notice(self, paths: Collection[str] | None) -> None:
        if paths is None:
            self._everything = True
        else:
            self._hinted.update(paths)
        self._wake.set()


def _is_in(path: str, root: str) -> bool:
    return path == plain(root) or path.startswith(inside(plain(root)))


class _RootLog:
    """Says once when a root, or a directory below one, cannot be read, and when it can be again."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def tell(self, snapshot: Snapshot[Any]) -> None:
        log = structlog.get_logger()
        troubles = {root.path: root.last_error.message for root in snapshot.roots if root.last_error}
        for path, reason in troubles.items():
            if self._said.get(path) != reason:
                event = "root_unreadable" if path in snapshot.unreadable else "root_missing"
                log.warning(event, root=path, reason=reason)
        for path in snapshot.unreadable - troubles.keys() - self._said.keys():
            log.warning("directory_unreadable", path=path)
            troubles[path] = ""
        troubles |= {
            path: self._said[path] for path in snapshot.unreadable & self._said.keys() - troubles.keys()
        }
        for path in self._said.keys() - troubles.keys():
            if not self._said[path]:
                log.info("directory_readable", path=path)
            elif any(root.path == path for root in snapshot.roots):
                log.info("root_readable", root=path)
        self._said = troubles
