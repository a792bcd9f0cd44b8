"""One regular file beneath an export root: opened, checked, read, hashed. Runs in a pool's thread."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sidecar.errors import RefusedError, refusal
from sidecar.planes import paths
from sidecar.planes.beneath import Rules
from sidecar.planes.opened import Opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.planes.beneath import Resolver
    from sidecar.planes.memory import Memory

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
CHANGED: Final = refusal("io_error", "The file changes while it is read; try again when it is at rest.")

_BY_ERRNO: Final = {
    errno.ENOENT: NOT_FOUND,
    errno.ENOTDIR: NOT_FOUND,
    errno.ENAMETOOLONG: NOT_FOUND,
    errno.ELOOP: LINK,
}
_ON_THE_WAY: Final = Rules(links=True, mounts=True)
"""For the root itself: how it lies in the workspace is the operator's affair."""

IN_MEMORY: Final = 1024 * 1024
"""Bytes up to which a file is read at once and held until it is sent; bigger ones are sent as they are read."""

_CHUNK: Final = 256 * 1024


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


def read(
    resolver: Resolver,
    tree: Tree,
    path: bytes,
    max_bytes: int,
    memory: Memory,
    learn: Callable[[Tree, int], None] | None = None,
) -> Content | Opened:
    """Read a file of at most `max_bytes`; one that is too big to hold comes back open.

    `learn` is shown the open file, for `Cached`. Raises RefusedError.
    """
    try:
        fd, facts = open_file(resolver, tree, path, max_bytes)
        try:
            if learn is not None:
                learn(tree, fd)
            if facts.st_size <= IN_MEMORY:
                data = _read_all(fd, facts.st_size, max_bytes)
                digest = hashlib.sha256(data)
                if len(data) == facts.st_size and memory.wants(facts):
                    memory.keep(facts, os.fstat(fd), digest.digest())
                return Content(data, digest.hexdigest(), facts.st_mtime_ns // 1_000_000)
            opened = Opened(fd, facts)
            fd = -1
            return opened
        finally:
            if fd >= 0:
                os.close(fd)
    except OSError as error:
        raise refused(error) from error


def look(resolver: Resolver, tree: Tree, path: bytes, max_bytes: int) -> None:
    """Check that a file could be read now. Raises RefusedError where it could not."""
    try:
        os.close(open_file(resolver, tree, path, max_bytes)[0])
    except OSError as error:
        raise refused(error) from error


def open_file(resolver: Resolver, tree: Tree, path: bytes, max_bytes: int) -> tuple[int, os.stat_result]:
    """Open a regular file of at most `max_bytes`, and return its descriptor and what it was when it was looked at.

    Raises OSError and RefusedError.
    """
    handle = tree.find(resolver, path)
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise RefusedError(NOT_REGULAR)
        if facts.st_size > max_bytes:
            raise RefusedError(TOO_LARGE)
        return reopen(handle), facts
    finally:
        os.close(handle)


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
    """Read to the end of a small file, which may have moved since it was looked at.

    Raises RefusedError: `too_large` once it is longer than `max_bytes`, `io_error` for one that grows beyond
    what is held in memory.
    """
    data = os.read(fd, size + 1)
    if len(data) == size:
        return data
    most = min(max_bytes, IN_MEMORY)
    pieces, total = [data], len(data)
    while total <= most and (data := os.read(fd, min(_CHUNK, most + 1 - total))):
        pieces.append(data)
        total += len(data)
    if total > most:
        raise RefusedError(TOO_LARGE if most == max_bytes or os.fstat(fd).st_size > max_bytes else CHANGED)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def hash_of(fd: int, size: int, stopped: Callable[[], bool]) -> tuple[int, bytes] | None:
    """Hash the first `size` bytes; return how many there were and the digest, or None when stopped.

    The bound is the size at the open, so that a file that grows all the time ends too. Raises OSError.
    """
    if size <= _CHUNK:
        data = os.read(fd, size)
        if len(data) == size:
            return size, hashlib.sha256(data).digest()
        os.lseek(fd, 0, os.SEEK_SET)
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
