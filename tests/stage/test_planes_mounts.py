"""Mount points below an export root: real ones, in a mount namespace of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.planes import RESOLVERS, SECRET

INSIDE = SECRET.decode()


def in_a_namespace(place: Path) -> dict[str, Any]:
    """Run the program of tests/support/mounts.py where nobody sees its mounts."""
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-m", "tests.support.mounts", str(place)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.machine
def test_a_workspace_may_be_a_file_system_of_its_own(tmp_path: Path) -> None:
    """It may come and go while it is served: not found and empty without it, and what is there now with it."""
    missing, there, again = ["not_found", ""], ["on the disk", "f"], ["another", "f"]
    assert in_a_namespace(tmp_path)["elsewhere"] == [*missing, *there, *missing, *again, *missing]


@pytest.mark.machine
def test_the_quick_way_crosses_no_mount_at_all(tmp_path: Path) -> None:
    """Not even where it might: only the mount that a thread saw the tree on; the root may be a mount itself."""
    found = in_a_namespace(tmp_path)["quickly"]
    assert set(found) <= {"root plain plain", "bound-root plain plain"}
    if not found:
        pytest.skip("the quick way does not work here")


@pytest.mark.machine
def test_a_mount_point_below_the_root_is_outside_unless_it_may_be_crossed(tmp_path: Path) -> None:
    """Bind mounts of the same file system too, of a directory and of a file; the root may be a mount itself (H42)."""
    found = in_a_namespace(tmp_path)
    for name in RESOLVERS:
        for root in ("root", "bound-root"):
            assert found[f"{name} {root} stay"] == {
                "plain": "plain",
                "bound/secret": "outside_root",
                "tmp/x": "outside_root",
                "file": "outside_root",
                "bound": "outside_root",
                "to-bound": "outside_root",
                "bound/up": "outside_root",
                "listing": ["plain"],
            }
            assert found[f"{name} {root} cross"] == {
                "plain": "plain",
                "bound/secret": INSIDE,
                "tmp/x": "in tmpfs",
                "file": INSIDE,
                "bound": "not_a_regular_file",
                "to-bound": INSIDE,
                "bound/up": "plain",
                "listing": ["bound/secret", "bound/up", "file", "plain", "tmp/x", "to-bound"],
            }
