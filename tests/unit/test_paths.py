"""The rules of a path, before anything is opened."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.errors import RefusedError
from sidecar.planes.paths import checked, from_target

BAD = [
    "",
    "/",
    "/etc/passwd",
    "//etc/passwd",
    "%2Fetc/passwd",
    "..",
    ".",
    "../secret.txt",
    "%2e%2e%2fsecret.txt",
    "%2E%2E/secret.txt",
    ".%2e/secret.txt",
    "out/../../secret.txt",
    "a/..",
    "a/./b",
    "a//b",
    "a//",
    "a%2F%2Fb",
    "a%00b",
    "%00",
    "a\0b",
    "%ff",
    "a/%c3%28",
    "%ed%a0%80",
    "\ud800",
    "\udcff",
    "../workspace-secret/s",
]


@pytest.mark.parametrize("raw", BAD)
def test_a_badly_shaped_path_is_outside_the_root(raw: str) -> None:
    """Every bad shape is refused alike, before any file is touched (also B40, B43)."""
    with pytest.raises(RefusedError) as caught:
        from_target(raw)
    assert (caught.value.refusal.status, caught.value.refusal.code) == (403, "outside_root")


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("report.md", b"report.md"),
        ("sub%20dir/report.md", b"sub dir/report.md"),
        ("a%2Fb", b"a/b"),
        ("a+b", b"a+b"),
        ("100%", b"100%"),
        ("a%zz", b"a%zz"),
        ("a%2", b"a%2"),
        ("%252e%252e/x", b"%2e%2e/x"),
        ("%25%32%65", b"%2e"),
        ("dir/", b"dir"),
        ("dir%2f", b"dir"),
        ("...", b"..."),
        ("..a/.b", b"..a/.b"),
        ("a\\..\\b", b"a\\..\\b"),
        ("%C3%A4", "ä".encode()),
        ("a#b", b"a#b"),
    ],
)
def test_a_path_is_decoded_once(raw: str, path: bytes) -> None:
    """One percent-decoding, no plus sign, one trailing slash dropped."""
    assert from_target(raw) == path


@given(
    st.text(max_size=40)
    | st.lists(st.sampled_from(["a", "..", ".", "%2e", "%2f", "/", "%00", "%", "%c3"])).map("".join)
)
def test_whatever_is_let_through_names_something_beneath(raw: str) -> None:
    """A path that is let through is relative UTF-8 without empty or dot components."""
    try:
        path = from_target(raw)
    except RefusedError:
        return
    path.decode()
    assert b"\0" not in path
    assert not {b"", b".", b".."} & set(path.split(b"/"))


names = st.text(min_size=1, max_size=8).filter(lambda n: not set("/\0") & set(n) and n not in {".", ".."})


@given(st.lists(names.filter(lambda n: n.isprintable() or n.isascii()), min_size=1, max_size=5))
def test_every_utf8_name_can_be_requested(components: list[str]) -> None:
    """Quoting and reading give the same path back."""
    path = "/".join(components)
    assert from_target(quote(path)) == path.encode()
    assert checked(path.encode()) == path.encode()
