"""Cases of input-required, one test each, over the socket of a served capsule (murmur reference, The door)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.model import TaskAcceptance
from tests.support.port import message, served, taking
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

SINGLE = taking(TaskAcceptance.SINGLE)


async def test_a_task_that_asks_shows_its_question_as_its_one_artifact(tmp_path: Path) -> None:
    """`input-required`, with one artifact `prompt`."""
    async with served(tmp_path, SINGLE) as port:
        task_id = await port.send()
        await (await port.work()).ask("Which colour?")
        task = await port.task(task_id)
        assert task["status"] == {"state": "input-required"}
        assert task["artifacts"] == [{"name": "prompt", "parts": [{"text": "Which colour?"}]}]


async def test_the_next_send_answers_it(tmp_path: Path) -> None:
    """Another messageId, no task id: the same task comes back, working, and its prompt is gone."""
    async with served(tmp_path, SINGLE) as port:
        task_id = await port.send()
        working = await port.work()
        await working.ask("Which colour?")
        task = await port.result("message/send", message("red"))
        assert (task["id"], task["status"], "artifacts" in task) == (task_id, {"state": "working"}, False)
        assert await port.task(task_id) == task
        assert [given.text for given in working.orders.take()] == ["red"]
        await working.complete("Red it is.")
        assert (await port.task(task_id))["artifacts"] == [
            {"name": "response", "parts": [{"text": "Red it is."}]}
        ]


async def test_a_send_while_a_single_task_works_is_rejected(tmp_path: Path) -> None:
    """It waits for nothing, so nothing is delivered; also once it has been answered."""
    async with served(tmp_path, SINGLE) as port:
        await port.send()
        working = await port.work()
        for _ in range(2):
            rejected = await port.result("message/send", message("blue"))
            assert rejected["status"]["state"] == "rejected"
            assert working.orders.take() == ()
            await working.ask("Which colour?")
            assert (await port.result("message/send", message("red")))["id"] == working.id
            assert len(working.orders.take()) == 1


async def test_input_that_does_not_come_fails_the_task_and_stops_its_worker(tmp_path: Path) -> None:
    """Failed with `input-timeout`; what the worker says later changes nothing, and there is room again."""
    async with served(tmp_path, taking(TaskAcceptance.SINGLE, input_timeout_secs=1)) as port:
        task_id = await port.send()
        working = await port.work()
        orders = working.orders
        await working.ask("Which colour?")

        async def failed() -> bool:
            return await port.state(task_id) == "failed"

        await until(failed, within=10)
        assert orders.canceled
        task = await port.task(task_id)
        assert task["status"]["message"]["parts"] == [{"text": "input-timeout"}]
        assert "artifacts" not in task
        await working.complete("late")
        assert await port.task(task_id) == task
        await port.send("next")


async def test_the_stream_of_it_ends_with_exactly_one_final_status(tmp_path: Path) -> None:
    """Input-required, then failed with `input-timeout`, the last frame before the end."""
    async with served(tmp_path, taking(TaskAcceptance.SINGLE, input_timeout_secs=1)) as port:
        stream = await port.stream()
        await (await port.work()).ask("Which colour?")
        frames = await stream.frames_to_eof()
        assert [
            (frame.data["status"]["state"], frame.data["status"]["message"], frame.data["final"])
            for frame in frames
        ] == [
            ("working", "inference turn 1", False),
            ("input-required", "Which colour?", False),
            ("failed", "input-timeout", True),
        ]
