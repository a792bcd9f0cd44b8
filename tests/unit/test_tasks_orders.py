"""Who has which task, and what workers hear: without an engine."""

from __future__ import annotations

import asyncio

from sidecar.tasks.model import Delivery, Input
from sidecar.tasks.orders import Bell, Hands, Orders


def delivery(seq: int) -> Delivery:
    """Return input number so and so."""
    return Delivery("tsk_1", seq, Input(str(seq), "{}"))


def texts(orders: Orders) -> list[str]:
    """Take what there is."""
    return [given.text for given in orders.take()]


async def test_a_bell_wakes_all_who_wait_and_none_who_comes_later() -> None:
    """Whoever leaves is forgotten."""
    bell = Bell()
    waiting = [asyncio.ensure_future(bell.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    bell.ring()
    bell.ring()
    await asyncio.gather(*waiting[1:])
    later = asyncio.ensure_future(bell.wait())
    await asyncio.sleep(0)
    assert not later.done()
    bell.ring()
    await later


async def test_a_wait_ends_with_its_time() -> None:
    """Whether somebody rang or not."""
    bell = Bell()
    await bell.wait(0.001)
    ringing = asyncio.ensure_future(bell.wait(60.0))
    await asyncio.sleep(0)
    bell.ring()
    await ringing


async def test_input_is_heard_once_in_order_and_not_what_the_worker_has() -> None:
    """Whichever comes first, the input or the word that it is known."""
    orders = Orders()
    for seq in (3, 5):
        orders.give(delivery(seq))
    assert texts(orders) == ["3", "5"]
    orders.give(delivery(7))
    orders.give(delivery(9))
    orders.heard(7)
    orders.give(delivery(6))
    assert await orders.wait()
    assert texts(orders) == ["9"]
    assert await orders.wait(0) is False


async def test_whoever_is_let_go_waits_no_more() -> None:
    """Nothing is to be heard, and the task is not over."""
    orders = Orders()
    waiting = asyncio.ensure_future(orders.wait())
    await asyncio.sleep(0)
    orders.let_go()
    assert await waiting is False
    assert await orders.wait() is False
    assert not orders.canceled


async def test_a_task_that_is_given_back_ends_for_its_worker() -> None:
    """It waits for another one, and is in hands all the same."""
    hands = Hands()
    assert hands.take("a") is True
    orders = hands.held("a")
    assert orders is not None
    hands.give_back("a", attempt=True)
    assert orders.canceled
    assert hands.held("a") is None
    assert ("a" in hands, hands.given_back()) == (True, ("a",))


def test_the_next_attempt_is_counted_as_the_way_back_says() -> None:
    """A task that was never given back is a first attempt."""
    hands = Hands()
    for attempt in (True, False):
        hands.give_back("a", attempt=attempt)
        assert hands.take("a") is attempt
    assert hands.take("b") is True


def test_tasks_wait_for_another_worker_in_the_order_in_which_they_came_back() -> None:
    """Until they are taken, over, or dropped."""
    hands = Hands()
    for task_id in "abcd":
        hands.give_back(task_id, attempt=True)
    hands.take("b")
    hands.end("a")
    hands.drop("d")
    assert hands.given_back() == ("c",)
    assert [task_id for task_id in "abcd" if task_id in hands] == ["b", "c"]


def test_when_all_are_let_go_nothing_is_in_hands() -> None:
    """Nobody hears that anything is over."""
    hands = Hands()
    hands.take("a")
    hands.give_back("b", attempt=True)
    orders = hands.held("a")
    hands.let_go()
    assert orders is not None
    assert not orders.canceled
    assert "a" not in hands
    assert "b" not in hands
