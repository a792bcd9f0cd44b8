"""Records of tasks, and following one of them, over a real engine and a real database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.errors import StoreError
from sidecar.events import EventKind, TaskState
from sidecar.tasks.follow import QUEUED, TAKEN, GapError
from sidecar.tasks.model import Input
from sidecar.tasks.said import Artifact, Completed, InputRequired, Reply, Status, Text, Turn
from tests.support.gates import Gate, poison
from tests.support.sessions import SESSION, capsule, session
from tests.support.working import Working, work

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.events import Record
    from sidecar.tasks.engine import Engine
    from sidecar.tasks.follow import Follower

QUEUE = capsule(queue_depth=50, concurrency=10)
FIRST = Input("hello", '{"messageId":"m-1","role":"user","parts":[{"text":"hello"}],"metadata":{"a":1}}')
SECOND = Input("more", '{"messageId":"m-2","parts":[{"kind":"text","text":"more"}]}')


async def begun(engine: Engine, *, owner: str = "ada", context_id: str | None = None) -> Working:
    """Hand in a task, and begin with it."""
    task = await engine.send(FIRST, context_id=context_id, owner=owner)
    made = await work(engine)
    assert made.id == task.id
    return made


async def record(engine: Engine, task_id: str) -> Record:
    """Return a task's record."""
    known = await engine.telling.record(task_id)
    assert known is not None
    assert known.record is not None
    return known.record


def shown(found: Record) -> tuple[str, list[tuple[str, Any]], list[tuple[str, str | None, Any]]]:
    """Return a record's state, messages and artifacts, with their texts."""
    return (
        found.task.state.value,
        [(message.role, [part.get("text") for part in message.parts]) for message in found.history],
        [
            (
                "response" if artifact.id.endswith("_response") else artifact.id,
                artifact.name,
                parts_of(artifact.parts),
            )
            for artifact in found.artifacts
        ],
    )


def parts_of(parts: Any) -> str:
    """Return the texts of parts."""
    return "".join(part["text"] for part in parts)


async def events(follower: Follower, count: int) -> list[tuple[str, Any]]:
    """Return the next events, by kind, with their text or message."""
    found: list[tuple[str, Any]] = []
    while len(found) < count:
        for told in await follower.next(10.0):
            data = told.event.data
            found.append((told.event.kind.value, data.get("text", data.get("message"))))
    return found


async def test_a_record_has_the_conversation_and_what_was_made(tmp_path: Path) -> None:
    """Prompts once they are answered, the reply so far, and artifacts put together by their ids."""
    async with session(tmp_path, QUEUE) as s:
        worker = await begun(s.engine)
        assert shown(await record(s.engine, worker.id)) == ("working", [("user", ["hello"])], [])
        await worker.say(
            Text("so "),
            Artifact("report", "r", ({"text": "one "},)),
            Artifact("other", None, ({"text": "x"},)),
            Artifact(None, "r", ({"text": "two"},), append=True, last=True),
            Artifact("other", None, ({"text": "y"},), append=True),
            InputRequired("Which?"),
        )
        waiting = await record(s.engine, worker.id)
        assert shown(waiting)[:2] == ("input-required", [("user", ["hello"])])
        assert [(name, parts_of(parts)) for _, name, parts in map(_triple, waiting.artifacts)] == [
            ("response", "so "),
            ("report", "one two"),
            ("other", "xy"),
        ]
        assert waiting.history[0].metadata == {"a": 1}
        await s.engine.deliver(SECOND, task_id=worker.id)
        await worker.say(Turn(), Text("done"), Completed())
        state, history, artifacts = shown(await record(s.engine, worker.id))
        assert state == "completed"
        assert history == [("user", ["hello"]), ("agent", ["Which?"]), ("user", ["more"])]
        assert artifacts[0] == ("response", "response", "done")


def _triple(artifact: Any) -> tuple[str, str | None, Any]:
    return artifact.id, artifact.name, artifact.parts


