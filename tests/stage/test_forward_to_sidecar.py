"""A sidecar as the worker of another one: murmur on both sides, over real sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.model import Lifecycle, Manifest, TaskAcceptance
from sidecar.tasks import said
from tests.support.forwarding import forwarded, forwarding
from tests.support.serving import bench
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.tasks.engine import Engine
    from sidecar.tasks.orders import Claim

QUEUE = Manifest("there", "1", lifecycle=Lifecycle(task_acceptance=TaskAcceptance.QUEUE, queue_depth=8))


async def claimed(engine: Engine) -> Claim:
    """Take the next task, as a worker would."""
    assert await engine.claimable()
    claim = await engine.claim()
    assert claim is not None
    return claim


async def test_a_task_goes_through_two_sidecars(tmp_path: Path) -> None:
    """Pieces, a question, its answer and the end arrive as they were said, with a restart in between."""
    (tmp_path / "there").mkdir()
    async with bench(tmp_path / "there") as there:
        await there.serve(there.want("there", manifest=QUEUE))
        engine = await there.engine("there")
        served = forwarded(f"http://localhost:{there.port('there')}")
        async with forwarding(tmp_path, served) as here:
            task_id = await here.send("hello")
            claim = await claimed(engine)
            assert claim.inputs[0].text == "hello"
            await engine.report(claim.task.id, [said.Text("a"), said.Tool("grep", "found")])
            await until(lambda: here.text(task_id))
        await engine.report(claim.task.id, [said.Turn(), said.InputRequired("who?")])
        async with forwarding(tmp_path, served) as here:
            await here.reaches(task_id, "input-required")
            await here.give("Ada")
            orders = engine.orders(claim.task.id)
            assert await orders.wait(5)
            assert [given.text for given in orders.take()] == ["Ada"]
            await engine.report(claim.task.id, [said.Text("b"), said.Completed()])
            assert (await here.over(task_id)).output == "b"
            assert await here.told(task_id) == [
                ("working", "inference turn 1"),
                ("text", "a"),
                ("tool", "grep"),
                ("working", "inference turn 2"),
                ("input-required", "who?"),
                ("working", "resumed"),
                ("text", "b"),
                ("final text", ""),
                ("completed", "session ended"),
            ]


async def test_a_cancel_goes_through_two_sidecars(tmp_path: Path) -> None:
    """Also for a task that nobody has begun with."""
    (tmp_path / "there").mkdir()
    async with bench(tmp_path / "there") as there:
        await there.serve(there.want("there", manifest=QUEUE))
        engine = await there.engine("there")
        served = forwarded(f"http://localhost:{there.port('there')}")
        async with forwarding(tmp_path, served) as here:
            task_id = await here.send("hello")
            await until(lambda: engine.counts() == {"submitted": 1})
            await here.engine.cancel(task_id)
            claim = await claimed(engine)
            await until(lambda: engine.orders(claim.task.id).canceled)
            found = await engine.get(claim.task.id)
            assert found is not None
            assert found.state == "canceled"
