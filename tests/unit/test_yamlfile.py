"""Loading YAML: what is refused, with its line and column, before anything is made of it."""

from __future__ import annotations

from datetime import date

import pytest

from sidecar.words import is_blank, nearest
from sidecar.yamlfile import Document, YamlError, dotted, examine, parse

LIMIT = 4096


def parsed(text: str | bytes) -> Document:
    """Parse a text that is fine."""
    data = text.encode() if isinstance(text, str) else text
    return parse(data, file="f.yaml", code="E-X-1", max_bytes=LIMIT)


def refused(text: str | bytes) -> str:
    """Return all that is said of a text that is refused, without the file's name."""
    with pytest.raises(YamlError) as caught:
        parsed(text)
    assert caught.value.problem == caught.value.problems[0]
    return "\n".join(str(problem).removeprefix("f.yaml:") for problem in caught.value.problems)


def test_values_are_those_of_yaml_1_1() -> None:
    """The strict types above must see the surprises that other programs see."""
    text = "a: no\nb: 0123\nc: 12:30\nd: 1.10\ne: ~\nf: 2026-01-02\ng: 'no'\nh: text\ni: [1, {j: 1_000}]\n"
    assert parsed(text).value == {
        "a": False,
        "b": 83,
        "c": 750,
        "d": 1.1,
        "e": None,
        "f": date(2026, 1, 2),
        "g": "no",
        "h": "text",
        "i": [1, {"j": 1000}],
    }


def test_what_only_looks_like_a_date_stays_text() -> None:
    """Otherwise a version such as this would end the load, not be looked at."""
    assert parsed("a: 2026-13-45\n").value == {"a": "2026-13-45"}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "~"])
def test_nothing_is_null(text: str) -> None:
    """An empty file is no error to YAML; what it means is for the reader of its value to say."""
    assert parsed(text).value is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a: \xff\n", "1:4: E-X-1 is not UTF-8 from here on; save it as UTF-8"),
        ("a: b".encode("utf-16"), "1:1: E-X-1 is not UTF-8"),
        ("ä: b\nc: \x07\n", "2:4: E-X-1 the character 0x7 cannot be in a YAML file"),
        ("a: b\x00", "1:5: E-X-1 the character 0x0 cannot"),
        ("a: " + "b" * LIMIT, "1:4097: E-X-1 is longer than 4096 bytes"),
        ("a: " + "é" * LIMIT, "1:2050: E-X-1 is longer than 4096 bytes"),
        ("[" * 100, "1:65: E-X-1 is more than 64 levels deep here"),
        ("[" * 2000, "1:1001: E-X-1 is more than 64 levels deep here"),
        ("- " * 100, "1:129: E-X-1 is more than 64 levels deep here"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "4:3: E-X-1 the key c is in line 3 already"),
        ("a: 1\n'a': 2\n", "2:1: E-X-1 the key 'a' is in line 1 already"),
        ("yes: 1\ntrue: 2\n", "2:1: E-X-1 the key true is in line 1 already"),
        ("{a: 1, a: 2}", "1:8: E-X-1 the key a"),
        ("a: 1\n---\nb: 2\n", "2:1: E-X-1 a second document begins here"),
        ("a: 1\n...\nb: 2\n", "3:1: E-X-1 a second document begins here"),
        ("a: 1\n...\n---\nb: 2\n", "3:1: E-X-1 a second document begins here"),
        ("[a]: 1\n", "1:1: E-X-1 a list or a mapping cannot be a key"),
        ("? {a: 1}\n: 1\n", "1:3: E-X-1 a list or a mapping cannot be a key"),
        ("a: !!python/name:os.system x\n", "1:4: E-X-1 a: the tag !!python/name:os.system is not taken"),
        ("a: !custom\n  b: c\n", "1:4: E-X-1 a: the tag !custom is not taken"),
        ("a: !!set {b}\n", "1:4: E-X-1 a: the tag !!set is not taken"),
        ("a: !!int '1'\n", "1:4: E-X-1 a: the tag !!int is not taken"),
        ("a: &x [*x]\n", "1:8: E-X-1 a[0]: the alias *x contains itself"),
        ("a: *x\nb: &x 1\n", "1:4: E-X-1 a: the alias *x has no anchor &x above it"),
        ("<<: 1\n", "1:1: E-X-1 `<<` takes a mapping"),
        ("a: " + "1" * 101, "1:4: E-X-1 a: 1111"),
        (
            "a: 0x_\n",
            "1:4: E-X-1 a: 0x_ looks like a number, but cannot be one: mend it, or quote it where text",
        ),
        ("a:\n\tb: c\n", "2:1: E-X-1 a tab cannot indent YAML; use spaces"),
        ("a: %b\n", "1:4: E-X-1 a value cannot begin with `%`; quote it"),
        ("a: 'b\n\n", "1:4: E-X-1 is not YAML: the quote that begins here is never closed"),
        ("a: [b\n", "2:1: E-X-1 is not YAML"),
        ("a: b\nc\n", "2:1: E-X-1 is not YAML: is no `key: value`"),
    ],
)
def test_what_has_no_use_here_is_refused_at_its_place(text: str | bytes, said: str) -> None:
    """Size, encoding, depth, duplicates, documents, keys, tags, aliases, syntax: one line each."""
    found = refused(text)
    assert found.startswith(said)
    assert "\n" not in found


