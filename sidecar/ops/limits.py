"""The limits of the process: how many descriptors there are, and how many of them listeners may take.

Meeting the limit in `accept` would silence a listener for a second at a time, again and again; so the listener
that is one too many is refused before it is opened.
"""

from __future__ import annotations

import contextlib
import resource
from dataclasses import dataclass
from typing import Final

LEAST_RESERVE: Final = 128
MOST_RESERVE: Final = 4096
FOR_CLIENTS: Final = 0.75
FOR_THE_REST: Final = 112
"""The part of the reserve that connections may take; but so many are for what is always open, and for clients that are turned away."""
FEWEST_CONNECTIONS: Final = 16
UNLIMITED: Final = 1_048_576
"""Taken where the hard limit is said to be infinite: the kernel's usual `fs.nr_open`."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The descriptors of the process: soft and hard limit, and how many are kept back.

    `reserve` is for everything but listeners: connections, files being read, the database, the watcher.
    """

    soft: int
    hard: int
    reserve: int

    @property
    def listeners(self) -> int:
        """How many listening sockets may be open at once: one per capsule and address."""
        return self.soft - self.reserve

    @property
    def connections(self) -> int:
        """How many connections to capsules may be open at once."""
        return max(FEWEST_CONNECTIONS, min(int(self.reserve * FOR_CLIENTS), self.reserve - FOR_THE_REST))

    def fields(self) -> dict[str, int]:
        """Return what the log line `descriptor_budget` says."""
        return {"soft": self.soft, "hard": self.hard, "reserve": self.reserve, "listeners": self.listeners}


def budget(soft: int, hard: int) -> Budget:
    """Divide a limit: a quarter, within bounds, is kept back for connections and files."""
    soft, hard = (UNLIMITED if n == resource.RLIM_INFINITY else n for n in (soft, hard))
    return Budget(soft, hard, min(soft, max(LEAST_RESERVE, min(soft // 4, MOST_RESERVE))))


def claim_descriptors() -> Budget:
    """Raise the soft limit on open files to the hard one where that is allowed, and return the budget."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = UNLIMITED if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # A seccomp filter or a container may forbid it: the budget then says what there is.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return budget(soft, hard)
