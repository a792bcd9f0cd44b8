"""The Everruns view on clocks that a test moves: limits, expiry, trimming, slow readers, what each door may see."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest_asyncio

from sidecar import store as store_module
from sidecar.model import AuthSettings, Lifecycle, Manifest, Rate, TaskAcceptance
from sidecar.tasks import said
from sidecar.tasks.model import Input
from tests.support.channels import channels
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import pytest

    from tests.support.channels import Stage
    from tests.support.rawhttp import Answer

DAY = 24 * 3600.0
MESSAGE = {"message": {"role": "user", "content": [{"type": "text", "text": "hello"}]}}
QUEUE = Manifest("a", "1", lifecycle=Lifecycle(task_acceptance=TaskAcceptance.QUEUE, queue_depth=100))


@pytest_asyncio.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """An open agent `a` that queues, and whose tasks the test does itself."""
    async with channels(tmp_path, heartbeat=0.05, streams=2) as made:
        await made.bench.serve(made.bench.want("a", manifest=QUEUE))
        yield made


def told(answer: Answer) -> tuple[int, str]:
    """Return status and code of a problem."""
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status, json.loads(answer.body)["code"]


def ids(answer: Answer) -> list[str]:
    """Return the ids of a list."""
    return [one["id"] for one in json.loads(answer.body)["data"]]


async def until_text(reader: asyncio.StreamReader, text: bytes) -> bytes:
    """Return what a stream brings up to a text."""
    async with asyncio.timeout(10):
        return await reader.readuntil(text)


async def test_a_caller_over_its_rate_waits_and_others_do_not(stage: Stage) -> None:
    """429 says how long; it comes before the session is looked for, and after the credential."""
    rate = AuthSettings(rate=Rate(2, 60.0))
    await stage.bench.serve(stage.bench.want("b", auth=rate))
    directory = str(stage.bench.root / "b")
    keys = [(await stage.ring.create(directory, "b")).secret for _ in range(2)]
    for _ in range(2):
        assert (await stage.ask("GET", "b/sessions", key=keys[0])).status == 200
    refused = await stage.ask("GET", f"b/sessions/session_{'0' * 32}", key=keys[0])
    assert told(refused) == (429, "rate_limited")
    seconds = json.loads(refused.body)["retry_after_seconds"]
    assert refused.headers["retry-after"] == str(seconds)
    assert (await stage.ask("GET", "b/sessions", key=keys[1])).status == 200
    assert told(await stage.ask("GET", "b/sessions", key="wrong")) == (401, "unauthorized")
    stage.now += seconds
    assert (await stage.ask("GET", "b/sessions", key=keys[0])).status == 200


async def test_streams_over_the_limit_are_told_to_come_back(stage: Stage) -> None:
    """503 with `Retry-After`; a stream that ends makes room."""
    session = await stage.session()
    place = f"a/sessions/{session}/sse"
    async with stage.stream(session) as first:
        await until_text(first, b"event: connected\n")
        async with stage.stream(session) as second:
            await until_text(second, b"event: connected\n")
            refused = await stage.ask("GET", place)
            assert told(refused) == (503, "unavailable")
            assert refused.headers["retry-after"] == "1"
    await until(lambda: not stage.bench.everruns.streams)
    async with stage.stream(session) as again:
        await until_text(again, b"event: connected\n")


async def test_an_idle_stream_shows_that_it_is_alive(stage: Stage) -> None:
    """Comments come by themselves, and mean nothing."""
    session = await stage.session()
    async with stage.stream(session) as reader:
        await until_text(reader, b": heartbeat\n\n")
        await until_text(reader, b": heartbeat\n\n")


async def test_a_client_that_reads_nothing_is_cut_off_and_costs_no_memory(stage: Stage) -> None:
    """The others go on; what is kept for the slow one is a page."""
    session = await stage.session()
    async with stage.stream(session) as slow:
        await until_text(slow, b"event: connected\n")
        assert (await stage.say(session, "go")).status == 201
        engine = await stage.engine()
        claim = await engine.claim()
        assert claim is not None
        for _ in range(40):
            await engine.report(claim.task.id, [said.Text("x" * 500_000)])
        async with stage.stream(session) as fast:
            await until_text(fast, b"event: turn.started\n")
            await engine.report(claim.task.id, [said.Failed("enough")])
            async with asyncio.timeout(20):
                while b"turn.failed" not in await fast.read(1 << 20):
                    pass
            await until(
                lambda: sum(map(len, stage.bench.everruns.streams.values())) == 1,
                within=20,
                what="the slow one is cut off",
            )


async def test_a_list_of_big_events_is_read_in_parts(stage: Stage) -> None:
    """Fewer than were asked for; from the last number on come the others."""
    session = await stage.session()
    await stage.say(session, "big")
    await stage.work(*(said.Text("x" * 1_000_000) for _ in range(10)), said.Failed("enough"))
    found: list[int] = []
    while events := await stage.events(session, f"after_sequence={found[-1] if found else 0}&limit=500"):
        assert len(events) <= 7
        found += [event["sequence"] for event in events]
    assert found == list(range(1, 14))


async def test_a_key_against_repeats_is_good_for_a_day(stage: Stage) -> None:
    """Then it is a new one; trimming forgets the reply."""
    first = await stage.ask("POST", "a/sessions", {}, Idempotency_Key="k")
    stage.now += DAY - 1
    again = await stage.ask("POST", "a/sessions", {}, Idempotency_Key="k")
    assert again.body == first.body
    stage.now += 2
    later = await stage.ask("POST", "a/sessions", {}, Idempotency_Key="k")
    assert (later.status, later.body == first.body) == (201, False)
    stage.now += 2 * DAY
    await stage.bench.engines.trim()
    assert await stage.bench.store.read(count_of("everruns_replies")) == 0


async def test_a_runtime_token_ends_after_a_quarter_of_an_hour(stage: Stage) -> None:
    """900 seconds, and with its key."""
    await stage.bench.serve(stage.bench.want("a", manifest=QUEUE))
    issued = await stage.ring.create(str(stage.bench.root / "a"), "a", end_users=True)
    answer = await stage.ask("POST", "a/runtime-auth", key=issued.secret, End_User="ada")
    token = json.loads(answer.body)["access_token"]
    stage.now += 899
    assert (await stage.ask("GET", "a/sessions", key=token)).status == 200
    stage.now += 1
    assert told(await stage.ask("GET", "a/sessions", key=token)) == (401, "unauthorized")
    fresh = await stage.ask("POST", "a/runtime-auth", key=issued.secret, End_User="ada")
    token = json.loads(fresh.body)["access_token"]
    await stage.ring.revoke(issued.key.id)
    assert told(await stage.ask("GET", "a/sessions", key=token)) == (401, "unauthorized")


async def test_old_events_go_and_numbers_stay(stage: Stage) -> None:
    """The newest ones are kept, and what comes has the numbers that follow."""
    session = await stage.session()
    await stage.say(session, "count")
    texts = [said.Text(f"{n} ") for n in range(1000)]
    await stage.work(*texts, said.Completed(None))
    stage.bench.engines.reconfigure(keep_events=600, keep_tasks=3600.0)
    await stage.bench.engines.trim()
    events = await stage.events(session)
    assert events[0]["sequence"] == 405
    assert (await stage.events(session, "after_sequence=1000"))[-1]["sequence"] == 1004
    await stage.say(session, "more")
    assert (await stage.events(session, "after_sequence=1004"))[0]["sequence"] == 1005


async def test_sessions_go_when_they_were_idle_for_long(stage: Stage) -> None:
    """Those with a turn that goes on stay; those of a capsule that is gone go with it."""
    idle, busy = await stage.session(), await stage.session()
    await stage.say(busy, "wait")
    stage.bench.engines.reconfigure(keep_events=600, keep_tasks=-3600.0)
    await stage.bench.engines.trim()
    assert ids(await stage.ask("GET", "a/sessions")) == [busy]
    assert told(await stage.ask("GET", f"a/sessions/{idle}")) == (404, "session_not_found")
    await stage.bench.serve()
    await stage.bench.engines.trim()
    assert await stage.bench.store.read(count_of("everruns_sessions")) == 0
    assert await stage.bench.store.read(count_of("everruns_events")) == 0


async def test_what_other_doors_do_in_a_session_shows_where_it_belongs_to_its_owner(stage: Stage) -> None:
    """A task of another owner in the same context does not; input by the murmur door does."""
    session = await stage.session()
    engine = await stage.engine()
    await engine.send(given("not yours"), context_id=session, owner="somebody")
    assert await stage.events(session) == []
    await stage.work(said.Completed("done"))
    assert await stage.events(session) == []
    await stage.say(session, "ask")
    await stage.work(said.InputRequired("who?"))
    assert await engine.deliver(given("Ada")) is not None
    events = await stage.events(session)
    texts = [e["data"]["message"]["content"][0]["text"] for e in events if "message" in e["data"]]
    assert texts == ["ask", "who?", "Ada"]


async def test_thinking_tools_and_further_turns_of_the_worker_are_not_shown(stage: Stage) -> None:
    """A task is one turn, however many its worker takes for it; only what is for the caller is told."""
    session = await stage.session()
    await stage.say(session, "work")
    await stage.work(
        said.Thinking("hm"),
        said.Text("first"),
        said.Turn(),
        said.Tool("search", "found"),
        said.Status("at it"),
        said.Text("second"),
        said.Completed(None),
    )
    events = await stage.events(session)
    assert [event["type"] for event in events] == [
        "input.message",
        "turn.started",
        "output.message.delta",
        "output.message.delta",
        "output.message.completed",
        "turn.completed",
    ]
    assert events[4]["data"]["message"]["content"] == [{"type": "text", "text": "second"}]


async def test_a_turn_that_never_started_can_be_cancelled(stage: Stage) -> None:
    """It waits for a worker, and ends with its one event."""
    session = await stage.session()
    await stage.say(session, "wait")
    assert (await stage.ask("POST", f"a/sessions/{session}/cancel")).status == 200
    assert [event["type"] for event in await stage.events(session)] == ["input.message", "turn.cancelled"]


async def test_nothing_is_answered_that_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database takes nothing, the answer is 503 without any path; a key is free again after that."""
    monkeypatch.setattr(store_module, "BUSY_TIMEOUT", 0.02)
    async with channels(tmp_path) as stage:
        await stage.bench.serve(stage.bench.want("a", manifest=QUEUE))
        await refused_while_locked(stage, tmp_path)


async def refused_while_locked(stage: Stage, tmp_path: Path) -> None:
    """Try while another program holds the database."""
    session = await stage.session()
    with closing(sqlite3.connect(tmp_path / "sidecar.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for path, body in ((f"a/sessions/{session}/messages", MESSAGE), ("a/sessions", {})):
            refused = await stage.ask("POST", path, body, Idempotency_Key="a")
            assert told(refused) == (503, "unavailable")
            assert refused.headers["retry-after"] == "1"
            assert "/" not in json.loads(refused.body)["detail"]
        other.execute("ROLLBACK")
    made = await stage.ask("POST", f"a/sessions/{session}/messages", MESSAGE, Idempotency_Key="a")
    assert made.status == 201
    assert len(await stage.events(session)) == 1


def count_of(table: str) -> Callable[[sqlite3.Connection], int]:
    """Return a query that counts the rows of a table."""

    def count(connection: sqlite3.Connection) -> int:
        (found,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(found)

    return count


def given(text: str) -> Input:
    """Return a message as other doors hand it on."""
    return Input.of(json.dumps({"messageId": "m", "role": "user", "parts": [{"text": text}]}))
