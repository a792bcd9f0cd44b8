"""UUIDs that ascend (RFC 9562)."""

from __future__ import annotations

import re
import time
import uuid
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from sidecar.ops.uuid7 import Uuid7, new_id


def test_an_id_is_a_version_7_uuid_of_its_moment() -> None:
    """The time of the example in RFC 9562, appendix A.6, gives its leading digits, version and variant."""
    moment = datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)
    made = Uuid7(clock=lambda: int(moment.timestamp()) * 10**9, random=lambda _: 0)()
    assert made == "017f22e279b070008000000000000000"
    parsed = uuid.UUID(made)
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122


@given(st.lists(st.integers(0, 2**47 * 10**6), min_size=2, max_size=50), st.integers(0, 2**62 - 1))
def test_ids_of_one_maker_ascend_whatever_the_clock_does(ticks: list[int], random: int) -> None:
    """A clock that stands still or goes back does not break the order, and every id is one of version 7."""
    clock = iter(ticks)
    maker = Uuid7(clock=lambda: next(clock), random=lambda _: random)
    made = [maker() for _ in ticks]
    assert made == sorted(set(made))
    assert all(uuid.UUID(one).version == 7 for one in made)


def test_ids_carry_their_prefix_and_differ() -> None:
    """An id is its prefix and 32 lowercase hex digits, of about now."""
    made = {new_id("ses_") for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch(r"ses_[0-9a-f]{32}", one) for one in made)
    assert abs(int(min(made)[4:16], 16) - time.time_ns() // 10**6) < 60_000
