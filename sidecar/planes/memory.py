"""Hashes of files that were read before, so that a listing need not read a tree again."""

from __future__ import annotations

import struct
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

LIMIT: Final = 131_072
"""Hashes that are kept, at about 300 bytes each: enough for a tree of a hundred thousand files."""

_SETTLED_NS: Final = 2_000_000_000
_STATE: Final = struct.Struct("=qqq")


class Memory:
    """SHA-256 of files by (device, inode, size, mtime, ctime): of the `limit` files last hashed. For several threads.

    A hash is kept only of a file that was the same before and after it was read, and whose ctime was two
    seconds old by then: the clock of a file system ticks coarsely, and a second write within one tick would
    leave all five facts as they are. `now_ns` is the clock, in nanoseconds.
    """

    def __init__(self, limit: int = LIMIT, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._limit = limit
        self._now_ns = now_ns
        self._lock = threading.Lock()
        # One entry per inode, of two flat values: small, and nothing for the garbage collector to walk over.
        self._known: OrderedDict[int, bytes] = OrderedDict()

    def find(self, facts: os.stat_result) -> bytes | None:
        """Return the SHA-256 of a file with these facts, if known."""
        kept = self._known.get(facts.st_dev << 64 | facts.st_ino)
        if kept is None:
            return None
        state = _STATE.pack(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        return kept[_STATE.size :] if kept.startswith(state) else None

    def wants(self, facts: os.stat_result) -> bool:
        """Whether a hash of this file would be new, and may be kept."""
        if facts.st_ctime_ns + _SETTLED_NS > self._now_ns():
            return False
        return self.find(facts) is None

    def keep(self, before: os.stat_result, after: os.stat_result, digest: bytes) -> None:
        """Keep a hash, if the file was the same before and after it was read."""
        key, state = _key(before), _state(before)
        if key != _key(after) or state != _state(after):
            return
        if before.st_ctime_ns + _SETTLED_NS > self._now_ns():
            return
        with self._lock:
            self._known[key] = state + digest
            self._known.move_to_end(key)
            if len(self._known) > self._limit:
                self._known.popitem(last=False)

    def forget(self, facts: os.stat_result) -> None:
        """Drop what is known of a file: its bytes were found to be others."""
        with self._lock:
            self._known.pop(_key(facts), None)


def same(one: os.stat_result, other: os.stat_result) -> bool:
    """Tell whether nothing was done to a file between two looks at it."""
    return _key(one) == _key(other) and _state(one) == _state(other)


def _key(facts: os.stat_result) -> int:
    return facts.st_dev << 64 | facts.st_ino


def _state(facts: os.stat_result) -> bytes:
    return _STATE.pack(facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
