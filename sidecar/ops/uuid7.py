"""Ids that ascend with time: UUID version 7 (RFC 9562 section 5.7) as 32 lowercase hex digits behind a prefix."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_NS_PER_MS: Final = 1_000_000
_MS_BITS: Final = 48
_FRACTION_BITS: Final = 12
_RANDOM_BITS: Final = 62
_RANDOM_BYTES: Final = 8
_POOL: Final = 4096
_VERSION: Final = 0x7
_VARIANT: Final = 0b10


def _from_pool() -> Callable[[int], int]:
    """Return what gives random bits, for which the kernel is asked once for many."""
    pool, place = b"", 0

    def bits(count: int) -> int:
        nonlocal pool, place
        if place == len(pool):
            pool, place = secrets.token_bytes(_POOL), 0
        drawn = pool[place : place + _RANDOM_BYTES]
        place += _RANDOM_BYTES
        return int.from_bytes(drawn, "big") >> _RANDOM_BYTES * 8 - count

    return bits


class Uuid7:
    """Makes ids of which each is greater than the one before, also within one tick and when the clock goes back.

    The 12 bits behind the version hold the fraction of the millisecond (RFC 9562 section 6.2, method 3), so ids of
    different makers sort by time to a quarter of a microsecond. One thread at a time may use a maker.

    `clock` returns Unix nanoseconds; `random(n)` returns n random bits, n at most 64.
    """

    def __init__(
        self, *, clock: Callable[[], int] = time.time_ns, random: Callable[[int], int] | None = None
    ) -> None:
        self._clock = clock
        self._random = _from_pool() if random is None else random
        self._last = -1

    def __call__(self) -> str:
        """Return the next id: 32 lowercase hex digits."""
        milliseconds, rest = divmod(self._clock(), _NS_PER_MS)
        tick = milliseconds << _FRACTION_BITS | (rest << _FRACTION_BITS) // _NS_PER_MS
        self._last = max(tick, self._last + 1)
        milliseconds = self._last >> _FRACTION_BITS & (1 << _MS_BITS) - 1
        fraction = self._last & (1 << _FRACTION_BITS) - 1
        value = (
            milliseconds << 80
            | _VERSION << 76
            | fraction << 64
            | _VARIANT << _RANDOM_BITS
            | self._random(_RANDOM_BITS)
        )
        return f"{value:032x}"

    def new_id(self, prefix: str) -> str:
        """Return the next id behind a prefix such as `ses_`."""
        return prefix + self()


def new_id(prefix: str) -> str:
    """Return a fresh id behind a prefix such as `ses_`, for callers that need no strict order among their ids."""
    return Uuid7(random=secrets.randbits).new_id(prefix)
