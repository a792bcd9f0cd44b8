"""The shapes of `murmur.yaml` (murmur reference, Manifest): what the sidecar reads, and which keys are known.

A block that is null declares nothing.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from sidecar import shapes
from sidecar.manifest.values import MOST, Peer, Port, Root, Size, Text, Ttl, Whole
from sidecar.model import DEFAULT_MAX_BYTES, DEFAULT_MAX_TTL
from sidecar.shapes import Bounds, key, keys_of, required

if TYPE_CHECKING:
    from collections.abc import Mapping

OLD_RUNTIMES: Final = ("wasm", "native")
"""Words of older manifests, taken as `tool`."""


class Block(shapes.Block):
    """A block of a manifest. Unknown keys are ignored here and warned about elsewhere."""

    FORGIVING: ClassVar[bool] = True


class ArtifactBlock(Block):
    """One artifact that the capsule uses."""

    name: Text = required("Its name; tools and skills are listed under it on the card.")
    version: Text | None = key(None, "Its version, quoted. Required unless `source` is given.")
    runtime: Literal["tool", "skill", "driver", "hook", "wasm", "native"] = key(
        "tool", "What it is. The older `wasm` and `native` are taken as `tool`."
    )
    source: Text | None = key(None, "Where it comes from, instead of a version.")


class ShellBlock(Block):
    """The programs that the agent may run."""

    allow: tuple[Text, ...] = key((), "Names of programs; at least one.", written=[], least=1)


class AllowedHostsBlock(Block):
    """The hosts that the agent may reach."""

    allow: tuple[str, ...] | None = key(None, "Hosts or URLs; may be empty.")


class PeerFetchBlock(Block):
    """The capsules whose files the agent may fetch."""

    allow: tuple[Peer, ...] = key(
        (), "`host`, `host:port` or `http(s)://host[:port]`; at least one.", written=[], least=1
    )


class CapabilitiesBlock(Block):
    """What the agent may do."""

    shell: ShellBlock | None = key(None, "Programs that the agent may run.")
    network: AllowedHostsBlock | None = key(None, "Hosts that the agent may reach.")
    peer_fetch: PeerFetchBlock | None = key(None, "Capsules whose files the agent may fetch.")
    containment: Literal["advisory", "scoped", "sealed"] = key(
        "advisory", "How strictly links are treated: `scoped` follows none."
    )


class NetworkBlock(Block):
    """The capsule's own door."""

    internal_port: Port | None = key(None, "The port of the capsule's own runtime; 0 means any.")


class LifecycleBlock(Block):
    """Which tasks are taken, and what becomes of the capsule after one."""

    task_acceptance: Literal["none", "single", "queue"] = key(
        "single", "No tasks, one at a time, or one at a time with others waiting."
    )
    after_task: Literal["exit", "sleep"] = key("exit", "What the capsule's own runtime does after a task.")
    queue_depth: Whole = key(1, "How many tasks may wait under `queue`, the running one not counted.")
    input_timeout_secs: Annotated[int, Bounds(1, MOST)] | None = key(
        None, "Seconds to wait for an answer to a question; for ever where absent."
    )
    conversation: Literal["stateless", "threaded"] = key(
        "stateless", "Whether tasks of one context share their memory."
    )
    shell_grace_secs: Whole = key(10, "Seconds that a stopped program has to end by itself.")


class FilesBlock(Block):
    """A directory that operators may read."""

    root: Root = required("The directory, relative to the workspace.")
    mode: Literal["read-only"] = required("How it is served; there is only `read-only`.")
    max_bytes: Size = key(DEFAULT_MAX_BYTES, "The largest file that is served: bytes, or Ki, Mi, Gi.")


class PeerFilesBlock(Block):
    """A directory whose files are served to peers that hold a handle."""

    root: Root = required("The directory, relative to the workspace.")
    max_ttl: Ttl = key(DEFAULT_MAX_TTL, "The longest life of a handle: seconds, or s, m, h, d.")
    max_bytes: Size = key(DEFAULT_MAX_BYTES, "The largest file that is served: bytes, or Ki, Mi, Gi.")


