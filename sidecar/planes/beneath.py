"""Opening a path beneath a directory in one step: by `openat2`, or component by component where it is missing.

Both resolvers keep one table of rules, spoken in error numbers:

- an absolute link, a `..` of a link that climbs over the base, a mount point (unless allowed): EXDEV
- any link where links are refused, more than 40 links, a walk that does not end: ELOOP
- nothing there, a component that is no directory, a name or path too long: ENOENT, ENOTDIR, ENAMETOOLONG

The path given is relative and already free of `..` (paths.py); the targets of links are not.
A hard link cannot be told from the file it shares, and is served.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

PATH_MAX: Final = 4096
"""Bytes of a path with its final NUL; longer ones are ENAMETOOLONG in the kernel, hence in the walk."""

_MAX_LINKS: Final = 40
_MAX_STEPS: Final = 20_000
_MAX_TRIES: Final = 8
_SYS_OPENAT2: Final = 437
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_LOOK: Final = os.O_PATH | os.O_CLOEXEC


class Rules(NamedTuple):
    """What may lie on the way: `links` that stay beneath the base, and `mounts` (mount points).

    A tuple, because it is hashed at every open.
    """

    links: bool
    mounts: bool


class Resolver(Protocol):
    """One way to open a path beneath a directory, so that nothing outside is ever reached, whatever races."""

    @property
    def name(self) -> str:
        """What it is called in messages: `openat2` or `walk`."""

    def open(self, base: int, path: bytes, rules: Rules, flags: int = 0) -> int:
        """Return an O_PATH descriptor of what `path` names beneath the directory `base`.

        `flags` may be O_DIRECTORY. Nothing is opened for reading, so that a FIFO or a device sees nothing.
        Raises OSError with the error numbers of the module's table, or with what the file system says.
        """


def _refuse(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))


class _How(ctypes.Structure):
    """`struct open_how` of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _syscall() -> Callable[..., int]:
    call: Any = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    result: Callable[..., int] = call
    return result


class Openat2:
    """The kernel's own resolver (Linux 5.6 and later; openat2(2)).

    Where a sandbox refuses the call, and where renames keep disturbing a `..` (EAGAIN), the walk takes over.
    """

    name = "openat2"

    def __init__(self) -> None:
        self._call = _syscall()
        self._size = ctypes.sizeof(_How)
        self._hows: dict[tuple[int, Rules], _How] = {}
        self._walk = Walk()

    def open(self, base: int, path: bytes, rules: Rules, flags: int = 0) -> int:
        """Open beneath `base`; see Resolver."""
        how = self._hows.get((flags, rules)) or self._how(flags, rules)
        for _ in range(_MAX_TRIES):
            fd = self._call(_SYS_OPENAT2, base, path, ctypes.addressof(how), self._size)
            if fd >= 0:
                return fd
            number = ctypes.get_errno()
            if number in (errno.ENOSYS, errno.EPERM):
                break
            if number not in (errno.EAGAIN, errno.EINTR):
                _refuse(number)
        return self._walk.open(base, path, rules, flags)

    def works(self) -> bool:
        """Whether this kernel, and the sandbox around us, know the call with every rule we use."""
        how = self._how(os.O_DIRECTORY, Rules(links=False, mounts=False))
        fd = self._call(_SYS_OPENAT2, -100, b"/", ctypes.addressof(how), self._size)
        if fd >= 0:
            os.close(fd)
            return True
        # An absolute path beneath the working directory: a kernel that checks says EXDEV.
        return ctypes.get_errno() == errno.EXDEV

    def _how(self, flags: int, rules: Rules) -> _How:
        resolve = _BENEATH | _NO_MAGICLINKS
        resolve |= 0 if rules.links else _NO_SYMLINKS
        resolve |= 0 if rules.mounts else _NO_XDEV
        return self._hows.setdefault((flags, rules), _How(_LOOK | flags, 0, resolve))


class Walk:
    """Component by component, each opened without following links; links are read and followed here.

    It holds one descriptor at a time. A `..` in a link's target starts again from the base with one name less,
    so that nothing which was moved away meanwhile is ever climbed out of.
    """

    name = "walk"

    def __init__(self, mount_of: Callable[[int], Hashable] | None = None) -> None:
        self._mount_of = mount_of or mount_teller()

    def open(self, base: int, path: bytes, rules: Rules, flags: int = 0) -> int:
        """Open beneath `base`; see Resolver."""
        if not path:
            _refuse(errno.ENOENT)
        if len(path) >= PATH_MAX:
            _refuse(errno.ENAMETOOLONG)
        steps = _Steps(base, path, rules, self._mount_of)
        try:
            steps.run()
            if flags & os.O_DIRECTORY and not steps.folder:
                _refuse(errno.ENOTDIR)
        except BaseException:  # whatever it was, the descriptor goes with it
            os.close(steps.current)
            raise
        return steps.current


