"""One regular file beneath an export root: opened, checked, read, hashed. Runs in a pool's thread."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sidecar.errors import RefusedError, refusal
from sidecar.planes import paths
from sidecar.planes.beneath import Rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.planes.beneath import Resolver

NOT_FOUND: Final = refusal("not_found", "There is no such file beneath the exported root.")
LINK: Final = refusal(
    "symlink_refused",
    "A symbolic link lies on the way, and the containment class follows none here; or the links go in circles.",
)
NOT_REGULAR: Final = refusal(
    "not_a_regular_file", "Only regular files are served: list the plane to see which there are."
)
TOO_LARGE: Final = refusal("too_large", "The file is larger than the export's max_bytes.")
IO_ERROR: Final = refusal(
    "io_error", "The file could not be read; whoever runs the capsule can check its permissions and its disk."
)

_BY_ERRNO: Final = {
    errno.ENOENT: NOT_FOUND,
    errno.ENOTDIR: NOT_FOUND,
    errno.ENAMETOOLONG: NOT_FOUND,
    errno.ELOOP: LINK,
}
_ON_THE_WAY: Final = Rules(links=True, mounts=True)
"""For the root itself: how it lies in the workspace is the operator's affair."""

_CHUNK: Final = 256 * 1024
_SETTLED_NS: Final = 2_000_000_000


def refused(error: OSError) -> RefusedError:
    """Return what a request is told of an error of the file system: never a host path."""
    if error.errno == errno.EXDEV:
        return paths.outside()
    return RefusedError(_BY_ERRNO.get(error.errno or 0, IO_ERROR))


@dataclass(frozen=True, slots=True)
class Tree:
    """An export as the disk sees it: `root` (bytes, relative) is looked up beneath `workspace` for each request."""

    workspace: str
    root: bytes
    rules: Rules

    def open(self, resolver: Resolver) -> int:
        """Return a descriptor of the root. Raises OSError.

        The root may be a link or a mount point, as long as it lies inside the workspace.
        """
        workspace = self._workspace()
        try:
            return self._root(resolver, workspace)
        finally:
            os.close(workspace)

    def find(self, resolver: Resolver, path: bytes) -> int:
        """Return a descriptor of what lies at `path` beneath the root, of whatever kind. Raises OSError.

        Where no link and no mount point is met from the workspace to the file, one call finds what the two
        lookups would; any other outcome is theirs to tell.
        """
        workspace = self._workspace()
        try:
            try:
                return resolver.open(
                    workspace, self.root + b"/" + path, Rules(links=False, mounts=self.rules.mounts)
                )
            except OSError:
                root = self._root(resolver, workspace)
        finally:
            os.close(workspace)
        try:
            return resolver.open(root, path, self.rules)
        finally:
            os.close(root)

    def _workspace(self) -> int:
        if b"\0" in self.root:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return os.open(self.workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _root(self, resolver: Resolver, workspace: int) -> int:
        return resolver.open(workspace, self.root, _ON_THE_WAY, os.O_DIRECTORY)


@dataclass(frozen=True, slots=True)
class Content:
    """What one open of a file gave: its bytes, their SHA-256 (hex) and its time of modification in milliseconds."""

    data: bytes
    sha256: str
    mtime_ms: int


def read(resolver: Resolver, tree: Tree, path: bytes, max_bytes: int, memory: Memory) -> Content:
    """Read a file of at most `max_bytes`. Raises RefusedError."""
    try:
        handle = tree.find(resolver, path)
        try:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                raise RefusedError(NOT_REGULAR)
            if facts.st_size > max_bytes:
                raise RefusedError(TOO_LARGE)
            fd = reopen(handle)
        finally:
            os.close(handle)
        try:
            data = _read_all(fd, facts.st_size, max_bytes)
            digest = hashlib.sha256(data)
            if memory.wants(facts) and len(data) == facts.st_size:
                memory.keep(facts, os.fstat(fd), digest.digest())
        finally:
            os.close(fd)
    except OSError as error:
        raise refused(error) from error
    return Content(data, digest.hexdigest(), facts.st_mtime_ns // 1_000_000)


def reopen(handle: int) -> int:
    """Open for reading what an O_PATH descriptor of a regular file names.

    Through `/proc`, because that cannot meet another file than the one that was looked at: opening a FIFO
    or a device would be felt at its other end. Raises OSError.
    """
    try:
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise OSError(errno.EIO, "cannot read files where /proc is not mounted") from None


def _read_all(fd: int, size: int, max_bytes: int) -> bytes:
    """Read to the end of the file, which may have moved since it was looked at. Raises RefusedError `too_large`."""
    data = os.read(fd, size + 1)
    if len(data) == size:
        return data
    pieces, total = [data], len(data)
    while total <= max_bytes and (data := os.read(fd, min(_CHUNK, max_bytes + 1 - total))):
        pieces.append(data)
        total += len(data)
    if total > max_bytes:
        raise RefusedError(TOO_LARGE)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def hash_of(fd: int, size: int, stopped: Callable[[], bool]) -> tuple[int, bytes] | None:
    """Hash the first `size` bytes; return how many there were and the digest, or None when stopped.

    The bound is the size at the open, so that a file that grows all the time ends too. Raises OSError.
    """
    digest, done, buffer = hashlib.sha256(), 0, bytearray(min(_CHUNK, size))
    view = memoryview(buffer)
    while done < size:
        if stopped():
            return None
        count = os.readv(fd, [view[: min(_CHUNK, size - done)]])
        if not count:
            break
        digest.update(view[:count])
        done += count
    return done, digest.digest()


_Key = tuple[int, int, int, int, int]


class Memory:
    """Hashes by (device, inode, size, mtime, ctime): the newest `limit` ones. For several threads.

    A hash is kept only of a file that was the same before and after it was read, and whose ctime was two
    seconds old by then: the clock of a file system ticks coarsely, and a second write within one tick would
    leave all five facts as they are. `now_ns` is the clock, in nanoseconds.
    """

    def __init__(self, limit: int = 50_000, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._limit = limit
        self._now_ns = now_ns
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, bytes] = OrderedDict()

    def find(self, facts: os.stat_result) -> bytes | None:
        """Return the SHA-256 of a file with these facts, if known."""
        key = _key(facts)
        with self._lock:
            digest = self._known.get(key)
            if digest is not None:
                self._known.move_to_end(key)
        return digest

    def wants(self, facts: os.stat_result) -> bool:
        """Whether a hash of this file would be new, and may be kept."""
        return facts.st_ctime_ns + _SETTLED_NS <= self._now_ns() and _key(facts) not in self._known

    def keep(self, before: os.stat_result, after: os.stat_result, digest: bytes) -> None:
        """Keep a hash, if the file was the same before and after it was read."""
        key = _key(before)
        if key != _key(after) or before.st_ctime_ns + _SETTLED_NS > self._now_ns():
            return
        with self._lock:
            self._known[key] = digest
            self._known.move_to_end(key)
            if len(self._known) > self._limit:
                self._known.popitem(last=False)


def _key(facts: os.stat_result) -> _Key:
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
