"""Where the configuration says something of a root or a capsule, and which unit it proposes."""

from __future__ import annotations

import pytest

from sidecar import config
from sidecar.config import blocks
from sidecar.errors import InputError, Severity
from sidecar.shapes import WRITTEN, keys_of

TEXT = """\
roots:
  - path: a
  - {path: b}
capsules:
  hello: {port: 24001}
  other: {}
"""


def built(
    text: str | None, roots: tuple[str, ...] = (), environ: dict[str, str] | None = None
) -> config.Config:
    """Build a configuration of `c.yaml`."""
    data = None if text is None else text.encode()
    flags = config.Flags(roots=roots)
    return config.build(data, None if text is None else "c.yaml", flags, environ or {}, cwd="/srv")


def said(found: config.Config, *path: str | int) -> str:
    """Return a problem at a path."""
    return str(found.problem_at(path, "E-X", "no"))


def test_a_problem_is_where_its_root_or_its_capsule_stands_in_the_file() -> None:
    """A root at the value of its path, a capsule at its id."""
    found = built(TEXT)
    assert said(found, "roots", 0, "path") == "c.yaml:2:11: E-X roots[0].path: no"
    assert said(found, "roots", 1, "path") == "c.yaml:3:12: E-X roots[1].path: no"
    assert said(found, "capsules", "hello") == "c.yaml:5:3: E-X capsules.hello: no"
    assert said(found, "capsules", "other") == "c.yaml:6:3: E-X capsules.other: no"
    assert found.problem_at(("capsules", "other"), "W-X", "no").severity is Severity.WARNING


def test_a_problem_names_the_flag_or_the_variable_that_said_it() -> None:
    """`--root` replaces the roots of the file; a variable may be all that is said of a capsule, or add to it."""
    environ = {"SIDECAR_CAPSULES__NEW__PORT": "24002", "SIDECAR_CAPSULES__HELLO__CARD": "full"}
    found = built(TEXT, ("/r",), environ)
    assert said(found, "roots", 0, "path") == "command line: E-X --root: no"
    assert said(found, "capsules", "new") == "environment: E-X SIDECAR_CAPSULES__NEW__PORT: no"
    assert said(found, "capsules", "hello") == "c.yaml:5:3: E-X capsules.hello: no"
    found = built(None, ("/r",), environ)
    assert said(found, "capsules", "hello") == "environment: E-X SIDECAR_CAPSULES__HELLO__CARD: no"


def test_what_was_written_nowhere_has_no_place() -> None:
    """A default is the configuration's own."""
    assert said(built("card: full\n"), "roots", 0, "path") == "c.yaml: E-X roots[0].path: no"
    assert said(config.Config(), "roots", 0, "path") == "configuration: E-X roots[0].path: no"


def test_a_line_that_moved_is_no_other_configuration() -> None:
    """So that a comment makes no reload."""
    assert built(TEXT) == built("# a comment\n" + TEXT)
    assert built(TEXT) != built(TEXT.replace("24001", "24002"))


DURATIONS = [
    (f"{block}.{key.name}", key.told[WRITTEN])
    for block, model in (
        ("watch", blocks.Watch),
        ("tasks", blocks.Tasks),
        ("limits", blocks.Limits),
        ("heartbeat", blocks.Heartbeat),
        ("inbox", config.Inbox),
    )
    for key in keys_of(model)
    if isinstance(key.default, float)
]


@pytest.mark.parametrize(("key", "default"), DURATIONS)
def test_a_number_without_a_unit_is_told_the_one_of_the_default(key: str, default: object) -> None:
    """`settle: 40` means milliseconds, `forget: 24` hours."""
    block, _, name = key.partition(".")
    unit = str(default).lstrip("0123456789.")
    for written in ("7", '"7"'):
        with pytest.raises(InputError) as caught:
            built(f"{block}: {{{name}: {written}}}\n")
        assert str(caught.value.problems[0]).endswith(f"write 7{unit}")


def test_there_are_durations() -> None:
    """So that the test above cannot pass by finding none."""
    assert len(DURATIONS) > 9


def test_a_file_says_all_that_is_wrong_with_it_as_yaml_beside_the_rest() -> None:
    """Duplicate keys, keys that are no text, tags and further documents hide nothing."""
    text = """\
card: ful
watch: {settle: 40, settle: 5}
watch: {}
1: x
yes: y
[a]: b
log: !x {level: info}
capsules: {on: {}, 1: {port: x}}
---
x
"""
    with pytest.raises(InputError) as caught:
        built(text)
    assert [str(problem).removeprefix("c.yaml:") for problem in caught.value.problems] == [
        '1:7: E-CFG-004 card: "ful" is not one of full, reference; did you mean full?',
        "2:17: E-CFG-002 watch.settle: must be a duration with its unit; write 40ms",
        "2:21: E-CFG-002 the key settle is in line 2 already; keep one of the two",
        "3:1: E-CFG-002 the key watch is in line 2 already; keep one of the two",
        '4:1: E-CFG-002 1: keys are text; YAML reads 1 as the number 1: quote it, "1"',
        '5:1: E-CFG-002 yes: keys are text; YAML reads yes as true: quote it, "yes"',
        "6:1: E-CFG-002 a list or a mapping cannot be a key; write one word",
        "7:6: E-CFG-002 log: the tag !x is not taken; remove it",
        '8:12: E-CFG-002 capsules.on: keys are text; YAML reads on as true: quote it, "on"',
        '8:20: E-CFG-002 capsules.1: keys are text; YAML reads 1 as the number 1: quote it, "1"',
        "9:1: E-CFG-002 a second document begins here, and a file holds one: remove it",
    ]
