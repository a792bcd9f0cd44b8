"""Any path at all: never a byte from outside, and always the answer of a slow and simple reading of the rules."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sidecar.errors import RefusedError
from sidecar.planes.beneath import Openat2, Rules, Walk
from sidecar.planes.memory import Memory
from sidecar.planes.paths import from_target
from sidecar.planes.reading import Tree
from tests.support.planes import SECRET, SECRET_SHA, entries, read, write

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = [
    "a",
    "b",
    "d",
    "up",
    "in",
    "out",
    "abs",
    "loop",
    "gone",
    "sub dir",
    "ä",
    "fifo",
    "root",
    "secret",
    "x",
]
MAX_LINKS = 40


@pytest.fixture(scope="module")
def workspace() -> Iterator[Path]:
    """A tree with something of every kind, and secrets around it."""
    with tempfile.TemporaryDirectory() as place:
        outside = write(Path(place) / "secret", SECRET)
        workspace = Path(place) / "w"
        root = workspace / "root"
        write(workspace / "secret", SECRET)
        write(workspace / "x", SECRET)
        for name in ("a", "d/a", "d/sub dir/ä", "d/d/b"):
            write(root / name, b"inside " + name.encode())
        os.mkfifo(root / "fifo")
        for name, target in {
            "b": "d/a",
            "in": "d",
            "up": "..",
            "d/up": "..",
            "d/in": "../d/d",
            "d/x": "../d/../a",
            "out": "../secret",
            "d/out": "../../../secret",
            "abs": str(outside),
            "d/abs": str(root / "a"),
            "loop": "loop",
            "d/loop": "../loop",
            "gone": "nowhere",
            "x": "d/in/b",
            "root": ".",
        }.items():
            (root / name).symlink_to(target)
        yield workspace


def simply(root: Path, raw: str, *, links: bool) -> str | bytes:
    """Read the rules once more, slowly: the file's bytes or the code of the refusal."""
    path = unquote_to_bytes(raw.encode("utf-8", "surrogatepass"))
    try:
        text = path.decode()
    except UnicodeDecodeError:
        return "outside_root"
    if not text or "\0" in text or text.startswith("/"):
        return "outside_root"
    text = text.removesuffix("/")
    if any(c in {"", ".", ".."} for c in text.split("/")):
        return "outside_root"
    return resolved(root, text, links=links)


def resolved(root: Path, text: str, *, links: bool) -> str | bytes:
    """Follow a path by names alone."""
    if len(text.encode()) >= 4096:
        return "not_found"
    here: list[str] = []
    left, followed = text.split("/"), 0
    while left:
        name = left.pop(0)
        place = root.joinpath(*here)
        if not place.is_dir() or len(name.encode()) > 255:
            return "not_found"
        if name == "..":
            if not here:
                return "outside_root"
            here.pop()
        elif (place / name).is_symlink():
            followed += 1
            target = str((place / name).readlink())
            if not links or followed > MAX_LINKS or target.startswith("/"):
                return "outside_root" if links and followed <= MAX_LINKS else "symlink_refused"
            left = target.split("/") + left
        elif name not in {"", "."}:
            here.append(name)
    return contents(root.joinpath(*here))


def contents(place: Path) -> str | bytes:
    """Return what lies at the end of a path."""
    if not place.exists():
        return "not_found"
    return place.read_bytes() if place.is_file() else "not_a_regular_file"


pieces = st.sampled_from(
    [
        *NAMES,
        *map(quote, NAMES),
        "..",
        ".",
        "%2e%2e",
        "%2E.",
        "%2f",
        "/",
        "//",
        "%00",
        "%",
        "%zz",
        "%ff",
        "+",
        "\\",
        ";",
        "%252e",
        "~",
        "w",
        "n" * 256,
    ]
)
rests = st.one_of(
    st.lists(pieces, max_size=9).map("/".join),
    st.lists(pieces, max_size=9).map("".join),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=6).map("/".join),
    st.text(max_size=20),
)


@settings(max_examples=500, deadline=None)
@given(raw=rests, links=st.booleans())
@example(raw="d/" * 2047 + "dd", links=True)
@example(raw="root/" * 40 + "a", links=True)
@example(raw="root/" * 41 + "a", links=True)
@example(raw="in/in/../a", links=True)
@example(raw="a?" * 10, links=True)
def test_any_path_gives_what_the_rules_say_and_nothing_from_outside(
    workspace: Path, *, raw: str, links: bool
) -> None:
    """Both resolvers answer as the simple reading does, and no secret is ever in an answer."""
    expected = simply(workspace / "root", raw, links=links)
    tree = Tree(str(workspace), b"root/", Rules(links=links, mounts=False))
    for resolver in (Openat2(), Walk()):
        got: str | bytes
        try:
            got = read(resolver, tree, from_target(raw), 1000, Memory()).data
        except RefusedError as error:
            got = error.refusal.code
        assert got == expected
        assert got != SECRET


@pytest.mark.parametrize("resolver", [Openat2(), Walk()], ids=lambda r: str(r.name))
@pytest.mark.parametrize("links", [True, False])
def test_what_is_listed_is_what_can_be_read(
    workspace: Path, resolver: Openat2 | Walk, *, links: bool
) -> None:
    """Every entry can be requested under its path and gives the hash that was listed; no secret is among them."""
    tree = Tree(str(workspace), b"root", Rules(links=links, mounts=False))
    listed = entries(resolver, tree, Memory())
    assert listed
    for entry in listed:
        content = read(resolver, tree, from_target(quote(entry.path)), 1000, Memory())
        assert (content.sha256, len(content.data), content.mtime_ms) == (
            entry.sha256,
            entry.size_bytes,
            entry.mtime_ms,
        )
    assert SECRET_SHA not in {entry.sha256 for entry in listed}
    inside = {"a", "d/a", "d/d/b", "d/sub dir/ä"}
    assert {entry.path for entry in listed} == inside | ({"b", "d/x", "x"} if links else set())
