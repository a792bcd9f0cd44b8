"""Who must not run a command: where several directories carry one name, it has to be said which of them is meant."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sidecar.registry.ids import slug

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from sidecar.registry.places import Place, Places
    from sidecar.registry.sessions import Session


class Namesakes:
    """Counts the directories that carry each name, by its slug, since ids are made of that.

    Directories count that are not served too: whose manifest is refused at first would else leave its id, and with
    that its command, to another one.
    """

    def __init__(self) -> None:
        self._carriers: Counter[str] = Counter()
        self._crowded: set[str] = set()
        self._carried: dict[str, tuple[str, ...]] = {}

    def take(self, place: Place) -> None:
        """Take note of the names that a directory carries now."""
        self._set(place.directory, tuple({slug(name) for name in set(_names(place))}))

    def drop(self, directory: str) -> None:
        """Forget a directory."""
        self._set(directory, ())

    def _set(self, directory: str, now: tuple[str, ...]) -> None:
        before = self._carried.pop(directory, ())
        if now:
            self._carried[directory] = now
        for name in now:
            self._carriers[name] += 1
        for name in before:
            self._carriers[name] -= 1
            if not self._carriers[name]:
                del self._carriers[name]
        for name in (*now, *before):
            (self._crowded.add if self._carriers[name] > 1 else self._crowded.discard)(name)

    def barred(
        self, untied: Collection[str], sessions: Mapping[str, Session], places: Places
    ) -> Iterator[tuple[Place, str]]:
        """Yield the capsules that must not be served as they are configured, each with the reason.

        `untied` are the ids whose command is not tied to a directory.
        """
        for capsule_id in untied if self._crowded else ():
            session = sessions.get(capsule_id)
            place = None if session is None else places.get(session.directory)
            if session is None or place is None or place.held is not session or place.capsule is None:
                continue
            if (count := self._carriers[slug(session.name)]) > 1:
                yield place, reason(capsule_id, session.name, count)


def crowded(untied: Collection[str], ids: Mapping[tuple[str, str], str]) -> Iterator[tuple[str, str]]:
    """Yield the ids that would be barred, each with the reason, of the ids by directory and name."""
    carriers = Counter(slug(name) for _, name in ids)
    for (_, name), capsule_id in ids.items():
        if capsule_id in untied and carriers[slug(name)] > 1:
            yield capsule_id, reason(capsule_id, name, carriers[slug(name)])


def reason(capsule_id: str, name: str, count: int) -> str:
    """Say why a capsule must not run its command, and what to do."""
    return (
        f"{count} directories carry the name {name!r}, and capsules.{capsule_id} does not say which of them may run "
        f"its command: set capsules.{capsule_id}.path in the configuration"
    )


def _names(place: Place) -> Iterable[str]:
    loaded = place.found.content
    if loaded is not None and loaded.manifest is not None:
        yield loaded.manifest.name
    if place.held is not None:
        yield place.held.name
