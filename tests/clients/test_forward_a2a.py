"""Tasks handed on to the official SDK's servers, of A2A 0.3 and 1.0."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.support.agents import agent
from tests.support.forwarding import forwarded, forwarding
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.forwarding import Forwarding

VERSIONS = pytest.mark.parametrize("version", ["0.3", "1.0"])


def counted(count: int) -> str:
    """Return what an agent says that is to count."""
    return "".join(f"{number} " for number in range(count))


@VERSIONS
async def test_what_an_agent_does_comes_back(tmp_path: Path, version: str) -> None:
    """Pieces, artifacts, messages and failures are told in the one vocabulary."""
    with agent(version) as there:
        async with forwarding(tmp_path, forwarded(there.url)) as here:
            task = await here.over(await here.send("chunks 3"))
            assert await here.told(task.id) == [
                ("working", "inference turn 1"),
                ("working", "at it"),
                ("text", "0 "),
                ("text", "1 "),
                ("text", "2 "),
                ("final text", ""),
                ("completed", "session ended"),
            ]
            assert task.output == "0 1 2 "

            task = await here.over(await here.send("make"))
            assert task.output == "made it"
            assert ("artifact", "report") in await here.told(task.id)

            task = await here.over(await here.send("message"))
            assert (task.state, task.output) == ("completed", "just so")

            task = await here.over(await here.send("fail"))
            assert (task.state, task.status) == ("failed", "no luck")


@VERSIONS
async def test_input_and_a_cancel_reach_the_agent(tmp_path: Path, version: str) -> None:
    """An answer goes to the task that asked; a cancel ends the one that runs."""
    with agent(version) as there:
        async with forwarding(tmp_path, forwarded(there.url)) as here:
            task_id = await here.send("ask")
            assert (await here.reaches(task_id, "input-required")).output == "who?"
            await here.give("Ada")
            assert (await here.over(task_id)).output == "you said Ada"

            task_id = await here.send("wait")
            await until(partial(at_it, here, task_id))
            await here.engine.cancel(task_id)
            await until(lambda: not here.backend.busy)
            assert here.engine.residue(task_id) == ()


async def at_it(here: Forwarding, task_id: str) -> bool:
    """Whether the agent has said that it is at a task."""
    return ("working", "at it") in await here.told(task_id)


@pytest.mark.parametrize(
    ("version", "count"),
    [
        ("0.3", 10_000),
        ("1.0", 1_000),
        # the official server of this version copies the whole task at each chunk: it takes a minute for these
        pytest.param("1.0", 10_000, marks=pytest.mark.machine),
    ],
)
async def test_ten_thousand_chunks_arrive_whole(tmp_path: Path, version: str, count: int) -> None:
    """Nothing is lost, doubled or reordered."""
    with agent(version) as there:
        async with forwarding(tmp_path, forwarded(there.url)) as here:
            task = await here.over(await here.send(f"chunks {count}"), within=200.0)
            assert task.output == counted(count)
            assert await here.text(task.id) == counted(count)


@VERSIONS
async def test_the_agents_restart_in_mid_stream_ends_the_task_clearly(tmp_path: Path, version: str) -> None:
    """An agent that kept nothing does not know the task any more, and that is said."""
    with agent(version) as there:
        async with forwarding(tmp_path, forwarded(there.url)) as here:
            task_id = await here.send("chunks 100000 slowly")
            await until(lambda: here.text(task_id))
            there.kill()
            there.start()
            task = await here.over(task_id)
            assert task.state == "failed"
            assert task.status is not None
            assert "does not know the task any more" in task.status


@VERSIONS
async def test_a_restart_of_the_sidecar_takes_the_stream_up_again(tmp_path: Path, version: str) -> None:
    """What the agent said meanwhile is told afterwards; the reply is whole."""
    with agent(version) as there:
        async with forwarding(tmp_path, forwarded(there.url)) as here:
            task_id = await here.send("chunks 400 slowly")
            await until(lambda: here.text(task_id))
        async with forwarding(tmp_path, forwarded(there.url)) as here:
            task = await here.over(task_id)
            assert task.output == counted(400)
            assert await here.text(task_id) == counted(400)


@VERSIONS
async def test_an_agent_that_does_not_stream_is_asked(tmp_path: Path, version: str) -> None:
    """Where the card says that there are no streams, the task is looked at until it is over."""
    with agent(version, "plain") as there:
        async with forwarding(tmp_path, forwarded(there.url)) as here:
            assert (await here.over(await here.send("chunks 50 slowly"))).output == counted(50)
            task_id = await here.send("ask")
            await here.reaches(task_id, "input-required")
            await here.give("Ada")
            assert (await here.over(task_id)).output == "you said Ada"


@VERSIONS
async def test_a_task_that_waits_is_not_asked_for_twice(tmp_path: Path, version: str) -> None:
    """After a restart of the sidecar the question stands as it stood, and the answer still goes there."""
    with agent(version) as there:
        async with forwarding(tmp_path, forwarded(there.url)) as here:
            task_id = await here.send("ask")
            await here.reaches(task_id, "input-required")
        async with forwarding(tmp_path, forwarded(there.url)) as here:
            await until(lambda: here.backend.busy)
            await here.give("Ada")
            assert (await here.over(task_id)).output == "you said Ada"
            asked = [each for each in await here.told(task_id) if each[0] == "input-required"]
            assert asked == [("input-required", "who?")]
