"""Snapshots of directories in, the capsules to be served out."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import structlog

from sidecar.errors import StoreError
from sidecar.model import ConfigStatus, LastError, RootStatus, Work
from sidecar.ops.uuid7 import Uuid7
from sidecar.registry.candidates import judge, propose, settle, wish_for
from sidecar.registry.disks import Disks
from sidecar.registry.places import Places, printable
from sidecar.registry.ports import AnyOf
from sidecar.registry.presence import Presence
from sidecar.registry.saving import RETRY, PortSaver
from sidecar.registry.serving import Serving
from sidecar.registry.sessions import Changes, Memory, Session, commit, gone
from sidecar.registry.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sidecar.config import Config
    from sidecar.manifest.load import Loaded
    from sidecar.model import Wanted
    from sidecar.registry.candidates import Candidate, Verdict
    from sidecar.registry.places import Place
    from sidecar.registry.sessions import Pair
    from sidecar.store import Store
    from sidecar.watch.values import Snapshot


@dataclass(frozen=True, slots=True)
class Desired:
    """Where something else is to be served than the update before said, and when to update again without a snapshot.

    `changes` is by directory, None where nothing is to be served any more: what one change costs does not grow with
    what there is. `wake_at` is a time of the monotonic clock, None when only a snapshot or a reload can change
    anything.
    """

    changes: Mapping[str, Wanted | None]
    wake_at: float | None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What an update has found out about the places that it touched.

    `errors` is by directory, on top of what the verdicts say; `returning` are ids of capsules that had gone;
    `waiting` are the directories whose capsule the database has not remembered yet.
    """

    touched: Sequence[Place]
    verdicts: Mapping[str, Verdict]
    candidates: Sequence[Candidate]
    errors: dict[str, str]
    returning: frozenset[str]
    waiting: frozenset[str] = frozenset()


