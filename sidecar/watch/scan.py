"""The scan: what the roots hold, found by looking. It is the truth; everything else only says where to look first.

Which errors mean what: ENOENT and ENOTDIR say that nothing is there, so what was there is gone (a root that is
missing also has a `last_error`), unless it is a manifest that is a link: that is there, and leads nowhere. Every other error (EACCES, EIO, ESTALE, ENOTCONN, ELOOP, …) leaves that open: the
directory is `unreadable`, and what was found in it goes on. A manifest that exists and cannot be read is found, with
an `error`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from sidecar.model import RootStatus
from sidecar.watch.paths import Ident, plain
from sidecar.watch.still import StillFile, Stillness
from sidecar.watch.tree import Tree
from sidecar.watch.values import Found, Identity, Root, Snapshot, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

__all__ = ["Found", "Identity", "Look", "Root", "Scanner", "Snapshot", "Timing"]

T = TypeVar("T")

MANY: Final = 512
"""With so many places to look at, a look at everything is as good."""


@dataclass(frozen=True, slots=True)
class Look(Generic[T]):
    """What one look has found.

    `snapshot` is None where nothing changed since the last one. `due` is when to look again at what has yet to
    stand still, in seconds of the clock, None where nothing has. `places` are the directories to watch by device
    and inode, None where they are the same as before. `too_many`: nothing was looked at, look at everything.
    """

    snapshot: Snapshot[T] | None
    due: float | None
    places: Mapping[str, Ident] | None
    too_many: bool = False


class Scanner(Generic[T]):
    """Looks at the roots and keeps what it has found. One thread at a time; it may block.

    `load` gets a manifest's bytes (at most `max_bytes` and one more) and its path, once per new content. `settle`
    and `grace` are in seconds of `clock`, `files` further files of which the identity is wanted.
    """

    def __init__(
        self,
        roots: Sequence[Root],
        *,
        load: Callable[[bytes, str], T],
        max_bytes: int,
        settle: float,
        grace: float,
        files: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._still = Stillness(load, max_bytes + 1, settle, clock)
        self._tree = Tree(self._still, grace)
        self._files: dict[str, StillFile] = {}
        self._order: tuple[str, ...] = ()
        self._first_look: float | None = None
        self._last: Snapshot[T] | None = None
        self.configure(roots, files=files)

    @property
    def at(self) -> str | None:
        """The place that is being looked at, or was last: for another thread, while a look does not come back."""
        return self._tree.at

    def configure(
        self,
        roots: Sequence[Root],
        *,
        files: Iterable[str],
        load: Callable[[bytes, str], T] | None = None,
        max_bytes: int | None = None,
        settle: float | None = None,
        grace: float | None = None,
    ) -> None:
        """Look at other roots and files from now on. With a `load` or `max_bytes` every manifest is read again."""
        self._order = tuple(root.path for root in roots)
        self._tree.configure(roots)
        self._files = {path: self._files.get(path) or StillFile(path) for path in files}
        if settle is not None:
            self._still.settle = settle
        if grace is not None:
            self._tree.grace = grace
        if load is not None or max_bytes is not None:
            self._still.load = load or self._still.load
            self._still.limit = self._still.limit if max_bytes is None else max_bytes + 1
            self._tree.reread()

    def look(self, hints: Collection[str] | None = None) -> Look[T]:
        """Look at everything, or only at what events on these paths may concern and what has yet to stand still.

        The first look, and the first after `configure`, must be at everything. There is no snapshot before what
        was there at the first look had the time to stand still.
        """
        if hints is None:
            self._tree.look()
        else:
            targets = self._tree.targets(hints)
            if len(targets) > MANY:
                return Look(None, self._due(), None, too_many=True)
            self._tree.revisit(targets)
        now = self._clock()
        changed = False
        for file in self._files.values():
            changed |= file.look(now, self._still.settle)
        snapshot = self._snapshot(changed=changed) if self._complete(now) else None
        return Look(snapshot, self._due(), self._tree.wanted(self._files))

    def _complete(self, now: float) -> bool:
        if self._last is not None:
            return True
        if self._first_look is None:
            self._first_look = now
        waiting = bool(self._still.pending) or not all(file.settled for file in self._files.values())
        return not waiting or now > self._first_look + self._still.settle

    def _snapshot(self, *, changed: bool) -> Snapshot[T] | None:
        status = self._tree.status
        roots = tuple(RootStatus(path, status[plain(path)].last_error) for path in self._order)
        unreadable = frozenset(self._still.unknown)
        last = self._last
        if (
            last is not None
            and not (changed or self._still.changed)
            and (unreadable, roots, self._files.keys()) == (last.unreadable, last.roots, last.files.keys())
        ):
            return None
        files = {path: file.identity for path, file in self._files.items()}
        altered = None if last is None else frozenset(self._still.altered)
        self._last = Snapshot(dict(self._still.found), unreadable, roots, files, altered)
        self._still.changed = False
        self._still.altered.clear()
        return self._last

    def _due(self) -> float | None:
        settle = self._still.settle
        times = [self._still.due(), self._tree.due()]
        times += [file.since + settle for file in self._files.values() if file.since is not None]
        if self._last is None and self._first_look is not None:
            times.append(self._first_look + settle)
        return min((time for time in times if time is not None), default=None)
