"""What capsules are called."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.registry.ids import assign, assign_listed, slug

SLUG = re.compile(r"[a-z0-9_](?:[a-z0-9._-]{0,62}[a-z0-9_])?")
ID = re.compile(r"[a-z0-9._~-]{1,129}")

NAMES = st.sampled_from(["a", "A", "b", "b!", "a~b", "x" * 80, "~2", ""]) | st.text(max_size=70)
DIRECTORIES = st.lists(
    st.sampled_from(["a", "b", "..", "x" * 80, "a\udcff", "é"]), min_size=1, max_size=3
).map(lambda parts: "/" + "/".join(parts))
PAIRS = st.sets(st.tuples(DIRECTORIES, NAMES), max_size=12)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hello", "hello"),
        ("Hello World", "hello-world"),
        ("review-bot_2.1", "review-bot_2.1"),
        ("Überprüfer für Straßen", "uberprufer-fur-strassen"),
        ("\uff26\uff35\uff2c\uff2cwidth", "fullwidth"),
        ("a / b // c", "a-b-c"),
        ("--lead and trail--", "lead-and-trail"),
        ("a~2", "a-2"),
        ("..", "capsule"),
        ("🤖", "capsule"),
        ("日本", "capsule"),
        ("a\0b\x1b[31m", "a-b-31m"),
        ("x" * 200, "x" * 64),
        ("x" * 63 + "-y", "x" * 63),
    ],
)
def test_a_slug_keeps_what_can_be_typed(name: str, expected: str) -> None:
    """A name becomes something for a command line and a URL; one that has nothing of it becomes `capsule`."""
    assert slug(name) == expected


@given(st.text())
def test_every_name_has_a_slug_that_is_its_own_slug(name: str) -> None:
    """A slug is 1 to 64 characters of its alphabet, and making a slug of it changes nothing."""
    made = slug(name)
    assert SLUG.fullmatch(made)
    assert slug(made) == made


def test_the_first_of_a_name_has_the_plain_slug_and_the_others_their_directory() -> None:
    """Sorted order of directories decides, and numbers tell apart what is still the same."""
    new = [("/r/c/app", "N"), ("/r/a/app", "N"), ("/r/b/app", "N"), ("/r/b/other", "n"), ("/r/d", "m")]
    assert assign(new, ()) == {
        ("/r/a/app", "N"): "n",
        ("/r/b/app", "N"): "n~app",
        ("/r/b/other", "n"): "n~other",
        ("/r/c/app", "N"): "n~app~2",
        ("/r/d", "m"): "m",
    }


def test_an_id_that_somebody_has_is_not_given_again() -> None:
    """What is remembered, of a capsule that is gone too, belongs to its directory and name."""
    assert assign([("/r/a", "n")], {"n"}) == {("/r/a", "n"): "n~a"}
    assert assign([("/r/a", "n")], {"n", "n~a", "n~a~2"}) == {("/r/a", "n"): "n~a~3"}


@given(PAIRS, st.sets(st.sampled_from(["a", "b", "a~a", "a~a~2", "capsule"])))
def test_ids_are_distinct_and_of_their_alphabet(new: set[tuple[str, str]], taken: set[str]) -> None:
    """No two capsules share an id, none takes one that is taken, and all are short enough."""
    ids = assign(new, taken)
    assert ids.keys() == new
    assert len(set(ids.values())) == len(ids)
    assert not taken & set(ids.values())
    assert all(ID.fullmatch(one) for one in ids.values())


@given(PAIRS, PAIRS)
def test_namesakes_that_come_later_move_nobody(
    first: set[tuple[str, str]], later: set[tuple[str, str]]
) -> None:
    """Ids that were given before are taken for those that come after, whatever their order."""
    before = assign(first, ())
    after = assign(later - first, set(before.values()))
    assert not set(before.values()) & set(after.values())


def test_a_thousand_namesakes_in_like_named_directories_get_their_numbers() -> None:
    """Numbers go up with the order of the directories."""
    ids = assign([(f"/r/{n:04}/app", "n") for n in range(1000)], ())
    assert ids["/r/0000/app", "n"] == "n"
    assert ids["/r/0001/app", "n"] == "n~app"
    assert ids["/r/0999/app", "n"] == "n~app~999"


def test_what_is_only_listed_gives_way_to_capsules() -> None:
    """A directory without a capsule is listed under its own slug, numbered where a capsule has it."""
    listed = assign_listed(["/r/b", "/q/b", "/r/Tool Box"], (), {})
    assert listed == {"/q/b": "b", "/r/b": "b~2", "/r/Tool Box": "tool-box"}
    assert assign_listed(["/q/b", "/r/b"], {"b"}, listed) == {"/r/b": "b~2", "/q/b": "b~3"}
    assert assign_listed(["/r/b"], (), listed) == {"/r/b": "b~2"}


@given(
    st.sets(DIRECTORIES, max_size=8),
    st.sets(DIRECTORIES, max_size=8),
    st.sets(st.sampled_from(["a", "b", "a~2"])),
)
def test_what_is_only_listed_has_ids_of_its_own(before: set[str], now: set[str], taken: set[str]) -> None:
    """Listed ids are distinct, take none from a capsule, and stay while nothing else has them."""
    old = assign_listed(before, (), {})
    ids = assign_listed(now, taken, old)
    assert ids.keys() == now
    assert len(set(ids.values())) == len(ids)
    assert not taken & set(ids.values())
    assert all(ids[d] == old[d] for d in now & before if old[d] not in taken)
