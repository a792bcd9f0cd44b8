"""`ListTasks` of A2A 1.0 over real sockets (A2A 1.0 section 3.1.4)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.tasks.model import Input
from sidecar.tasks.said import Artifact, Text
from tests.support.a2a_port import V10, Caller, state_of
from tests.support.port import served, taking

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

GIVEN = Input("hello", '{"messageId":"m","role":"user","parts":[{"text":"hello"}]}')


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncIterator[Caller]:
    """A client of a capsule that takes many tasks."""
    async with served(tmp_path, taking(queue_depth=500), settings={"concurrency": 3}) as made:
        yield Caller(made, V10)


async def listed(caller: Caller, **params: Any) -> dict[str, Any]:
    """Return a page."""
    page = await caller.result("list", params)
    assert list(page) == ["tasks", "nextPageToken", "pageSize", "totalSize"]
    return page


async def pages(caller: Caller, **params: Any) -> list[list[str]]:
    """Return the ids on all pages."""
    found = []
    token = ""
    while True:
        page = await listed(caller, pageToken=token, **params)
        found.append([task["id"] for task in page["tasks"]])
        if not (token := page["nextPageToken"]):
            return found


def flat(found: list[list[str]]) -> list[str]:
    """Return what is on some pages."""
    return [each for page in found for each in page]


async def test_tasks_are_listed_the_newest_status_first(caller: Caller) -> None:
    """Live ones and ended ones, by when their last status came."""
    tasks = [await caller.send(str(number)) for number in range(4)]
    ids = [task["id"] for task in tasks]
    first, second = await caller.port.work(), await caller.port.work()
    await second.complete("done")
    await caller.result("cancel", {"id": ids[2]})
    page = await listed(caller)
    assert [task["id"] for task in page["tasks"]] == [ids[2], ids[1], ids[0], ids[3]]
    assert (page["nextPageToken"], page["pageSize"], page["totalSize"]) == ("", 50, 4)
    assert first.id == ids[0]
    assert page["tasks"][2] == await caller.get(ids[0])


async def test_a_list_comes_in_pages(caller: Caller) -> None:
    """Every task once, however many are made meanwhile; the last page has no token."""
    ids = []
    for number in range(23):
        ids.append((await caller.send(str(number)))["id"])
        if number % 2:
            await caller.result("cancel", {"id": ids[-1]})
    found = await pages(caller, pageSize=5)
    assert [len(page) for page in found] == [5, 5, 5, 5, 3]
    assert sorted(flat(found)) == sorted(ids)
    assert flat(found) == [task["id"] for task in (await listed(caller, pageSize=100))["tasks"]]
    begun = await listed(caller, pageSize=5)
    await caller.send("new")
    rest = await listed(caller, pageSize=100, pageToken=begun["nextPageToken"])
    assert [task["id"] for task in rest["tasks"]] == flat(found[1:])
    assert rest["totalSize"] == 24


async def test_a_list_is_narrowed(caller: Caller) -> None:
    """By context, by state and by time, and by all of these together."""
    mine = [await caller.send(str(number), contextId="ctx_mine") for number in range(3)]
    other = await caller.send("other")
    await caller.result("cancel", {"id": mine[0]["id"]})
    worker = await caller.port.work()
    assert worker.id == mine[1]["id"]
    at = (await caller.get(mine[1]["id"]))["status"]["timestamp"]

    async def ids(**params: Any) -> set[str]:
        page = await listed(caller, **params)
        assert page["totalSize"] == len(page["tasks"])
        return {task["id"] for task in page["tasks"]}

    everything = {task["id"] for task in (*mine, other)}
    assert await ids() == everything
    assert await ids(contextId="ctx_mine") == everything - {other["id"]}
    assert await ids(contextId="ctx_none") == set()
    assert await ids(status="TASK_STATE_CANCELED") == {mine[0]["id"]}
    assert await ids(status="TASK_STATE_SUBMITTED") == {mine[2]["id"], other["id"]}
    assert await ids(status="TASK_STATE_WORKING", contextId="ctx_mine") == {worker.id}
    assert await ids(status="TASK_STATE_AUTH_REQUIRED") == set()
    assert worker.id in await ids(statusTimestampAfter=at)
    assert await ids(statusTimestampAfter="2999-01-01T00:00:00Z") == set()


async def test_artifacts_are_listed_where_they_are_asked_for(caller: Caller) -> None:
    """And as much of the history as is."""
    await caller.send()
    worker = await caller.port.work()
    await worker.say(Text("so far"), Artifact("a", "a", ({"text": "x"},)))
    (task,) = (await listed(caller))["tasks"]
    assert "artifacts" not in task
    assert len(task["history"]) == 1
    (task,) = (await listed(caller, includeArtifacts=True, historyLength=0))["tasks"]
    assert [each["parts"][0]["text"] for each in task["artifacts"]] == ["so far", "x"]
    assert "history" not in task
    await worker.complete(" and on")
    (task,) = (await listed(caller, includeArtifacts=True))["tasks"]
    assert [each["parts"][0]["text"] for each in task["artifacts"]] == ["so far and on", "x"]
    assert state_of(task) == "completed"


async def test_a_page_is_full_when_it_is_big(caller: Caller) -> None:
    """The rest comes with the next one."""
    ids = [(await caller.send("x" * 450_000 + str(number)))["id"] for number in range(7)]
    found = await pages(caller)
    assert [len(page) for page in found] == [4, 3]
    assert sorted(flat(found)) == sorted(ids)


async def test_tasks_of_others_are_not_there(caller: Caller) -> None:
    """They cannot be listed, got, canceled, streamed or answered."""
    engine = await caller.port.engine()
    theirs = await engine.send(GIVEN, context_id=None, owner="key:eve")
    mine = await caller.send()
    page = await listed(caller)
    assert ([task["id"] for task in page["tasks"]], page["totalSize"]) == ([mine["id"]], 1)
    for call in ("get", "cancel", "subscribe"):
        assert await caller.code(call, {"id": theirs.id}) == -32001
    await (await caller.port.work()).ask("Which?")
    for call in ("send", "stream"):
        assert await caller.code(call, caller.params(taskId=theirs.id)) == -32001
    again = await engine.get(theirs.id)
    assert again is not None
    assert again.state == "input-required"


@pytest.mark.parametrize(
    "token", ["x", "ü", "W10=", "WzEsMl0=", "WzEuMCwtMV0=", "WzEuMCwxODQ0Njc0NDA3MzcwOTU1MTYxNV0="]
)
async def test_a_token_that_is_none_is_an_error(caller: Caller, token: str) -> None:
    """So is a page size that is out of bounds."""
    assert await caller.code("list", {"pageToken": token}) == -32602
    for size in (0, 101, -1):
        assert await caller.code("list", {"pageSize": size}) == -32602


async def test_lists_hold_while_tasks_change(caller: Caller) -> None:
    """Who pages while others work sees every task that stands still exactly once."""
    still = [(await caller.send(str(number)))["id"] for number in range(12)]
    for task_id in still:
        await caller.result("cancel", {"id": task_id})

    async def stir() -> None:
        for number in range(30):
            task = await caller.send(f"stir {number}")
            await caller.result("cancel", {"id": task["id"]})

    stirring = asyncio.ensure_future(stir())
    found = flat(await pages(caller, pageSize=2))
    await stirring
    assert [each for each in found if each in still] == list(reversed(still))