class ExportsBlock(Block):
    """Which files of the workspace are served."""

    files: FilesBlock | None = key(None, "The operator plane.")
    peer_files: PeerFilesBlock | None = key(None, "The peer plane.")


class ManifestFile(Block):
    """The manifest of a capsule."""

    name: Text = required("The capsule's name, as its card shows it.")
    version: Text = required('The capsule\'s version, quoted: "1.0" and not 1.0, which is a number.')
    description: str | None = key(None, "What the capsule is for.")
    artifacts: tuple[ArtifactBlock, ...] | None = key(None, "The artifacts that the capsule uses.")
    capabilities: CapabilitiesBlock | None = key(None, "What the agent may do.")
    network: NetworkBlock | None = key(None, "The capsule's own door.")
    lifecycle: LifecycleBlock | None = key(None, "Which tasks are taken.")
    exports: ExportsBlock | None = key(None, "Which files of the workspace are served.")


class ArtifactDescription(Block):
    """A `murmur.yaml` that only describes an artifact."""

    name: Text
    version: Text
    description: str | None = None
    runtime: Literal["tool", "skill", "driver", "hook", "wasm", "native"]


KNOWN: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        path: tuple(names.split())
        for path, names in {
            (): "name version description mur_version artifacts capabilities inference context observability trace "
            "network lifecycle exports control runtime implementation execution requires_files upstream_auth binding "
            "commit_policy execution_mode input_schema",
            (
                "artifacts",
            ): "name version runtime source local_source prompt_payload capabilities config gateway "
            "on_overflow binding commit_policy execution_mode",
            ("network",): "internal_port authentication",
            (
                "lifecycle",
            ): "task_acceptance after_task queue_depth input_timeout_secs conversation max_task_reopens "
            "shell_grace_secs delegation_deadline_secs",
            ("exports",): "files peer_files peer_tasks",
            ("exports", "files"): "root mode max_bytes",
            ("exports", "peer_files"): "root max_ttl max_bytes",
        }.items()
    }
)
"""The keys of the blocks that are known whole, in the order of the reference."""

READ_CAPABILITIES: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = MappingProxyType(
    {
        ("capabilities",): tuple(one.written for one in keys_of(CapabilitiesBlock)),
        ("capabilities", "shell"): ("allow",),
        ("capabilities", "network"): ("allow",),
        ("capabilities", "peer_fetch"): ("allow",),
    }
)
"""The keys that are read in blocks of which more keys exist than we know."""

EXAMPLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "name": "my-capsule",
        "version": '"0.1.0"',
        "description": "what it is for",
        "artifacts": "[]",
        "artifacts.name": "my-tool",
        "artifacts.version": '"0.1.0"',
        "artifacts.runtime": "tool",
        "artifacts.source": "path/or/url",
        "capabilities.shell.allow": "[bash]",
        "capabilities.network.allow": "[https://example.com]",
        "capabilities.peer_fetch.allow": "[localhost:24000]",
        "capabilities.containment": "scoped",
        "network.internal_port": "0",
        "lifecycle.task_acceptance": "queue",
        "lifecycle.after_task": "sleep",
        "lifecycle.queue_depth": "2",
        "lifecycle.input_timeout_secs": "60",
        "lifecycle.conversation": "threaded",
        "lifecycle.shell_grace_secs": "10",
        "exports.files.root": "out/",
        "exports.files.mode": "read-only",
        "exports.files.max_bytes": "10Mi",
        "exports.peer_files.root": "out/",
        "exports.peer_files.max_ttl": "900s",
        "exports.peer_files.max_bytes": "10Mi",
    }
)
"""Every field that is read, by its path without indexes, and what could be written there."""


INTEGERS: Final = frozenset(
    {
        "network.internal_port",
        "lifecycle.queue_depth",
        "lifecycle.input_timeout_secs",
        "lifecycle.shell_grace_secs",
        "exports.files.max_bytes",
        "exports.peer_files.max_ttl",
        "exports.peer_files.max_bytes",
    }
)
"""The fields of `EXAMPLES` that can be integers."""
