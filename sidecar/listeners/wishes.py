"""What is wanted of each directory, as one change after the other says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecar.listeners.plan import Listening
    from sidecar.model import Wanted


class Wishes:
    """The wishes by directory. `unwanted` are sessions that were wanted and are no more, until they are taken out."""

    def __init__(self) -> None:
        self.unwanted: set[str] = set()
        self._all: dict[str, Wanted] = {}
        self._unsettled: set[str] = set()

    def take(self, changes: Mapping[str, Wanted | None]) -> None:
        """Want something else in these directories, None: nothing."""
        for directory, wish in changes.items():
            before = self._all.pop(directory, None)
            if before is not None:
                self.unwanted.add(before.capsule.session_id)
            if wish is not None:
                self._all[directory] = wish
        self.unwanted.difference_update(
            wish.capsule.session_id for wish in changes.values() if wish is not None
        )

    def concerned(self, changes: Mapping[str, Wanted | None]) -> list[str]:
        """Return the directories to look at, in path order: what changes, and what is not yet as it is wanted."""
        return sorted({*changes, *self._unsettled})

    def of(self, directories: Sequence[str]) -> list[Wanted]:
        """Return the wishes of those of these directories that have one."""
        return [self._all[directory] for directory in directories if directory in self._all]

    def settle(self, wanted: Sequence[Wanted], listening: Mapping[str, Listening]) -> None:
        """Take note of which of the wishes that were looked at are as the open listeners show them."""
        self._unsettled = {
            one.capsule.directory
            for one in wanted
            if (now := listening.get(one.capsule.directory)) is None or now.wanted is not one
        }

    @property
    def unsettled(self) -> frozenset[str]:
        """The directories whose wish was not met when it was looked at last."""
        return frozenset(self._unsettled)
