"""The line that a service manager shows of the sidecar: what it serves, what needs a look, where its desk is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.registry.view import View


def status_line(view: View, counts: Mapping[str, int], desk: str, refused: str | None) -> str:
    """Return the line; `counts` are of capsules by state, `refused` is why the newest configuration is not in force.

    The counts come first, since a manager cuts what is long.
    """
    behind = view.behind()
    unread = sum(root.last_error is not None for root in view.roots())
    parts = [
        ", ".join(f"{count} {state}" for state, count in counts.items()),
        f"{behind} by the last good manifest" if behind else "",
        f"{unread} root{'' if unread == 1 else 's'} not read" if unread else "",
        f"desk at {desk}",
        f"configuration refused: {refused}" if refused is not None else "",
    ]
    return "; ".join(part for part in parts if part)
