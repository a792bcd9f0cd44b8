"""Golden files: a configuration above the line of dashes, below it what is said about it, or what became of it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from sidecar import config
from sidecar.errors import InputError

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "config").glob("*.txt"))
LINE = "-----\n"


def outcome(text: str) -> str:
    """Return every problem, one a line, and how it ended; or what the configuration is, and its warnings."""
    kernel = config.PortRange(32768, 60999)
    try:
        found = config.build(
            text.encode(), "config.yaml", config.Flags(), {"HOME": "/home/op"}, cwd="/srv", ephemeral=kernel
        )
    except InputError as error:
        return "".join(f"{line}\n" for line in (*error.problems, error))
    blocks = [
        f"{name}: {getattr(found, name)!r}\n"
        for name in (one.name for one in fields(found))
        if name not in ("warnings", "places", "pairs")
    ]
    return "".join(f"{line}\n" for line in found.warnings) or "".join(blocks)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_configuration_is_answered_as_the_golden_file_says(path: Path) -> None:
    """Every problem at once, with file, line, column, code, key, and what to write instead."""
    given, _, expected = path.read_text().partition(LINE)
    assert outcome(given) == expected
    assert path.stem.startswith("error_") == ("the configuration is refused" in expected)


def test_there_are_golden_files() -> None:
    """So that the test above cannot pass by finding none."""
    assert len(GOLDEN) >= 10
