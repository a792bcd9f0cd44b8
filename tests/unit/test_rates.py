"""How often a caller may ask."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.auth.rate import MOST, Rates
from sidecar.model import Rate


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_a_caller_may_use_up_its_allowance_and_then_waits() -> None:
    """The answer says for how many whole seconds; others are not concerned."""
    clock = Clock()
    rates, rate = Rates(clock), Rate(3, 60.0)
    assert [rates.take("a", rate) for _ in range(4)] == [None, None, None, 20]
    assert rates.take("b", rate) is None
    clock.now += 19.5
    assert rates.take("a", rate) == 1
    clock.now += 0.5
    assert rates.take("a", rate) is None
    assert rates.take("a", rate) == 20
    clock.now += 1e6
    assert [rates.take("a", rate) for _ in range(4)] == [None, None, None, 20]


@given(
    st.integers(1, 20),
    st.sampled_from([1.0, 60.0, 3600.0]),
    st.lists(st.floats(0, 100), min_size=1, max_size=60),
)
@example(
    requests=1, period=60.0, pauses=[4.108947084806665, 0.0]
)  # the sum of times is a hair under a minute
def test_no_more_pass_than_the_rate_allows(requests: int, period: float, pauses: list[float]) -> None:
    """At most the allowance, and what came back over time; who waits as long as it was told passes."""
    clock = Clock()
    rates, rate = Rates(clock), Rate(requests, period)
    passed = 0
    for pause in pauses:
        clock.now += pause
        wait = rates.take("a", rate)
        passed += wait is None
        assert passed <= requests + clock.now * requests / period + 1e-6
        if wait is not None:
            clock.now += wait
            assert rates.take("a", rate) is None
            passed += 1


def test_callers_beyond_a_number_are_forgotten() -> None:
    """So that a flood of addresses fills no memory."""
    rates, rate = Rates(Clock()), Rate(1, 60.0)
    for number in range(MOST + 10):
        rates.take(number, rate)
    assert rates.take(MOST + 9, rate) is not None
    assert rates.take(0, rate) is None
