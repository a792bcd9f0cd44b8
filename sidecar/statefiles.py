"""What the state directory is made of: a private directory, its lock, files that are seen whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from typing import TYPE_CHECKING, Final

from sidecar.errors import SidecarError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK: Final = "lock"
OTHERS: Final = 0o077
"""The permissions of everybody but the owner."""
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


def reason(error: OSError) -> str:
    """Return what the system says of an error, without the path."""
    return error.strerror or str(error)


def as_who(error: OSError) -> str:
    """Return what to add where it may help to be another user."""
    return "; run this as root, or as the sidecar's user" if isinstance(error, PermissionError) else ""


def _missing(path: Path) -> Iterator[Path]:
    """Yield the directories that must be made for a path to exist, the outermost first."""
    if not path.exists():
        yield from _missing(path.parent)
        yield path


def _nowhere(path: Path) -> tuple[Path, str] | None:
    """Return what of a path is a link that leads nowhere, itself or above, and where it leads."""
    for part in (path, *path.parents):
        if part.is_symlink() and not part.exists():
            return part, str(part.readlink())
    return None


def make_private(path: Path) -> None:
    """Make a directory where it is missing, and close it to others; raise SidecarError where that cannot be."""
    try:
        if (nowhere := _nowhere(path)) is not None:
            link, target = nowhere
            raise SidecarError(
                f"the state directory {path} cannot be made: {link} is a link to {target}, which is not there or"
                " leads back to the link; make what it leads to, or choose another directory by --state or SIDECAR_STATE"
            )
        for missing in list(_missing(path)):
            missing.mkdir(mode=0o700, exist_ok=True)
        facts = path.stat()
    except OSError as error:
        raise SidecarError(
            f"cannot make the state directory {path}: {reason(error)}; choose another by --state or SIDECAR_STATE"
        ) from error
    if not stat.S_ISDIR(facts.st_mode):
        raise SidecarError(
            f"the state directory {path} is no directory; choose another by --state or SIDECAR_STATE"
        )
    if facts.st_uid != os.geteuid():
        inside = (
            f", such as {path}/sidecar," if os.access(path, os.W_OK | os.X_OK, effective_ids=True) else ""
        )
        raise SidecarError(
            f"the state directory {path} belongs to another user (uid {facts.st_uid}, this is uid {os.geteuid()}):"
            f" chown it, or choose one of your own{inside} by --state or SIDECAR_STATE"
        )
    if facts.st_mode & OTHERS:
        try:
            path.chmod(0o700)
        except OSError as error:
            raise SidecarError(
                f"the state directory {path} is open to others (mode {stat.S_IMODE(facts.st_mode):04o})"
                f" and cannot be closed: {reason(error)}"
            ) from error


def take_lock(directory: Path) -> int:
    """Return the descriptor that holds a directory's lock; raise SidecarError where it cannot be had."""
    path = directory / LOCK
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if path.is_symlink():
            raise SidecarError(f"{path} is a link, which a lock must not be: remove it") from error
        raise SidecarError(f"cannot write in the state directory {directory}: {reason(error)}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).strip().decode("ascii", "replace")
        os.close(lock)
        who = f"the sidecar with pid {holder}" if holder.isdigit() else "another sidecar"
        raise SidecarError(
            f"the state in {directory} is in use by {who}: stop it first, or give this one another --state"
        ) from None
    except OSError as error:
        os.close(lock)
        if error.errno in _NO_LOCKS:
            raise SidecarError(
                f"the file system of the state directory {directory} has no locks ({reason(error)}):"
                " choose a local one by --state or SIDECAR_STATE"
            ) from error
        raise SidecarError(f"cannot write in the state directory {directory}: {reason(error)}") from error
    return lock


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file, 0600 from its first instant, that is seen whole or not at all. The caller holds the lock."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, opened with a mode that no umask widens
            os.fchmod(descriptor, 0o600)  # nor narrows
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
