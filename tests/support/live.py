"""What the murmur runtime leaves of its live capsules in a home directory (murmur reference, Live capsules)."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sidecar.state import process_start_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "door-secret-0123456789"


@contextmanager
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that does nothing."""
    running = subprocess.Popen(["sleep", "3600"])
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def record(
    home: Path, directory: Path, session: str, pid: int, port: int, *, without: str = "", **members: Any
) -> Path:
    """Write a record as the runtime does."""
    place = home / ".murmur" / "running"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    document = {
        "session_id": session,
        "url": f"localhost:{port}",
        "pid": pid,
        "process_start": process_start_time(pid) or 0,
        "capsule_name": "hello",
        "capsule_version": "1.0",
        "workdir": str(directory / "workdir" / session),
        "outlives_launcher": False,
        "started_at": "2026-01-31T09:30:00Z",
        **members,
    }
    path = place / f"{session}.json"
    path.write_text(json.dumps({key: value for key, value in document.items() if key != without}))
    path.chmod(0o600)
    return path
