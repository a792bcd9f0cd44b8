"""Bytes of a `murmur.yaml` → a manifest, or every problem of the file with its place (murmur reference, Manifest).

| Code | When |
|---|---|
| `E-MAN-000`, `W-MAN-000` | there are more errors, or warnings, than are listed |
| `E-MAN-001` | the file is missing or cannot be read; a required field is missing or blank |
| `E-MAN-002` | not YAML, more than one document, not a mapping, a key twice, an unquoted placeholder, or a scalar of the \
wrong type |
| `E-MAN-003` | well formed, but the value is not allowed |
| `E-CAP-007` | an export root is there and leads out of the workspace |
| `E-CAP-008` | handles of a sleeping capsule could live for more than 900 s |
| `W-SEC-019` | a key that is not known |
| `W-MAN-003` | a value that is taken, but probably not meant: an older word, a placeholder where nothing is read, text \
that others take for a boolean |
| `W-MAN-004` | other directories carry the same name (`sidecar check`) |
| `W-MAN-005` | the file was replaced outside of its mount, so changes do not arrive (`sidecar check`) |
| `W-CAP-007` | an export root that serves the whole workspace, or the manifest itself |
"""

from __future__ import annotations

import os.path
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from sidecar.errors import Problem, Severity
from sidecar.manifest import problems as find
from sidecar.manifest.conversion import manifest_of
from sidecar.manifest.schema import OLD_RUNTIMES, ArtifactDescription, ManifestFile
from sidecar.model import MANIFEST_NAME, ArtifactRuntime, Manifest
from sidecar.shapes import FaultsError, read
from sidecar.yamlfile import YamlError, examine
from sidecar.yamlparts import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sidecar.yamlfile import Document

RUNTIMES: Final = frozenset(runtime.value for runtime in ArtifactRuntime) | frozenset(OLD_RUNTIMES)
CAPSULE_KEYS: Final = frozenset({"artifacts", "inference", "lifecycle", "exports", "network"})
"""A file with a `runtime` and none of these only describes an artifact."""
MAX_REPORTED: Final = 1000
"""So many errors, and so many warnings, of one file are listed, and the others counted: nobody reads more."""
MAX_COUNTED: Final = 5000
"""So many problems of one kind are looked for: each costs time."""


