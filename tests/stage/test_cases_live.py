"""Cases of live capsules, one test each: a served capsule whose tasks go to one of this host (murmur reference, Live capsules)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from sidecar.model import ForwardSettings
from sidecar.state import process_start_time
from sidecar.tasks.backends.forward import Forward
from tests.support.forwarding import QUICK
from tests.support.live import TOKEN, process, record
from tests.support.port import MESSAGE, Port, served, taking
from tests.support.scripted_door import scripted_door
from tests.support.waiting import until, until_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PATIENCE = replace(QUICK, away=0.3)
NOBODY = "no live capsule of this manifest runs on this host; tried for 0.3 s"
KEYS = (
    "session_id",
    "url",
    "pid",
    "process_start",
    "capsule_name",
    "capsule_version",
    "workdir",
    "outlives_launcher",
    "started_at",
)


@asynccontextmanager
async def discovering(tmp_path: Path) -> AsyncIterator[Port]:
    """Serve the capsule `a`, whose tasks go to the live one of the same manifest; the home directory is `home`."""
    (tmp_path / "a").mkdir()
    settings = {"backend": "forward", "forward": ForwardSettings(discover=True)}
    make = partial(Forward, home=tmp_path / "home", patience=PATIENCE)
    async with served(tmp_path, taking(queue_depth=5), settings=settings, make=lambda _: make()) as port:
        yield port


async def ended(port: Port, text: str = "hello") -> dict[str, Any]:
    """Hand in a task, and return it once it is over."""
    task_id = await port.send(text)

    async def over() -> bool:
        return await port.state(task_id) in ("completed", "failed")

    await until(over, what="the task over")
    return await port.task(task_id)


def told(task: dict[str, Any]) -> str:
    """Return the message of a task that failed."""
    assert task["status"]["state"] == "failed"
    message: str = task["status"]["message"]["parts"][0]["text"]
    return message


@pytest.mark.parametrize("how", ["gone", "zombie", "zero", "another start"])
async def test_a_record_of_a_process_that_does_not_live_is_not_live(tmp_path: Path, how: str) -> None:
    """The door that answers at its url is not spoken to, and the file stays as it is."""
    with process() as gone:
        pass
    with process() as running, process() as dead:
        start = process_start_time(dead.pid)
        dead.kill()
        until_sync(lambda: process_start_time(dead.pid) is None)  # a zombie until it is waited for
        hows: dict[str, tuple[int, dict[str, Any]]] = {
            "gone": (gone.pid, {}),
            "zombie": (dead.pid, {"process_start": start}),
            "zero": (0, {}),
            "another start": (running.pid, {"process_start": 1}),
        }
        pid, more = hows[how]
        async with scripted_door() as door, discovering(tmp_path) as port:
            path = record(tmp_path / "home", tmp_path / "a", door.session, pid, door.port, **more)
            before = path.read_bytes()
            assert told(await ended(port)) == NOBODY
            assert door.calls == []
            assert path.read_bytes() == before


async def test_a_record_that_cannot_be_read_is_warned_about_once(tmp_path: Path) -> None:
    """One of the nine keys is missing, or it is no JSON: not live, and the files stay as they are."""
    with process() as running, capture_logs() as logged:
        async with scripted_door() as door, discovering(tmp_path) as port:
            home, place = tmp_path / "home", tmp_path / "a"
            paths = [record(home, place, f"ses_{key}", running.pid, door.port, without=key) for key in KEYS]
            paths.append(record(home, place, "ses_garbage", running.pid, door.port))
            paths[-1].write_bytes(b"{")
            before = [path.read_bytes() for path in paths]
            for _ in range(2):
                assert told(await ended(port)) == NOBODY
            assert door.calls == []
            assert [path.read_bytes() for path in paths] == before
    warned = [one["record"] for one in logged if one["event"] == "live_record_unreadable"]
    assert sorted(warned) == sorted(path.name for path in paths)


async def test_a_live_process_with_a_silent_port_is_unreachable(tmp_path: Path) -> None:
    """The task fails after a while and says why; the file stays."""
    async with scripted_door() as door:
        number = door.port
    with process() as running:
        async with discovering(tmp_path) as port:
            path = record(tmp_path / "home", tmp_path / "a", "ses_a", running.pid, number)
            before = path.read_bytes()
            assert "cannot be reached: connection refused" in told(await ended(port))
            assert path.read_bytes() == before


async def test_a_card_that_names_another_session_is_not_that_capsule(tmp_path: Path) -> None:
    """Whoever took the port since is asked for its card, and for nothing else."""
    with process() as running:
        async with scripted_door() as door, discovering(tmp_path) as port:
            record(tmp_path / "home", tmp_path / "a", "ses_another", running.pid, door.port)
            assert "another session than its record says" in told(await ended(port))
            assert {call.method for call in door.calls} == {"GET"}


async def test_the_live_capsule_of_the_manifest_does_its_tasks(tmp_path: Path) -> None:
    """Found by its record, it is a worker, and what it says is the reply."""
    with process() as running:
        async with scripted_door() as door, discovering(tmp_path) as port:
            record(tmp_path / "home", tmp_path / "a", door.session, running.pid, door.port)
            task = await ended(port, "to whom it may concern")
            assert task["artifacts"][0]["parts"] == [{"text": "to whom it may concern"}]


async def test_a_door_token_appears_nowhere(tmp_path: Path) -> None:
    """No answer, no stream, no log line, no database and no call has that secret of a record."""
    with process() as running, capture_logs() as logged:
        async with scripted_door() as door, discovering(tmp_path) as port:
            home, place = tmp_path / "home", tmp_path / "a"
            record(home, place, door.session, running.pid, door.port, door_token=TOKEN)
            (home / ".murmur" / "running" / f"{door.session}.control").write_text(TOKEN)
            record(home, place, "ses_broken", running.pid, door.port, url=TOKEN, door_token=TOKEN)
            stream = await port.stream(MESSAGE)
            seen = await stream.to_eof()
            assert b'"state":"completed"' in seen
            answers = [await port.card(), await ended(port), await port.call("session/stop")]
            assert TOKEN not in f"{seen!r} {answers} {door.calls}"
            assert not [name for name, data in databases(tmp_path) if TOKEN.encode() in data]
    assert logged
    assert TOKEN not in repr(logged)


def databases(directory: Path) -> list[tuple[str, bytes]]:
    """Return every file of the database."""
    found = [(path.name, path.read_bytes()) for path in directory.glob("sidecar.db*")]
    assert found
    return found
