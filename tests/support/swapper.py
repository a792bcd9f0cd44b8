"""A hostile neighbour: swaps files and directories of an export for links to a secret, as fast as it can.

Run as a program with the workspace as its argument, until its standard input is closed.
"""

from __future__ import annotations

import select
import sys
from pathlib import Path


def swap(place: Path, *others: Path) -> None:
    """Put each of the others in the place in turn, leaving what was there in its stead."""
    for other in others:
        aside = place.with_name(place.name + ".aside")
        place.rename(aside)
        other.rename(place)
        place.rename(other)
        aside.rename(place)


def replace(place: Path, target: str | None, data: bytes) -> None:
    """Replace a name atomically by a link, or by a file."""
    fresh = place.with_name(place.name + ".new")
    if target is None:
        fresh.write_bytes(data)
    else:
        fresh.symlink_to(target)
    fresh.replace(place)


def main(workspace: Path) -> None:
    """Swap until told to stop."""
    root, outside = workspace / "root", workspace / "outside"
    targets = ["../outside/f", str(outside / "f"), None, "../root/dir/f", "../../outside/f", None]
    rounds = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        target = targets[rounds % len(targets)]
        replace(root / "file", target, b"inside")
        replace(root / "deep/a/f", target and f"../../{target}", b"inside")
        swap(root / "dir", workspace / "link-out", workspace / "link-abs", workspace / "real")
        swap(root / "deep/a", workspace / "link-up")
        swap(root / "deep", workspace / "link-out")
        swap(root, workspace / "link-outside", workspace / "link-far")
        rounds += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