def test_everything_that_leaves_the_rest_readable_is_said_at_once() -> None:
    """Duplicate keys with both lines, lists and mappings as keys, tags, aliases, numbers, and a second document."""
    text = """\
a: 1
a: {b: 1, b: 2}
a: 3
c: [{d: !x 1, d: 2}]
[e]: {f: 1, f: 2}
? {g: 1, g: 2}
: *h
i: 0x_
<<: 5
'j': {{ k }}
j: l
---
@
"""
    assert refused(text).splitlines() == [
        "2:1: E-X-1 the key a is in line 1 already; keep one of the two",
        "2:11: E-X-1 the key b is in line 2 already; keep one of the two",
        "3:1: E-X-1 the key a is in line 1 already; keep one of the two",
        "4:9: E-X-1 c[0].d: the tag !x is not taken; remove it",
        "4:15: E-X-1 the key d is in line 4 already; keep one of the two",
        "5:1: E-X-1 a list or a mapping cannot be a key; write one word",
        "5:13: E-X-1 the key f is in line 5 already; keep one of the two",
        "6:3: E-X-1 a list or a mapping cannot be a key; write one word",
        "6:10: E-X-1 the key g is in line 6 already; keep one of the two",
        "7:3: E-X-1 the alias *h has no anchor &h above it",
        "8:4: E-X-1 i: 0x_ looks like a number, but cannot be one: mend it, or quote it where text is meant",
        "9:1: E-X-1 `<<` takes a mapping or a list of mappings",
        "10:6: E-X-1 j: the placeholder {{ k }} was left in; write the value itself",
        "11:1: E-X-1 the key j is in line 10 already; keep one of the two",
        "12:1: E-X-1 a second document begins here, and a file holds one: remove it",
    ]


def test_what_ends_the_reading_hides_nothing_above_it() -> None:
    """A duplicate key and a broken line are both said."""
    said = refused("a: 1\na: 2\nb: @\n")
    assert [line.split(" ")[0] for line in said.splitlines()] == ["2:1:", "3:4:"]
    said = refused("a: 1\na: 2\nb: " + "[" * 65)
    assert [line.split(" ")[0] for line in said.splitlines()] == ["2:1:", "3:67:"]


def test_of_a_key_that_comes_twice_the_first_counts() -> None:
    """So that something can be said of the rest."""
    document = examine(b"a: 1\na: {b: &x 2}\nc: *x\n", file="f", code="E", max_bytes=LIMIT)
    assert document.value == {"a": 1, "c": 2}
    assert len(document.refused) == 1


