"""Manifests, whatever they hold: nothing is raised, and every problem has a place within the file."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import Severity
from sidecar.manifest.load import load
from sidecar.manifest.report import as_lines, report
from sidecar.manifest.schema import EXAMPLES, KNOWN

KEYS = sorted(
    {key for keys in KNOWN.values() for key in keys} | {"shell", "peer_fetch", "allow", "containment", "nmae"}
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.text(max_size=6)
    | st.sampled_from(
        ["none", "queue", "sleep", "read-only", "10Mi", "15m", "wasm", "out/", "..", "{{ x }}", "\x1b"]
    )
)
values = st.recursive(
    scalars,
    lambda below: (
        st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | scalars, below, max_size=5)
    ),
    max_leaves=20,
)
documents = st.dictionaries(st.sampled_from(KEYS), values, max_size=8)


def written(value: Any) -> str:
    """Return a value as YAML."""
    return yaml.dump(value, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False)


def check(data: bytes) -> None:
    """Load a file and look at what is said of it."""
    loaded = load(data, file="m", max_bytes=1 << 16)
    assert (loaded.manifest is None and loaded.artifact is None) == bool(loaded.errors)
    lines = data.decode(errors="replace").count("\n") + data.decode(errors="replace").count("\r") + 1
    for problem in loaded.problems:
        assert 1 <= problem.line <= lines
        assert problem.column >= 1
        assert (problem.severity is Severity.ERROR) == problem.code.startswith("E")
        assert problem.message
        assert "\n" not in problem.message
    assert list(loaded.problems) == sorted(loaded.problems)
    for line in as_lines(report([loaded])):
        assert line.isprintable()


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_and_raise_nothing(data: bytes) -> None:
    """Loading happens where nobody expects an exception."""
    check(data)


@given(documents)
def test_arbitrary_documents_raise_nothing(value: Any) -> None:
    """Any type may stand anywhere."""
    check(written(value).encode())


@given(st.sampled_from(sorted(EXAMPLES)), values)
def test_any_value_in_a_field_that_is_read_hides_no_other_problem(path: str, value: Any) -> None:
    """A wrong version is reported whatever is wrong elsewhere."""
    whole: Any = value
    for key in reversed(path.split(".")):
        whole = {key: [whole] if key == "artifacts" and isinstance(whole, dict) else whole}
    check(written({"name": "a", "version": "1", **whole}).encode())
    loaded = load(written({**whole, "version": 1.0}).encode(), file="m", max_bytes=1 << 16)
    assert any(problem.key == "version" and problem.code == "E-MAN-002" for problem in loaded.errors)
