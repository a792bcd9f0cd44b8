"""All regular files beneath an export root, with hashes. Runs in a pool's thread."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sidecar.planes.beneath import PATH_MAX, Rules
from sidecar.planes.reading import Memory, Tree, hash_of, refused, reopen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sidecar.planes.beneath import Resolver

_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a listing. `path` is relative to the root; the other three come from one open of it."""

    path: str
    size_bytes: int
    mtime_ms: int
    sha256: str


def entries(
    resolver: Resolver, tree: Tree, memory: Memory, stopped: Callable[[], bool] = lambda: False
) -> list[Entry]:
    """List an export: no entries where its root is missing. Raises RefusedError where the root leads outside or is shut.

    What vanishes meanwhile, cannot be read, is no regular file, lies behind a mount point that may not be
    crossed, or has a name that no request can spell (not UTF-8, too long), is left out. A link that may be
    followed to a regular file is an entry of its own; linked directories are not descended into.
    `stopped` is asked between any two files, and ends the work early.
    """
    try:
        root = tree.open(resolver)
    except OSError as error:
        if error.errno in _GONE:
            return []
        raise refused(error) from error
    try:
        found = list(_Look(resolver, root, tree.rules, memory, stopped).everything())
    except OSError as error:
        raise refused(error) from error
    finally:
        os.close(root)
    found.sort(key=lambda entry: entry[0])
    return [entry for _, entry in found]


@dataclass(frozen=True, slots=True)
class _Look:
    """One walk over a tree.

    Directories are opened anew from the root by their path, so that no more than four descriptors are held at
    once, however deep the tree is.
    """

    resolver: Resolver
    root: int
    rules: Rules
    memory: Memory
    stopped: Callable[[], bool]

    def everything(self) -> Iterator[tuple[bytes, Entry]]:
        pending = [b""]
        while pending and not self.stopped():
            folder = pending.pop()
            try:
                fd = self._directory(folder)
            except OSError:
                if not folder:
                    raise
                continue
            try:
                yield from self._files(fd, folder, pending)
            finally:
                os.close(fd)

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

    def _files(self, fd: int, folder: bytes, pending: list[bytes]) -> Iterator[tuple[bytes, Entry]]:
        """Yield a directory's own files, and put its directories on the list.

        What the directory says of a name's kind is only a hint: the open decides.
        """
        with os.scandir(fd) as names:
            for found in names:
                if self.stopped():
                    return
                name = os.fsencode(found.name)
                path = folder + b"/" + name if folder else name
                try:
                    shown = path.decode()
                    if len(path) >= PATH_MAX:
                        continue
                    if found.is_dir(follow_symlinks=False):
                        pending.append(path)
                        continue
                    entry = self._entry(fd, name, path, shown, link=found.is_symlink())
                except (OSError, UnicodeDecodeError):
                    continue
                if entry is not None:
                    yield path, entry

    def _entry(self, fd: int, name: bytes, path: bytes, shown: str, *, link: bool) -> Entry | None:
        if link and not self.rules.links:
            return None
        if link:
            handle = self.resolver.open(self.root, path, self.rules)
        else:
            handle = self.resolver.open(fd, name, self._strict)
        try:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                return None
            size, digest = facts.st_size, self.memory.find(facts)
            if digest is None:
                hashed = self._hash(handle, facts)
                if hashed is None:
                    return None
                size, digest = hashed
        finally:
            os.close(handle)
        return Entry(shown, size, facts.st_mtime_ns // 1_000_000, digest.hex())

    def _hash(self, handle: int, before: os.stat_result) -> tuple[int, bytes] | None:
        fd = reopen(handle)
        try:
            hashed = hash_of(fd, before.st_size, self.stopped)
            if hashed is not None and hashed[0] == before.st_size:
                self.memory.keep(before, os.fstat(fd), hashed[1])
        finally:
            os.close(fd)
        return hashed
