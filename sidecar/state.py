"""The state directory: the lock, `run.json`, `admin.token`. Standard library only: `sidecar health` imports it.

The directory is 0700 and belongs to the user that the daemon runs as. A daemon holds `lock` for its whole life, so
one state has one daemon, and everything else in here has one writer.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sidecar.errors import SidecarError
from sidecar.statefiles import OTHERS, as_who, make_private, reason, take_lock, write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

DATABASE: Final = "sidecar.db"
RUN: Final = "run.json"
ADMIN_TOKEN: Final = "admin.token"  # noqa: S105 - the name of a file
TOKEN_PREFIX: Final = "sc_adm_"  # noqa: S105 - makes a leaked token recognisable

_TOKEN_BYTES: Final = 32
_MADE: Final = re.compile(re.escape(TOKEN_PREFIX.encode()) + rb"[A-Za-z0-9_-]{43}\n")
"""What a token is that the sidecar made itself."""
_TOKEN_MIN_LENGTH: Final = 16
_MAX_FILE: Final = 64 * 1024
_START_TIME_FIELD: Final = 22


def default_state_dir(environ: Mapping[str, str], flag: str | None, configured: str | None = None) -> Path:
    """Return the state directory that is meant, absolute; it need not exist.

    The first that is set of: `flag` (`--state`), `SIDECAR_STATE`, `configured` (`state:`), `$STATE_DIRECTORY`
    (systemd; the first of a list), `$XDG_STATE_HOME/sidecar`, `~/.local/state/sidecar`.
    A relative `XDG_STATE_HOME` is ignored, as the XDG Base Directory Specification wants it.
    """
    systemd = environ.get("STATE_DIRECTORY", "").split(":")[0]
    for given in (flag, environ.get("SIDECAR_STATE"), configured, systemd):
        if given:
            return Path(os.path.abspath(os.path.expanduser(given)))  # noqa: PTH100, PTH111 - links stay, `..` goes
    base = environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):
        home = environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - Path.home raises where there is none
        if not home.startswith("/"):
            raise SidecarError(
                "there is no home directory to keep the state in: give --state or SIDECAR_STATE"
            )
        base = f"{home}/.local/state"
    return Path(base) / "sidecar"


@dataclass(frozen=True, slots=True)
class Run:
    """What `run.json` says of the running daemon.

    `start_time` is field 22 of `/proc/<pid>/stat` (clock ticks since boot), which tells a process from a later one
    with the same pid. `desk_url` is the base URL of the desk, `desk_fingerprint` the SHA-256 of its certificate in
    hex, None where it has none. `started_at` is in Unix seconds.
    """

    pid: int
    start_time: int
    desk_host: str
    desk_port: int
    desk_url: str
    version: str
    started_at: float
    desk_fingerprint: str | None = None

    @property
    def alive(self) -> bool:
        """Whether that very process still runs; a zombie does not.

        Of one that `/proc` hides, as in a service that is shown its own processes alone, only the pid is known.
        """
        start = process_start_time(self.pid)
        return start == self.start_time or (start is None and _is_hidden(self.pid))


def _is_hidden(pid: int) -> bool:
    if Path(f"/proc/{pid}").exists():
        return False
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return True


def process_start_time(pid: int) -> int | None:
    """Return field 22 of `/proc/<pid>/stat`, or None when no such process runs (a zombie does not run)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text.rpartition(b")")[2].split()  # the command's name may hold spaces and parentheses itself
    if len(fields) <= _START_TIME_FIELD - 3 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[_START_TIME_FIELD - 3])


