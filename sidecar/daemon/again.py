"""When to try again what the machine did not allow: pauses double, up to a longest one. Pure."""

from __future__ import annotations

from typing import Final

FIRST: Final = 0.25
LAST: Final = 4.0
"""Seconds, as for the listeners of capsules."""


class Again:
    """One thing to be tried again; `due` is when (loop time), None while there is nothing to try."""

    __slots__ = ("_pause", "due")

    def __init__(self) -> None:
        self.due: float | None = None
        self._pause = FIRST

    def failed(self, now: float) -> None:
        """Try again later, and later still the next time."""
        self.due = now + self._pause
        self._pause = min(self._pause * 2, LAST)

    def over(self) -> None:
        """Try no more."""
        self.due = None
        self._pause = FIRST

    def is_due(self, now: float) -> bool:
        """Tell whether it is time."""
        return self.due is not None and self.due <= now

    def sooner(self, other: float | None) -> float | None:
        """Return the earlier of another time and its own."""
        if self.due is None or other is None:
            return other if self.due is None else self.due
        return min(self.due, other)
