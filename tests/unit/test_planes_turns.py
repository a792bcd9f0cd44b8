"""Turns at a file: one at a time, passed on whatever happens, and not waited for where nothing moves."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from sidecar.errors import RefusedError
from sidecar.planes.turns import Turns

if TYPE_CHECKING:
    import os
    from pathlib import Path


@pytest.fixture
def facts(tmp_path: Path) -> os.stat_result:
    """What a file is."""
    return tmp_path.stat()


async def have(turns: Turns, facts: os.stat_result, had: list[int], number: int = 0) -> None:
    """Have a turn, and note that."""
    async with turns.at(facts):
        had.append(number)


async def test_a_turn_is_passed_on_in_order_whoever_leaves(facts: os.stat_result) -> None:
    """One that is cancelled while it waits is passed over, and one that fails has had its turn."""
    turns, had = Turns(), list[int]()
    async with asyncio.TaskGroup() as group:
        with suppress(ZeroDivisionError):
            async with turns.at(facts):
                waiting = [group.create_task(have(turns, facts, had, number)) for number in range(3)]
                await asyncio.sleep(0)
                waiting[1].cancel()
                await asyncio.sleep(0)
                assert had == []
                raise ZeroDivisionError
    assert had == [0, 2]


async def test_files_have_turns_of_their_own(facts: os.stat_result, tmp_path: Path) -> None:
    """Nobody waits for another file."""
    turns, had = Turns(), list[int]()
    async with turns.at(facts):
        await have(turns, tmp_path.parent.stat(), had)
    assert had == [0]


async def test_who_waits_while_nothing_moves_is_refused(facts: os.stat_result) -> None:
    """As by the threads of a disk that hangs; whoever comes later is refused too, and the turn stays whole."""
    turns, had = Turns(patience=0.05), list[int]()
    async with turns.at(facts):
        for _ in range(2):
            with pytest.raises(RefusedError) as caught:
                await have(turns, facts, had)
            assert caught.value.refusal.code == "unavailable"
    await have(turns, facts, had)
    assert had == [0]


async def test_who_waits_while_it_moves_waits_on(facts: os.stat_result) -> None:
    """However long it takes."""
    turns, had = Turns(patience=2.0), list[int]()
    clock = asyncio.get_running_loop().time
    async with asyncio.TaskGroup() as group, turns.at(facts) as moved:
        waiting = group.create_task(have(turns, facts, had))
        until = clock() + 2.5
        while clock() < until:
            await asyncio.sleep(0.01)
            moved()
        assert not waiting.done()
    assert had == [0]
