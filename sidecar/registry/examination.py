"""A look at a whole tree without serving any of it: what `sidecar check` and `sidecar card` are made of."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from sidecar.errors import InputError, Problem
from sidecar.manifest.load import load
from sidecar.manifest.report import Report, report
from sidecar.model import Capsule
from sidecar.ops.uuid7 import new_id
from sidecar.registry.checks import ExportCheck, check_exports, summary, workspace_of
from sidecar.registry.ids import assign
from sidecar.registry.namesakes import crowded
from sidecar.watch.scan import Scanner

if TYPE_CHECKING:
    from sidecar.config import Config
    from sidecar.manifest.load import Loaded
    from sidecar.model import Manifest
    from sidecar.registry.sessions import Pair
    from sidecar.watch.values import Found, Snapshot

UNREADABLE: Final = "E-MAN-001"
NOT_TIED: Final = "E-CFG-012"
EXAMPLE_SESSION: Final = "ses_"


def examine(config: Config) -> Report:
    """Look at the configured roots as a start would, and return every problem. Blocks on the disk."""
    snapshot = _look(config)
    found = [snapshot.found[directory] for directory in sorted(snapshot.found)]
    further = list(config.warnings)
    further += [
        Problem(root.path, 0, 0, UNREADABLE, "roots", root.last_error.message)
        for root in snapshot.roots
        if root.last_error is not None
    ]
    further += [Problem(f.path, 0, 0, UNREADABLE, "", f.error) for f in found if f.error is not None]
    loaded = [one.content for one in found if one.content is not None]
    for problems in check_exports(_checks(config, found), _guarded(config)):
        further += problems
    further += [
        Problem(config.source or "configuration", 0, 0, NOT_TIED, f"capsules.{capsule_id}.path", why)
        for capsule_id, why in crowded(config.untied_commands, _ids(found))
    ]
    return report(loaded, further)


def preview(config: Config, directory: str) -> Capsule:
    """Return the capsule of a directory as it would be served for the first time, on the first port of the range.

    Raises InputError with all problems where it would not be served.
    """
    snapshot = _look(config)
    found = snapshot.found.get(directory)
    if found is None:
        raise InputError(f"{directory} holds no capsule below the roots of the configuration")
    loaded = found.content
    if loaded is None:
        raise InputError(found.error or f"{found.path} cannot be read")
    if loaded.artifact is not None:
        raise InputError(f"{found.path} only describes an artifact: it is listed, not served")
    if loaded.manifest is None:
        raise InputError(f"{found.path} is refused", loaded.errors)
    problems = [p for found_ in check_exports(_checks(config, [found]), _guarded(config)) for p in found_]
    if errors := [p for p in problems if p.code.startswith("E-")]:
        raise InputError(summary(errors), errors)
    return _capsule(config, found, loaded.manifest)


def _capsule(config: Config, found: Found[Loaded], served: Manifest) -> Capsule:
    capsule_id = _ids([found])[found.directory, served.name]
    settings = config.settings_for(capsule_id, found.directory)
    session_id = new_id(EXAMPLE_SESSION)
    workspace = workspace_of(
        settings.workspace, found.directory, capsule_id=capsule_id, session_id=session_id
    )
    port = settings.port or (settings.internal_port and served.internal_port) or config.listen.ports.first
    return Capsule(
        capsule_id, found.directory, session_id, served, settings, workspace, time.time(), port=port
    )


def _look(config: Config) -> Snapshot[Loaded]:
    scanner: Scanner[Loaded] = Scanner(
        config.roots,
        load=partial(_load, max_bytes=config.limits.manifest),
        max_bytes=config.limits.manifest,
        settle=0.0,
        grace=0.0,
    )
    while (snapshot := scanner.look().snapshot) is None:
        time.sleep(0.001)  # a file that changes while it is read is read again
    return snapshot


def _load(data: bytes, path: str, *, max_bytes: int) -> Loaded:
    return load(data, file=path, max_bytes=max_bytes)


def _ids(found: list[Found[Loaded]]) -> dict[Pair, str]:
    pairs = [(f.directory, f.content.manifest.name) for f in found if f.content and f.content.manifest]
    return assign(pairs, frozenset())


def _checks(config: Config, found: list[Found[Loaded]]) -> list[ExportCheck]:
    ids = {directory: capsule_id for (directory, _), capsule_id in _ids(found).items()}
    checks = []
    for one in found:
        if one.directory in ids and one.content is not None:
            template = config.settings_for(ids[one.directory], one.directory).workspace
            if "{session_id}" in template:
                continue  # which directory it is shows only once the capsule is served
            workspace = workspace_of(template, one.directory, capsule_id=ids[one.directory], session_id="")
            checks.append(ExportCheck(one.content, one.directory, workspace))
    return checks


def _guarded(config: Config) -> tuple[str, ...]:
    return (config.source,) if config.source is not None else ()
