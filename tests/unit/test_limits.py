"""The descriptor budget."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.ops.limits import Budget, budget


@pytest.mark.parametrize(
    ("soft", "reserve", "listeners"),
    [(1024, 256, 768), (256, 128, 128), (64, 64, 0), (524_288, 4096, 520_192)],
)
def test_a_part_of_the_descriptors_is_kept_for_clients(soft: int, reserve: int, listeners: int) -> None:
    """A quarter is kept back, at least 128 and at most 4,096; listeners get the rest."""
    assert budget(soft, soft) == Budget(soft, soft, reserve)
    assert budget(soft, soft).fields()["listeners"] == listeners


@given(st.integers(min_value=0, max_value=2**31))
def test_the_budget_never_promises_more_than_there_is(soft: int) -> None:
    """Reserve and listeners add up to the limit, and neither is negative."""
    parts = budget(soft, soft)
    assert parts.reserve + parts.listeners == soft
    assert parts.listeners >= 0


def test_an_infinite_limit_is_taken_as_the_kernel_s() -> None:
    """Where the limit is said to be infinite the kernel's usual maximum counts."""
    assert budget(resource.RLIM_INFINITY, resource.RLIM_INFINITY).soft == 1_048_576


PROGRAM = """
import resource, sys
from sidecar.ops import limits
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
if sys.argv[1:]:
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")
    resource.setrlimit = refuse
print(limits.claim_descriptors())
"""


@pytest.mark.parametrize(("arguments", "soft"), [((), 300), (("refused",), 100)])
def test_the_soft_limit_is_raised_to_the_hard_one_where_that_is_allowed(
    arguments: tuple[str, ...], soft: int
) -> None:
    """The process gets all that its hard limit allows; a refusal (a seccomp filter) leaves it as it is."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"Budget(soft={soft}, hard=300," in done.stdout
