"""The stream of changes of the registry: whole at first, then what changed, once, and never more than there is."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.desk import changes as changing
from sidecar.desk.access import Access
from sidecar.desk.changes import BATCH, Changes, RowStream
from sidecar.model import CapsuleState, CapsuleStatus, LastError, RootStatus
from tests.support.desk import TOKEN, refusal_of, running_desk
from tests.support.rawhttp import request_bytes
from tests.support.view import Shown
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import pytest

ROWS = [CapsuleStatus(f"c{i:04}", f"/c/{i}", CapsuleState.SERVING) for i in range(3 * BATCH + 1)]


def frames(data: bytes) -> list[tuple[str, Any]]:
    """Return kind and data of the frames in some bytes; comments are left out."""
    found = []
    for block in data.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


class Reader:
    """A page: what it has been told."""

    def __init__(self, changes: Changes, stream: RowStream) -> None:
        self.changes = changes
        self.stream = stream
        self.rows: dict[str, Any] = {}
        self.rest: Any = None
        self.told: list[tuple[str, Any]] = []

    def workers(self) -> dict[str, int]:
        """Return the numbers of workers that it knows, by id."""
        return {id_: row["workers"] for id_, row in self.rows.items()}

    async def read(self) -> None:
        """Read up to the point where all is known."""
        while True:
            data = await self.stream.next()
            assert data is not None
            for kind, told in frames(data):
                self.told.append((kind, told))
                if kind == "registry":
                    self.rest = told
                    continue
                for row in told["capsules"]:
                    self.rows[row["id"]] = row
                for gone in told["gone"]:
                    del self.rows[gone]
                if not told["more"]:
                    assert told["total"] == len(self.rows)
                    return


@asynccontextmanager
async def reader(view: Shown, **settings: Any) -> AsyncIterator[Reader]:
    """Open one stream of a view."""
    changes = Changes(view, **{"pause": 0.001, **settings})
    stream = changes.subscribe()
    try:
        yield Reader(changes, stream)
    finally:
        stream.close()
        assert len(changes) == 0


async def test_a_stream_begins_with_everything_in_batches() -> None:
    """What is beside the capsules first, then all rows, and `more` until there are none; also where there is none."""
    async with reader(Shown(rows=ROWS)) as page:
        await page.read()
        assert [kind for kind, _ in page.told] == ["registry", *["capsules"] * 4]
        assert [len(told["capsules"]) for _, told in page.told[1:]] == [BATCH] * 3 + [1]
        assert list(page.rows) == [row.id for row in ROWS]
    async with reader(Shown()) as page:
        await page.read()
        assert page.rows == {}


async def test_only_what_changed_is_told() -> None:
    """A row that came, one that is another and one that left; the others are not repeated."""
    view = Shown(rows=ROWS)
    async with reader(view) as page:
        await page.read()
        page.told.clear()
        changed = replace(ROWS[1], tasks={"working": 1}, tools=("t",) * 30)
        new = CapsuleStatus("z", "/z", CapsuleState.REFUSED, last_error=LastError(1.0, "murmur.yaml:1:2: no"))
        view.rows = [changed, *ROWS[2:], new]
        await page.read()
        [(_, told)] = page.told
        assert [row["id"] for row in told["capsules"]] == ["c0001", "z"]
        assert told["gone"] == ["c0000"]
        assert (len(told["capsules"][0]["tools"]), told["capsules"][0]["tool_count"]) == (20, 30)
        assert page.rows["z"]["last_error"]["message"] == "murmur.yaml:1:2: no"


async def test_rows_that_are_made_anew_but_equal_are_no_change() -> None:
    """Rows with live tasks are made for each look."""
    view = Shown(rows=ROWS)
    changes = Changes(view, pause=0.001)
    stream = changes.subscribe()
    rows = changes.rows
    view.rows = [replace(row) for row in ROWS]
    view.settings = replace(view.settings, loaded_at=1.0)
    await until(lambda: changes.rest is not None and changes.rest[0].loaded_at == 1.0, what="another look")
    assert changes.rows == rows
    assert all(one is other for one, other in zip(changes.rows.values(), rows.values(), strict=True))
    stream.close()


async def test_roots_and_configuration_are_told_when_they_change() -> None:
    """Their errors are what a page shows above the list."""
    view = Shown()
    async with reader(view) as page:
        await page.read()
        view.places = [RootStatus("/c", LastError(1.0, "cannot be read"))]
        view.is_ready = False
        data = await page.stream.next()
        assert data is not None
        [(kind, told)] = frames(data)
        assert (kind, told["ready"], told["roots"][0]["last_error"]["message"]) == (
            "registry",
            False,
            "cannot be read",
        )


async def test_a_slow_reader_is_told_the_newest_state_and_none_in_between() -> None:
    """However much happens while it does not read, it is one difference."""
    view = Shown(rows=ROWS)
    async with reader(view) as page:
        await page.read()
        page.told.clear()
        for count in range(1, 6):
            view.rows = [replace(row, workers=count) for row in ROWS]
            await until(lambda: page.changes.rows["c0000"].workers == view.rows[0].workers, what="a look")
        await page.read()
        assert sum(len(told["capsules"]) for _, told in page.told) == len(ROWS)
        assert {row["workers"] for row in page.rows.values()} == {5}


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2)), max_size=6))
@settings(max_examples=50, deadline=None)
def test_whatever_happens_a_page_ends_up_with_what_there_is(states: list[dict[str, int]]) -> None:
    """Any sequence of states, each read or passed over."""

    async def play() -> None:
        view = Shown()
        async with reader(view) as page:
            await page.read()
            for number, state in enumerate(states):
                view.rows = [
                    CapsuleStatus(id_, f"/{id_}", CapsuleState.SERVING, workers=n)
                    for id_, n in sorted(state.items())
                ]
                while (number % 2 or number == len(states) - 1) and page.workers() != state:
                    async with asyncio.timeout(10):
                        await page.read()

    asyncio.run(play())


async def test_a_silent_stream_says_that_it_is_alive() -> None:
    """So that proxies and the page know."""
    async with reader(Shown(), heartbeat=0.01) as page:
        await page.read()
        assert await page.stream.next() == b":heartbeat\n\n"


async def test_nobody_looks_at_the_registry_while_no_page_is_open() -> None:
    """Whoever opened one last, and however often it is closed."""
    looks: list[int] = []

    class Counted(Shown):
        def capsules(self) -> Sequence[CapsuleStatus]:
            looks.append(1)
            return super().capsules()

    changes = Changes(Counted(), pause=0.001)
    assert looks == []
    streams = [changes.subscribe() for _ in range(3)]
    await until(lambda: len(looks) > 3, what="looks")
    for stream in streams:
        stream.close()
        stream.close()
    seen = len(looks)
    async with reader(Shown(), heartbeat=0.01) as other:  # so long, others look many times
        await other.read()
        await other.stream.next()
    assert len(looks) == seen


async def test_the_desk_sends_the_stream_and_ends_it_with_a_closing_frame() -> None:
    """To those with credentials, and to so many of them."""
    async with running_desk() as running:
        running.view.rows = ROWS[:1]
        assert refusal_of(await running.get("/api/events")) == (401, "unauthorized")
        async with asyncio.timeout(10):
            reader_, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(request_bytes("GET", "/api/events", headers=TOKEN))
            head = await reader_.readuntil(b"\r\n\r\n")
            assert b"content-type: text/event-stream" in head
            await reader_.readuntil(b'"more":false')
            running.desk.end_streams()
            await reader_.readuntil(b"event: closed\n")
            writer.close()


async def test_a_desk_that_is_closed_shows_those_out_who_came_in_before() -> None:
    """A reload from `auth: none` to `token` ends the streams that were opened without one."""
    async with running_desk(token=None) as running, asyncio.timeout(10):
        reader_, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(request_bytes("GET", "/api/events"))
        await reader_.readuntil(b'"more":false')
        closed = Access("s3cret")
        running.desk.reconfigure(access=closed, worker_access=closed, open_metrics=True)
        await reader_.readuntil(b"event: closed\n")
        assert refusal_of(await running.get("/api/events")) == (401, "unauthorized")
        writer.close()


async def test_more_pages_than_there_is_room_for_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """503, and when to come again."""
    monkeypatch.setattr("sidecar.desk.endpoint.MOST", 0)
    async with running_desk() as running:
        answer = await running.ask("/api/events")
        assert refusal_of(answer) == (503, "unavailable")
        assert "retry-after" in answer.headers
    assert changing.MOST > 1
