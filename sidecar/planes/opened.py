"""A big file that is open for reading: hashed in slices, then sent in pieces that are hashed again."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING, Final, TypeVar

from sidecar.planes.memory import same

if TYPE_CHECKING:
    from collections.abc import Callable
    from hashlib import _Hash

T = TypeVar("T")

SLICE: Final = 8 * 1024 * 1024
"""Bytes that one turn of a thread hashes: the small reads of the same capsule take their turns in between."""
PIECE: Final = 256 * 1024

_BUFFER: Final = 256 * 1024


class Opened:
    """Owns the descriptor of a regular file, from wherever it is used. `facts` are those of the look before the open.

    One thread at a time reads; `close` may be called by any, also while another reads: that one closes then,
    so that a descriptor's number is never given to another file under a read.
    """

    __slots__ = ("_busy", "_closed", "_fd", "_lock", "facts")

    def __init__(self, fd: int, facts: os.stat_result) -> None:
        self._fd = fd
        self.facts = facts
        self._lock = threading.Lock()
        self._busy = False
        self._closed = False

    @property
    def size(self) -> int:
        """Its size at the look."""
        return self.facts.st_size

    @property
    def mtime_ms(self) -> int:
        """Its time of modification at the look, in milliseconds of Unix time."""
        return self.facts.st_mtime_ns // 1_000_000

    def close(self) -> None:
        """Close it, or have the thread that reads it do so."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._busy:
                return
        os.close(self._fd)

    def hash_slice(self, digest: _Hash, place: int) -> int:
        """Take the next slice from `place` on into a digest; return how many bytes that were. Raises OSError."""

        def work(fd: int) -> int:
            buffer = memoryview(bytearray(_BUFFER))
            done, most = 0, min(SLICE, self.size - place)
            while done < most:
                count = os.preadv(fd, [buffer[: min(_BUFFER, most - done)]], place + done)
                if not count:
                    break
                digest.update(buffer[:count])
                done += count
            return done

        return self._with(work)

    def piece(self, digest: _Hash, place: int) -> bytes:
        """Return the next piece from `place` on, taken into a digest too. Raises OSError."""

        def work(fd: int) -> bytes:
            data = os.pread(fd, min(PIECE, self.size - place), place)
            digest.update(data)
            return data

        return self._with(work)

    def now(self) -> os.stat_result:
        """Return what it is now. Raises OSError."""
        return self._with(os.fstat)

    def unchanged(self) -> bool:
        """Tell whether nothing was done to it since the look. Raises OSError."""
        return same(self.facts, self.now())

    def _with(self, work: Callable[[int], T]) -> T:
        with self._lock:
            if self._closed:
                raise OSError(errno.EBADF, "the file was let go of")
            self._busy = True
        try:
            return work(self._fd)
        finally:
            with self._lock:
                self._busy = False
                left = self._closed_meanwhile()
            if left:
                os.close(self._fd)

    def _closed_meanwhile(self) -> bool:
        return self._closed
