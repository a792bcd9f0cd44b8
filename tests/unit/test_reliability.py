"""docs/reliability.md names tests that there are, for each promise and for each report."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
DOCUMENT = PROJECT / "docs" / "reliability.md"
FILES = {path.name: path for path in (PROJECT / "tests").rglob("test_*.py")}
REPORTS = [
    "B01",
    "B02",
    "B03",
    "B04",
    "B05",
    "B07",
    "B08",
    "B09",
    "B10",
    "B12",
    "B13",
    "B14",
    "B16",
    "B17",
    "B18",
    "B19",
    "B21",
    "B22",
    "B25",
    "B26",
    "B27",
    "B30",
    "B31",
    "B32",
    "B33",
    "B34",
    "B35",
    "B36",
    "B37",
    "B38",
    "B39",
    "B40",
    "B42",
    "B43",
    "B45",
    "B46",
    "B49",
    "B51",
    "B52",
    "B53",
]
PROMISES = [
    "Bad manifest",
    "Bad configuration",
    "Partial failure",
    "Reload",
    "Watching",
    "Replacement",
    "Stop",
    "Restart",
    "Disk",
    "Clients",
    "Files",
    "Browsers",
    "Leaks",
]


def rows() -> list[list[str]]:
    """Return the cells of each row of the document's tables, without their heads."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    return [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if "Tests |" not in line
    ]


def named_in(cell: str) -> list[tuple[str, str]]:
    """Return the tests of a cell by file and function; a name without a file is in the one before."""
    found, file = [], ""
    for name, test in re.findall(r"`(?:(test_\w+\.py))?::(\w+)`", cell):
        file = name or file
        found.append((file, test))
    return found


def docstrings(file: str) -> dict[str, str]:
    """Return what each test of a file says of itself."""
    found = ast.parse(FILES[file].read_text()).body
    functions = [one for one in found if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {one.name: ast.get_docstring(one) or "" for one in functions if one.name.startswith("test_")}


REPORT_ROWS = {row[0]: row for row in rows() if re.fullmatch(r"B\d\d", row[0])}


def test_every_promise_is_there_and_every_test_that_is_named_exists() -> None:
    """By file and function; a row without a test names the fixtures that see to it."""
    promised = {row[0] for row in rows()} - REPORT_ROWS.keys()
    assert set(PROMISES) <= promised
    assert len(FILES) == len(list((PROJECT / "tests").rglob("test_*.py")))
    for row in rows():
        named = named_in(row[-1])
        assert named or "conftest.py" in row[-1], row
        for file, test in named:
            assert test in docstrings(file), f"{file}::{test}"


def test_every_report_is_there() -> None:
    """In their order, each with where it was told."""
    assert list(REPORT_ROWS) == REPORTS
    assert [row for row in REPORT_ROWS.values() if not re.search(r"\w/[\w-]+#\d+", row[1])] == []


@pytest.mark.parametrize("report", REPORTS)
def test_the_tests_of_a_report_say_so(report: str) -> None:
    """Each that the document names has its number in the docstring."""
    for file, test in named_in(REPORT_ROWS[report][-1]):
        assert report in docstrings(file)[test], f"{file}::{test}"


def test_no_test_speaks_of_a_report_that_is_not_listed() -> None:
    """A number in a docstring is one of the document's."""
    told = {n for file in FILES for text in docstrings(file).values() for n in re.findall(r"\bB\d\d\b", text)}
    assert told <= set(REPORTS)
