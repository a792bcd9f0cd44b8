"""Loading YAML, whatever it is given: nothing but YamlError, and the values of the safe loader."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.words import nearest
from sidecar.yamlfile import Document, Path, YamlError, examine, parse
from sidecar.yamlparts import OtherKey

PIECES = (
    "a",
    "b",
    "name",
    "é",
    "\u2028",
    "x y",
    "1",
    "0123",
    "1.0",
    "12:30",
    "1e3",
    "no",
    "~",
    "null",
    "2026-01-02",
    "08",
    "2026-13-45",
    "0x1F",
    "0b_",
    ".inf",
    ".nan",
    "-",
    "=",
    "<<",
    "<<: ",
    ": ",
    ":",
    "- ",
    "? ",
    "\n",
    "\n  ",
    "\n    ",
    "\n- ",
    "\n---\n",
    "\n...\n",
    "[",
    "]",
    "{",
    "}",
    ", ",
    ",",
    "'",
    '"',
    "#",
    " # c",
    "|\n  ",
    ">-\n  ",
    "&x ",
    "&y ",
    "*x",
    "*x ",
    "*y",
    "!!str ",
    "!!map ",
    "!!int ",
    "!t ",
    "! ",
    "{{ v }}",
    "{{",
    "}}",
    "\t",
    "\\",
    "\\x41",
    "%",
    "@",
    "\r\n",
    "\r",
    "\x85",
    "\ufeff",
    "\x00",
    "\x1b",
)
yamlish = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.dates(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=8), below, max_size=4),
    max_leaves=12,
)


def taken(data: bytes) -> Document | None:
    """Return the document, or None where it is refused; a refusal has a place within the file."""
    try:
        return examine(data, file="f", code="E", max_bytes=1 << 16)
    except YamlError as error:
        problems = error.problems
    lines = data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for problem in problems:
        assert 1 <= problem.line <= len(lines)
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
        assert problem.message
    assert list(problems) == sorted(problems)
    return None


def same(ours: Any, theirs: Any) -> bool:
    """Whether two values are equal and of the same types, not-a-number included."""
    if isinstance(ours, float) and isinstance(theirs, float) and math.isnan(ours):
        return math.isnan(theirs)
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, dict):
        return len(ours) == len(theirs) and all(
            any(same(a, b) and same(ours[a], theirs[b]) for b in theirs) for a in ours
        )
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs)


@given(st.binary(max_size=200))
@example(b"\xff\xfe\x00")
@example(b"\xef\xbb\xbf\xef\xbb\xbf")
def test_arbitrary_bytes_raise_nothing_but_a_yaml_error(data: bytes) -> None:
    """A file may hold anything."""
    taken(data)


@given(yamlish)
@example("a: [{{ b }}, {{ c }}-d, e]\n{{ f }}: {{ g\n  }}")
@example("[*a, &a [*a]]")
@example("a: &x {b: c}\nd: {<<: *x, e: *x}")
@example("? a\n? b\n: <<")
def test_what_is_taken_has_the_values_of_the_safe_loader(text: str) -> None:
    """Where both take a text they agree; what the safe loader refuses may be text here (a date that is none)."""
    document = taken(text.encode())
    if document is None or document.refused or has_keys_of_ours(document.value):
        return
    try:
        theirs = yaml.load(text.removeprefix("\ufeff"), yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError, TypeError):
        return
    assert same(document.value, theirs)


def has_keys_of_ours(value: Any) -> bool:
    """Whether keys differ here that the safe loader takes for one (`1` and `true`)."""
    if isinstance(value, dict):
        return any(isinstance(key, OtherKey) or has_keys_of_ours(below) for key, below in value.items())
    return isinstance(value, list) and any(map(has_keys_of_ours, value))


@given(plain, st.booleans())
def test_what_was_dumped_comes_back(value: Any, flow: bool) -> None:  # noqa: FBT001 - drawn
    """Everything that has a plain YAML form is taken."""
    text = yaml.dump(value, Dumper=yaml.CSafeDumper, default_flow_style=flow, allow_unicode=True)
    try:
        theirs = yaml.load(text, yaml.CSafeLoader)
    except yaml.YAMLError:
        return
    document = taken(text.encode())
    if document is not None and not document.refused:
        assert same(document.value, theirs)


def paths(value: Any, path: Path = ()) -> list[Path]:
    """Return the paths of all values."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, item in below for deeper in paths(item, (*path, key)))]


@given(yamlish)
@example("a: b\r\nc:\u2028  d: [e, 'f']\n")
def test_places_point_to_where_the_source_is(text: str) -> None:
    """The source of a value stands at its place; so does that of its key."""
    document = taken(text.encode())
    if document is None:
        return
    whole = text.removeprefix("\ufeff")
    starts = [0, *(found.end() for found in re.finditer("\r\n|[\r\n]", whole))]
    for path in paths(document.value):
        for key in (False, True):
            line, column = document.place(path, key=key)
            found = whole[starts[line - 1] + column - 1 :]
            assert found.lstrip().startswith(document.source(path, key=key))


@given(st.text(), st.lists(st.text(max_size=8)))
def test_a_suggestion_is_a_known_word(word: str, known: list[str]) -> None:
    """And a known word is its own suggestion."""
    assert nearest(word, known) in (None, *known)
    assert nearest(word, [*known, word]) == word


@pytest.mark.parametrize("count", [1, 50, 5000])
def test_many_placeholders_are_many_problems_and_end(count: int) -> None:
    """Each that breaks the syntax costs another look, and the looks are bounded."""
    for text in ("- {{ x }}-y\n" * count, "- x-{{ y }}\n" * count):
        with pytest.raises(YamlError) as caught:
            parse(text.encode(), file="f", code="E", max_bytes=1 << 17)
        problems = caught.value.problems
        assert 1 <= len(problems) <= 101
        if len(problems) == 101:
            assert problems[-1].message.startswith("and ")
            assert count > 100