class Registry:
    """Knows every capsule: its last good manifest, its id, session and port, and how it comes and goes.

    One task calls `update` and `reconfigure`, one call after the other; whoever owns the listeners calls `bound`,
    `unbound` and `save_ports`; all on one event loop. `view` is what others may look at. Close it by `aclose`.

    `guarded` are paths that no export may reach, beside the configuration's own files. `tasks` returns the numbers of tasks by state for a session id,
    `work` how they are worked on.
    `on_manifest(refused)` is called for each manifest that changed and was read.
    Raises StoreError when the memory of earlier runs cannot be read.
    """

    def __init__(
        self,
        store: Store,
        config: Config,
        *,
        guarded: Sequence[str] = (),
        tasks: Callable[[str], Mapping[str, int]] = lambda _: {},
        work: Callable[[str], Work] = lambda _: Work(),
        on_manifest: Callable[[bool], object] = lambda _: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._config = config
        self._guarded = tuple(guarded)
        self._on_manifest = on_manifest
        self._clock = clock
        self._monotonic = monotonic
        self._new_id = Uuid7().new_id
        self._disks = Disks()
        self._memory = Memory.load(store)
        self._places = Places()
        self._serving = Serving(self._places, self._memory, config)
        self._presence = Presence(self._places)
        self._loose = {session.pair: session for session in self._memory.all_present()}
        self._started = False
        self._saver = PortSaver(store, clock)
        self._store_error: str | None = None
        self.view = View(self._places, tasks, work)
        self._show(config)

    async def aclose(self) -> None:
        """Save what is not saved, and end the thread that looks at export roots. The store is still open."""
        await self._saver.aclose()
        await self._disks.aclose()

    def reconfigure(self, config: Config) -> bool:
        """Put a configuration in force, from the next `update` on; return whether it is another one."""
        changed = config != self._config
        self._config = self._serving.config = config
        self._show(config)
        if changed:
            self._presence.touched.update(self._places.by_directory)
        return changed

    def configuration_refused(self, message: str) -> None:
        """Show that the newest configuration was refused; the one before stays in force."""
        status = self.view.config()
        self.view.take_config(replace(status, last_error=LastError(self._clock(), printable(message))))

    async def update(self, snapshot: Snapshot[Loaded] | None = None) -> Desired:
        """Take a snapshot in, or without one what time and configuration have changed, and return what is desired.

        Whatever is new is committed before it is returned. What cannot be committed is not served, and tried again.
        """
        if snapshot is not None:
            self.view.take_roots(snapshot.roots)
            self._presence.look(snapshot, self._monotonic())
        if not self._presence.looked:
            return self._desired()
        expired = self._presence.expired(self._monotonic(), self._config.watch.grace)
        touched = self._presence.to_judge(leaving=expired)
        verdicts = {place.directory: judge(place) for place in touched}
        overdue = self._memory.overdue(self._clock(), self._config.tasks.forget)
        candidates, errors, silent = await settle(
            {p.directory: wish for p in touched if (wish := wish_for(p, verdicts[p.directory]))},
            partial(propose, memory=self._memory, overdue=overdue, config=self._config, mint=self._minter()),
            self._disks,
            (*self._guarded, *self._config.guarded),
        )
        ending = [*expired, *(place for place in touched if verdicts[place.directory].artifact)]
        outcome = _Outcome(touched, verdicts, candidates, errors, self._returning(candidates, overdue))
        if await self._commit(self._changes(candidates, ending, overdue)):
            self._presence.touched.clear()
            self._presence.touched.update(silent)
        else:
            outcome = self._without_new(outcome)
        self._apply(outcome)
        for place in expired:
            self._drop(place)
        self._finish()
        return self._desired()

    def bound(self, directory: str, port: int) -> None:
        """Take note that the capsule of a directory is listened for on a port; it is remembered soon after."""
        self.view.tried(directory)
        place = self._places.get(directory)
        for changed, now in self._serving.bound(place, port).items() if place is not None else ():
            self._saver.note(changed, now)

    def unbound(self, directory: str, reason: str) -> None:
        """Take note that the capsule of a directory is not listened for, and why."""
        self.view.tried(directory)
        if (place := self._places.get(directory)) is not None:
            self._serving.unbound(place, reason, self._clock())

    def troubled(self, directory: str, reason: str | None) -> None:
        """Take note of what is wrong with the capsule of a directory, which is listened for all the same."""
        if (place := self._places.get(directory)) is not None:
            self._serving.troubled(place, reason, self._clock())

    def capsule_of(self, capsule_id: str) -> Pair | None:
        """Return the directory and name of the capsule with an id, gone or not; None where none is remembered."""
        session = self._memory.ids.get(capsule_id)
        return None if session is None else session.pair

    async def save_ports(self) -> bool:
        """Wait until every bind is committed; return False where the database did not take one, which is tried again."""
        return await self._saver.flush()

    def wanted(self) -> tuple[Wanted, ...]:
        """Return all that is to be served, in sorted order of directories: what the changes of all updates come to."""
        return tuple(place.wanted for place in self._places if place.wanted is not None)

    def reserved_ports(self) -> Collection[int]:
        """Return the ports that a free choice must leave alone.

        They are the remembered ones of all directories, those of capsules that are gone but not forgotten included, and
        the second ports of capsules.
        """
        return AnyOf(self._memory.ports.ports, self._config.a2a_ports)

    def _minter(self) -> Callable[[Pair, str], Session]:
        """Return what makes the session of a pair under an id, with the same session id each time."""
        new_session_id = cache(lambda _: self._new_id("ses_"))
        now = self._clock()

        def mint(pair: Pair, capsule_id: str) -> Session:
            directory, name = pair
            return Session(directory, name, capsule_id, new_session_id(pair), now)

        return mint

    def _returning(self, candidates: Iterable[Candidate], overdue: Sequence[Session]) -> frozenset[str]:
        """Return the ids of the candidates whose capsule had gone and was not forgotten yet."""
        known = [(c.session.id, self._memory.get(c.session.pair)) for c in candidates]
        return frozenset(i for i, s in known if s is not None and s.gone_at is not None and s not in overdue)

    def _changes(
        self, candidates: Sequence[Candidate], ending: Iterable[Place], overdue: Sequence[Session]
    ) -> Changes:
        at = self._clock()
        sessions = [c.session for c in candidates]
        kept = {s.pair: s for s in sessions if self._memory.get(s.pair) is not s}
        staying = {s.directory: s.pair for s in sessions}
        leaving = [self._memory.present(d) for d in (*staying, *(place.directory for place in ending))]
        here, unknown = self._presence.here, self._presence.unknown
        leaving += [s for s in self._loose.values() if s.directory not in here and not unknown(s.directory)]
        for leaver in leaving:
            if leaver is not None and staying.get(leaver.directory) != leaver.pair:
                kept[leaver.pair] = gone(leaver, at)
        return Changes(tuple(kept.values()), tuple(overdue))

    async def _commit(self, changes: Changes) -> bool:
        log = structlog.get_logger()
        if changes:
            try:
                await self._store.write(partial(commit, changes=changes))
            except StoreError as error:
                if self._store_error is None:
                    log.warning("registry_not_saved", problem=str(error), retry_s=RETRY)
                self._store_error = str(error)
                return False
        if self._store_error is not None:
            log.info("registry_saved")
            self._store_error = None
        self._memory.apply(changes)
        return True

    def _without_new(self, outcome: _Outcome) -> _Outcome:
        """Return what can be done without the database: not to serve what it has not remembered."""
        ready = [c for c in outcome.candidates if self._memory.get(c.session.pair) is c.session]
        waiting = {c.wish.place.directory for c in outcome.candidates} - {
            c.wish.place.directory for c in ready
        }
        errors = outcome.errors | dict.fromkeys(waiting, f"cannot be served yet: {self._store_error}")
        return replace(outcome, candidates=ready, errors=errors, waiting=frozenset(waiting))

    def _apply(self, outcome: _Outcome) -> None:
        at = self._clock()
        for place in outcome.touched:
            if self._presence.arriving.pop(place.directory, None) is not None:
                self._serving.add(place)
        for candidate in outcome.candidates:
            self._serving.take(candidate, at, back=candidate.session.id in outcome.returning)
        for place in outcome.touched:
            verdict = outcome.verdicts[place.directory]
            if verdict.artifact:
                self._serving.list_as_artifact(place)
            else:
                self._serving.hold(place)
            error = outcome.errors.get(place.directory) or verdict.error
            if error is None:
                self._serving.mend(place)
            else:
                self._serving.fail(place, error, at)
            content = (place.found.digest, place.found.error)
            if place.judged != content and place.directory not in outcome.waiting:
                place.judged = content
                self._on_manifest(error is not None)

    def _drop(self, place: Place) -> None:
        self._serving.remove(place)
        self._presence.drop(place)
        self.view.tried(place.directory)

    def _finish(self) -> None:
        self._serving.finish(self._clock(), quiet=not self._started)
        failed = self._store_error is not None
        loose = self._memory.all_present() if failed else self._loose.values()
        self._loose = {s.pair: s for s in loose if self._memory.get(s.pair) is s and not self._is_held(s)}
        if not self._started:
            self._started = True
            self.view.expect({place.directory for place in self._places if place.wanted is not None})

    def _is_held(self, session: Session) -> bool:
        place = self._places.get(session.directory)
        return place is not None and place.held is session

    def _desired(self) -> Desired:
        now = self._monotonic()
        times = list(self._presence.expiries(self._config.watch.grace))
        overdue = self._memory.next_overdue(self._config.tasks.forget)
        if self._store_error is not None or self._presence.touched:
            times.append(now + RETRY)
        elif overdue is not None and self._presence.looked:
            times.append(now + max(0.0, overdue - self._clock()))
        return Desired(self._serving.changes(), min(times, default=None))

    def _show(self, config: Config) -> None:
        self.view.take_config(ConfigStatus(config.source, self._clock()))
        if not self._presence.looked:
            self.view.take_roots([RootStatus(root.path) for root in config.roots])