class _Steps:
    """The state of one walk: `current` is where it stands, and the caller's to close."""

    def __init__(self, base: int, path: bytes, rules: Rules, mount_of: Callable[[int], Hashable]) -> None:
        self._base = base
        self._rules = rules
        self._mount_of = mount_of
        self._home = None if rules.mounts else mount_of(base)
        self._pending: list[bytes] = []
        self._names: list[bytes] = []
        self._links = 0
        self._add(path)
        self.current = os.dup(base)
        self.folder = True

    def run(self) -> None:
        """Walk to the end. Raises OSError."""
        for _ in range(_MAX_STEPS):
            if not self._pending:
                return
            if not self.folder:
                _refuse(errno.ENOTDIR)
            name = self._pending.pop()
            if name == b"..":
                self._up()
            elif name not in {b"", b"."}:
                self._down(name)
        _refuse(errno.ELOOP)

    def _add(self, path: bytes) -> None:
        """Put a path before what is still to be walked; an absolute one lies outside."""
        if path.startswith(b"/"):
            _refuse(errno.EXDEV)
        self._pending += path.split(b"/")[::-1]

    def _up(self) -> None:
        if not self._names:
            _refuse(errno.EXDEV)
        self._pending += self._names[-2::-1]
        self._names.clear()
        self._stand_on(os.dup(self._base))

    def _down(self, name: bytes) -> None:
        child = os.open(name, _LOOK | os.O_NOFOLLOW, dir_fd=self.current)
        try:
            if self._home is not None and self._mount_of(child) != self._home:
                _refuse(errno.EXDEV)
            mode = os.fstat(child).st_mode
            if stat.S_ISLNK(mode):
                self._links += 1
                if not self._rules.links or self._links > _MAX_LINKS:
                    _refuse(errno.ELOOP)
                self._add(os.readlink(b"", dir_fd=child))
        except BaseException:  # as above
            os.close(child)
            raise
        if stat.S_ISLNK(mode):
            os.close(child)
            return
        self._stand_on(child)
        self.folder = stat.S_ISDIR(mode)
        self._names.append(name)

    def _stand_on(self, fd: int) -> None:
        os.close(self.current)
        self.current = fd


class _Statx(ctypes.Structure):
    """The head of `struct statx` as far as the mount id; 256 bytes in all (statx(2))."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("facts", ctypes.c_uint8 * 140),
        ("mount", ctypes.c_uint64),
        ("rest", ctypes.c_uint8 * 104),
    )


def mount_by_statx() -> Callable[[int], Hashable] | None:
    """Return a function from descriptor to mount id by statx(2), or None where that cannot tell (before 5.8)."""
    try:
        call: Any = ctypes.CDLL(None, use_errno=True).statx
    except AttributeError:
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
    empty_path, dont_sync, mount_id = 0x1000, 0x4000, 0x1000

    def mount_of(fd: int) -> Hashable:
        found = _Statx()
        if call(fd, b"", empty_path | dont_sync, mount_id, ctypes.addressof(found)):
            _refuse(ctypes.get_errno())
        if not found.mask & mount_id:
            _refuse(errno.ENOSYS)
        return int(found.mount)

    root = os.open("/", _LOOK)
    try:
        mount_of(root)
    except OSError:
        return None
    else:
        return mount_of
    finally:
        os.close(root)


def mount_by_fdinfo(fd: int) -> Hashable:
    """Return the mount id of a descriptor as `/proc` tells it (proc_pid_fdinfo(5))."""
    with open(f"/proc/self/fdinfo/{fd}", "rb", buffering=0) as info:  # noqa: PTH123 -- a Path costs more than the read
        _, _, rest = info.read(512).partition(b"mnt_id:")
    return int(rest.split(maxsplit=1)[0])


def mount_by_device(fd: int) -> Hashable:
    """Return the device of a descriptor: it cannot tell a bind mount of the same file system."""
    return os.fstat(fd).st_dev


def mount_teller() -> Callable[[int], Hashable]:
    """Return the sharpest way this machine has to tell mounts apart."""
    by_statx = mount_by_statx()
    if by_statx is not None:
        return by_statx
    root = os.open("/", _LOOK)
    try:
        mount_by_fdinfo(root)
    except (OSError, ValueError, IndexError):
        return mount_by_device
    else:
        return mount_by_fdinfo
    finally:
        os.close(root)


def detect() -> Resolver:
    """Return the resolver for this machine: `openat2` where kernel and sandbox allow it, else the walk."""
    kernel = Openat2()
    return kernel if kernel.works() else Walk()
