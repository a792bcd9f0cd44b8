"""The pure half of the walk: how deep to look, and texts about paths."""

from __future__ import annotations

import errno
from posixpath import commonpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.watch.paths import depths_of, inside, parent_of, plain
from sidecar.watch.read import describe
from tests.support.watching import RootAt

PARTS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=4)


@pytest.mark.parametrize(
    ("roots", "depths"),
    [
        ([RootAt("/a/"), RootAt("/a", 3)], {"/a": 3}),
        ([RootAt("/"), RootAt("/a/b", 0)], {"/": 1, "/a/b": 0}),
        ([RootAt("/", 4), RootAt("/a/b", 0)], {"/": 4, "/a/b": 2}),
        ([RootAt("/a", 2), RootAt("/ab", 0)], {"/a": 2, "/ab": 0}),
    ],
)
def test_a_root_within_another_is_looked_into_as_deep_as_both_say(
    roots: list[RootAt], depths: dict[str, int]
) -> None:
    """Overlapping roots are walked once, so the deeper wish wins."""
    assert depths_of(roots) == depths


@given(st.lists(st.tuples(PARTS, st.integers(0, 4)), max_size=4))
def test_no_root_is_looked_into_less_deep_than_it_says(wishes: list[tuple[list[str], int]]) -> None:
    """Whatever lies within what: every root's own reach is covered."""
    roots = [RootAt("/" + "/".join(parts), depth) for parts, depth in wishes]
    depths = depths_of(roots)
    for root in roots:
        assert depths[plain(root.path)] >= root.depth
        for other in depths:
            if commonpath([root.path, other]) == plain(root.path):
                levels = len([p for p in other[len(plain(root.path)) :].split("/") if p])
                assert depths[other] >= root.depth - levels


@given(PARTS, st.sampled_from(["x", "y"]))
def test_the_parent_of_what_lies_inside_is_the_directory_itself(parts: list[str], name: str) -> None:
    """`inside` and `parent_of` are each other's inverse, the root of the file system included."""
    path = "/" + "/".join(parts)
    assert parent_of(inside(path) + name) == path


def test_what_cannot_be_read_is_described_with_its_reason_and_a_remedy() -> None:
    """As it is said behind the path, which is not repeated."""
    said = "cannot be read: Permission denied (let the user that runs the sidecar read it)"
    assert describe(errno.EACCES) == said
    assert describe(errno.EIO) == "cannot be read: Input/output error"
