"""How often a caller may ask: a bucket per caller that fills up again over time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from sidecar.model import Rate

MOST: Final = 10_000
"""Callers that are kept in mind; of more, those that asked least recently are taken for new ones."""

ROUNDING: Final = 1e-9
"""What may be missing from a whole request: sums of times are not exact."""


class Rates:
    """The buckets. `clock` is in seconds and never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: dict[Hashable, tuple[float, float]] = {}

    def take(self, caller: Hashable, rate: Rate) -> int | None:
        """Count one request; return None where it may pass, else the whole seconds after which the next one may."""
        now = self._clock()
        most, per_second = float(rate.requests), rate.requests / rate.period
        left, at = self._buckets.pop(caller, (most, now))
        left = min(most, left + (now - at) * per_second)
        passes = left >= 1 - ROUNDING
        if len(self._buckets) >= MOST:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[caller] = (max(0.0, left - 1) if passes else left, now)
        return None if passes else max(1, math.ceil((1 - ROUNDING - left) / per_second))
