"""A file system of our own, by the kernel's FUSE protocol (linux/fuse.h, version 7.31): shows a directory, read-only.

What changes in the directory shows through it without any inotify event, as with a network file system. Run as
`python -m tests.support.fuse DIRECTORY MOUNTPOINT`, as root; it prints `mounted`. Lines on standard input: `hang` has every
further request wait for ever, `go on` answers what waited. When standard input ends it ends, and with it every request.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import stat
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOOKUP, FORGET, GETATTR, READLINK, OPEN, READ = 1, 2, 3, 5, 14, 15
STATFS, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR = 17, 18, 25, 26, 27, 28, 29
ACCESS, INTERRUPT, DESTROY, BATCH_FORGET = 34, 36, 38, 42
SILENT: Final = frozenset({FORGET, BATCH_FORGET, INTERRUPT})
HEADER: Final = struct.Struct("<IIQQIIII")
ATTRIBUTES: Final = struct.Struct("<QQQQQQIIIIIIIIII")
DIRECT_IO: Final = 1
MNT_DETACH: Final = 2
REQUEST: Final = 1 << 18
PROJECT: Final = Path(__file__).parents[2]


class Shown:
    """The directory that is shown: answers one request at a time."""

    def __init__(self, directory: Path) -> None:
        self._paths = {0: directory, 1: directory}
        self._nodes = {directory: 1}
        self._answers: dict[int, Callable[[Path, bytes], bytes]] = {
            INIT: lambda _path, _body: struct.pack("<IIIIHHII36x", 7, 31, 0, 0, 16, 12, 4096, 1),
            LOOKUP: self._lookup,
            GETATTR: lambda path, _body: struct.pack("<QII", 0, 0, 0) + self._attributes(path),
            READLINK: lambda path, _body: os.fsencode(path.readlink()),
            OPEN: lambda path, _body: (path.stat(), struct.pack("<QII", 0, DIRECT_IO, 0))[1],
            OPENDIR: lambda path, _body: (path.stat(), struct.pack("<QII", 0, 0, 0))[1],
            READ: self._read,
            READDIR: self._list,
            STATFS: lambda _path, _body: bytes(40) + struct.pack("<III28x", 4096, 255, 4096),
            **dict.fromkeys((RELEASE, RELEASEDIR, FLUSH, ACCESS, DESTROY), lambda _path, _body: b""),
        }

    def answer(self, request: bytes) -> bytes | None:
        """Return what the kernel is to be told; None where it expects nothing."""
        _, code, unique, node, *_ = HEADER.unpack_from(request)
        if code in SILENT:
            return None
        if code not in self._answers:
            return struct.pack("<IiQ", 16, -errno.ENOSYS, unique)
        try:
            body = self._answers[code](self._paths[node], request[HEADER.size :])
            return struct.pack("<IiQ", 16 + len(body), 0, unique) + body
        except OSError as error:
            return struct.pack("<IiQ", 16, -(error.errno or errno.EIO), unique)

    def _lookup(self, directory: Path, body: bytes) -> bytes:
        path = directory / os.fsdecode(body.rstrip(b"\0"))
        attributes = self._attributes(path)
        node = self._nodes.setdefault(path, len(self._nodes) + 1)
        self._paths[node] = path
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + attributes

    def _attributes(self, path: Path) -> bytes:
        found = path.lstat()
        times = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
        return ATTRIBUTES.pack(
            found.st_ino,
            found.st_size,
            found.st_blocks,
            *(at // 10**9 for at in times),
            *(at % 10**9 for at in times),
            found.st_mode,
            found.st_nlink,
            found.st_uid,
            found.st_gid,
            0,
            4096,
            0,
        )

    def _read(self, path: Path, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def _list(self, path: Path, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        told = b""
        for number, entry in enumerate(sorted(os.scandir(path), key=lambda one: one.name), 1):
            if number <= offset:
                continue
            name = os.fsencode(entry.name)
            kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode) >> 12
            piece = struct.pack("<QQII", entry.inode(), number, len(name), kind) + name
            piece += b"\0" * (-len(piece) % 8)
            if len(told) + len(piece) > size:
                break
            told += piece
        return told


def serve(directory: Path, place: Path) -> None:
    """Mount, and answer until standard input ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    kernel = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={kernel},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"shown", os.fsencode(place), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    shown, hangs = Shown(directory), False
    waiting: list[bytes] = []

    def tell(request: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):  # whoever asked was interrupted
            if (answer := shown.answer(request)) is not None:
                os.write(kernel, answer)

    try:
        sys.stdout.write("mounting\n")
        sys.stdout.flush()
        while True:
            ready, _, _ = select.select([kernel, 0], [], [])
            if 0 in ready:
                order = os.read(0, 4096)
                if not order:
                    return
                hangs = order == b"hang\n"
                for request in () if hangs else waiting:
                    tell(request)
                waiting.clear()
            if kernel in ready:
                request = os.read(kernel, REQUEST)
                if hangs:
                    waiting.append(request)
                else:
                    tell(request)
    finally:
        libc.umount2(os.fsencode(place), MNT_DETACH)


class FileSystem:
    """One that is mounted."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def order(self, line: str) -> None:
        """Have it `hang`, or `go on`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()


@contextmanager
def mounted(directory: Path, place: Path) -> Iterator[FileSystem]:
    """Show a directory at another place while the block runs; in the end whatever still waits gets an error."""
    place.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.support.fuse", str(directory), str(place)]
    with subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"mounting\n"
            yield FileSystem(process)
        finally:
            process.stdin.close()
            process.wait(10)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]))
