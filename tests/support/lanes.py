"""Ports for the lane that a test runs in: two lanes run side by side, and neither takes the other's ports."""

from __future__ import annotations

import os
from typing import Final

_FIRST: Final = 24000
_EACH: Final = 4000

LANE: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 2
FIRST_PORT: Final = _FIRST + LANE * _EACH
PORTS: Final = f"{FIRST_PORT}-{FIRST_PORT + _EACH - 1}"
"""What the sidecars of this lane may choose from."""