@pytest.mark.parametrize("count", [1000, 1001, 3000])
def test_a_thousand_duplicates_are_listed_and_the_others_counted(count: int) -> None:
    """Each that is listed costs time and memory, and nobody reads more."""
    document = examine(b"a: 1\n" * (count + 1), file="f", code="E", max_bytes=1 << 20)
    assert sum(problem.count for problem in document.refused) == count
    assert len(document.refused) == min(count, 1001)
    if count > 1000:
        assert document.refused[-1].message == f"and {count - 1000} more of this kind"


def test_keys_are_the_same_only_by_type_and_value() -> None:
    """`1`, `1.0` and `true` are three keys, though Python takes them for one."""
    document = parsed("1: a\ntrue: b\n1.0: c\n0: d\nno: e\n'1': f\n")
    assert [str(key) for key in document.value] == ["1", "True", "1.0", "0", "False", "1"]
    assert list(document.value.values()) == list("abcdef")
    assert [document.place((key,), key=True)[0] for key in document.value] == [1, 2, 3, 4, 5, 6]
    assert [document.source((key,)) for key in document.value] == list("abcdef")
    twice = refused("1: a\ntrue: b\nyes: c\n1.0: d\n1.00: e\n01: f\n")
    assert [line.split(" ")[0] for line in twice.splitlines()] == ["3:1:", "5:1:", "6:1:"]
    assert "in line 2 already" in twice


@pytest.mark.parametrize(
    "text", ["", " \t\n", "\u200b", "\ufeff\u2060", "\u3164", "\u2800 \u00ad", "\U000e0020", "\ufe0f\u034f"]
)
def test_what_cannot_be_seen_is_blank(text: str) -> None:
    """White space, controls, and letters and marks without a shape."""
    assert is_blank(text)


@pytest.mark.parametrize("text", ["a", "\u200ba", " é ", "\u4e2d", "\U0001f600\ufe0f", "-", "\ue000"])
def test_what_can_be_seen_is_not_blank(text: str) -> None:
    """One letter is enough."""
    assert not is_blank(text)


def test_sixty_four_levels_are_taken() -> None:
    """The bound itself is allowed."""
    assert parsed("[" * 64 + "]" * 64).value is not None


def test_a_byte_order_mark_is_taken_and_moves_no_column() -> None:
    """Editors on some systems write one."""
    assert parsed(b"\xef\xbb\xbfa: b\n").value == {"a": "b"}
    assert refused(b"\xef\xbb\xbfa: @\n").startswith("1:4:")


def test_an_alias_bomb_is_refused_before_it_goes_off() -> None:
    """Nine levels of ten would be a thousand million values."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    found = refused("\n".join(lines))
    assert found.startswith("4:")
    assert "aliases up to here repeat more than 10000 values" in found


def test_aliases_count_towards_the_depth() -> None:
    """What an alias repeats is as deep as what it names."""
    deep = "a: &a " + "[" * 40 + "]" * 40
    assert parsed(f"{deep}\nb: [*a]\n").value
    assert refused(f"{deep}\nb: {'[' * 30}*a{']' * 30}\n").startswith(
        "2:34: E-X-1 is more than 64 levels deep"
    )


def test_anchors_and_merge_keys_mean_what_yaml_says() -> None:
    """A mapping's own keys win over merged ones, earlier sources over later ones."""
    text = "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz:\n  <<: [*x, *y]\n  a: 0\nw: {'<<': 1}\n"
    document = parsed(text)
    assert document.value["z"] == {"a": 0, "b": 1, "c": 2}
    assert document.value["w"] == {"<<": 1}
    assert document.place(("z", "c"), key=True) == (2, 14)