async def test_a_record_is_the_same_after_a_restart_and_after_trimming(tmp_path: Path) -> None:
    """What makes it outlives its events."""
    async with session(tmp_path, QUEUE) as s:
        worker = await begun(s.engine)
        await worker.say(Artifact("a", None, ({"text": "one "},)), InputRequired("Which?"))
        await s.engine.deliver(SECOND, task_id=worker.id)
        await worker.say(Artifact("a", None, ({"text": "two"},), append=True), Text("so far"))
        before = await record(s.engine, worker.id)
        assert shown(before)[2][0] == ("response", "response", "so far")
    async with session(tmp_path, QUEUE, keep_events=1) as s:
        assert await record(s.engine, worker.id) == before
        await s.engine.resume(worker.id)
        other = await begun(s.engine)
        await other.say(*(Status(str(number)) for number in range(1200)))
        await s.engines.trim()
        s.engine.telling.look_again()
        assert (await s.engine.telling.record(worker.id)) is not None
        assert await record(s.engine, worker.id) == before
        # and what is made afterwards goes on from there
        claim = await s.engine.resume(worker.id)
        assert claim is not None
        await s.engine.report(
            worker.id, (Artifact("a", None, ({"text": " three"},), append=True), Completed())
        )
        (response, made) = (await record(s.engine, worker.id)).artifacts
        assert parts_of(response.parts) == "so far"
        assert (made.id, parts_of(made.parts)) == (before.artifacts[1].id, "one two three")


@pytest.mark.parametrize("already", [False, True])
async def test_a_message_counts_as_a_reply_if_it_is_the_first_word(tmp_path: Path, *, already: bool) -> None:
    """Otherwise it is a completed task like any other."""
    async with session(tmp_path, QUEUE) as s:
        worker = await begun(s.engine)
        if already:
            await worker.say(Status("thinking"))
        await worker.say(Reply(({"text": "hi"}, {"url": "u"})))
        found = await record(s.engine, worker.id)
        assert found.reply == (None if already else ({"text": "hi"}, {"url": "u"}))
        assert found.history[-1].parts == ({"text": "hi"}, {"url": "u"})
        assert shown(found)[2] == [("response", "response", "hi")]


async def test_a_follower_from_the_beginning_hears_everything_in_order(tmp_path: Path) -> None:
    """Kinds that murmur's streams do not number among it, and nothing of other tasks."""
    async with session(tmp_path, QUEUE) as s:
        task, follower = await s.engine.send_and_follow(FIRST, context_id=None, owner="ada")
        assert follower is not None
        worker = await work(s.engine)
        other = await begun(s.engine)
        await other.complete("not of it")
        await worker.say(Text("a"), InputRequired("Which?"))
        await s.engine.deliver(SECOND, task_id=task.id)
        await worker.say(Reply(({"text": "b"},)))
        assert await events(follower, 8) == [
            ("status", "inference turn 1"),
            ("text", "a"),
            ("status", "Which?"),
            ("input", None),
            ("status", "resumed"),
            ("reply", None),
            ("text", ""),
            ("status", "session ended"),
        ]
        follower.close()
        assert len(s.engine.telling.followers) == 0


async def test_a_task_without_room_has_no_follower(tmp_path: Path) -> None:
    """Nothing of it is kept."""
    async with session(tmp_path, capsule(queue_depth=0)) as s:
        task, follower = await s.engine.send_and_follow(FIRST, context_id=None, owner="ada")
        assert (task.state, follower) == (TaskState.REJECTED, None)
        assert await s.engine.telling.record(task.id) is None


async def test_a_record_and_its_follower_hold_together(tmp_path: Path) -> None:
    """However many pieces come while it is read, none is missing and none comes twice."""
    async with session(tmp_path, QUEUE) as s:
        worker = await begun(s.engine)

        async def talk() -> None:
            for number in range(60):
                await worker.say(
                    Text(f"{number} "), Artifact("a", "a", ({"text": f"{number} "},), append=True)
                )
            await worker.say(Completed())

        async def follow() -> tuple[str, str]:
            found = await s.engine.telling.follow(worker.id)
            assert found is not None
            begins, follower = found
            texts = {artifact.name: parts_of(artifact.parts) for artifact in begins.artifacts}
            heard = [texts.get("response", ""), texts.get("a", "")]
            while not follower.ended:
                for told in await follower.next(10.0):
                    data = told.event.data
                    if told.event.kind is EventKind.TEXT:
                        assert told.begun == bool(heard[0])
                        heard[0] += data["text"]
                    elif told.event.kind is EventKind.ARTIFACT:
                        heard[1] += parts_of(data["parts"])
                    elif told.event.final:
                        follower.close()
            return heard[0], heard[1]

        talking = asyncio.ensure_future(talk())
        following = []
        for _ in range(20):
            following.append(asyncio.ensure_future(follow()))
            await asyncio.sleep(0)
        await talking
        whole = "".join(f"{number} " for number in range(60))
        assert set(await asyncio.gather(*following)) == {(whole, whole)}


