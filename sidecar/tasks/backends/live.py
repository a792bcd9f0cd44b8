"""Live capsules of the murmur runtime on this host, by the records that it keeps (murmur reference, Live capsules)."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import structlog

from sidecar.config.hosts import is_loopback
from sidecar.state import process_start_time

RUNNING: Final = Path(".murmur") / "running"
"""Where the records are, below the home directory."""

_SUFFIX: Final = ".json"
_MOST: Final = 64 * 1024
_MOST_RECORDS: Final = 10_000
_HIGHEST_PORT: Final = 65535
_PLACES: Final = frozenset({"workdir", ".murmur"})
_OTHERS_WRITE: Final = 0o022

log = structlog.get_logger()


class RecordError(Exception):
    """A file that is no record; the text says what is wrong, and repeats nothing that stands in it."""


@dataclass(frozen=True, slots=True)
class Record:
    """What the runtime says of one capsule that it runs: its nine required members, and never a secret."""

    session_id: str
    url: str
    pid: int
    process_start: int
    capsule_name: str
    capsule_version: str
    workdir: str
    outlives_launcher: bool
    started_at: str

    @property
    def alive(self) -> bool:
        """Whether the very process still runs: pid and start time match, and it is no zombie."""
        return self.pid > 0 and process_start_time(self.pid) == self.process_start

    @property
    def directory(self) -> str | None:
        """The directory of the manifest that it belongs to; None where its workdir follows no known layout."""
        holder, _, _ = self.workdir.rstrip("/").rpartition("/")
        directory, _, place = holder.rpartition("/")
        return directory or "/" if place in _PLACES else None


_TYPES: Final[dict[str, type]] = {
    "session_id": str,
    "url": str,
    "pid": int,
    "process_start": int,
    "capsule_name": str,
    "capsule_version": str,
    "workdir": str,
    "outlives_launcher": bool,
}


def read_record(data: bytes, *, session_id: str) -> Record:
    """Read the record of a session. Whatever else stands in it is dropped: it may be a secret. Raises RecordError."""
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise RecordError("it is not JSON") from None
    if type(document) is not dict:
        raise RecordError("it is not a JSON object")
    missing = [key for key in (*_TYPES, "started_at") if document.get(key) is None]
    if missing:
        raise RecordError(f"it lacks {', '.join(missing)}")
    if document["session_id"] != session_id:
        raise RecordError("it is of another session than its name says")
    wrong = [key for key, kind in _TYPES.items() if type(document[key]) is not kind]
    if wrong:
        raise RecordError(f"{', '.join(wrong)}: not of the right type")
    kept: dict[str, Any] = {key: document[key] for key in _TYPES}
    url = _checked_url(kept.pop("url"))
    return Record(url=url, started_at=_ordered(document["started_at"]), **kept)


def _checked_url(text: str) -> str:
    """Return `http://host:port` of a record's `host:port`; it must be this machine. Raises RecordError."""
    try:
        parts = urlsplit(f"//{text}")
        port, host = parts.port, parts.hostname
    except ValueError:
        raise RecordError("its url is no host:port") from None
    if not host or not port or parts.netloc != text or parts.username is not None or port > _HIGHEST_PORT:
        raise RecordError("its url is no host:port")
    if not is_loopback(host):
        raise RecordError("its url is not an address of this machine")
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _ordered(started_at: object) -> str:
    """Return a text that sorts by time, for the newest of several."""
    if type(started_at) in (int, float):
        return f"{started_at:032.6f}"
    if type(started_at) is not str:
        raise RecordError("started_at: not of the right type")
    return started_at


class Records:
    """Looks for the live capsules of one home directory; what cannot be read is warned about once."""

    def __init__(self, home: Path) -> None:
        self._place = home / RUNNING
        self._warned: set[str] = set()

    def alive(self) -> tuple[Record, ...]:
        """Return the records whose process lives, the newest first. Reads files; changes none."""
        found = []
        names = self._names()
        self._warned.intersection_update(names)
        for name in names:
            try:
                record = read_record(_read(self._place / name), session_id=name.removesuffix(_SUFFIX))
            except FileNotFoundError:
                continue
            except (OSError, RecordError) as error:
                self._warn(name, error)
                continue
            self._warned.discard(name)
            if record.alive:
                found.append(record)
        return tuple(sorted(found, key=lambda record: record.started_at, reverse=True))

    def belonging_to(self, directory: str) -> tuple[Record, ...]:
        """Return the live records of the manifest in a directory, the newest first."""
        real = os.path.realpath(directory)
        return tuple(
            record
            for record in self.alive()
            if record.directory is not None and os.path.realpath(record.directory) == real
        )

    def _names(self) -> list[str]:
        try:
            with os.scandir(self._place) as entries:
                names = [e.name for _, e in zip(range(_MOST_RECORDS), entries, strict=False)]
        except OSError:
            return []
        return sorted(name for name in names if name.endswith(_SUFFIX))

    def _warn(self, name: str, error: Exception) -> None:
        if name in self._warned:
            return
        self._warned.add(name)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        log.warning("live_record_unreadable", record=name, reason=reason)


def _read(path: Path) -> bytes:
    """Return the bytes of a record, without waiting for anybody. Raises OSError, RecordError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise RecordError("it is no plain file")
        if facts.st_mode & _OTHERS_WRITE:
            raise RecordError("others may write to it")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(_MOST + 1)
    finally:
        os.close(descriptor)
    if len(data) > _MOST:
        raise RecordError(f"it is over {_MOST} bytes")
    return data
