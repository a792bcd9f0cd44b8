"""The quick way for small files: only what is cached, local and plain; everything else is for the pool."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
from contextlib import suppress
from pathlib import Path

import pytest

from sidecar.errors import RefusedError
from sidecar.model import Containment
from sidecar.planes.beneath import Openat2, Rules
from sidecar.planes.cached import MOST, TRUSTED_FOR, Cached
from sidecar.planes.memory import Memory
from sidecar.planes.reading import Content, Tree, read
from sidecar.planes.routes import Planes
from tests.support.planes import SECRET, ask, capsule, header, told, write
from tests.support.waiting import until_sync

FILES = "/resources/files"
SIZE = 8192


class Clock:
    """A clock that the test sets, in seconds."""

    now = 1_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of the quick way."""
    return Clock()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A root in a workspace, with a secret beside it; skipped where the file system is not of the kind."""
    write(tmp_path / "w/out/plain", b"plain")
    write(tmp_path / "w/secret", SECRET)
    tree = Tree(str(tmp_path / "w"), b"out", Rules(links=True, mounts=False))
    if by_both(Cached(), tree, b"plain") is None:
        pytest.skip("the quick way needs Linux 5.12, and ext4 or xfs below the directory for tests")
    return tree


def by_both(cached: Cached, tree: Tree, path: bytes, max_bytes: int = 1 << 20) -> Content | None:
    """Read by the pool's way and then by the quick one, which must not differ; return what that gave."""
    slow: object = None
    with suppress(RefusedError):
        slow = read(Openat2(), tree, path, max_bytes, Memory(), cached.learn)
    quick = cached.read(tree, path, max_bytes)
    assert quick is None or quick == slow
    return quick


def test_a_small_file_is_read_without_a_thread(tree: Tree, tmp_path: Path) -> None:
    """Bytes, hash and time are those of the pool's way, of a file of any size up to the limit."""
    cached = Cached()
    for size in (0, 1, 4096, MOST):
        data = os.urandom(size)
        place = write(tmp_path / f"w/out/d/f{size}", data)
        content = by_both(cached, tree, f"d/f{size}".encode())
        mtime_ms = place.stat().st_mtime_ns // 1_000_000
        assert content == Content(data, hashlib.sha256(data).hexdigest(), mtime_ms)
    write(tmp_path / "w/out/big", b"b" * (MOST + 1))
    assert by_both(cached, tree, b"big") is None
    assert by_both(cached, tree, b"d/f4096", max_bytes=4096) is not None
    assert by_both(cached, tree, b"d/f4096", max_bytes=4095) is None


def test_links_and_special_files_are_left_to_the_pool(tree: Tree, tmp_path: Path) -> None:
    """Whatever is no regular file reached by directories alone; none of it is opened, nothing outside is seen."""
    out = tmp_path / "w/out"
    (out / "inside").symlink_to("plain")
    (out / "away").symlink_to("../secret")
    (out / "far").symlink_to(tmp_path / "w/secret")
    (out / "up").symlink_to("..")
    (out / "dir").mkdir()
    os.mkfifo(out / "fifo")
    cached = Cached()
    assert by_both(cached, tree, b"plain") is not None
    for path in (
        b"inside",
        b"away",
        b"far",
        b"up/secret",
        b"up/out/plain",
        b"dir",
        b"fifo",
        b"nothing",
        b"plain/x",
    ):
        assert by_both(cached, tree, path) is None
    assert by_both(cached, Tree(tree.workspace, b"out/up/out", tree.rules), b"plain") is None
    assert by_both(cached, Tree(tree.workspace, b"a\0b", tree.rules), b"plain") is None


def test_what_changed_is_seen_at_once(tree: Tree, tmp_path: Path) -> None:
    """Nothing of a file is remembered: written anew, replaced, turned into a link, its directory swapped."""
    out = tmp_path / "w/out"
    cached = Cached()
    assert by_both(cached, tree, b"plain") is not None
    for n in range(3):
        write(out / "plain", b"%d" % n)
        content = cached.read(tree, b"plain", 100)
        assert content is not None
        assert content.data == b"%d" % n
    (out / "link").symlink_to("../secret")
    (out / "link").rename(out / "plain")
    assert cached.read(tree, b"plain", 100) is None
    out.rename(tmp_path / "w/gone")
    (tmp_path / "w/out").symlink_to(".")
    assert cached.read(tree, b"secret", 100) is None


