"""When something is tried again."""

from __future__ import annotations

from sidecar.daemon.again import FIRST, LAST, Again


def test_pauses_double_up_to_the_longest() -> None:
    """What fails again and again is tried more and more rarely, and never given up."""
    again = Again()
    assert not again.is_due(1e9)
    pauses = []
    for _ in range(8):
        again.failed(100.0)
        assert again.due is not None
        pauses.append(again.due - 100.0)
    assert pauses == [FIRST, 0.5, 1.0, 2.0, LAST, LAST, LAST, LAST]
    assert (again.is_due(103.9), again.is_due(104.0)) == (False, True)


def test_what_is_over_begins_anew() -> None:
    """After a success the next failure is tried again soon."""
    again = Again()
    for _ in range(5):
        again.failed(0.0)
    again.over()
    assert not again.is_due(1e9)
    again.failed(0.0)
    assert again.due == FIRST


def test_the_earlier_of_two_times_counts() -> None:
    """Nothing to try, or nothing else to wait for, leaves the other one."""
    again = Again()
    assert again.sooner(None) is None
    assert again.sooner(5.0) == 5.0
    again.failed(1.0)
    assert (again.sooner(None), again.sooner(1.1), again.sooner(9.0)) == (1.0 + FIRST, 1.1, 1.0 + FIRST)
