"""The nouns of a manifest, and the method table."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

MANIFEST_NAME: Final = "murmur.yaml"
DEFAULT_MAX_BYTES: Final = 10 * 1024 * 1024
DEFAULT_MAX_TTL: Final = 3600


class TaskAcceptance(StrEnum):
    """`lifecycle.task_acceptance`: whether, and how many, tasks a capsule takes."""

    NONE = "none"
    SINGLE = "single"
    QUEUE = "queue"


class AfterTask(StrEnum):
    """`lifecycle.after_task`: what the capsule's own runtime does when a task ended."""

    EXIT = "exit"
    SLEEP = "sleep"


class Conversation(StrEnum):
    """`lifecycle.conversation`: whether tasks of one context share memory."""

    STATELESS = "stateless"
    THREADED = "threaded"


class Containment(StrEnum):
    """`capabilities.containment`: how strictly links are treated on the planes."""

    ADVISORY = "advisory"
    SCOPED = "scoped"
    SEALED = "sealed"


class ArtifactRuntime(StrEnum):
    """`artifacts[].runtime`, with the older `wasm` and `native` already taken as `tool`."""

    TOOL = "tool"
    SKILL = "skill"
    DRIVER = "driver"
    HOOK = "hook"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One entry of `artifacts[]`. `version` is None only where `source` is given instead."""

    name: str
    version: str | None
    runtime: ArtifactRuntime = ArtifactRuntime.TOOL
    source: str | None = None

    @property
    def model_visible(self) -> bool:
        """Whether the model can call it: tools and skills, not drivers and hooks."""
        return self.runtime in (ArtifactRuntime.TOOL, ArtifactRuntime.SKILL)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The `lifecycle:` block. Times are in seconds; `input_timeout_secs` None waits for ever."""

    task_acceptance: TaskAcceptance = TaskAcceptance.SINGLE
    after_task: AfterTask = AfterTask.EXIT
    queue_depth: int = 1
    input_timeout_secs: int | None = None
    conversation: Conversation = Conversation.STATELESS
    shell_grace_secs: int = 10


@dataclass(frozen=True, slots=True)
class FilesExport:
    """`exports.files`: the operator plane. `root` is verbatim, `max_bytes` in bytes."""

    root: str
    max_bytes: int = DEFAULT_MAX_BYTES


@dataclass(frozen=True, slots=True)
class PeerFilesExport:
    """`exports.peer_files`: the peer plane. `root` is verbatim, `max_ttl` in seconds, `max_bytes` in bytes."""

    root: str
    max_ttl: int = DEFAULT_MAX_TTL
    max_bytes: int = DEFAULT_MAX_BYTES


@dataclass(frozen=True, slots=True)
class Manifest:
    """A parsed, valid `murmur.yaml`: what the sidecar reads of it (murmur reference, The manifest)."""

    name: str
    version: str
    description: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    shell_allow: tuple[str, ...] | None = None
    network_allow: tuple[str, ...] = ()
    peer_fetch_allow: tuple[str, ...] | None = None
    containment: Containment = Containment.ADVISORY
    internal_port: int | None = None
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    files: FilesExport | None = None
    peer_files: PeerFilesExport | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the murmur door's method table (reference card, `serves.methods`)."""

    name: str
    starts_tasks: bool = False
    streams: bool = False


METHODS: Final = (
    Method("message/send", starts_tasks=True),
    Method("message/stream", starts_tasks=True, streams=True),
    Method("stream/watch", streams=True),
    Method("tasks/get"),
    Method("tasks/cancel"),
    Method("session/stop"),
)
"""The one table from which the card is derived and by which the door dispatches, in card order."""


def served_methods(acceptance: TaskAcceptance) -> tuple[Method, ...]:
    """Return the methods that `POST /` answers, in card order: under `none` nothing starts a task."""
    return tuple(m for m in METHODS if not m.starts_tasks or acceptance is not TaskAcceptance.NONE)


def served_planes(manifest: Manifest) -> tuple[str, ...]:
    """Return the declared planes in card order."""
    planes = (("files", manifest.files), ("peer_files", manifest.peer_files))
    return tuple(name for name, export in planes if export is not None)
