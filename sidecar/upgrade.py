"""What is done to a database before it is used: checked, filled where it is new, brought up to date where it is old."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from typing import Final

import structlog

from sidecar.errors import StoreCorruptError, StoreError
from sidecar.schema import SCHEMA, SCHEMA_VERSION, UPGRADES

_CHECKED_BYTES: Final = 256 * 1024 * 1024
_PRIMARY_CODE: Final = 0xFF
_MIB: Final = 1024 * 1024


def prepare(connection: sqlite3.Connection, path: str, *, made: bool) -> None:
    """Check a database that exists and bring it up to date, fill a new one with the schema.

    Before it is brought up to date a whole copy of it is kept, see `copy_of`. Either all of the steps to this version
    are taken or none. Raises StoreCorruptError; StoreError where it is another program's or a newer sidecar's, or the
    copy cannot be made; sqlite3.Error.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if version > SCHEMA_VERSION:
        kept = copy_of(path, SCHEMA_VERSION)
        earlier = f" ({kept} is what the last one that did left)" if os.path.exists(kept) else ""  # noqa: PTH110 - bytes of any name
        raise StoreError(
            f"{path} was written by a newer sidecar (schema {version}, this one knows {SCHEMA_VERSION}{earlier}): "
            "run that version, or another state directory"
        )
    if not version and tables:
        raise StoreError(f"{path} is another program's database: give another state directory")
    if not made and os.stat(path).st_size <= _CHECKED_BYTES:  # noqa: PTH116 - bytes of any name
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise corrupt(path, verdict)
    if version < SCHEMA_VERSION:
        if version:
            _keep_copy(connection, path, version)
        statements = (
            [*SCHEMA] if not version else [s for v in range(version, SCHEMA_VERSION) for s in UPGRADES[v]]
        )
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        connection.execute("COMMIT")
        if version:
            structlog.get_logger().info(
                "state_upgraded", before=version, now=SCHEMA_VERSION, kept=copy_of(path, version)
            )


def copy_of(path: str, version: int) -> str:
    """Return where the copy is kept of a database as it was, with the schema of an earlier version."""
    return f"{path}.schema-{version}"


def corrupt(path: str, reason: object) -> StoreCorruptError:
    """Make the error of a database that is none, or is damaged."""
    return StoreCorruptError(
        f"{path} is corrupt ({reason}): `run --new-state` puts it aside and starts anew, or bring back a copy of it"
    )


def explained(error: sqlite3.Error | OSError, name: str, doing: str) -> StoreError:
    """Say for people what is wrong with the database of this name or path, and what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return corrupt(name, error)
    owners = "check owner and mode of the file, of those beside it, and of their directory"
    causes = {
        sqlite3.SQLITE_FULL: "the disk is full; free some space and it goes on by itself",
        sqlite3.SQLITE_BUSY: "another program holds it locked; it goes on by itself once that ends",
        sqlite3.SQLITE_READONLY: f"it may not be written; {owners}",
        sqlite3.SQLITE_CANTOPEN: f"it may not be opened; {owners}",
    }
    if isinstance(error, PermissionError):
        code = sqlite3.SQLITE_CANTOPEN
    why = error.strerror if isinstance(error, OSError) else error
    return StoreError(f"{name}: cannot {doing}: {causes.get(code, why)}")


def sync_directory(path: str) -> None:
    """Make the names in a file's directory durable. Raises OSError."""
    descriptor = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # noqa: PTH120 - bytes of any name
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _keep_copy(connection: sqlite3.Connection, path: str, version: int) -> None:
    """Copy a database, with what its write-ahead log holds, into one file of its owner's; whole or not at all."""
    kept = copy_of(path, version)
    aside = f"{kept}.new"
    try:
        with suppress(FileNotFoundError):
            os.unlink(aside)  # noqa: PTH108 - bytes of any name; of an upgrade that was cut short
        descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with closing(sqlite3.connect(aside)) as copy:
                connection.backup(copy)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(aside, kept)  # noqa: PTH105 - bytes of any name
        sync_directory(kept)
    except (sqlite3.Error, OSError) as error:
        with suppress(OSError):
            os.unlink(aside)  # noqa: PTH108 - bytes of any name
        size = os.stat(path).st_size / _MIB  # noqa: PTH116 - bytes of any name
        raise StoreError(
            f"{path} has the schema of an earlier version ({version}), and is not upgraded, since no copy of it can be"
            f" kept as {kept}: {error}; make room for {size:.1f} MiB there and start again"
        ) from error
