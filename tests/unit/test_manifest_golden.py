"""Golden files: a manifest above the line of dashes, below it what is said about it, and what was made of it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from sidecar.manifest.load import load
from sidecar.manifest.report import as_lines, report

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "manifest").glob("*.txt"))
LINE = "-----\n"


def outcome(text: str) -> str:
    """Return what `sidecar check` prints of a manifest, and the fields that were read."""
    loaded = load(text.encode(), file="murmur.yaml", max_bytes=1 << 17)
    made = loaded.manifest or loaded.artifact
    read = [f"{field.name} = {getattr(made, field.name)!r}" for field in fields(made)] if made else []
    return "".join(f"{line}\n" for line in (*as_lines(report([loaded])), *read))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_manifest_is_answered_as_the_golden_file_says(path: Path) -> None:
    """Every problem at once with its place and what to write instead; or the manifest with its defaults."""
    given, _, expected = path.read_text(encoding="utf-8").partition(LINE)
    assert outcome(given) == expected
    assert path.stem.startswith("error_") == (", 0 errors," not in expected)


def test_there_are_golden_files() -> None:
    """So that the test above cannot pass by finding none."""
    assert len(GOLDEN) > 30
