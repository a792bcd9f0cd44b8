"""Reading what the kernel has in its caches, on the event loop: each call is one that never waits for a disk.

A hop to a thread costs more than a small read itself. What may wait goes to the pool (`reading.py`): a path of which a
component is not cached (RESOLVE_CACHED, Linux 5.12), bytes that are not (RWF_NOWAIT), and any file that is not on a
file system of this machine, because opening a file elsewhere may ask a server that hangs.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import stat
import struct
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidecar.planes.reading import Content

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.planes.reading import Tree

MOST: Final = 32 * 1024
"""Bytes of a file that is read on the event loop, at most."""
TRUSTED_FOR: Final = 5.0
"""Seconds for which what a thread saw of a tree is relied on."""
MOST_PLACES: Final = 10_000

_LOCAL: Final = frozenset({0xEF53, 0x58465342})  # ext2, 3 and 4; xfs: statfs(2)
_SYS_OPENAT2: Final = 437
_AT_FDCWD: Final = -100
_NO_MAGICLINKS, _NO_SYMLINKS, _CACHED = 0x02, 0x04, 0x20
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_EMPTY_PATH, _DONT_SYNC, _WANTED = 0x1000, 0x4000, 0x17FF
_STATX: Final = struct.Struct("=28xH10xQ64xqI12xIIQ104x")
"""Of `struct statx`: mode, size, mtime in seconds and nanoseconds, device as major and minor, mount id."""


class _How(ctypes.Structure):
    """`struct open_how` of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _Place(NamedTuple):
    """Where the files of a tree lie, as a thread saw it: the path of its root, and the mount beneath it."""

    prefix: bytes
    mount: tuple[int, int, int]
    until: float


class Cached:
    """The quick way for small files. `read` belongs to one thread, the event loop's; `learn` to any.

    A path is walked from `/` in one call that follows no link at all. It has no `..`, so it can only go down; and
    the file it ends at must be on the mount that the tree's files were on when a thread read one by its own rules.
    `clock` is in seconds and never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places: dict[Tree, _Place] = {}
        self._lock = threading.Lock()
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._works = hasattr(self._libc, "statx") and hasattr(os, "RWF_NOWAIT")
        self._facts = ctypes.create_string_buffer(_STATX.size)
        self._buffer = bytearray(MOST + 1)
        self._how = _How(os.O_PATH | os.O_CLOEXEC, 0, _NO_MAGICLINKS | _NO_SYMLINKS | _CACHED)
        if self._works:
            self._libc.statx.argtypes = _STATX_ARGUMENTS
            self._libc.syscall.argtypes = _OPENAT2_ARGUMENTS
            self._libc.syscall.restype = ctypes.c_long
            self._open = partial(self._libc.syscall, _SYS_OPENAT2, _AT_FDCWD)
            self._how_at = (ctypes.addressof(self._how), ctypes.sizeof(self._how))

    def learn(self, tree: Tree, fd: int) -> None:
        """Take note of where an open file of a tree lies. It may wait: for a thread of the pool."""
        now = self._clock()
        known = self._places.get(tree)
        if not self._works or b"\0" in tree.root or (known is not None and known.until > now):
            return
        facts, system = ctypes.create_string_buffer(_STATX.size), (ctypes.c_long * 32)()
        if self._libc.statx(fd, b"", _EMPTY_PATH, _WANTED, facts) or self._libc.fstatfs(fd, system):
            return
        *_, major, minor, mount = _STATX.unpack(facts.raw)
        if system[0] not in _LOCAL or not major:
            return
        prefix = os.fsencode(tree.workspace) + b"/" + tree.root + b"/"
        with self._lock:
            for old in [key for key, place in self._places.items() if place.until <= now]:
                del self._places[old]
            if len(self._places) < MOST_PLACES:
                self._places[tree] = _Place(prefix, (major, minor, mount), now + TRUSTED_FOR)

    def read(self, tree: Tree, path: bytes, max_bytes: int) -> Content | None:
        """Return a file, if nothing has to be waited for and there is nothing odd about it.

        None says nothing about the file: the pool is to be asked.
        """
        place = self._places.get(tree)
        if place is None or place.until <= self._clock():
            return None
        handle = self._open(place.prefix + path, *self._how_at)
        if handle < 0:
            if ctypes.get_errno() in _UNKNOWN:
                self._give_up()
            return None
        try:
            return self._content(handle, place.mount, max_bytes)
        except OSError as error:
            if error.errno in _UNKNOWN:
                self._give_up()
            return None
        finally:
            os.close(handle)

    def _content(self, handle: int, expected: tuple[int, int, int], max_bytes: int) -> Content | None:
        facts = self._facts
        if self._libc.statx(handle, b"", _EMPTY_PATH | _DONT_SYNC, _WANTED, facts):
            return None
        mode, size, seconds, nanoseconds, *mount = _STATX.unpack(facts)
        if not stat.S_ISREG(mode) or size > MOST or size > max_bytes or tuple(mount) != expected:
            return None
        fd = os.open(f"/proc/self/fd/{handle}", _READ)
        try:
            buffer = memoryview(self._buffer)[: size + 1]
            if os.preadv(fd, (buffer,), 0, os.RWF_NOWAIT) != size:
                return None
        finally:
            os.close(fd)
        data = bytes(buffer[:size])
        return Content(data, hashlib.sha256(data).hexdigest(), seconds * 1000 + nanoseconds // 1_000_000)

    def _give_up(self) -> None:
        """Leave it all to the pool: the kernel, a sandbox or the file system does not know these calls."""
        self._works = False
        with self._lock:
            self._places.clear()


_UNKNOWN: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP})
_STATX_ARGUMENTS: Final = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
_OPENAT2_ARGUMENTS: Final = (
    ctypes.c_long,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
)
