"""What `sidecar check` prints of a tree of manifests: every problem in sorted order, and a summary line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.errors import Problem, Severity, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.manifest.load import Loaded


@dataclass(frozen=True, slots=True)
class Report:
    """The problems of a tree, sorted by file and place, and what was looked at.

    `capsules` counts the directories with a manifest, refused ones included; `artifacts` those that only
    describe an artifact.
    """

    problems: tuple[Problem, ...] = ()
    capsules: int = 0
    artifacts: int = 0

    @property
    def errors(self) -> int:
        """How many problems refuse something."""
        return sum(problem.count for problem in self.problems if problem.severity is Severity.ERROR)

    @property
    def warnings(self) -> int:
        """How many problems do not."""
        return sum(problem.count for problem in self.problems if problem.severity is Severity.WARNING)


def report(files: Iterable[Loaded], further: Iterable[Problem] = ()) -> Report:
    """Put together what was found: in the files themselves, and what else is wrong (export roots, configuration)."""
    loaded = list(files)
    artifacts = sum(one.artifact is not None for one in loaded)
    problems = sorted([*further, *(problem for one in loaded for problem in one.problems)])
    return Report(tuple(problems), len(loaded) - artifacts, artifacts)


def as_lines(found: Report) -> list[str]:
    """Return a line per problem, `file:line:column: CODE key: message`, and the summary; control characters visible."""
    return [*(visible(str(problem)) for problem in found.problems), summary(found)]


def summary(found: Report) -> str:
    """Return how much was looked at, and how much is wrong, in one line."""
    counts = (
        (found.capsules, "capsule"),
        (found.artifacts, "artifact"),
        (found.errors, "error"),
        (found.warnings, "warning"),
    )
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts)


def as_json(found: Report) -> dict[str, Any]:
    """Return the report as a JSON document; text is as it stands, JSON makes control characters visible."""
    return {
        "capsules": found.capsules,
        "artifacts": found.artifacts,
        "errors": found.errors,
        "warnings": found.warnings,
        "problems": [
            {
                "file": visible(problem.file),
                "line": problem.line,
                "column": problem.column,
                "code": problem.code,
                "key": problem.key,
                "message": problem.message,
                "severity": problem.severity.value,
                "count": problem.count,
            }
            for problem in found.problems
        ],
    }
