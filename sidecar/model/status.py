"""What the desk shows of the registry."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class CapsuleState(StrEnum):
    """What `/api/capsules` says a capsule is doing (design, Desk)."""

    SERVING = "serving"
    UNBOUND = "unbound"
    REFUSED = "refused"
    DISABLED = "disabled"
    ARTIFACT = "artifact"


@dataclass(frozen=True, slots=True)
class LastError:
    """The newest error of a thing: `at` in Unix seconds."""

    at: float
    message: str


@dataclass(frozen=True, slots=True)
class Work:
    """How the tasks of a session are worked on: by how many `workers`, and the `trouble` that keeps them from it."""

    workers: int = 0
    trouble: LastError | None = None


@dataclass(frozen=True, slots=True)
class CapsuleStatus:
    """One row of the registry as the desk shows it (design, `GET /api/capsules`).

    `last_error` is that of its files and its listener; `trouble` says why its tasks cannot be worked on now.
    """

    id: str
    path: str
    state: CapsuleState
    name: str | None = None
    version: str | None = None
    port: int | None = None
    url: str | None = None
    session_id: str | None = None
    methods: tuple[str, ...] = ()
    planes: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    backend: str | None = None
    workers: int = 0
    tasks: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    last_error: LastError | None = None
    trouble: LastError | None = None


@dataclass(frozen=True, slots=True)
class RootStatus:
    """One configured root: its path and why it cannot be read, if so."""

    path: str
    last_error: LastError | None = None


@dataclass(frozen=True, slots=True)
class ConfigStatus:
    """The configuration in force: `path` None when there is no file; `last_error` of the newest refused reload."""

    path: str | None
    loaded_at: float
    last_error: LastError | None = None


class RegistryView(Protocol):
    """What the desk may see of the registry: committed state, never a way to change it."""

    def capsules(self) -> Sequence[CapsuleStatus]:
        """All rows, sorted by id."""

    def capsule(self, capsule_id: str) -> CapsuleStatus | None:
        """The row with this id, None where there is none; costs the same however many there are."""

    def roots(self) -> Sequence[RootStatus]:
        """The configured roots, in configured order."""

    def config(self) -> ConfigStatus:
        """The configuration in force."""

    def ready(self) -> bool:
        """Whether every capsule was tried once and the sidecar is not draining."""

    def detail(self) -> Mapping[str, Any]:
        """Counts for `/readyz`: JSON-ready."""