def read_run(directory: str | Path) -> Run | None:
    """Return what `run.json` says, or None when no daemon is running and ready on that state.

    Raises SidecarError when the file cannot be read or is none of ours.
    """
    path = Path(directory) / RUN
    try:
        document = json.loads(path.read_bytes())
        desk = document["desk"]
        run = Run(
            pid=int(document["pid"]),
            start_time=int(document["start_time"]),
            desk_host=str(desk["host"]),
            desk_port=int(desk["port"]),
            desk_url=str(desk["url"]),
            version=str(document["version"]),
            started_at=float(document["started_at"]),
            desk_fingerprint=desk.get("certificate_sha256"),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise SidecarError(f"cannot read {path}: {reason(error)}{as_who(error)}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise SidecarError(
            f"{path} was not written by a sidecar: remove it and restart the sidecar"
        ) from error
    return run if run.alive else None


def read_admin_token(directory: str | Path) -> str:
    """Return the admin token kept in a state directory.

    Raises SidecarError when it is missing, not private to its owner, not a plain file, or no usable token.
    """
    path = Path(directory) / ADMIN_TOKEN
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise SidecarError(f"there is no {path}: start the sidecar once to make it") from None
    except OSError as error:
        if path.is_symlink():
            raise SidecarError(
                f"{path} is a link: put the file itself there, or remove it, and the sidecar makes a new one at its"
                " start"
            ) from error
        raise SidecarError(f"cannot read {path}: {reason(error)}{as_who(error)}") from error
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, so that what is checked is what is read
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise SidecarError(
                f"{path} is no plain file: remove it, and the sidecar makes a new one at its start"
            )
        if facts.st_mode & OTHERS:
            mode = stat.S_IMODE(facts.st_mode)
            raise SidecarError(
                f"{path} can be used by others (mode {mode:04o}): remove it, and the sidecar makes a new one at its"
                " start; if nobody else can have read it, chmod 600 it"
            )
        if os.geteuid() not in (0, facts.st_uid):
            raise SidecarError(f"{path} belongs to another user (uid {facts.st_uid}): remove it, or chown it")
        token = file.read(_MAX_FILE).strip()
    if len(token) < _TOKEN_MIN_LENGTH or not all(0x21 <= byte <= 0x7E for byte in token):  # noqa: PLR2004 - ASCII
        raise SidecarError(
            f"{path} holds no usable token (at least {_TOKEN_MIN_LENGTH} visible ASCII characters, no spaces):"
            " remove it, and the sidecar makes a new one at its start"
        )
    return token.decode("ascii")


def _is_spoilt(path: Path) -> bool:
    """Return whether a token that the sidecar made can be used by others by now.

    Not by anybody's mistake, necessarily: Kubernetes opens all files of a volume to its `fsGroup`. One that the operator
    brought is the operator's to replace.
    """
    facts = path.lstat()
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or not facts.st_mode & OTHERS:
        return False
    return _MADE.fullmatch(path.read_bytes()) is not None


class State:
    """An open state directory; whoever has one is the only daemon on it. Close it, or use it in a `with`.

    `renewed` says whether the admin token is a new one because others could use the one before.
    """

    def __init__(self, directory: Path, lock: int, admin_token: str, *, renewed: bool = False) -> None:
        self.directory = directory
        self.admin_token = admin_token
        self.renewed = renewed
        self._lock = lock

    @classmethod
    def open(cls, directory: str | Path) -> State:
        """Make the directory where it is missing, take its lock, and see to the admin token.

        Raises SidecarError when the directory belongs to another user, cannot be written, or has a daemon already.
        """
        path = Path(directory)
        make_private(path)
        lock = take_lock(path)
        try:
            (path / RUN).unlink(missing_ok=True)  # of a daemon that was killed: the lock says that it is gone
            there = os.path.lexists(path / ADMIN_TOKEN)
            renewed = there and _is_spoilt(path / ADMIN_TOKEN)
            if renewed or not there:
                secret = base64.urlsafe_b64encode(os.urandom(_TOKEN_BYTES)).rstrip(b"=")
                write_atomically(path / ADMIN_TOKEN, TOKEN_PREFIX.encode() + secret + b"\n")
            return cls(path, lock, read_admin_token(path), renewed=renewed)
        except OSError as error:
            os.close(lock)
            raise SidecarError(f"cannot write in the state directory {path}: {reason(error)}") from error
        except SidecarError:
            os.close(lock)
            raise

    @property
    def database(self) -> Path:
        """The database's file."""
        return self.directory / DATABASE

    def write_run(
        self, *, host: str, port: int, url: str, version: str, fingerprint: str | None = None
    ) -> None:
        """Say in `run.json` that this process is ready, and where its desk is; raise SidecarError when it cannot.

        `fingerprint` is the SHA-256 of the desk's certificate in hex: whoever reads it here need not trust another.
        """
        pid = os.getpid()
        certificate = {} if fingerprint is None else {"certificate_sha256": fingerprint}
        document: dict[str, Any] = {
            "pid": pid,
            "start_time": process_start_time(pid),
            "desk": {"host": host, "port": port, "url": url, **certificate},
            "version": version,
            "started_at": round(time.time(), 3),
        }
        path = self.directory / RUN
        try:
            write_atomically(path, json.dumps(document, indent=2).encode() + b"\n")
        except OSError as error:
            raise SidecarError(f"cannot write {path}: {reason(error)}") from error

    def close(self) -> None:
        """Remove `run.json` and let go of the lock; does nothing the second time."""
        if self._lock < 0:
            return
        try:
            (self.directory / RUN).unlink(missing_ok=True)
        except OSError:
            pass  # its reader sees by pid and start time that nobody runs here any more
        finally:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