def test_what_a_thread_saw_is_relied_on_for_a_while(tree: Tree, clock: Clock) -> None:
    """Then a thread looks again; a tree of which no file was read yet is never read here."""
    cached = Cached(clock)
    assert cached.read(tree, b"plain", 100) is None
    assert by_both(cached, tree, b"plain") is not None
    clock.now += TRUSTED_FOR
    assert cached.read(tree, b"plain", 100) is None
    assert by_both(cached, tree, b"plain") is not None


@pytest.mark.parametrize("place", ["/dev/shm", "/proc/self", "/sys/kernel"])
def test_only_local_file_systems_are_read_here(place: str) -> None:
    """Opening a file elsewhere may ask a server, however much of it is cached."""
    if not Path(place).is_dir():
        pytest.skip(f"there is no {place}")
    cached = Cached()
    tree = Tree(place, b".", Rules(links=True, mounts=False))
    with Path("/proc/self/status").open("rb") as file:
        cached.learn(tree, file.fileno())
    directory = os.open(place, os.O_RDONLY)
    cached.learn(tree, directory)
    os.close(directory)
    assert not cached._places  # noqa: SLF001 -- it can be seen nowhere else


def test_bytes_that_are_not_in_memory_are_left_to_the_pool(tree: Tree, tmp_path: Path) -> None:
    """The event loop never waits for a disk."""
    cached = Cached()
    assert by_both(cached, tree, b"plain") is not None
    place = write(tmp_path / "w/out/cold", b"c" * SIZE)
    with place.open("rb") as file:
        try:
            until_sync(lambda: forgotten(file.fileno()), within=10.0)
        except AssertionError:
            pytest.skip("the kernel keeps the bytes")

        def left() -> bool:
            # a disk that is memory itself may have them there before the kernel can say that they are not
            assert by_both(cached, tree, b"plain") is not None  # where it is is known
            return forgotten(file.fileno()) and cached.read(tree, b"cold", 10_000) is None

        until_sync(left, within=10.0)
    assert by_both(cached, tree, b"cold") is not None


def forgotten(fd: int) -> bool:
    """Have the kernel drop the bytes of a file from its cache; whether it has, asked without reading any."""
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    pages = (ctypes.c_ubyte * (-(-SIZE // mmap.PAGESIZE)))()
    length = ctypes.c_size_t(SIZE)
    place = ctypes.c_void_p(libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0)))
    try:
        assert libc.mincore(place, length, pages) == 0
    finally:
        libc.munmap(place, length)
    return not any(page & 1 for page in pages)


def test_a_kernel_without_the_calls_is_asked_once(tree: Tree) -> None:
    """From then on all goes to the pool."""
    cached = Cached()
    assert by_both(cached, tree, b"plain") is not None
    cached._how.resolve |= 1 << 40  # noqa: SLF001 -- a rule that no kernel knows
    assert cached.read(tree, b"plain", 100) is None
    cached._how.resolve &= ~(1 << 40)  # noqa: SLF001 -- as before
    assert by_both(cached, tree, b"plain") is None


async def test_both_ways_give_one_answer(tree: Tree, tmp_path: Path) -> None:
    """Headers, conditions and refusals do not show which way a file was read."""
    planes = Planes()
    for containment in Containment:
        served = capsule(tmp_path / "w", containment=containment)
        answers = [await ask(planes, served, f"{FILES}/plain") for _ in range(3)]
        assert [(a.status, a.body, a.headers) for a in answers] == [(200, b"plain", answers[0].headers)] * 3
        etag = header(answers[0], "etag") or ""
        assert (await ask(planes, served, f"{FILES}/plain", headers={"if-none-match": etag})).status == 304
        assert told(await ask(planes, served, f"{FILES}/../secret")) == (403, "outside_root")
        assert told(await ask(planes, served, f"{FILES}/nothing")) == (404, "not_found")
    assert await planes.aclose() == 0
