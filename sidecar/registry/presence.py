"""Who is there: what each snapshot brings, what is missing for how long, and what cannot be known."""

from __future__ import annotations

import os.path
from collections import ChainMap
from typing import TYPE_CHECKING

from sidecar.registry.places import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecar.manifest.load import Loaded
    from sidecar.registry.places import Places
    from sidecar.watch.values import Found, Snapshot


class Presence:
    """Compares snapshots with the places. `touched` are the directories that are to be judged anew.

    Directories that are new wait in `arriving` until they were judged, so that no one sees them half-known.
    """

    def __init__(self, places: Places) -> None:
        self.looked = False
        self.touched: set[str] = set()
        self.arriving: dict[str, Place] = {}
        self._places = places
        self._missing: dict[str, Place] = {}
        self._unreadable: frozenset[str] = frozenset()

    @property
    def here(self) -> Mapping[str, Place]:
        """All places by directory, those that are arriving included."""
        return ChainMap(self.arriving, self._places.by_directory)

    def look(self, snapshot: Snapshot[Loaded], now: float) -> None:
        """Take a snapshot in, at a monotonic time: what it says is altered, or all of it where it does not say."""
        altered = snapshot.altered
        if not self.looked or snapshot.unreadable != self._unreadable:
            altered = None  # what is missing, and what may only seem so, shows in the whole
        self.looked = True
        self._unreadable = snapshot.unreadable
        for directory in snapshot.found if altered is None else altered:
            if (found := snapshot.found.get(directory)) is not None:
                self._see(directory, found)
        for directory in [d for d in self._missing if d in snapshot.found or self.unknown(d)]:
            self._missing.pop(directory).missing_since = None
        for directory in list(self.here) if altered is None else altered:
            if directory not in snapshot.found:
                self._miss(directory, now)

    def _see(self, directory: str, found: Found[Loaded]) -> None:
        place = self._places.get(directory)
        if place is None:
            place = self.arriving[directory] = self.arriving.get(directory) or Place(directory, found)
        elif place.found is found:
            return
        place.found = found
        self.touched.add(directory)

    def _miss(self, directory: str, now: float) -> None:
        self.arriving.pop(directory, None)
        place = self._places.get(directory)
        if place is not None and directory not in self._missing and not self.unknown(directory):
            self._missing[directory] = place
            place.missing_since = now

    def unknown(self, directory: str) -> bool:
        """Whether nothing can be known of a directory now, since it or one above it cannot be read."""
        at = directory if self._unreadable else ""
        while at and at not in self._unreadable:
            above = os.path.dirname(at)  # noqa: PTH120 - text, kept as such
            at = above if above != at else ""
        return bool(at)

    def expired(self, now: float, grace: float) -> list[Place]:
        """Return the places whose manifest has been missing for `grace` seconds."""
        return [
            p
            for p in self._missing.values()
            if p.missing_since is not None and now - p.missing_since >= grace
        ]

    def expiries(self, grace: float) -> Iterable[float]:
        """Return when (monotonic) the places that are missing will have been so for `grace` seconds."""
        return [p.missing_since + grace for p in self._missing.values() if p.missing_since is not None]

    def to_judge(self, leaving: Iterable[Place]) -> list[Place]:
        """Return the touched places in sorted order of directories, but those that are leaving."""
        here = self.here
        awaited = (self.touched & here.keys()) - {place.directory for place in leaving}
        return [here[directory] for directory in sorted(awaited)]

    def drop(self, place: Place) -> None:
        """Forget a place that has left."""
        self._missing.pop(place.directory, None)
        self.touched.discard(place.directory)
