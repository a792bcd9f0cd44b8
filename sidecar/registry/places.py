"""What the registry knows of each directory, and of all of them together. Used on the event loop only."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from sidecar.model import CapsuleState, CapsuleStatus, LastError, Wanted, served_methods, served_planes
from sidecar.registry.ids import assign_listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator

    from sidecar.errors import Problem
    from sidecar.manifest.load import Loaded
    from sidecar.model import Capsule, TaskAcceptance
    from sidecar.registry.ports import Due
    from sidecar.registry.sessions import Session
    from sidecar.watch.values import Found

NAMESAKES_SHOWN = 5


@dataclass(slots=True, eq=False)
class Place:
    """A directory with a `murmur.yaml`.

    `found` is the newest look at it, `good` the last manifest that could be served, `held` the session that is there
    (also while nothing of it can be served). `error` is about the manifest, `trouble` about the listener.
    `missing_since` is a monotonic time. `due` is the port that configuration or manifest give. `checked` is what the
    export roots were looked at for (a manifest, a workspace), with `export_problems` of it. `judged` is what was
    judged last: a digest, and why there is none. `counted` is the state that it was counted with, `note` is called when
    it may have another one.
    """

    directory: str
    found: Found[Loaded]
    good: Loaded | None = None
    held: Session | None = None
    listed_id: str = ""
    artifact: bool = False
    capsule: Capsule | None = None
    warnings: tuple[str, ...] = ()
    namesakes: str = ""
    wanted: Wanted | None = None
    due: Due | None = None
    port: int | None = None
    error: LastError | None = None
    trouble: LastError | None = None
    missing_since: float | None = None
    judged: tuple[str, str | None] | None = None
    checked: tuple[Loaded, str] | None = None
    export_problems: tuple[Problem, ...] = ()
    counted: CapsuleState | None = None
    note: Callable[[Place], object] | None = None
    _row: CapsuleStatus | None = None

    @property
    def id(self) -> str:
        """What it is called: its session's id, or the one under which it is only listed."""
        return self.held.id if self.held is not None else self.listed_id

    @property
    def state(self) -> CapsuleState:
        """What it is doing (design, `GET /api/capsules`)."""
        if self.artifact:
            return CapsuleState.ARTIFACT
        if self.capsule is None:
            return CapsuleState.REFUSED
        if self.capsule.settings.disabled:
            return CapsuleState.DISABLED
        return CapsuleState.UNBOUND if self.port is None else CapsuleState.SERVING

    @property
    def last_error(self) -> LastError | None:
        """The newest of what is wrong with it now."""
        wrong = [error for error in (self.error, self.trouble) if error is not None]
        return max(wrong, key=lambda error: error.at, default=None)

    def changed(self) -> None:
        """Have the row made anew when it is next asked for, and its state counted."""
        self._row = None
        if self.note is not None:
            self.note(self)

    @property
    def row(self) -> CapsuleStatus:
        """Its row, without the tasks; the same object until something changes."""
        if self._row is None:
            self._row = self._make_row()
        return self._row

    def _make_row(self) -> CapsuleStatus:
        state, capsule = self.state, self.capsule
        row = CapsuleStatus(
            id=self.id,
            path=printable(self.directory),
            state=state,
            warnings=(*self.warnings, self.namesakes) if self.namesakes else self.warnings,
            last_error=self.last_error,
        )
        if capsule is None:
            return row
        row = replace(
            row, name=capsule.manifest.name, version=capsule.manifest.version, session_id=capsule.session_id
        )
        if state is CapsuleState.DISABLED:
            return row
        return replace(
            row,
            port=self.port,
            url=None if self.port is None else replace(capsule, port=self.port).url,
            methods=_names_of_methods(capsule.manifest.lifecycle.task_acceptance),
            planes=served_planes(capsule.manifest),
            tools=tuple(artifact.name for artifact in capsule.manifest.artifacts if artifact.model_visible),
            backend=capsule.settings.backend,
        )


@cache
def _names_of_methods(acceptance: TaskAcceptance) -> tuple[str, ...]:
    return tuple(method.name for method in served_methods(acceptance))


