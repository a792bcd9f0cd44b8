"""Both resolvers on real trees: one table of rules."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.planes import beneath
from sidecar.planes.beneath import Openat2, Rules, Walk, detect
from tests.support.planes import RESOLVERS, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sidecar.planes.beneath import Resolver

FOLLOW = Rules(links=True, mounts=False)
STRICT = Rules(links=False, mounts=False)


@pytest.fixture(params=RESOLVERS)
def resolver(request: pytest.FixtureRequest) -> Resolver:
    """Each of the ways to open a path beneath a directory."""
    return RESOLVERS[request.param]()


def outcome(
    resolver: Resolver, root: Path | str, path: bytes, rules: Rules = FOLLOW, flags: int = 0
) -> str | int:
    """Return the inode that was reached, or the name of the error."""
    base = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        fd = resolver.open(base, path, rules, flags)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    finally:
        os.close(base)
    try:
        return os.fstat(fd).st_ino
    finally:
        os.close(fd)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with links of every kind, and a secret beside it."""
    root = tmp_path / "root"
    write(root / "file")
    write(root / "dir/sub/deep")
    write(tmp_path / "secret")
    for name, target in {
        "good": "file",
        "gooddir": "dir",
        "dir/sub/up": "../../file",
        "dir/back": "sub/../../dir/sub/deep",
        "twice": "gooddir/sub/up",
        "slash": "file/",
        "dirslash": "dir/",
        "dot": ".",
        "doubled": "dir//sub/./deep",
        "through-file": "file/../dir",
        "dangling": "nowhere",
        "out": "../secret",
        "sly": "dir/../../root/file",
        "outdir": "..",
        "absolute": str(root / "file"),
        "absolute-out": "/etc/passwd",
        "loop": "loop",
        "ping": "pong",
        "pong": "ping",
    }.items():
        (root / name).symlink_to(target)
    return root


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("file", "file"),
        ("dir/sub/deep", "dir/sub/deep"),
        ("good", "file"),
        ("gooddir/sub/deep", "dir/sub/deep"),
        ("dir/sub/up", "file"),
        ("dir/back", "dir/sub/deep"),
        ("twice", "file"),
        ("dirslash", "dir"),
        ("dirslash/sub", "dir/sub"),
        ("dot", "."),
        ("dot/dot/file", "file"),
        ("doubled", "dir/sub/deep"),
        (".", "."),
        ("dir/", "dir"),
        ("./dir//sub", "dir/sub"),
    ],
)
def test_links_that_stay_inside_are_followed(resolver: Resolver, root: Path, path: str, found: str) -> None:
    """A relative link is followed, its `..` included, as long as it never climbs over the base."""
    assert outcome(resolver, root, path.encode()) == (root / found).stat().st_ino


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("out", "EXDEV"),
        ("sly", "EXDEV"),
        ("outdir", "EXDEV"),
        ("outdir/root/file", "EXDEV"),
        ("absolute", "EXDEV"),
        ("absolute-out", "EXDEV"),
        ("/file", "EXDEV"),
        ("loop", "ELOOP"),
        ("ping", "ELOOP"),
        ("dangling", "ENOENT"),
        ("nothing", "ENOENT"),
        ("nothing/at/all", "ENOENT"),
        ("", "ENOENT"),
        ("file/child", "ENOTDIR"),
        ("file/", "ENOTDIR"),
        ("slash", "ENOTDIR"),
        ("through-file", "ENOTDIR"),
        ("good/x", "ENOTDIR"),
        ("n" * 256, "ENAMETOOLONG"),
        ("dir/" + "n" * 300 + "/x", "ENAMETOOLONG"),
        ("./" * 2048 + "file", "ENAMETOOLONG"),
    ],
)
def test_whatever_else_is_refused_with_its_error(
    resolver: Resolver, root: Path, path: str, error: str
) -> None:
    """Both resolvers say the same of every way that ends badly (H42, B39)."""
    assert outcome(resolver, root, path.encode()) == error


@pytest.mark.parametrize(
    "path", ["good", "gooddir/sub/deep", "out", "absolute", "dangling", "loop", "dir/sub/up"]
)
def test_without_links_every_link_is_refused(resolver: Resolver, root: Path, path: str) -> None:
    """Strict rules stop at the first link, wherever it leads."""
    assert outcome(resolver, root, path.encode(), STRICT) == "ELOOP"


def test_the_longest_path_still_resolves(resolver: Resolver, root: Path) -> None:
    """One byte less than PATH_MAX with its NUL is allowed."""
    path = b"./" * 2046 + b"dir"
    assert len(path) == beneath.PATH_MAX - 1
    assert outcome(resolver, root, path) == (root / "dir").stat().st_ino


def test_only_a_directory_satisfies_the_directory_flag(resolver: Resolver, root: Path) -> None:
    """A root must be a directory."""
    assert outcome(resolver, root, b"file", FOLLOW, os.O_DIRECTORY) == "ENOTDIR"
    assert outcome(resolver, root, b"good", FOLLOW, os.O_DIRECTORY) == "ENOTDIR"
    assert outcome(resolver, root, b"gooddir", FOLLOW, os.O_DIRECTORY) == (root / "dir").stat().st_ino


