"""What the watch hands on: snapshots of what lies in the roots. Frozen values, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.model import RootStatus

T = TypeVar("T")


class Root(Protocol):
    """A root as the watch needs it: an absolute path, and the levels below it in which capsules are looked for."""

    @property
    def path(self) -> str:
        """The absolute path, surrogate-escaped where it is not UTF-8."""

    @property
    def depth(self) -> int:
        """0 looks at the root alone, 1 at the directories in it, and so on."""


class Timing(Protocol):
    """How changes are found: the `watch` block of the configuration, in seconds."""

    @property
    def tick(self) -> float:
        """Time between two looks at everything."""

    @property
    def settle(self) -> float:
        """A file is taken once it has been still for so long."""

    @property
    def grace(self) -> float:
        """Time for which a manifest that is gone may be coming back."""

    @property
    def force_tick(self) -> bool:
        """No watcher at all: the tick alone."""


class Identity(NamedTuple):
    """What tells one state of a file from another; the times in nanoseconds since the epoch."""

    dev: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """A manifest that is there: one capsule directory.

    `directory` is where it was found (links in it are kept), `path` the manifest's. `content` is what `load` made
    of the bytes; the object stays the same as long as the bytes do. `digest` is the sha256 of these bytes in hex.
    Where the file cannot be read now, `error` says why and what to do (behind the path), `content` and `identity` are None and
    `digest` is empty: the last good content is the receiver's to keep. `warning` is about the file, not its content.
    """

    directory: str
    path: str
    identity: Identity | None
    digest: str
    content: T | None
    error: str | None = None
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[T]):
    """Everything that the roots hold, each file as it last stood still.

    `found` is by capsule directory, in no order. `unreadable` are directories of which nothing can be known now:
    what was found at or below them before is still in `found`, and what the receiver remembers there goes on.
    `roots` are in configured order; a root that does not exist has a `last_error`, but is not `unreadable`: its
    capsules are gone. `files` are the further files that were asked for, None where there is none.
    `altered` are the directories in which `found` may differ from the snapshot before, None where that is not known:
    what one change costs does not grow with what there is.
    """

    found: Mapping[str, Found[T]]
    unreadable: frozenset[str]
    roots: tuple[RootStatus, ...]
    files: Mapping[str, Identity | None]
    altered: frozenset[str] | None = None

    def instead_of(self, missed: Snapshot[T] | None) -> Snapshot[T]:
        """Return this one for a reader who has not taken the one before it."""
        if missed is None or self.altered is None:
            return self
        return replace(self, altered=None if missed.altered is None else self.altered | missed.altered)
