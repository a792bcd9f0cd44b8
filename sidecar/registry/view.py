"""What others may see of the registry: its rows, its roots, its configuration, and whether it is ready."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sidecar.model import CapsuleState, CapsuleStatus, ConfigStatus, LastError, RootStatus
from sidecar.registry.places import printable

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    from sidecar.model import Work
    from sidecar.registry.places import Place, Places


class View:
    """Committed state, never a way to change it: the `RegistryView` of the model. Used on the event loop only.

    `tasks` returns the number of tasks by state for a session id, `work` how they are worked on.
    """

    def __init__(
        self, places: Places, tasks: Callable[[str], Mapping[str, int]], work: Callable[[str], Work]
    ) -> None:
        self._places = places
        self._tasks = tasks
        self._work = work
        self._roots: tuple[RootStatus, ...] = ()
        self._config = ConfigStatus(None, 0.0)
        self._untried: set[str] | None = None
        self._draining = False

    def capsules(self) -> Sequence[CapsuleStatus]:
        """Return all rows, sorted by id."""
        return [self._row(place) for place in self._places.in_order_of_ids()]

    def capsule(self, capsule_id: str) -> CapsuleStatus | None:
        """Return the row with this id, None where there is none."""
        places = self._places.in_order_of_ids()
        at = bisect_left(places, capsule_id, key=attrgetter("id"))
        return self._row(places[at]) if at < len(places) and places[at].id == capsule_id else None

    def _row(self, place: Place) -> CapsuleStatus:
        row = place.row
        if row.session_id is not None:
            tasks, work = self._tasks(row.session_id), self._work(row.session_id)
            if tasks or work.workers or work.trouble:
                return replace(row, tasks=tasks, workers=work.workers, trouble=work.trouble)
        return row

    def states(self) -> Counter[CapsuleState]:
        """Return how many capsules do what, without making their rows."""
        return self._places.states()

    def behind(self) -> int:
        """Return how many capsules are served by their last good manifest, since the newest is refused."""
        return sum(place.error is not None and place.state is CapsuleState.SERVING for place in self._places)

    def roots(self) -> Sequence[RootStatus]:
        """Return the configured roots, in configured order."""
        return self._roots

    def config(self) -> ConfigStatus:
        """Return the configuration in force."""
        return self._config

    def ready(self) -> bool:
        """Whether every capsule of the first look was tried once, and the sidecar is not draining."""
        return self._untried is not None and not self._untried and not self._draining

    def detail(self) -> Mapping[str, Any]:
        """Return what `/readyz` tells beside the rows: JSON-ready."""
        return {"draining": self._draining, "untried": None if self._untried is None else len(self._untried)}

    def take_roots(self, roots: Sequence[RootStatus]) -> None:
        """Show these roots from now on."""
        self._roots = tuple(
            RootStatus(
                printable(root.path),
                root.last_error and LastError(root.last_error.at, printable(root.last_error.message)),
            )
            for root in roots
        )

    def take_config(self, status: ConfigStatus) -> None:
        """Show this state of the configuration from now on."""
        self._config = status

    def expect(self, directories: set[str]) -> None:
        """Be ready once all of these were tried; only the first call counts."""
        if self._untried is None:
            self._untried = directories

    def tried(self, directory: str) -> None:
        """Take note that a directory was tried, or needs no trying any more."""
        if self._untried:
            self._untried.discard(directory)

    def drain(self) -> None:
        """Be ready no more."""
        self._draining = True
