"""Another hostile neighbour: gives the names of an export another kind all the time, or mounts things over them.

Run as a program: the root, and `kinds` or `mounts`; until its standard input is closed. It holds the root open and
works from there, so that others may rename the root meanwhile. `mounts` needs a mount namespace of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import sys
from itertools import cycle
from pathlib import Path

NAMES = ("k0", "k1", "k2", "k3")
MS_BIND, MNT_DETACH = 4096, 2


def told_to_stop() -> bool:
    """Whether standard input is closed."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def file(fd: int, name: str) -> None:
    """Make a regular file."""
    with os.fdopen(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, dir_fd=fd), "wb") as made:
        made.write(b"inside")


def hard(fd: int, name: str) -> None:
    """Make a hard link to a file outside that may be linked."""
    os.link("../outside/hard", name, src_dir_fd=fd, dst_dir_fd=fd)


def fifo(fd: int, name: str) -> None:
    """Make a FIFO, which blocks whoever opens it."""
    os.mkfifo(name, dir_fd=fd)


def link(fd: int, name: str) -> None:
    """Make a link out."""
    os.symlink("../outside/f", name, dir_fd=fd)


def away(fd: int, name: str) -> None:
    """Make a link to a directory outside."""
    os.symlink("../outside", name, dir_fd=fd)


def directory(fd: int, name: str) -> None:
    """Make a directory with a link in it that leads out by two ups."""
    os.mkdir(name, dir_fd=fd)
    os.symlink("../../outside/f", f"{name}/f", dir_fd=fd)


def empty(fd: int, name: str) -> None:
    """Remove whatever has the name."""
    with contextlib.suppress(OSError):
        os.unlink(f"{name}/f", dir_fd=fd)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=fd)
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=fd)


def swap_kinds(fd: int) -> None:
    """Give each name the next kind, now by way of nothing, now by a rename over it."""
    kinds = cycle((file, link, hard, fifo, directory, file, away))
    aside = f"aside-{os.getpid()}"
    while not told_to_stop():
        for name in NAMES:
            with contextlib.suppress(OSError):
                next(kinds)(fd, aside)
                try:
                    os.rename(aside, name, src_dir_fd=fd, dst_dir_fd=fd)
                except OSError:
                    empty(fd, name)
                    os.rename(aside, name, src_dir_fd=fd, dst_dir_fd=fd)
            empty(fd, aside)


def swap_mounts(fd: int) -> None:
    """Mount what is outside over a directory and a file, and take it away again."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.mkdir("mnt", dir_fd=fd)
    file(fd, "mfile")
    outside = os.open("../outside", os.O_PATH, dir_fd=fd)
    pairs = [
        (f"/proc/self/fd/{outside}", f"/proc/self/fd/{fd}/mnt"),
        (f"/proc/self/fd/{outside}/f", f"/proc/self/fd/{fd}/mfile"),
    ]
    while not told_to_stop():
        for source, target in pairs:
            if libc.mount(source.encode(), target.encode(), None, MS_BIND, None):
                raise OSError(ctypes.get_errno(), "mount", target)
        for _, target in pairs:
            libc.umount2(target.encode(), MNT_DETACH)


def opened(root: Path) -> int:
    """Open the root, which others may be swapping already."""
    while True:
        try:
            return os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            if told_to_stop():
                raise


def main(root: Path, what: str) -> None:
    """Do it."""
    fd = opened(root)
    (swap_kinds if what == "kinds" else swap_mounts)(fd)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