def test_places_are_those_of_an_editor() -> None:
    """Lines and columns count from 1, in characters, whatever YAML takes for a line break."""
    document = parsed("ä: [é, {b: 'ü'}]\r\n\u2028c:\r\n  d: |\r\n    e\r\n  f: g\r\n")
    assert document.place((), key=True) == (1, 1)
    assert document.place(("ä",)) == (1, 4)
    assert document.place(("ä", 1, "b")) == (1, 12)
    assert document.place(("ä", 1, "b"), key=True) == (1, 9)
    assert document.source(("ä", 1)) == "{b: 'ü'}"
    assert document.place(("c",), key=True) == (2, 2)
    assert document.place(("c", "f")) == (5, 6)
    assert document.source(("c", "f"), key=True) == "f"
    assert document.place_of(("c", "d"), "e") == (4, 5)


def test_what_is_not_there_falls_back_to_its_nearest_parent() -> None:
    """A missing key is reported at the block that lacks it."""
    document = parsed("a:\n  b:\n    c: 1\nd: [1]\n")
    assert document.place(("a", "b", "x", "y"), key=True) == (2, 3)
    assert document.place(("a", "b", "x")) == (3, 5)
    assert document.place(("d", 7)) == (4, 4)
    assert document.place(("x",), key=True) == (1, 1)
    assert document.source(("a", "x")) == ""


@pytest.mark.parametrize(
    "text",
    [
        "a: {{ b }}",
        "a: {{b}}-c",
        "a: [{{ b }}, c]",
        "a: x-{{ b }}",
        "- {{ b }}",
        "{{ b }}: c",
        "a: [x{{ b }}]",
        "a: {{ b | c('d') }} # e",
        "a: {{ b: c }}",
        "{{ b }}",
        "a:\n  {{ b }}\n",
        "a: {b: {{ b }}}",
        "a: {{\n  b }}",
        "{{ b }}-x: 1",
        "a: {{ b }}{{ c }}",
        "a: '{{ c }}' {{ b }}",
    ],
)
def test_an_unquoted_placeholder_is_named_wherever_it_stands(text: str) -> None:
    """YAML would call it a mapping, a missing key, or nothing wrong at all."""
    at = text.index("{{b" if "{{b" in text else "{{\n" if "{{\n" in text else "{{ b")
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    assert f"{line}:{column}: E-X-1" in refused(text)
    assert "the placeholder {{" in refused(text)


def test_all_unquoted_placeholders_are_named_at_once() -> None:
    """And what else is wrong with the syntax, too."""
    text = (
        "a: {{ b }}\nc: '{{ quoted }}'\nd: |\n  {{ block }}\n# {{ comment }}\ne: [{{ f }}, x{{ g }}]\nh: @\n"
    )
    found = refused(text)
    assert [line.split(" ")[0] for line in found.splitlines()] == ["1:4:", "6:5:", "6:15:", "7:4:"]


@pytest.mark.parametrize(
    ("text", "odd"),
    [
        ("a: 10", False),
        ("a: 0", False),
        ("a: -5", False),
        ("a: '010'", False),
        ("a: 010", True),
        ("a: 12:30", True),
        ("a: 0x1F", True),
        ("a: 1_000", True),
        ("a: 0b1", True),
    ],
)
def test_integers_that_are_not_plain_decimal_are_noticed(text: str, odd: bool) -> None:  # noqa: FBT001 - parameters
    """So that nobody listens on port 4096 who wrote 010000."""
    assert parsed(text).odd_integers is odd


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("nmae", "name"),
        ("naem", "name"),
        ("verson", "version"),
        ("versions", "version"),
        ("evrsoin", "version"),
        ("xyz", None),
        ("n", None),
        ("", None),
        ("nam", "name"),
        ("na", None),
    ],
)
def test_the_nearest_known_word_is_at_most_a_third_of_the_word_away(word: str, meant: str | None) -> None:
    """An edit inserts, drops or replaces a letter, or swaps two neighbours."""
    assert nearest(word, ("version", "name", "mur_version")) == meant


def test_paths_are_shown_as_users_write_them() -> None:
    """Dots between keys, brackets around indexes."""
    assert dotted(("artifacts", 0, "version")) == "artifacts[0].version"
    assert dotted(()) == ""
