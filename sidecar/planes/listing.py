"""All regular files beneath an export root, with hashes, as JSON. Runs in a pool's thread."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

import orjson

from sidecar.errors import RefusedError, refusal
from sidecar.planes.beneath import PATH_MAX, Rules
from sidecar.planes.reading import hash_of, refused, reopen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sidecar.planes.beneath import Resolver
    from sidecar.planes.memory import Memory
    from sidecar.planes.reading import Tree

MOST: Final = 64 * 1024 * 1024
"""Bytes that a listing may have, and names of directories that it may keep in mind: some 400,000 files."""
PIECE: Final = 64 * 1024
BATCH: Final = 16
"""Names between two questions whether to go on."""

WORK: Final = 0.0001
REST: Final = 0.0001
"""Seconds for which a listing works at a stretch, and then leaves the interpreter to the event loop."""
MOST_REST: Final = 0.008
LATE: Final = 0.0001
"""Seconds by which a rest may last longer on a machine that has nothing else to do."""
YIELDING: Final = 60
"""How much longer the next rest is for each second by which the interpreter was not to be had when one was over."""

_TOO_LARGE: Final = refusal(
    "too_large", "There are more files beneath the exported root than a listing holds; export a smaller tree."
)
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


Item = tuple[bytes, bytes | None]
"""What a directory holds: a file with its entry written out, or a directory yet to be looked into.

