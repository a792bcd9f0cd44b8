"""Reading one watched file as it stands still, and saying why it cannot be read."""

from __future__ import annotations

import errno
import os
import stat
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

Key = tuple[int, int, int, int, int]
"""What tells one state of a file from another: device, inode, size, mtime and ctime (both in ns)."""

key_of: Final[Callable[[os.stat_result], Key]] = attrgetter(
    "st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns"
)
"""Returns the key of a file that was looked at, of thousands at each tick: no call of Python's own costs less."""

CHUNK: Final = 65536

ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
"""The answers that say that nothing is there; every other error leaves that open."""

REMEDIES: Final = {
    errno.EACCES: "let the user that runs the sidecar read it",
    errno.EPERM: "let the user that runs the sidecar read it",
    errno.ENOENT: "it is a link that leads nowhere; mend it, or remove it",
    errno.ENOTDIR: "it is a link that leads nowhere; mend it, or remove it",
    errno.ELOOP: "it is a link that leads back to itself",
    errno.ESTALE: "the file system below it was replaced; mount it again",
    errno.ENOTCONN: "the file system below it has gone; mount it again",
    errno.EMFILE: "the sidecar is out of file descriptors; raise LimitNOFILE or `ulimit -n`",
    errno.ENFILE: "the machine is out of file descriptors; raise fs.file-max",
}


class ChangedError(Exception):
    """The file is not, or no longer, the one that was asked for. `key` is what is there now."""

    def __init__(self, key: Key) -> None:
        super().__init__("changed")
        self.key = key


def describe(number: int) -> str:
    """Say behind a path that it cannot be read, why, and what to do about it; `number` is an errno."""
    remedy = f" ({REMEDIES[number]})" if number in REMEDIES else ""
    return f"cannot be read: {os.strerror(number)}{remedy}"


def read_still(path: str, key: Key, limit: int) -> tuple[bytes, int]:
    """Return at most `limit` bytes of the file with this key, and its number of links.

    Never blocks on what is not a regular file. Raises ChangedError when the file had another key before or
    after the reading, and OSError, with errno EINVAL for something that is no regular file.
    """
    before = os.stat(path)  # noqa: PTH116 - surrogate-escaped text paths throughout, without pathlib's cost
    if key_of(before) != key:
        raise ChangedError(key_of(before))
    if not stat.S_ISREG(before.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        opened = os.fstat(descriptor)
        if key_of(opened) != key:
            raise ChangedError(key_of(opened))
        data = _read(descriptor, limit)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if key_of(after) != key:
        raise ChangedError(key_of(after))
    return data, after.st_nlink


def _read(descriptor: int, limit: int) -> bytes:
    chunks = []
    left = limit
    while left > 0 and (chunk := os.read(descriptor, min(left, CHUNK))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)