async def test_who_is_slow_reads_the_log(tmp_path: Path) -> None:
    """Nothing is dropped, and no more than a queue is held; text still knows whether other text came before it."""
    async with session(tmp_path, QUEUE) as s:
        worker = await begun(s.engine)
        found = await s.engine.telling.follow(worker.id)
        assert found is not None
        _, follower = found
        count = 3 * QUEUED
        for number in range(count):
            await worker.say(Text(str(number)), Turn())
        await worker.say(Completed("end"))
        heard = []
        begins = []
        while not follower.ended:
            for told in await follower.next(10.0):
                if told.event.kind is EventKind.TEXT:
                    heard.append(told.event.data["text"])
                    begins.append(told.begun)
                if told.event.final:
                    follower.close()
        assert heard == [*map(str, range(count)), "end"]
        assert not any(begins)


async def test_who_is_too_slow_is_told_of_the_gap(tmp_path: Path) -> None:
    """A stream ends then, and its client gets the whole task with the next one."""
    async with session(tmp_path, QUEUE, keep_events=1) as s:
        worker = await begun(s.engine)
        found = await s.engine.telling.follow(worker.id)
        assert found is not None
        _, follower = found
        for number in range(800):
            await worker.say(Text(str(number)))
        await s.engines.trim()
        with pytest.raises(GapError):
            await follower.next(10.0)
        follower.close()
        found = await s.engine.telling.follow(worker.id)
        assert found is not None
        assert parts_of(found[0].artifacts[0].parts) == "".join(map(str, range(800)))
        found[1].close()


async def test_a_follower_waits_no_longer_than_it_may(tmp_path: Path) -> None:
    """It comes back with nothing, and hears what comes later."""
    async with session(tmp_path, QUEUE) as s:
        worker = await begun(s.engine)
        found = await s.engine.telling.follow(worker.id)
        assert found is not None
        _, follower = found
        assert await follower.next(0.01) == []
        await worker.say(Text("late"))
        assert await events(follower, 1) == [("text", "late")]
        s.engine.telling.followers.end()
        assert await follower.next(10.0) == []
        assert follower.ended
        follower.close()


async def test_followers_end_with_their_session(tmp_path: Path) -> None:
    """Those that come later are ended from the start."""
    async with session(tmp_path, QUEUE) as s:
        worker = await begun(s.engine)
        found = await s.engine.telling.follow(worker.id)
        assert found is not None
        await s.engine.close()
        assert await found[1].next(10.0) == []
        assert found[1].ended
        late = s.engine.telling.begin(worker.id)
        assert late.ended
        found[1].close()
        late.close()


async def test_a_record_is_remembered_until_something_comes(tmp_path: Path) -> None:
    """The same object is returned again, and never one that is out of date."""
    async with session(tmp_path, QUEUE) as s:
        worker = await begun(s.engine)
        telling = s.engine.telling
        known = await telling.record(worker.id)
        assert await telling.record(worker.id) is known
        await worker.say(Text("more"))
        assert shown(await record(s.engine, worker.id))[2] == [("response", "response", "more")]
        await worker.complete()
        over = await telling.record(worker.id)
        assert over is not None
        assert over is not known
        assert await telling.record(worker.id) is over
        assert await telling.record("tsk_none") is None


