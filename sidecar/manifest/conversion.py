"""From the shape that was validated to the value that stages pass on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.manifest.schema import OLD_RUNTIMES
from sidecar.model import (
    AfterTask,
    Artifact,
    ArtifactRuntime,
    Containment,
    Conversation,
    FilesExport,
    Lifecycle,
    Manifest,
    PeerFilesExport,
    TaskAcceptance,
)

if TYPE_CHECKING:
    from sidecar.manifest.schema import ManifestFile


def manifest_of(shape: ManifestFile) -> Manifest:
    """Make the frozen value that stages pass on."""
    capabilities, network = shape.capabilities, shape.network
    allowed = {}
    if capabilities is not None:
        if capabilities.shell is not None:
            allowed["shell_allow"] = tuple(capabilities.shell.allow)
        if capabilities.network is not None:
            allowed["network_allow"] = tuple(capabilities.network.allow or ())
        if capabilities.peer_fetch is not None:
            allowed["peer_fetch_allow"] = tuple(capabilities.peer_fetch.allow)
    exports = shape.exports
    files, peer_files = (exports.files, exports.peer_files) if exports is not None else (None, None)
    return Manifest(
        name=shape.name,
        version=shape.version,
        description=shape.description,
        artifacts=tuple(
            Artifact(
                artifact.name,
                artifact.version,
                ArtifactRuntime("tool" if artifact.runtime in OLD_RUNTIMES else artifact.runtime),
                artifact.source,
            )
            for artifact in shape.artifacts or ()
        ),
        containment=Containment(capabilities.containment)
        if capabilities is not None
        else Containment.ADVISORY,
        internal_port=network.internal_port if network is not None else None,
        lifecycle=_lifecycle(shape),
        files=FilesExport(files.root, files.max_bytes) if files is not None else None,
        peer_files=PeerFilesExport(peer_files.root, peer_files.max_ttl, peer_files.max_bytes)
        if peer_files is not None
        else None,
        **allowed,
    )


def _lifecycle(shape: ManifestFile) -> Lifecycle:
    block = shape.lifecycle
    if block is None:
        return Lifecycle()
    return Lifecycle(
        task_acceptance=TaskAcceptance(block.task_acceptance),
        after_task=AfterTask(block.after_task),
        queue_depth=block.queue_depth,
        input_timeout_secs=block.input_timeout_secs,
        conversation=Conversation(block.conversation),
        shell_grace_secs=block.shell_grace_secs,
    )
