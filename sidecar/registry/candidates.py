"""From manifests to capsules that could be served: id, session, settings and workspace, and whether that holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sidecar.errors import Severity, visible
from sidecar.model import Capsule
from sidecar.registry.checks import ExportCheck, exports_anything, no_answer, summary, workspace_of
from sidecar.registry.ids import assign
from sidecar.registry.sessions import Session, returned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sidecar.config import Config
    from sidecar.errors import Problem
    from sidecar.manifest.load import Loaded
    from sidecar.model import Manifest, Settings
    from sidecar.registry.disks import Disks
    from sidecar.registry.places import Place
    from sidecar.registry.sessions import Memory, Pair


_Key = tuple[str, str, int]
"""What a look at export roots is about: directory, workspace, and which manifest."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the newest look at a place says: a manifest, an artifact's file, or an error as one line."""

    loaded: Loaded | None = None
    artifact: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """A manifest that is to be served at a place: its newest, or the last good one."""

    place: Place
    loaded: Loaded
    manifest: Manifest

    @property
    def pair(self) -> Pair:
        """What its session belongs to."""
        return self.place.directory, self.manifest.name


@dataclass(frozen=True, slots=True)
class Candidate:
    """A wish with everything that it would be served with. `problems` are those of its export roots: warnings."""

    wish: Wish
    session: Session
    settings: Settings
    workspace: str
    problems: tuple[Problem, ...] = ()


def judge(place: Place) -> Verdict:
    """Say what the newest look at a place means."""
    loaded = place.found.content
    if loaded is None:
        return Verdict(error=f"{visible(place.found.path)}: {place.found.error or 'cannot be read'}")
    if loaded.manifest is not None:
        return Verdict(loaded)
    if loaded.artifact is not None:
        return Verdict(artifact=True)
    return Verdict(error=summary(loaded.errors))


def wish_for(place: Place, verdict: Verdict) -> Wish | None:
    """Return what is to be served at a place: its newest manifest where that is good, else the last good one."""
    loaded = None if verdict.artifact else verdict.loaded or place.good
    if loaded is None or loaded.manifest is None:
        return None
    return Wish(place, loaded, loaded.manifest)


def capsule_of(candidate: Candidate, before: Capsule | None, at: float) -> Capsule:
    """Return the capsule of a candidate: the one before where nothing differs.

    `changed_at` stays where nothing differs that a card shows; `at` is now, in Unix seconds.
    """
    session = candidate.session
    capsule = Capsule(
        id=session.id,
        directory=session.directory,
        session_id=session.session_id,
        manifest=candidate.wish.manifest,
        settings=candidate.settings,
        workspace=candidate.workspace,
        changed_at=at,
    )
    if before is None or _shown(before) != _shown(capsule):
        return capsule
    capsule = replace(capsule, changed_at=before.changed_at)
    return before if capsule == before else capsule


def _shown(capsule: Capsule) -> tuple[object, ...]:
    settings = capsule.settings
    return (
        *(capsule.session_id, capsule.manifest, settings.advertise, settings.public_url, settings.a2a_port),
        *(settings.card, settings.input_modes, settings.auth.kinds, settings.auth.door),
    )


def propose(
    wishes: Iterable[Wish],
    memory: Memory,
    overdue: Sequence[Session],
    config: Config,
    mint: Callable[[Pair, str], Session],
) -> list[Candidate]:
    """Give each wish its session, the remembered one or a new one, and what follows from that.

    `overdue` sessions count as forgotten. `mint` makes the session of a pair under an id.
    """
    forgotten = {session.pair for session in overdue}
    wishes = list(wishes)
    new = [w.pair for w in wishes if w.pair in forgotten or memory.get(w.pair) is None]
    ids = assign(new, memory.ids.keys() - {s.id for s in overdue} if overdue else memory.ids)
    candidates = []
    for wish in wishes:
        known = memory.get(wish.pair)
        if wish.pair in ids or known is None:
            session = mint(wish.pair, ids[wish.pair])
        else:
            session = known if known.gone_at is None else returned(known)
        settings = config.settings_for(session.id, session.directory)
        workspace = workspace_of(
            settings.workspace, session.directory, capsule_id=session.id, session_id=session.session_id
        )
        candidates.append(Candidate(wish, session, settings, workspace))
    return candidates


async def settle(
    wishes: Mapping[str, Wish],
    propose_all: Callable[[Iterable[Wish]], list[Candidate]],
    disks: Disks,
    guarded: Sequence[str],
) -> tuple[list[Candidate], dict[str, str], frozenset[str]]:
    """Return the candidates whose export roots hold, and for each directory with a refused one the error.

    The third are the directories of those whose disk does not answer: they are refused, and to be tried again.
    Where the newest manifest is refused, the last good one is looked at instead. The refused give back the ids that
    they would have had, so that they take none from the others.
    """
    wishes = dict(wishes)
    refused: dict[str, str] = {}
    outcomes: dict[_Key, tuple[Problem, ...]] = {}
    silent: set[str] = set()
    while True:
        candidates = propose_all(wishes.values())
        checks = {_key(c): _check(c) for c in candidates if _must_check(c)}
        for key in checks.keys() & outcomes.keys():
            del checks[key]
        if checks:
            found = await disks.check(list(checks.values()), guarded)
            for (key, check), problems in zip(checks.items(), found, strict=True):
                outcomes[key] = (no_answer(check),) if problems is None else problems
                if problems is None:
                    silent.add(check.directory)
        failed = [(c, errors) for c in candidates if (errors := _errors(c, outcomes))]
        if not failed:
            return [_with_problems(c, outcomes) for c in candidates], refused, frozenset(silent)
        for candidate, errors in failed:
            wish, directory = candidate.wish, candidate.wish.place.directory
            refused.setdefault(directory, summary(errors))
            del wishes[directory]
            good = wish.place.good
            if good is not None and good.manifest is not None and good is not wish.loaded:
                wishes[directory] = Wish(wish.place, good, good.manifest)


def _key(candidate: Candidate) -> _Key:
    return candidate.wish.place.directory, candidate.workspace, id(candidate.wish.loaded)


def _check(candidate: Candidate) -> ExportCheck:
    return ExportCheck(candidate.wish.loaded, candidate.wish.place.directory, candidate.workspace)


def _must_check(candidate: Candidate) -> bool:
    """Whether the manifest or the workspace is another one than that which was looked at last."""
    loaded, checked = candidate.wish.loaded, candidate.wish.place.checked
    if checked is not None and checked[0] is loaded and checked[1] == candidate.workspace:
        return False
    return exports_anything(loaded)


def _errors(candidate: Candidate, outcomes: Mapping[_Key, tuple[Problem, ...]]) -> list[Problem]:
    return [p for p in outcomes.get(_key(candidate), ()) if p.severity is Severity.ERROR]


def _with_problems(candidate: Candidate, outcomes: Mapping[_Key, tuple[Problem, ...]]) -> Candidate:
    """Add the warnings of this look, or of the last one where nothing had to be looked at."""
    if not exports_anything(candidate.wish.loaded):
        return candidate
    problems = outcomes.get(_key(candidate), candidate.wish.place.export_problems)
    return replace(candidate, problems=problems) if problems else candidate
