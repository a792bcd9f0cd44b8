"""Bodies that are not held whole for each client: big files, and listings that clients share."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sidecar.errors import RefusedError, refusal
from sidecar.planes.memory import same
from sidecar.planes.reading import CHANGED, TOO_LARGE, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from sidecar.planes.memory import Memory
    from sidecar.planes.opened import Opened
    from sidecar.planes.pool import Pool

TRIES: Final = 3
"""How often a file that changes while it is hashed is hashed again."""
MOST_OPEN: Final = 256
MOST_OPEN_OF_ONE: Final = 64
"""Big files that may be on their way to clients at once, in all and of one session: each holds a descriptor."""
MOST_HELD: Final = 256 * 1024 * 1024
"""Bytes of big listings that may be on their way to clients at once, those that are alike counted once."""

_FULL: Final = refusal(
    "unavailable", "As many big answers as are allowed are on their way; try again.", ("retry-after", "1")
)


class Places:
    """Counts what is on its way, so that clients that read slowly cannot take every descriptor or all memory.

    `most` and `most_of_one` big files in all and of one session, and `held` bytes of big listings.
    """

    def __init__(
        self, *, most: int = MOST_OPEN, most_of_one: int = MOST_OPEN_OF_ONE, held: int = MOST_HELD
    ) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._most_held = held
        self._of: dict[Hashable, int] = {}
        self._open = 0
        self._listings: dict[bytes, tuple[int, Sequence[bytes]]] = {}
        self._held = 0

    def take(self, session: Hashable) -> Callable[[], None]:
        """Take a place for a big file; returns what gives it back. Raises RefusedError `unavailable`."""
        mine = self._of.get(session, 0)
        if self._open >= self._most or mine >= self._most_of_one:
            raise RefusedError(_FULL)
        self._of[session] = mine + 1
        self._open += 1

        def give_back() -> None:
            self._open -= 1
            left = self._of[session] - 1
            if left:
                self._of[session] = left
            else:
                del self._of[session]

        return give_back

    def share(self, digest: bytes, pieces: Sequence[bytes], length: int) -> SharedBody:
        """Return a body of a listing, of the bytes that are on their way already where they are the same.

        Raises RefusedError `unavailable`.
        """
        users, shared = self._listings.get(digest, (0, pieces))
        if not users:
            if self._held and self._held + length > self._most_held:
                raise RefusedError(_FULL)
            self._held += length
        self._listings[digest] = (users + 1, shared)

        def give_back() -> None:
            users, shared = self._listings[digest]
            if users > 1:
                self._listings[digest] = (users - 1, shared)
            else:
                del self._listings[digest]
                self._held -= length

        return SharedBody(shared, length, give_back)


class SharedBody:
    """Bytes in pieces that several clients are sent."""

    def __init__(self, pieces: Sequence[bytes], length: int, give_back: Callable[[], None]) -> None:
        self._pieces = iter(pieces)
        self.length = length
        self._give_back: Callable[[], None] | None = give_back

    async def next(self) -> bytes:
        """Return the next piece, empty at the end."""
        return next(self._pieces, b"")

    def close(self) -> None:
        """Let go of the bytes."""
        if self._give_back is not None:
            self._give_back()
            self._give_back, self._pieces = None, iter(())


@dataclass(frozen=True, slots=True)
class Lane:
    """Where a capsule's reads take their turns."""

    pool: Pool
    key: Hashable
    limit: int


async def hash_of(
    opened: Opened, max_bytes: int, lane: Lane, memory: Memory, moved: Callable[[], None] = lambda: None
) -> bytes:
    """Return the SHA-256 of a big file, remembered or computed slice by slice; `moved` is called after each.

    The file is hashed up to the size that it had when it was looked at; where that is another one afterwards, all
    is done again, and `opened` then has the facts of then. Raises RefusedError:
    `too_large` where it grew past `max_bytes`, `io_error` where it does not come to rest.
    """
    known = memory.find(opened.facts)
    if known is not None:
        return known
    try:
        for _ in range(TRIES):
            digest, place = hashlib.sha256(), 0
            while place < opened.size:
                count = await lane.pool.run(lane.key, lane.limit, opened.hash_slice, digest, place)
                if not count:
                    break
                place += count
                moved()
            now = await lane.pool.run(lane.key, lane.limit, opened.now)
            if place == opened.size and same(opened.facts, now):
                memory.keep(opened.facts, now, digest.digest())
                return digest.digest()
            if now.st_size > max_bytes:
                raise RefusedError(TOO_LARGE)
            opened.facts = now
    except OSError as error:
        raise refused(error) from error
    raise RefusedError(CHANGED)


@dataclass(slots=True)
class FileBody:
    """The bytes of a big file, read through the pool as the client takes them, and hashed once more on the way.

    The last piece goes out only when the hash of all of them is the one that the head promised, and the file was
    left alone meanwhile: so no client has a whole body under a wrong etag. `on_close` is told how many bytes were
    handed out, and whether all were.
    """

    opened: Opened
    digest: bytes
    lane: Lane
    memory: Memory
    on_close: Callable[[int, bool], None]
    _place: int = 0
    _seen: hashlib._Hash = field(default_factory=hashlib.sha256)
    _closed: bool = False

    @property
    def length(self) -> int:
        """How many bytes there are in all."""
        return self.opened.size

    async def next(self) -> bytes:
        """Return the next piece, empty at the end. Raises ConnectionError where the file is not what it was."""
        if self._place == self.length:
            return b""
        try:
            data = await self.lane.pool.run(self.lane.key, self.lane.limit, self._piece)
        except OSError as error:
            raise ConnectionAbortedError("the file cannot be read any more") from error
        self._place += len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        if not self._closed:
            self._closed = True
            self.opened.close()
            self.on_close(self._place, self._place == self.length)

    def _piece(self) -> bytes:
        data = self.opened.piece(self._seen, self._place)
        if not data:
            raise OSError("the file became shorter while it was sent")
        if self._place + len(data) < self.length:
            return data
        if self._seen.digest() != self.digest:
            self.memory.forget(self.opened.facts)
            raise OSError("the file's bytes changed while it was sent")
        if not self.opened.unchanged():
            raise OSError("the file changed while it was sent")
        return data
