"""The shapes of `murmur.yaml` (murmur reference, Manifest): what the sidecar reads, and which keys are known.

Types are strict, and no field is a plain union: pydantic then reports one error per field, at its place.
A block that is null declares nothing.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from sidecar.manifest.values import MOST, Peer, Port, Root, Size, Text, Ttl, Whole
from sidecar.model import DEFAULT_MAX_BYTES, DEFAULT_MAX_TTL

if TYPE_CHECKING:
    from collections.abc import Mapping

OLD_RUNTIMES: Final = ("wasm", "native")
"""Words of older manifests, taken as `tool`."""


class Block(BaseModel):
    """A block of a manifest. Unknown keys are ignored here and warned about elsewhere."""

    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True, defer_build=True)


class ArtifactBlock(Block):
    """One artifact that the capsule uses."""

    name: Text = Field(description="Its name; tools and skills are listed under it on the card.")
    version: Text | None = Field(None, description="Its version, quoted. Required unless `source` is given.")
    runtime: Literal["tool", "skill", "driver", "hook", "wasm", "native"] = Field(
        "tool", description="What it is. The older `wasm` and `native` are taken as `tool`."
    )
    source: Text | None = Field(None, description="Where it comes from, instead of a version.")


class ShellBlock(Block):
    """The programs that the agent may run."""

    allow: list[Text] = Field(
        default=[], validate_default=True, min_length=1, description="Names of programs; at least one."
    )


class AllowedHostsBlock(Block):
    """The hosts that the agent may reach."""

    allow: list[str] | None = Field(None, description="Hosts or URLs; may be empty.")


class PeerFetchBlock(Block):
    """The capsules whose files the agent may fetch."""

    allow: list[Peer] = Field(
        default=[],
        validate_default=True,
        min_length=1,
        description="`host`, `host:port` or `http(s)://host[:port]`; at least one.",
    )


class CapabilitiesBlock(Block):
    """What the agent may do."""

    shell: ShellBlock | None = Field(None, description="Programs that the agent may run.")
    network: AllowedHostsBlock | None = Field(None, description="Hosts that the agent may reach.")
    peer_fetch: PeerFetchBlock | None = Field(None, description="Capsules whose files the agent may fetch.")
    containment: Literal["advisory", "scoped", "sealed"] = Field(
        "advisory", description="How strictly links are treated: `scoped` follows none."
    )


class NetworkBlock(Block):
    """The capsule's own door."""

    internal_port: Port | None = Field(
        None, description="The port of the capsule's own runtime; 0 means any."
    )


class LifecycleBlock(Block):
    """Which tasks are taken, and what becomes of the capsule after one."""

    task_acceptance: Literal["none", "single", "queue"] = Field(
        "single", description="No tasks, one at a time, or one at a time with others waiting."
    )
    after_task: Literal["exit", "sleep"] = Field(
        "exit", description="What the capsule's own runtime does after a task."
    )
    queue_depth: Whole = Field(
        1, description="How many tasks may wait under `queue`, the running one not counted."
    )
    input_timeout_secs: Annotated[int, Field(ge=1, le=MOST)] | None = Field(
        None, description="Seconds to wait for an answer to a question; for ever where absent."
    )
    conversation: Literal["stateless", "threaded"] = Field(
        "stateless", description="Whether tasks of one context share their memory."
    )
    shell_grace_secs: Whole = Field(10, description="Seconds that a stopped program has to end by itself.")


class FilesBlock(Block):
    """A directory that operators may read."""

    root: Root = Field(description="The directory, relative to the workspace.")
    mode: Literal["read-only"] = Field(description="How it is served; there is only `read-only`.")
    max_bytes: Size = Field(
        DEFAULT_MAX_BYTES, description="The largest file that is served: bytes, or Ki, Mi, Gi."
    )


class PeerFilesBlock(Block):
    """A directory whose files are served to peers that hold a handle."""

    root: Root = Field(description="The directory, relative to the workspace.")
    max_ttl: Ttl = Field(DEFAULT_MAX_TTL, description="The longest life of a handle: seconds, or s, m, h, d.")
    max_bytes: Size = Field(
        DEFAULT_MAX_BYTES, description="The largest file that is served: bytes, or Ki, Mi, Gi."
    )


class ExportsBlock(Block):
    """Which files of the workspace are served."""

    files: FilesBlock | None = Field(None, description="The operator plane.")
    peer_files: PeerFilesBlock | None = Field(None, description="The peer plane.")


class ManifestFile(Block):
    """The manifest of a capsule."""

    model_config = ConfigDict(title="murmur.yaml")

    name: Text = Field(description="The capsule's name, as its card shows it.")
    version: Text = Field(description='The capsule\'s version, quoted: "1.0" and not 1.0, which is a number.')
    description: str | None = Field(None, description="What the capsule is for.")
    artifacts: list[ArtifactBlock] | None = Field(None, description="The artifacts that the capsule uses.")
    capabilities: CapabilitiesBlock | None = Field(None, description="What the agent may do.")
    network: NetworkBlock | None = Field(None, description="The capsule's own door.")
    lifecycle: LifecycleBlock | None = Field(None, description="Which tasks are taken.")
    exports: ExportsBlock | None = Field(None, description="Which files of the workspace are served.")


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
        ("capabilities",): tuple(CapabilitiesBlock.model_fields),
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


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a manifest, for editors. Unknown keys are allowed in it, as the sidecar allows them."""
    schema: dict[str, Any] = ManifestFile.model_json_schema()
    for path, known in KNOWN.items():
        properties = _block(schema, path)["properties"]
        for key in known:
            properties.setdefault(
                key, {"description": "Read by the capsule's own runtime, not by the sidecar."}
            )
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _block(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return the part of a schema that describes a block, or the items of a list of blocks."""
    block = schema
    for key in path:
        options = block["properties"][key]["anyOf"]
        named = next(
            option.get("items", option)["$ref"] for option in options if option.get("type") != "null"
        )
        block = schema["$defs"][named.removeprefix("#/$defs/")]
    return block
