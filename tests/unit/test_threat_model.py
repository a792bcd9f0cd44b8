"""docs/threat-model.md is true as far as that can be told without taking guards away (tests/mutations.py does)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutations import DOCUMENT, MUTATIONS, Mutation, mutated, rows

PROJECT = Path(__file__).parents[2]
FIRST_LIMIT = 50
"""From this number on rows are limits that are accepted, and need no guard."""


def planes() -> dict[str, tuple[str, ...]]:
    """Return the rows of the planes, with their tests."""
    return {row: tests for row, tests in rows().items() if row[0] == "P"}


def test_every_guard_has_a_number_of_its_own_and_a_test() -> None:
    """Rows count from 1 without a gap, and each names a test at least."""
    guards = {row: tests for row, tests in planes().items() if int(row[1:]) < FIRST_LIMIT}
    assert list(guards) == [f"P{n}" for n in range(1, len(guards) + 1)]
    assert [row for row, tests in guards.items() if not tests] == []


def test_every_test_that_is_named_exists() -> None:
    """By file and function."""
    for tests in rows().values():
        for test in tests:
            file, _, name = test.partition("::")
            assert re.search(rf"^(async )?def {name}\(", (PROJECT / file).read_text(), re.MULTILINE), test


def test_every_test_of_the_other_rows_exists() -> None:
    """Wherever in the document it is named."""
    places = {path.name: path for path in (PROJECT / "tests").rglob("test_*.py")}
    for line in DOCUMENT.read_text().splitlines():
        file = ""
        for name, test in re.findall(r"`(test_\w+\.py)(?=`|::)|::(\w+)`", line):
            file = name or file
            assert not test or re.search(
                rf"^(async )?def {test}\(", places[file].read_text(), re.MULTILINE
            ), test


def test_every_guard_of_the_planes_can_be_taken_away() -> None:
    """Each of their rows has a mutation; a mutation of any row is noticed by a test that the row names."""
    mutated_rows = {mutation.row for mutation in MUTATIONS}
    assert {row for row in planes() if int(row[1:]) < FIRST_LIMIT} <= mutated_rows
    for mutation in MUTATIONS:
        named = [test.partition("::")[2] for test in rows()[mutation.row]]
        assert mutation.test in named if mutation.test else named, mutation.row


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.row} {m.file}")
def test_every_mutation_fits_the_code(mutation: Mutation) -> None:
    """And leaves something that can be compiled."""
    compile(mutated(mutation), mutation.file, "exec")
