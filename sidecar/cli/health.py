"""`sidecar health`: standard library and `state.py` only, since container engines run it every few seconds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from sidecar.cli.output import complain, print_json
from sidecar.cli.running import Running, call

if TYPE_CHECKING:
    import argparse

PATIENCE: Final = 3.0
"""Seconds after which a sidecar that says nothing is not ready: less than container engines are told to wait."""


def health(arguments: argparse.Namespace) -> int:
    """Exit with 0 when the running sidecar says that it is ready, else with 1 and the reason."""
    running = Running.find(arguments.state)
    answer = call(running, "GET", "/readyz", token=False, timeout=PATIENCE)
    detail = json.loads(answer.body)
    if arguments.json:
        print_json(detail)
    elif answer.status == 200:  # noqa: PLR2004 - HTTP's own number
        print("ready")
    if answer.status != 200:  # noqa: PLR2004
        complain(
            f"not ready: {detail.get('status', answer.status)} (GET {running.desk_url}/readyz says more)"
        )
        return 1
    return 0
