"""What is served where: takes in what an update decided, and says each change once in the log."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import structlog

from sidecar.model import LastError, Wanted
from sidecar.registry import ports
from sidecar.registry.candidates import capsule_of
from sidecar.registry.namesakes import Namesakes
from sidecar.registry.places import printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from sidecar.config import Config
    from sidecar.registry.candidates import Candidate
    from sidecar.registry.places import Place, Places
    from sidecar.registry.sessions import Memory

LOGGED: Final = 20
"""How many ids or warnings one line of the log names."""


class Serving:
    """Keeps the places, the names and the ports in step. Between two calls of `finish` one update is taken in.

    A line of the log is written at `finish`, when every place has the id that it is called by.
    """

    def __init__(self, places: Places, memory: Memory, config: Config) -> None:
        self.config = config
        self._places = places
        self._memory = memory
        self._fixed: Counter[int] = Counter()
        self._fixed_moved = False
        self._names: set[str] = set()
        self._namesakes = Namesakes()
        self._barred: frozenset[str] = frozenset()
        self._stale: set[str] = set()
        self._relist = False
        self._unused: AbstractSet[str] = frozenset()
        self._lines: list[tuple[str, str, str | Place, dict[str, Any]]] = []
        self._changes: dict[str, Wanted | None] = {}

    def add(self, place: Place) -> None:
        """Take in a directory that was not there before."""
        self._places.add(place)
        self._relist = True

    def remove(self, place: Place) -> None:
        """Let go of a directory whose manifest has been gone for the grace."""
        self._end(place, reason="the manifest is gone")
        self._places.remove(place)
        self._namesakes.drop(place.directory)
        self._relist = True

    def take(self, candidate: Candidate, at: float, *, back: bool) -> None:
        """Serve a candidate, whose session is committed; `back`: its capsule had been gone."""
        wish, session, place = candidate.wish, candidate.session, candidate.wish.place
        before = place.capsule if place.capsule and place.capsule.session_id == session.session_id else None
        if place.capsule is not None and before is None:
            self._end(place, reason="the manifest has another name")
        capsule = capsule_of(candidate, before, at)
        if before is None:
            event = "capsule_returned" if back else "capsule_added"
            self._say("info", event, place, name=wish.manifest.name, session=session.session_id)
            self._names.add(wish.manifest.name)
            self._places.rename(place, None, wish.manifest.name)
        elif capsule is not before:
            self._say("info", "capsule_changed", place, version=wish.manifest.version)
        self._relist = self._relist or place.held is not session
        place.held, place.artifact = session, False
        place.good, place.capsule = wish.loaded, capsule
        if capsule.settings.disabled:
            place.port = place.trouble = None
        place.checked, place.export_problems = (wish.loaded, candidate.workspace), candidate.problems
        self._fix(place, ports.fixed(capsule.settings, capsule.manifest))
        self._warn(place)

    def hold(self, place: Place) -> None:
        """Have a place whose manifest is bad keep the session that it is remembered to have."""
        if place.artifact:
            place.artifact = False
            place.changed()
        if place.held is None and (present := self._memory.present(place.directory)) is not None:
            place.held = present
            self._relist = True
        self._namesakes.take(place)

    def list_as_artifact(self, place: Place) -> None:
        """List a place without serving it."""
        if place.artifact:
            return
        self._end(place, reason="the manifest describes an artifact")
        place.artifact = True
        place.held = place.good = None
        self._namesakes.drop(place.directory)
        self._relist = True
        self._warn(place)

    def fail(self, place: Place, message: str, at: float) -> None:
        """Show what is wrong with the newest manifest; what is served goes on."""
        if place.error is None or place.error.message != message:
            place.error = LastError(at, printable(message))
            last_good = place.capsule is not None
            self._say("warning", "manifest_refused", place, problem=message, last_good=last_good)
        self._warn(place)

    def mend(self, place: Place) -> None:
        """Take note that nothing is wrong with the newest manifest."""
        if place.error is not None:
            place.error = None
            self._say("info", "manifest_mended", place)
            place.changed()

    def changes(self) -> Mapping[str, Wanted | None]:
        """Return what is wanted of the directories of which something else was wanted when this was last asked."""
        changes, self._changes = self._changes, {}
        return changes

    def bound(self, place: Place, port: int) -> Mapping[str, int | None]:
        """Take note of the port that a place's listener has; return what is to be remembered, by directory."""
        if place.directory in self._barred:
            return {}  # the listener was opened before that was known, and is about to be closed
        place.port, place.trouble = port, None
        place.changed()
        changes = self._memory.ports.remember(place.directory, port)
        for directory in changes:
            if (other := self._places.get(directory)) is not None:
                self._refresh(other)
        return changes

    def unbound(self, place: Place, reason: str, at: float) -> None:
        """Take note that a place has no listener, and why."""
        place.port = None
        self.troubled(place, reason, at)

    def troubled(self, place: Place, reason: str | None, at: float) -> None:
        """Take note of what is wrong with a place's listener, None where nothing is any more."""
        if reason is None:
            place.trouble = None
        elif place.trouble is None or place.trouble.message != printable(reason):
            place.trouble = LastError(at, printable(reason))
        place.changed()

    def finish(self, at: float, *, quiet: bool = False) -> None:
        """Bring everything in step that depends on more than one place, and write the lines of the log.

        `quiet` is for the first look: what is there is no news then. `at` is now, in Unix seconds.
        """
        self._bar(at)
        if self._relist:
            self._places.list_others(self._memory.ids)
            self._relist = False
        for place in self._places if self._fixed_moved else self._stale_places():
            self._refresh(place)
        self._fixed_moved = False
        self._stale.clear()
        for name, ids in self._places.warn_namesakes(self._names):
            self._log("warning", "namesakes", name=name, capsules=ids[:LOGGED], count=len(ids))
        self._names.clear()
        for level, event, who, fields in self._lines:
            self._log("debug" if quiet and level == "info" else level, event, **_called(who), **fields)
        self._lines.clear()
        self._warn_unused_settings()

    def _warn_unused_settings(self) -> None:
        """Say once which `capsules.<id>` of the configuration belong to no capsule."""
        ids, listed = self._memory.ids, self._places.listed_ids
        unused = {name for name in self.config.capsules if name not in ids and name not in listed}
        for key in sorted(unused - self._unused):
            at = self.config.problem_at(("capsules", key), "", "")
            self._log("warning", "settings_unused", key=at.key, config=at.file)
        self._unused = unused

    def _bar(self, at: float) -> None:
        """Serve no capsule whose command may be meant for another directory, and those again that were so before."""
        barred = dict(self._namesakes.barred(self.config.untied_commands, self._memory.ids, self._places))
        now = {place.directory for place in barred}
        for directory in self._barred - now:
            if (place := self._places.get(directory)) is not None:
                place.trouble = None
                place.changed()
                self._stale.add(directory)
        self._barred = frozenset(now)
        for place, reason in barred.items():
            if place.wanted is not None:
                self._stale.add(place.directory)
            if place.trouble is None or place.trouble.message != printable(reason):
                self.unbound(place, reason, at)
                self._say("warning", "capsule_unbound", place, port=None, reason=reason)

    def _stale_places(self) -> list[Place]:
        return [place for d in self._stale if (place := self._places.get(d)) is not None]

    def _end(self, place: Place, *, reason: str) -> None:
        """Serve a place's capsule no more."""
        if place.capsule is None:
            return
        self._say("info", "capsule_removed", place.id, path=printable(place.directory), reason=reason)
        name = place.capsule.manifest.name
        self._names.add(name)
        self._places.rename(place, name, None)
        place.capsule = place.trouble = place.port = None
        self._wish(place, None)
        self._fix(place, None)

    def _fix(self, place: Place, due: ports.Due | None) -> None:
        self._stale.add(place.directory)
        if due == place.due:
            return
        for port, step in ((place.due, -1), (due, 1)):
            if port is not None:
                before = self._fixed[port.port]
                self._fixed[port.port] += step
                if not self._fixed[port.port]:
                    del self._fixed[port.port]
                self._fixed_moved = self._fixed_moved or not before or port.port not in self._fixed
        place.due = due

    def _refresh(self, place: Place) -> None:
        """Have a place want what it should: its capsule, on the port that is due."""
        capsule = place.capsule
        if capsule is None or capsule.settings.disabled or place.directory in self._barred:
            self._wish(place, None)
            return
        remembered = self._memory.ports.port_of(place.directory)
        given = ports.AnyOf(self._fixed, self.config.a2a_ports)
        due = place.due or ports.remembered(remembered, self.config.listen.ports, given)
        port, source = (None, None) if due is None else (due.port, due.source)
        now = place.wanted
        if now is None or now.capsule is not capsule or (now.port, now.port_from) != (port, source):
            self._wish(place, Wanted(capsule, port, source))

    def _wish(self, place: Place, wanted: Wanted | None) -> None:
        if place.wanted is not wanted:
            place.wanted = self._changes[place.directory] = wanted

    def _warn(self, place: Place) -> None:
        """Renew the warnings of a place: those of the file, of the manifest that is served, of its export roots."""
        problems = (*place.good.warnings, *place.export_problems) if place.good is not None else ()
        texts = [place.found.warning] if place.found.warning else []
        texts += [printable(str(problem)) for problem in problems]
        if tuple(texts) != place.warnings:
            place.warnings = tuple(texts)
            if texts:
                self._say("warning", "manifest_warnings", place, warnings=texts[:LOGGED], count=len(texts))
        place.changed()

    def _say(self, level: str, event: str, who: str | Place, **fields: object) -> None:
        self._lines.append((level, event, who, fields))

    def _log(self, level: str, event: str, **fields: object) -> None:
        getattr(structlog.get_logger(), level)(event, **fields)


def _called(who: str | Place) -> dict[str, str]:
    if isinstance(who, str):
        return {"capsule": who}
    return {"capsule": who.id, "path": printable(who.directory)}
