"""Cases of the operator plane that need a task, one test each, over the socket of a served capsule (murmur reference, resource planes)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.model import FilesExport
from tests.support.port import Port, served, taking

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = replace(taking(queue_depth=2), files=FilesExport("out/"))
FILE = "/resources/files/report.md"
LISTING = "/resources/files"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The export root of the capsule, with one file."""
    path = tmp_path / "a" / "out"
    path.mkdir(parents=True)
    (path / "report.md").write_text("report")
    return path


async def listing(port: Port) -> dict[str, Any]:
    """Return the listing."""
    answer = await port.get(LISTING)
    assert answer.status == 200
    found: dict[str, Any] = json.loads(answer.body)
    return found


@pytest.mark.usefixtures("out")
async def test_the_generation_counts_ended_tasks_and_changes_no_etag(tmp_path: Path) -> None:
    """0, then 1 after one finished task, in reads and in listings; one that never ran does not count."""
    async with served(tmp_path, MANIFEST) as port:
        before = await port.get(FILE)
        assert (before.headers["x-murmur-generation"], (await listing(port))["generation"]) == ("0", 0)
        await port.cancel(await port.send())
        await port.send()
        working = await port.work()
        assert (await listing(port))["generation"] == 0
        await working.complete("done")
        after = await port.get(FILE)
        assert (after.headers["x-murmur-generation"], (await listing(port))["generation"]) == ("1", 1)
        assert after.headers["etag"] == before.headers["etag"]
        assert (await port.get(f"{FILE}?generation=0")).headers["x-murmur-generation"] == "1"


async def test_what_a_task_writes_is_served_with_its_hash(tmp_path: Path, out: Path) -> None:
    """A file that changes while the task runs has another etag, and lists with it."""
    async with served(tmp_path, MANIFEST) as port:
        before = await port.get(FILE)
        await port.send()
        working = await port.work()
        (out / "report.md").write_text("another report")
        after = await port.get(FILE)
        assert (after.body, after.headers["etag"] != before.headers["etag"]) == (b"another report", True)
        (entry,) = (await listing(port))["entries"]
        assert f'"sha256:{entry["sha256"]}"' == after.headers["etag"]
        await working.complete("done")


@pytest.mark.usefixtures("out")
async def test_twenty_parallel_reads_during_a_task_are_all_served(tmp_path: Path) -> None:
    """200 each, with a length that is that of the body."""
    async with served(tmp_path, MANIFEST) as port:
        await port.send()
        await port.work()
        for answer in await asyncio.gather(*(port.get(FILE) for _ in range(20))):
            assert (answer.status, answer.body) == (200, b"report")
            assert answer.headers["content-length"] == "6"


@pytest.mark.usefixtures("out")
async def test_the_plane_answers_while_a_turn_blocks(tmp_path: Path) -> None:
    """Listing and reading wait for no worker, whatever it does."""
    async with served(tmp_path, MANIFEST) as port:
        task_id = await port.send()
        await port.work()  # and says nothing ever
        for target in (LISTING, FILE):
            async with asyncio.timeout(6):
                assert (await port.get(target)).status == 200
        assert await port.state(task_id) == "working"