def test_forty_links_are_followed_and_no_more(resolver: Resolver, tmp_path: Path) -> None:
    """The walk counts as the kernel does."""
    write(tmp_path / "l0")
    for n in range(41):
        (tmp_path / f"l{n + 1}").symlink_to(f"l{n}")
    assert outcome(resolver, tmp_path, b"l40") == (tmp_path / "l0").stat().st_ino
    assert outcome(resolver, tmp_path, b"l41") == "ELOOP"


def test_a_hard_link_is_served(resolver: Resolver, root: Path) -> None:
    """A hard link cannot be told from its file: a row of the threat model (H42)."""
    (root / "hard").hardlink_to(root.parent / "secret")
    assert outcome(resolver, root, b"hard", STRICT) == (root.parent / "secret").stat().st_ino


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM, errno.EAGAIN])
def test_the_walk_takes_over_where_the_kernel_will_not(
    root: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old kernel, a sandbox, and a `..` that renames keep disturbing, all end in the walk (H42)."""
    asked = []

    def refusing() -> Callable[..., int]:
        def call(*arguments: object) -> int:
            asked.append(arguments)
            ctypes.set_errno(number)
            return -1

        return call

    monkeypatch.setattr(beneath, "_syscall", refusing)
    assert outcome(Openat2(), root, b"dir/sub/up") == (root / "file").stat().st_ino
    assert outcome(Openat2(), root, b"out") == "EXDEV"
    assert len(asked) == (16 if number == errno.EAGAIN else 2)
    assert detect().name == "walk"


def test_this_machine_has_openat2() -> None:
    """The kernel's resolver is chosen where it works (else these tests prove half of what they should)."""
    assert Openat2().works()
    assert detect().name == "openat2"


@pytest.mark.parametrize(
    "teller", [beneath.mount_by_statx(), beneath.mount_by_fdinfo, beneath.mount_by_device]
)
def test_each_way_to_tell_mounts_apart_sees_proc(teller: Callable[[int], object]) -> None:
    """Another file system is another mount by every measure."""
    one, two = os.open("/", os.O_PATH), os.open("/proc", os.O_PATH)
    try:
        assert teller(one) == teller(one) != teller(two)
    finally:
        os.close(one)
        os.close(two)


def test_a_mount_point_on_the_way_is_refused_unless_allowed(resolver: Resolver) -> None:
    """`/proc` beneath `/`, as every machine has it (H42)."""
    assert outcome(resolver, "/", b"proc/version") == "EXDEV"
    assert outcome(resolver, "/", b"proc", STRICT) == "EXDEV"
    assert (
        outcome(resolver, "/", b"proc/version", Rules(links=False, mounts=True))
        == Path("/proc/version").stat().st_ino
    )


def test_magic_links_lead_nowhere(resolver: Resolver) -> None:
    """What `/proc/self/root` points to is no path beneath anything."""
    rules = Rules(links=True, mounts=True)
    assert outcome(resolver, f"/proc/{os.getpid()}", b"root/etc/passwd", rules) in {"ELOOP", "EXDEV"}
    assert outcome(resolver, f"/proc/{os.getpid()}", b"fd/0", rules) in {"ELOOP", "EXDEV", "ENOENT"}


def test_a_walk_without_end_is_a_loop(tmp_path: Path) -> None:
    """Links that spend each other's steps are stopped, whatever they would lead to."""
    (tmp_path / "a").mkdir()
    (tmp_path / "l0").symlink_to("a/../" * 800 + "a")
    for n in range(1, 40):
        (tmp_path / f"l{n}").symlink_to(f"l{n - 1}/../" * 200 + "a")
    assert outcome(Walk(), tmp_path, b"l39") == "ELOOP"


NAMES = ("a", "b", "c")
targets = (
    st.lists(st.sampled_from([*NAMES, "..", ".", ""]), min_size=1, max_size=5).map("/".join).filter(bool)
)
nodes = st.one_of(st.just(None), st.just(b"data"), targets)
trees = st.dictionaries(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(tuple), nodes, max_size=9
)
requests = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5).map("/".join)


@pytest.fixture(scope="module")
def shed() -> Iterator[Path]:
    """A place for trees that come and go."""
    place = Path(tempfile.mkdtemp())
    yield place
    shutil.rmtree(place)


def plant(tree: dict[tuple[str, ...], bytes | str | None], root: Path) -> None:
    """Make a tree of directories (None), files (bytes) and links (text), shallow first; what has no place is left out."""
    for path, node in sorted(tree.items(), key=lambda item: len(item[0])):
        place = root.joinpath(*path)
        try:
            if node is None:
                place.mkdir()
            elif isinstance(node, bytes):
                place.write_bytes(node)
            else:
                place.symlink_to(node)
        except OSError:
            continue


@settings(max_examples=300, deadline=None)
@given(tree=trees, paths=st.lists(requests, min_size=1, max_size=8))
def test_both_resolvers_agree_on_every_tree(
    shed: Path, tree: dict[tuple[str, ...], bytes | str | None], paths: list[str]
) -> None:
    """Whatever directories, files and links are strewn about, the walk ends where the kernel does."""
    root = Path(tempfile.mkdtemp(dir=shed)) / "root"
    root.mkdir()
    plant(tree, root)
    kernel, walk = Openat2(), Walk()
    for path in paths:
        for rules in (FOLLOW, STRICT):
            assert outcome(walk, root, path.encode(), rules) == outcome(kernel, root, path.encode(), rules)
