"""Databases that earlier versions left behind: one of each, as a killed sidecar of that version really made it.

Their capsules are `greeter` (a command; two completed tasks), `asker` (a command; one task that waits for input) and
`waiter` (the inbox; one task in the queue), in `/srv/capsules`.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures"
WRITTEN_IN = "/srv/capsules"
CAPSULES = ("asker", "greeter", "waiter")
SECONDS = re.compile(r"\b1\.796\d+e\+09\b")
PORT = re.compile(r'(INSERT INTO "ports" VALUES\(X\'[0-9A-F]+\',)\d+,')


def fixture(version: int) -> Path:
    """Return the SQL of the database with this version of the schema."""
    return FIXTURES / f"schema-{version}.sql"


def earlier_database(version: int, path: Path, *, root: Path | None = None, first_port: int = 24000) -> None:
    """Make the database of a version at `path`, as if it was written just now for capsules below `root`."""
    text = SECONDS.sub(f"{time.time() - 60:.3f}", fixture(version).read_text())
    ports = iter(range(first_port, first_port + len(CAPSULES)))
    text = PORT.sub(lambda found: f"{found[1]}{next(ports)},", text)
    if root is not None:
        for name in CAPSULES:
            text = text.replace(hexadecimal(f"{WRITTEN_IN}/{name}"), hexadecimal(root / name))
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.executescript(text)


def hexadecimal(path: Path | str) -> str:
    """Return a path as SQL has it in a BLOB."""
    return os.fsencode(path).hex().upper()


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all rows of each table in their order."""
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: database.execute(f"SELECT * FROM {name}").fetchall() for name in sorted(tables)}


def version_of(path: Path) -> int:
    """Return the version of a database's schema."""
    with closing(sqlite3.connect(path)) as database:
        version: int = database.execute("PRAGMA user_version").fetchone()[0]
        return version