The first sorts it among its siblings as its path sorts among all paths: a directory's ends in `/`.
"""


def pieces(
    resolver: Resolver,
    tree: Tree,
    memory: Memory,
    stopped: Callable[[], bool] = lambda: False,
    *,
    most: int = MOST,
) -> list[bytes]:
    """List an export: the entries as JSON objects with commas between, sorted by the bytes of their paths.

    Keys are those of the reference, in its order; the three facts of an entry come from one look at the file.
    Nothing comes of a root that is missing. What vanishes meanwhile, cannot be read, is no regular file, lies
    behind a mount point that may not be crossed, or has a name that no request can spell (not UTF-8, too long),
    is left out. A link that may be followed to a regular file is an entry of its own; linked directories are not
    descended into. `stopped` is asked every few files, and ends the work early.

    Raises RefusedError where the root leads outside or is shut, and `too_large` beyond `most` bytes.
    """
    try:
        root = tree.open(resolver)
    except OSError as error:
        if error.errno in _GONE:
            return []
        raise refused(error) from error
    try:
        look = _Look(resolver, root, tree.rules, memory, stopped, most)
        return _joined(look.everything())
    except OSError as error:
        raise refused(error) from error
    finally:
        os.close(root)


def _joined(entries: Iterator[bytes]) -> list[bytes]:
    """Put entries together in pieces of a good size to send."""
    whole: list[bytes] = []
    part: list[bytes] = []
    size = 0
    for entry in entries:
        part.append(entry)
        size += len(entry)
        if size >= PIECE:
            whole.append((b"," if whole else b"") + b",".join(part))
            part, size = [], 0
    if part:
        whole.append((b"," if whole else b"") + b",".join(part))
    return whole


@dataclass(slots=True)
class _Look:
    """One walk over a tree, in the order of the paths.

    A directory's own files are looked at in one go; directories are opened anew from the root by their path, so
    that no more than four descriptors are held at once, however deep the tree is.
    """

    resolver: Resolver
    root: int
    rules: Rules
    memory: Memory
    stopped: Callable[[], bool]
    room: int
    _since: float = field(default_factory=time.perf_counter)
    _pause: float = REST

    def everything(self) -> Iterator[bytes]:
        """Yield the entry of each file."""
        stack = [(b"", self._items(b""))]
        while stack:
            folder, items = stack[-1]
            if not items:
                stack.pop()
                continue
            key, entry = items.pop()
            if entry is not None:
                yield entry
                continue
            self.room += len(key)
            if self.stopped():
                return
            below = folder + key
            try:
                stack.append((below, self._items(below)))
            except OSError:
                continue

    def _items(self, folder: bytes) -> list[Item]:
        """Return what is in a directory, last one first. Raises OSError."""
        items: list[Item] = []
        fd = self._directory(folder)
        try:
            device = os.fstat(fd).st_dev
            with os.scandir(fd) as names:
                while (batch := list(islice(names, BATCH))) and not self.stopped():
                    for found in batch:
                        # a name that is no UTF-8, or gone, or shut, is left out
                        with suppress(OSError, UnicodeDecodeError):
                            self._look_at(found, fd, device, folder, items)
                    if self.room < 0:
                        raise RefusedError(_TOO_LARGE)
                    self._rest()
        finally:
            os.close(fd)
        items.sort(reverse=True)
        return items

    def _directory(self, path: bytes) -> int:
        """Return a descriptor for reading the names of a directory beneath the root, reached without links."""
        here = self.resolver.open(self.root, path or b".", self._strict, os.O_DIRECTORY)
        try:
            return os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
        finally:
            os.close(here)

    @property
    def _strict(self) -> Rules:
        return Rules(links=False, mounts=self.rules.mounts)

    def _look_at(
        self, found: os.DirEntry[str], fd: int, device: int, folder: bytes, items: list[Item]
    ) -> None:
        """Add a name to the items, if it is one. Raises OSError and UnicodeDecodeError.

        What the directory says of its kind is only a hint: the look at the file decides. What is still the inode
        that the directory names is no link and no mount point; where its hash is known too, one look tells all.
        """
        name = os.fsencode(found.name)
        path = folder + name
        shown = path.decode()
        if len(path) >= PATH_MAX:
            return
        if found.is_dir(follow_symlinks=False):
            items.append((name + b"/", None))
            self.room -= len(name)
            return
        entry = None
        if found.is_symlink():
            if self.rules.links:
                entry = self._opened(self.root, path, self.rules, shown)
        else:
            facts = found.stat(follow_symlinks=False)
            digest = None
            if facts.st_ino == found.inode() and facts.st_dev == device and stat.S_ISREG(facts.st_mode):
                digest = self.memory.find(facts)
            if digest is not None:
                entry = written(shown, facts.st_size, facts.st_mtime_ns, digest)
            else:
                entry = self._opened(fd, name, self._strict, shown)
        if entry is not None:
            items.append((name, entry))
            self.room -= len(entry)

    def _opened(self, base: int, path: bytes, rules: Rules, shown: str) -> bytes | None:
        handle = self.resolver.open(base, path, rules)
        try:
            return self._looked_at(handle, shown)
        finally:
            os.close(handle)
            self._rest()

    def _looked_at(self, handle: int, shown: str) -> bytes | None:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            return None
        digest = self.memory.find(facts)
        if digest is not None:
            return written(shown, facts.st_size, facts.st_mtime_ns, digest)
        fd = reopen(handle)
        try:
            hashed = hash_of(fd, facts.st_size, self.stopped)
            if hashed is None:
                return None
            if hashed[0] == facts.st_size:
                self.memory.keep(facts, os.fstat(fd), hashed[1])
        finally:
            os.close(fd)
        return written(shown, hashed[0], facts.st_mtime_ns, hashed[1])

    def _rest(self) -> None:
        """Sleep when it is time to.

        A thread that computes without a pause gets the interpreter back for a whole switch interval at a time,
        and each request would wait for it several times over.
        """
        now = time.perf_counter()
        if now - self._since < WORK:
            return
        time.sleep(self._pause)
        self._since = time.perf_counter()
        late = self._since - now - self._pause - LATE
        self._pause = min(MOST_REST, REST + YIELDING * max(0.0, late))


def written(path: str, size: int, mtime_ns: int, digest: bytes) -> bytes:
    """Return an entry as JSON, its keys in the order of the reference."""
    return b'{"path":%b,"size_bytes":%d,"mtime_ms":%d,"sha256":"%b"}' % (
        orjson.dumps(path),
        size,
        mtime_ns // 1_000_000,
        digest.hex().encode(),
    )