@dataclass(slots=True)
class Places:
    """All directories, in sorted order, and what they are to each other.

    `listed_ids` are those of the places without a session.
    """

    by_directory: dict[str, Place] = field(default_factory=dict)
    listed_ids: frozenset[str] = frozenset()
    _names: dict[str, dict[str, Place]] = field(default_factory=dict)
    _listed: dict[str, str] = field(default_factory=dict)
    _ordered: list[Place] | None = None
    _by_id: list[Place] | None = None
    _states: Counter[CapsuleState] = field(default_factory=Counter)
    _uncounted: set[Place] = field(default_factory=set)

    def __iter__(self) -> Iterator[Place]:
        """Yield the places in sorted order of their directories."""
        if self._ordered is None:
            self._ordered = [self.by_directory[directory] for directory in sorted(self.by_directory)]
        return iter(self._ordered)

    def __len__(self) -> int:
        return len(self.by_directory)

    def get(self, directory: str) -> Place | None:
        """Return the place of a directory."""
        return self.by_directory.get(directory)

    def add(self, place: Place) -> None:
        """Take a directory in."""
        self.by_directory[place.directory] = place
        self._ordered = self._by_id = None
        place.note = self._uncounted.add
        place.note(place)

    def remove(self, place: Place) -> None:
        """Let a directory go."""
        del self.by_directory[place.directory]
        self._ordered = self._by_id = None
        place.note = None
        self._uncounted.discard(place)
        self._count(place, None)

    def states(self) -> Counter[CapsuleState]:
        """Return how many are in which state; those are counted that may have another one than before."""
        for place in self._uncounted:
            self._count(place, place.state)
        self._uncounted.clear()
        return +self._states

    def _count(self, place: Place, state: CapsuleState | None) -> None:
        for one, step in ((place.counted, -1), (state, 1)):
            if one is not None:
                self._states[one] += step
        place.counted = state

    def in_order_of_ids(self) -> list[Place]:
        """Return the places sorted by id."""
        if self._by_id is None:
            self._by_id = sorted(self.by_directory.values(), key=lambda place: place.id)
        return self._by_id

    def list_others(self, taken: Container[str]) -> None:
        """Give every place without a session an id to be listed under, none of which is taken."""
        self._by_id = None
        others = [place for place in self.by_directory.values() if place.held is None]
        self._listed = assign_listed((place.directory for place in others), taken, self._listed)
        self.listed_ids = frozenset(self._listed.values())
        for place in others:
            if place.listed_id != (new := self._listed[place.directory]):
                place.listed_id = new
                place.changed()

    def rename(self, place: Place, before: str | None, now: str | None) -> None:
        """Take note of the name that a place's capsule has from now on."""
        if before is not None and (group := self._names.get(before)) is not None:
            group.pop(place.directory, None)
            if not group:
                del self._names[before]
        if now is not None:
            self._names.setdefault(now, {})[place.directory] = place
        elif place.namesakes:
            place.namesakes = ""
            place.changed()

    def warn_namesakes(self, names: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
        """Renew the warnings of the places that carry one of these names; yield the groups of more than one.

        A group is its name and the ids in it, in sorted order of directories.
        """
        for name in names:
            group = self._names.get(name, {})
            ids = [group[directory].id for directory in sorted(group)]
            text = namesake_warning(name, ids) if len(ids) > 1 else ""
            for place in group.values():
                if place.namesakes != text:
                    place.namesakes = text
                    place.changed()
            if text:
                yield name, ids


def namesake_warning(name: str, ids: Collection[str]) -> str:
    """Return the warning of capsules that share a name; a long list of ids is cut."""
    shown = ", ".join(list(ids)[:NAMESAKES_SHOWN])
    more = f" and {len(ids) - NAMESAKES_SHOWN} more" if len(ids) > NAMESAKES_SHOWN else ""
    return f"{len(ids)} directories carry the name {name!r}: {shown}{more}"


def printable(text: str) -> str:
    """Return text that can be encoded: bytes of a path that are no UTF-8 as backslash escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text).decode("utf-8", "backslashreplace")
    return text
