"""Tasks handed on to a murmur door: what comes back, over real sockets."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tests.support.forwarding import forwarded, forwarding
from tests.support.scripted_door import ScriptedDoor, Work, scripted_door
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_task_is_done_elsewhere(tmp_path: Path) -> None:
    """The reply comes back, and the frames are those of a task that was done here."""
    async with scripted_door() as door, forwarding(tmp_path, forwarded(door.url)) as here:
        task = await here.over(await here.send("hello"))
        assert (task.state, task.output) == ("completed", "hello")
        assert await here.told(task.id) == [
            ("working", "inference turn 1"),
            ("final text", "hello"),
            ("completed", "session ended"),
        ]


async def test_everything_that_is_said_comes_back_in_order(tmp_path: Path) -> None:
    """Pieces, thoughts, tools and turns are told as they were."""

    async def script(work: Work) -> None:
        work.turn()
        work.think("hm")
        work.say("a")
        work.tool("grep", "found", duration_ms=3, exit_code=0)
        work.turn(2)
        work.say("b")
        work.say("c")
        work.say("", final=True)
        work.complete("bc")

    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        task = await here.over(await here.send())
        assert task.output == "bc"
        assert await here.told(task.id) == [
            ("working", "inference turn 1"),
            ("thinking", "hm"),
            ("text", "a"),
            ("tool", "grep"),
            ("working", "inference turn 2"),
            ("text", "b"),
            ("text", "c"),
            ("final text", ""),
            ("completed", "session ended"),
        ]


async def test_input_reaches_the_task_that_waits(tmp_path: Path) -> None:
    """The question comes here, the answer goes there, and nothing is told twice."""

    async def script(work: Work) -> None:
        work.turn()
        name = await work.ask("who?")
        work.say(name, final=True)
        work.complete(name)

    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        task_id = await here.send()
        assert (await here.reaches(task_id, "input-required")).output == "who?"
        await here.give("Ada")
        assert (await here.over(task_id)).output == "Ada"
        states = [each for each in await here.told(task_id) if each[0] in ("input-required", "working")]
        assert states == [
            ("working", "inference turn 1"),
            ("input-required", "who?"),
            ("working", "resumed"),
        ]


async def test_a_cancel_reaches_the_task(tmp_path: Path) -> None:
    """Canceled here is canceled there."""

    async def script(work: Work) -> None:
        work.turn()
        await asyncio.sleep(3600)

    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        task_id = await here.send()
        await until(lambda: door.frames, what="the task to begin")
        await here.reaches(task_id, "working")
        await here.engine.cancel(task_id)
        await until(lambda: [w.state for w in door.tasks.values()] == ["canceled"])
        assert here.engine.residue(task_id) == ()


def _said(door: ScriptedDoor, number: int) -> bool:
    return door.head >= number + 2


async def test_a_broken_connection_is_taken_up_again(tmp_path: Path) -> None:
    """Each break is followed by a watch from the last id, and no piece is lost or told twice."""
    go = asyncio.Event()

    async def script(work: Work) -> None:
        work.turn()
        for number in range(300):
            work.say(f"{number} ")
            if number % 100 == 50:
                await go.wait()
                go.clear()
        work.say("", final=True)
        work.complete("".join(f"{number} " for number in range(300)))

    whole = "".join(f"{number} " for number in range(300))
    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        task_id = await here.send()
        for number in (50, 150, 250):
            await until(partial(_said, door, number))
            door.cut()
            go.set()
        task = await here.over(task_id)
        assert task.output == whole
        assert await here.text(task_id) == whole
        assert len(door.tasks) == 1


async def test_ten_thousand_pieces_arrive_whole(tmp_path: Path) -> None:
    """What a door says at once arrives complete and in order."""

    async def script(work: Work) -> None:
        work.turn()
        for number in range(10_000):
            work.say(f"{number} ")
            if number % 100 == 0:
                await asyncio.sleep(0)
        work.say("", final=True)
        work.complete("x")

    whole = "".join(f"{number} " for number in range(10_000))
    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        task = await here.over(await here.send())
        assert await here.text(task.id) == whole


async def test_a_restart_of_the_door_ends_the_task_clearly(tmp_path: Path) -> None:
    """Another session does not know the task: it fails, and says so."""

    async def script(work: Work) -> None:
        work.turn()
        work.say("half")
        await asyncio.sleep(3600)

    async with scripted_door(script) as door, forwarding(tmp_path, forwarded(door.url)) as here:
        task_id = await here.send()
        await until(lambda: here.text(task_id))
        await door.die()
        await door.start()
        task = await here.over(task_id)
        assert task.state == "failed"
        assert task.status is not None
        assert "does not know the task any more" in task.status


async def test_a_restart_of_the_sidecar_takes_the_task_up_again(tmp_path: Path) -> None:
    """What was said meanwhile is told afterwards, once, and the task is not started anew."""
    go = asyncio.Event()

    async def script(work: Work) -> None:
        work.turn()
        work.say("one ")
        await go.wait()
        work.say("two ")
        work.say("", final=True)
        work.complete("one two ")

    async with scripted_door(script) as door:
        async with forwarding(tmp_path, forwarded(door.url)) as here:
            task_id = await here.send()
            await until(lambda: here.text(task_id))
        go.set()
        await until(lambda: door.head == 5)
        async with forwarding(tmp_path, forwarded(door.url)) as here:
            assert (await here.over(task_id)).output == "one two "
            assert await here.text(task_id) == "one two "
        assert len(door.tasks) == 1