async def test_input_goes_to_who_waits_longest_of_a_context_or_an_owner(tmp_path: Path) -> None:
    """A named task gets it if it waits."""
    async with session(tmp_path, QUEUE) as s:
        ada = [await begun(s.engine, owner="ada", context_id=f"c{number}") for number in range(2)]
        eve = await begun(s.engine, owner="eve", context_id="c1")
        for worker in (ada[1], eve, ada[0]):
            await worker.ask("Which?")
        assert await s.engine.deliver(SECOND, context_id="c9") is None
        first = await s.engine.deliver(SECOND, context_id="c1", owner="eve")
        assert first is not None
        assert first.id == eve.id
        first = await s.engine.deliver(SECOND, owner="ada")
        assert first is not None
        assert first.id == ada[1].id
        assert await s.engine.deliver(SECOND, context_id="c1") is None
        assert await s.engine.deliver(SECOND, task_id=ada[0].id) is not None


async def test_big_events_wait_in_the_log_and_not_in_memory(tmp_path: Path) -> None:
    """Few of them fill a queue, and few are taken at once; each still comes once."""
    async with session(tmp_path, QUEUE) as s:
        worker = await begun(s.engine)
        found = await s.engine.telling.follow(worker.id)
        assert found is not None
        _, follower = found
        for number in range(12):
            await worker.say(Artifact(str(number), None, ({"raw": "A" * 1_000_000},)))
        await worker.say(Completed())
        names = []
        while not follower.ended:
            taken = await follower.next(10.0)
            assert len([each for each in taken if each.size > TAKEN]) <= 1
            names += [each.event.data["name"] for each in taken if each.event.kind is EventKind.ARTIFACT]
            if taken[-1].event.final:
                follower.close()
        assert names == [str(number) for number in range(12)]


async def test_nothing_is_told_before_its_commit(tmp_path: Path) -> None:
    """A record that rests on a change waits for it; where that fails, it is as if it had never been."""
    async with session(tmp_path, QUEUE) as s:
        worker = await begun(s.engine)
        found = await s.engine.telling.follow(worker.id)
        assert found is not None
        _, follower = found
        for fails in (False, True):
            gate = Gate(s.store)
            await gate.reached()
            saying = asyncio.ensure_future(worker.say(Text(f"{fails} ")))
            await asyncio.sleep(0)
            reading = asyncio.ensure_future(record(s.engine, worker.id))
            hearing = asyncio.ensure_future(events(follower, 1))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not reading.done()
            assert not hearing.done()
            if fails:
                poison(s.store).add_done_callback(lambda done: done.exception())
            gate.open()
            if fails:
                for failed in (saying, reading):
                    with pytest.raises(StoreError):
                        await failed
                hearing.cancel()
            else:
                await saying
                assert parts_of((await reading).artifacts[0].parts) == "False "
                assert await hearing == [("text", "False ")]
        assert parts_of((await record(s.engine, worker.id)).artifacts[0].parts) == "False "
        await worker.say(Text("more"))
        assert await events(follower, 1) == [("text", "more")]
        follower.close()


async def test_what_seemed_to_fail_and_did_not_is_heard(tmp_path: Path) -> None:
    """As an error of the disk can have it: what the log says in the end counts."""
    async with session(tmp_path, QUEUE) as s:
        worker = await begun(s.engine)
        found = await s.engine.telling.follow(worker.id)
        assert found is not None
        _, follower = found
        data = '{"text": "kept", "final": false}'
        await s.store.write(
            lambda c: c.execute(
                "INSERT INTO events (session_id, seq, frame, task_id, context_id, kind, data, at, number)"
                " VALUES (?, 2, 2, ?, 'ctx', 'text', ?, 0, 3)",
                (SESSION, worker.id, data),
            )
        )
        gate = Gate(s.store)
        await gate.reached()
        saying = asyncio.ensure_future(worker.say(Text("kept")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        poison(s.store).add_done_callback(lambda done: done.exception())
        gate.open()
        with pytest.raises(StoreError):
            await saying
        hearing = asyncio.ensure_future(events(follower, 2))
        await worker.say(Text(" and on"))
        assert await hearing == [("text", "kept"), ("text", " and on")]
        assert parts_of((await record(s.engine, worker.id)).artifacts[0].parts) == "kept and on"
        follower.close()