@dataclass(frozen=True, slots=True)
class ArtifactFile:
    """A `murmur.yaml` that only describes an artifact: listed, not served."""

    name: str
    version: str
    runtime: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file says: at most one of `manifest` and `artifact`, neither where there are errors.

    `problems` are in file order. `name_at` is the place of the name's value, `roots` are those of the export roots'
    values, by plane.
    """

    file: str
    manifest: Manifest | None = None
    artifact: ArtifactFile | None = None
    problems: tuple[Problem, ...] = ()
    roots: tuple[tuple[str, int, int], ...] = ()
    name_at: tuple[int, int] = (0, 0)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that refuse the file."""
        return tuple(p for p in self.problems if p.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that do not."""
        return tuple(p for p in self.problems if p.severity is Severity.WARNING)


def missing(file: str) -> Loaded:
    """Return what is to be said where there is no file."""
    message = f"there is no such file; a capsule is a directory with a {MANIFEST_NAME}"
    return Loaded(file, problems=(Problem(file, 0, 0, find.MISSING, "", message),))


def load(data: bytes, *, file: str, max_bytes: int) -> Loaded:
    """Read a manifest. Looks at nothing but the bytes, and raises nothing, whatever they are.

    `file` is what problems call it; `max_bytes` is the longest that is read.
    """
    try:
        document = examine(data, file=file, code=find.WRONG_TYPE, max_bytes=max_bytes)
    except YamlError as error:
        return Loaded(file, problems=error.problems)
    value = document.value
    if not isinstance(value, dict):
        what = "is empty" if value is None else "is no mapping"
        message = f"{what}; a manifest begins with `name: …` and `version: …`"
        return Loaded(file, problems=(*document.refused, find.at(document, (), find.WRONG_TYPE, message)))
    artifact = _describes_artifact(value)
    shape: ArtifactDescription | ManifestFile | None = None
    found: list[Problem] = []
    try:
        shape = read(ArtifactDescription, value) if artifact else read(ManifestFile, value)
    except FaultsError as error:
        found.extend(islice(find.of_shape(error.faults, document), MAX_COUNTED + 1))
    found.extend(islice(_between_keys(document, artifact=artifact), MAX_COUNTED + 1))
    found.extend(islice(find.unknown_keys(document), MAX_COUNTED + 1))
    kept = tuple(_in_order(document, found))
    if shape is None or any(problem.severity is Severity.ERROR for problem in kept):
        return Loaded(file, problems=kept)
    if isinstance(shape, ArtifactDescription):
        described = ArtifactFile(shape.name, shape.version, shape.runtime, shape.description)
        return Loaded(file, artifact=described, problems=kept)
    return Loaded(
        file,
        manifest_of(shape),
        problems=kept,
        roots=tuple(_roots(document, shape)),
        name_at=document.place(("name",)),
    )


def _describes_artifact(value: dict[Any, Any]) -> bool:
    runtime = value.get("runtime")
    return isinstance(runtime, str) and runtime in RUNTIMES and CAPSULE_KEYS.isdisjoint(value)


def _between_keys(document: Document, *, artifact: bool) -> Iterator[Problem]:
    """Yield what no shape of a single field can see."""
    if document.odd_integers:
        yield from find.odd_integers(document)
    if document.odd_text:
        yield from find.odd_text(document)
    if document.odd_words:
        yield from find.odd_words(document)
    if not artifact:
        yield from find.of_artifacts(document)
        yield from find.of_handles(document)


def _in_order(document: Document, found: list[Problem]) -> Iterable[Problem]:
    """Return problems in file order; what is no YAML, or a placeholder, is all that is said of its field."""
    said = [*document.refused]
    if document.braces:
        wrong = {p.key for p in found if p.severity is Severity.ERROR}
        said += find.quoted_placeholders(document, wrong)
    if said:
        fields = {problem.key for problem in said} - {""}
        found = [*said, *(p for p in found if p.key not in fields)]
    found.sort()
    return found if len(found) <= MAX_REPORTED else _cut(found)


def _cut(found: list[Problem]) -> list[Problem]:
    """Return the first errors and the first warnings, each with a last line that says how many more there are."""
    kept = []
    for severity, code in ((Severity.ERROR, find.MORE_ERRORS), (Severity.WARNING, find.MORE_WARNINGS)):
        its = [problem for problem in found if problem.severity is severity]
        kept += its[:MAX_REPORTED]
        if more := its[MAX_REPORTED:]:
            count, last = sum(problem.count for problem in more), more[-1]
            least = "" if len(its) <= MAX_COUNTED else "at least "
            what = f"and {least}{count} more {severity}{'' if count == 1 else 's'}"
            kept.append(Problem(last.file, last.line, last.column, code, "", what, severity, count))
    return sorted(kept)


def _roots(document: Document, shape: ManifestFile) -> Iterator[tuple[str, int, int]]:
    exports = shape.exports
    for plane in ("files", "peer_files") if exports is not None else ():
        if getattr(exports, plane) is not None:
            yield plane, *document.place(("exports", plane, "root"))


def export_problems(loaded: Loaded, *, directory: str, workspace: str) -> tuple[Problem, ...]:
    """Return what is wrong with the export roots of a manifest where it is. Looks at the disk.

    `directory` holds the manifest, `workspace` is what export roots are relative to; both are absolute.
    A root that is not there yet is fine.
    """
    found = []
    top = os.path.realpath(workspace)
    manifest = os.path.join(os.path.realpath(directory), MANIFEST_NAME)  # noqa: PTH118 - names of any bytes
    for plane, line, column in loaded.roots:
        export = loaded.manifest and (
            loaded.manifest.files if plane == "files" else loaded.manifest.peer_files
        )
        if not export:
            continue
        root = os.path.realpath(os.path.join(top, export.root))  # noqa: PTH118 - likewise
        code, severity, message = find.OUTSIDE, Severity.ERROR, ""
        if not _beneath(root, top) and os.path.exists(root):  # noqa: PTH110 - likewise
            message = (
                f"{shortened(export.root)} leads out of the workspace to {root}; write a directory within"
            )
        elif _beneath(manifest, root) or root == top:
            code, severity = find.EXPOSED, Severity.WARNING
            served = "the whole workspace" if root == top else "the directory of this manifest"
            message = (
                f"{shortened(export.root)} serves {served}; write a directory of its own, `out/` for example"
            )
        if message:
            found.append(Problem(loaded.file, line, column, code, f"exports.{plane}.root", message, severity))
    return tuple(found)


def _beneath(path: str, root: str) -> bool:
    return os.path.commonpath((path, root)) == root
