"""Live capsules of this host, with real processes and real files (murmur reference, Live capsules)."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from sidecar.state import process_start_time
from sidecar.tasks.backends.live import Records
from tests.support.forwarding import QUICK, forwarded, forwarding
from tests.support.live import process, record
from tests.support.scripted_door import scripted_door
from tests.support.waiting import until, until_sync

if TYPE_CHECKING:
    from pathlib import Path


def test_a_record_of_a_process_that_lives_is_found(tmp_path: Path) -> None:
    """By the manifest that it belongs to, in either layout, through links too."""
    capsule, other = tmp_path / "capsule", tmp_path / "other"
    capsule.mkdir()
    other.mkdir()
    (tmp_path / "link").symlink_to(capsule)
    with process() as running:
        record(tmp_path, capsule, "ses_a", running.pid, 1)
        record(tmp_path, capsule, "ses_b", running.pid, 2, workdir=str(capsule / ".murmur" / "ses_b"))
        record(tmp_path, other, "ses_c", running.pid, 3)
        record(tmp_path, other, "ses_d", running.pid, 4, workdir=str(capsule / "elsewhere" / "ses_d"))
        records = Records(tmp_path)
        assert {one.session_id for one in records.alive()} == {"ses_a", "ses_b", "ses_c", "ses_d"}
        found = records.belonging_to(str(tmp_path / "link"))
        assert {one.session_id for one in found} == {"ses_a", "ses_b"}
        assert found[0].url.startswith("http://localhost:")


def test_the_newest_record_comes_first(tmp_path: Path) -> None:
    """Of several sessions of one capsule the one that started last is tried first."""
    with process() as running:
        record(tmp_path, tmp_path, "ses_a", running.pid, 1, started_at="2026-01-31T09:30:00Z")
        record(tmp_path, tmp_path, "ses_b", running.pid, 1, started_at="2026-02-01T09:30:00Z")
        found = Records(tmp_path).belonging_to(str(tmp_path))
        assert [one.session_id for one in found] == ["ses_b", "ses_a"]


def test_a_record_of_a_process_that_does_not_live_is_stale(tmp_path: Path) -> None:
    """Gone, a zombie, pid 0, or another start time: not live, and the file stays as it is."""
    with process() as gone:
        pass
    with process() as running, process() as dead:
        start = process_start_time(dead.pid)
        dead.kill()
        until_sync(lambda: process_start_time(dead.pid) is None)  # a zombie until it is waited for
        paths = [
            record(tmp_path, tmp_path, "ses_gone", gone.pid, 1),
            record(tmp_path, tmp_path, "ses_zombie", dead.pid, 1, process_start=start),
            record(tmp_path, tmp_path, "ses_zero", 0, 1),
            record(tmp_path, tmp_path, "ses_other", running.pid, 1, process_start=1),
        ]
        before = [path.read_bytes() for path in paths]
        assert Records(tmp_path).alive() == ()
        assert [path.read_bytes() for path in paths] == before


@pytest.mark.parametrize(
    "key",
    [
        "session_id",
        "url",
        "pid",
        "process_start",
        "capsule_name",
        "capsule_version",
        "workdir",
        "outlives_launcher",
        "started_at",
    ],
)
def test_a_record_without_one_of_the_nine_keys_is_unreadable(tmp_path: Path, key: str) -> None:
    """It is warned about once, and stays as it is."""
    with process() as running:
        path = record(tmp_path, tmp_path, "ses_a", running.pid, 1, without=key)
        before = path.read_bytes()
        records = Records(tmp_path)
        with capture_logs() as logged:
            assert records.alive() == ()
            assert records.alive() == ()
        assert [(one["event"], one["record"]) for one in logged] == [("live_record_unreadable", "ses_a.json")]
        assert key in logged[0]["reason"]
        assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"{", b"[]", b"", b"\xff", b"x" * 100_000])
def test_a_file_that_is_no_record_is_unreadable(tmp_path: Path, content: bytes) -> None:
    """Garbage is warned about, with nothing of it in the log."""
    path = record(tmp_path, tmp_path, "ses_a", 1, 1)
    path.write_bytes(content)
    with capture_logs() as logged:
        assert Records(tmp_path).alive() == ()
    assert [one["event"] for one in logged] == ["live_record_unreadable"]


@pytest.mark.parametrize(
    "url",
    [
        "example.com:80",
        "10.0.0.1:80",
        "localhost",
        "localhost:0",
        "localhost:99999",
        "a@localhost:80",
        "localhost:80/x",
    ],
)
def test_a_url_that_is_not_this_machine_is_refused(tmp_path: Path, url: str) -> None:
    """A discovered door is on loopback, or it is none."""
    with process() as running:
        record(tmp_path, tmp_path, "ses_a", running.pid, 1, url=url)
        with capture_logs() as logged:
            assert Records(tmp_path).alive() == ()
        assert "url" in logged[0]["reason"]


def test_odd_files_are_not_waited_for(tmp_path: Path) -> None:
    """A pipe, a link, a directory, a file that others may write to, and control files are no records."""
    with process() as running:
        path = record(tmp_path, tmp_path, "ses_a", running.pid, 1)
        place = path.parent
        (place / "ses_b.json").symlink_to(path)
        os.mkfifo(place / "ses_c.json")
        (place / "ses_d.json").mkdir()
        path.rename(place / "ses_a.control")
        record(tmp_path, tmp_path, "ses_e", running.pid, 1).chmod(0o666)
        with capture_logs() as logged:
            assert Records(tmp_path).alive() == ()
        assert sorted(one["record"] for one in logged) == [
            "ses_b.json",
            "ses_c.json",
            "ses_d.json",
            "ses_e.json",
        ]


async def test_a_live_capsule_does_the_tasks_of_its_manifest(tmp_path: Path) -> None:
    """It is found by its record, and its card must name the same session."""
    home, place = tmp_path / "home", tmp_path / "capsule"
    place.mkdir()
    served = replace(forwarded(None), directory=str(place))
    with process() as running:
        async with scripted_door() as door:
            record(home, place, door.session, running.pid, door.port)
            async with forwarding(tmp_path, served, home=home) as here:
                assert (await here.over(await here.send())).output == "hello"
                await until(lambda: here.backend.workers == 1)


async def test_without_a_live_capsule_the_task_fails_clearly(tmp_path: Path) -> None:
    """It is waited for, and then that there is none is said."""
    served = replace(forwarded(None), directory=str(tmp_path))
    patience = replace(QUICK, away=0.3)
    async with forwarding(tmp_path, served, home=tmp_path, patience=patience) as here:
        task = await here.over(await here.send())
        assert task.status == "no live capsule of this manifest runs on this host; tried for 0.3 s"
        assert str(tmp_path) not in task.status


async def test_a_new_session_of_a_live_capsule_is_found(tmp_path: Path) -> None:
    """A runtime that exits after each task is found again under its next session."""
    home = tmp_path / "home"
    served = replace(forwarded(None), directory=str(tmp_path))
    with process() as running:
        async with scripted_door() as door:
            first = record(home, tmp_path, door.session, running.pid, door.port)
            async with forwarding(tmp_path, served, home=home) as here:
                assert (await here.over(await here.send())).output == "hello"
                await door.die()
                first.unlink()
                task_id = await here.send("again")
                await door.start()
                record(home, tmp_path, door.session, running.pid, door.port)
                assert (await here.over(task_id)).output == "again"
