"""The report of `sidecar check`."""

from __future__ import annotations

import json

from sidecar.errors import Problem, Severity
from sidecar.manifest.load import Loaded, load
from sidecar.manifest.report import Report, as_json, as_lines, report, summary


def loaded(file: str, text: str) -> Loaded:
    """Load a text under a name."""
    return load(text.encode(), file=file, max_bytes=1 << 16)


def test_problems_are_sorted_by_file_and_place_with_a_summary_at_the_end() -> None:
    """Whatever order the files were looked at, and wherever a problem was found."""
    found = report(
        [
            loaded("b/murmur.yaml", 'name: b\nversion: "1"\nlifecycle: {queue_depth: x}\ncolour: blue\n'),
            loaded("a/murmur.yaml", "name: a\nversion: 1\n"),
            loaded("c/murmur.yaml", 'name: c\nversion: "1"\nruntime: tool\n'),
            loaded("d/murmur.yaml", 'name: d\nversion: "1"\n'),
        ],
        [Problem("b/murmur.yaml", 3, 1, "W-CAP-007", "exports.files.root", "serves all", Severity.WARNING)],
    )
    lines = as_lines(found)
    assert [line.split(" ")[:2] for line in lines[:-1]] == [
        ["a/murmur.yaml:2:10:", "E-MAN-002"],
        ["b/murmur.yaml:3:1:", "W-CAP-007"],
        ["b/murmur.yaml:3:26:", "E-MAN-002"],
        ["b/murmur.yaml:4:1:", "W-SEC-019"],
    ]
    assert lines[-1] == "3 capsules, 1 artifact, 2 errors, 2 warnings"
    assert (found.errors, found.warnings) == (2, 2)


def test_nothing_found_is_a_summary_alone() -> None:
    """And nouns agree with their numbers."""
    assert as_lines(report([])) == ["0 capsules, 0 artifacts, 0 errors, 0 warnings"]
    assert summary(Report(capsules=1, artifacts=1)) == "1 capsule, 1 artifact, 0 errors, 0 warnings"


def test_control_characters_are_visible() -> None:
    """A manifest must not drive the terminal of who checks it."""
    lines = as_lines(
        report([loaded("x\x1b[2J/murmur.yaml", 'name: a\nversion: "1"\n"\\e[31mred": 1\n"\\u202e": 2\n')])
    )
    assert lines[0].startswith("x\\x1b[2J/murmur.yaml:3:1: W-SEC-019 \\x1b[31mred: ")
    assert lines[1].startswith("x\\x1b[2J/murmur.yaml:4:1: W-SEC-019 \\u202e: ")
    assert all(line.isprintable() for line in lines)


def test_a_name_that_is_not_utf_8_can_be_printed() -> None:
    """Directories may have any name."""
    lines = as_lines(report([loaded("x\udcff/murmur.yaml", "name: a\n")]))
    assert lines[0].encode().startswith(b"x\\udcff/murmur.yaml:1:1: E-MAN-001")


def test_what_is_not_listed_is_counted() -> None:
    """In the lines, in the summary, and in the JSON form."""
    text = "name: a\nversion: 1\n" + "".join(f"k{i}: 1\n" for i in range(1002))
    found = report([loaded("f", text)])
    assert (found.errors, found.warnings, len(found.problems)) == (1, 1002, 1002)
    assert as_lines(found)[-2:] == [
        "f:1004:1: W-MAN-000 and 2 more warnings",
        "1 capsule, 0 artifacts, 1 error, 1002 warnings",
    ]
    assert as_json(found)["warnings"] == 1002
    assert as_json(found)["problems"][-1]["count"] == 2


def test_the_json_form_says_the_same() -> None:
    """For programs."""
    found = as_json(report([loaded("x\udcff/murmur.yaml", "name: a\nversion: 1\n")]))
    assert json.loads(json.dumps(found, ensure_ascii=False).encode()) == {
        "capsules": 1,
        "artifacts": 0,
        "errors": 1,
        "warnings": 0,
        "problems": [
            {
                "file": "x\\udcff/murmur.yaml",
                "line": 2,
                "column": 10,
                "code": "E-MAN-002",
                "key": "version",
                "message": '1 is a number to YAML, not text; quote it: `version: "1"`',
                "severity": "error",
                "count": 1,
            }
        ],
    }
