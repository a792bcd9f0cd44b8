"""Watching real directories in tests: roots, times, and a reader that keeps the newest snapshot."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.watch.source import Source
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from sidecar.watch.scan import Snapshot

HOUR = 3600.0
LIMIT = 1000


@dataclass(frozen=True)
class RootAt:
    """A root of a test."""

    path: str
    depth: int = 1


@dataclass(frozen=True)
class Times:
    """The watch alone by default: the tick would not come within a test's life."""

    tick: float = HOUR
    settle: float = 0.04
    grace: float = 0.05
    force_tick: bool = False


WATCH_ALONE = Times()
TICK_ALONE = Times(tick=0.2, force_tick=True)


@dataclass(frozen=True)
class Content:
    """What the loader of these tests makes of a file: equal for equal bytes, and yet another object."""

    data: bytes
    path: str


def write(directory: Path, text: str) -> Path:
    """Make a capsule directory, or give it another manifest in place."""
    directory.mkdir(exist_ok=True, parents=True)
    manifest = directory / "murmur.yaml"
    manifest.write_text(text)
    return manifest


def replace(directory: Path, text: str) -> None:
    """Give a capsule another manifest by an atomic rename."""
    new = directory / "new.yaml"
    new.write_text(text)
    new.rename(directory / "murmur.yaml")


def remove(directory: Path) -> None:
    """Remove a directory with all that is in it."""
    shutil.rmtree(directory)


def shown(snapshot: Snapshot[Content]) -> dict[str, str | None]:
    """Return the text of every manifest by its directory; None where there is an error."""
    return {d: f.content.data.decode() if f.content else None for d, f in snapshot.found.items()}


class Watching:
    """A source at work. `newest` is the newest snapshot, `seen` every text that one directory went through."""

    def __init__(self, source: Source[Content]) -> None:
        self.source = source
        self.newest: Snapshot[Content] | None = None
        self.count = 0
        self.seen: dict[str, list[str | None]] = {}

    async def read(self) -> None:
        """Read snapshots until the source is closed."""
        async for snapshot in self.source.snapshots():
            self.newest = snapshot
            self.count += 1
            for directory, text in shown(snapshot).items():
                texts = self.seen.setdefault(directory, [])
                if texts[-1:] != [text]:
                    texts.append(text)

    @property
    def texts(self) -> dict[str, str | None]:
        """The texts of the newest snapshot."""
        return shown(self.newest) if self.newest else {}

    def text(self, directory: Path) -> str | None:
        """The text of one manifest; None where it is not there, or not readable."""
        return self.texts.get(str(directory))

    async def shows(self, directory: Path, text: str | None, *, within: float = 10.0) -> None:
        """Wait until a directory shows this text."""
        await until(lambda: self.newest is not None and self.text(directory) == text, within=within)

    async def fits(self, condition: Callable[[Snapshot[Content]], object], *, within: float = 10.0) -> None:
        """Wait until the newest snapshot is as it should be."""
        await until(lambda: self.newest is not None and condition(self.newest), within=within)

    async def armed(self) -> None:
        """Wait until the watcher watches all there is; what happens next is found by it, or by the tick."""
        await until(lambda: self.source.watching)


@asynccontextmanager
async def watching(
    *roots: Path | RootAt, times: Times = WATCH_ALONE, files: tuple[str, ...] = (), armed: bool = True
) -> AsyncIterator[Watching]:
    """Watch roots while the block runs, from the first snapshot on, with the watcher at work unless told not to wait."""
    source = Source(
        [root if isinstance(root, RootAt) else RootAt(str(root)) for root in roots],
        load=Content,
        watch=times,
        max_bytes=LIMIT,
        files=files,
    )
    work = Watching(source)
    async with asyncio.TaskGroup() as group:
        reader = group.create_task(work.read(), name="reader")
        try:
            await until(lambda: work.newest is not None or reader.done())
            if armed and not times.force_tick:
                await work.armed()
            yield work
        finally:
            await source.aclose()
