"""What a kill -9 at any moment leaves: everything that was acknowledged and seen, once, and nothing that still runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.tasks.backends.command import INTERRUPTED
from tests.support.crash_model import COMMAND, INBOX
from tests.support.crashing import KINDS, LIFE, life

if TYPE_CHECKING:
    from pathlib import Path


async def test_nothing_acknowledged_or_seen_is_lost_by_kills_under_load(tmp_path: Path) -> None:
    """25 kills before, inside and after commits, at any moment and while starting; then all tasks end as they may."""
    kills, ended = await life(tmp_path, LIFE, seed=3)
    assert kills.keys() == set(KINDS)
    assert ended[COMMAND][INTERRUPTED]
    assert ended[COMMAND]["again"]
    assert ended[INBOX]["again"]
    assert all(ended[name][state] for name in ended for state in ("completed", "canceled"))
