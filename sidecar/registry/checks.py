"""Whether a manifest can be served where it is: its workspace, and what its export roots reach. Touches the disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sidecar.errors import Problem
from sidecar.manifest.load import export_problems
from sidecar.manifest.problems import MISSING, NOT_ALLOWED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sidecar.manifest.load import Loaded

MORE: Final = "; and {} more, see `sidecar check`"


@dataclass(frozen=True, slots=True)
class ExportCheck:
    """What is to be looked at: a manifest in its directory with the workspace it would have (absolute paths)."""

    loaded: Loaded
    directory: str
    workspace: str


def workspace_of(template: str, directory: str, *, capsule_id: str, session_id: str) -> str:
    """Return the absolute workspace of a capsule; `{id}` and `{session_id}` in the template are filled in."""
    filled = template.replace("{id}", capsule_id).replace("{session_id}", session_id)
    return os.path.normpath(os.path.join(directory, filled))  # noqa: PTH118 - text of any bytes


def exports_anything(loaded: Loaded) -> bool:
    """Whether the manifest declares a plane, so that there is something to look at on the disk."""
    return loaded.manifest is not None and bool(loaded.manifest.files or loaded.manifest.peer_files)


def real_paths(guarded: Iterable[str]) -> list[str]:
    """Return where paths lead to. Blocks on the disk."""
    return [os.path.realpath(path) for path in guarded]


def check_exports(check: ExportCheck, guarded: Sequence[str]) -> tuple[Problem, ...]:
    """Return the problems of a manifest's export roots. Blocks on the disk: not for the event loop.

    `guarded` are real paths that no export root may reach: the state directory, the configuration file.
    """
    return (
        *export_problems(check.loaded, directory=check.directory, workspace=check.workspace),
        *_exposed(check, guarded),
    )


def no_answer(check: ExportCheck) -> Problem:
    """Return the problem of a workspace on a disk that hangs."""
    _, line, column = check.loaded.roots[0] if check.loaded.roots else ("", 0, 0)
    return Problem(
        check.loaded.file,
        line,
        column,
        MISSING,
        "exports",
        f"the workspace {check.workspace} does not answer: its disk or file server hangs;"
        " it is tried again until it does",
    )


def _exposed(check: ExportCheck, guarded: Sequence[str]) -> Iterable[Problem]:
    manifest = check.loaded.manifest
    exports = {} if manifest is None else {"files": manifest.files, "peer_files": manifest.peer_files}
    for plane, line, column in check.loaded.roots:
        export = exports.get(plane)
        root = None if export is None else _real(os.path.join(check.workspace, export.root))  # noqa: PTH118 - text of any bytes
        if export is None or root is None:
            continue
        for path in guarded:
            if os.path.commonpath((root, path)) == root:
                yield Problem(
                    check.loaded.file,
                    line,
                    column,
                    NOT_ALLOWED,
                    f"exports.{plane}.root",
                    f'"{export.root}" would serve {path}, which is the sidecar\'s own:'
                    " export another directory, or move the sidecar's files",
                )


def _real(path: str) -> str | None:
    """Return where a path leads to; None where nothing is. A third of the cost of `realpath`, which walks."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - text of any bytes
    finally:
        os.close(descriptor)


def summary(problems: Sequence[Problem]) -> str:
    """Return the problems as one line: the first, and how many more there are."""
    first = str(problems[0])
    more = sum(problem.count for problem in problems) - problems[0].count
    return first + MORE.format(more) if more else first
