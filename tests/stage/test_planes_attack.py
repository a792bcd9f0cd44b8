"""Several neighbours swap everything under an export at once, while clients read and list on real ports."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.attack import HARD
from tests.support.planes import SECRET, SECRET_SHA

SECONDS = 4.0
CODES = {"not_found", "outside_root", "symlink_refused", "not_a_regular_file"}
SHOWN = {"inside", HARD.decode(), "listed"}
HASHES = {hashlib.sha256(data).hexdigest() for data in (b"inside", b"", HARD)}


def attack(place: Path, resolver: str, *neighbours: str, prefix: tuple[str, ...] = ()) -> None:
    """Run the attack and look at what came of it."""
    command = [sys.executable, "-m", "tests.support.attack", str(place), resolver, str(SECONDS), *neighbours]
    done = subprocess.run(
        [*prefix, *command],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("left over") == {"threads_stuck": 0, "descriptors": 0, "threads": 0}
    for containment, seen in found.items():
        kinds = {key for key in seen if not key.startswith("name ")}
        assert SECRET.decode() not in seen
        assert SECRET_SHA not in seen
        assert kinds <= CODES | SHOWN | HASHES | {""}, kinds
        assert seen["inside"]
        assert seen["listed"]
        assert seen["not_a_regular_file"]
        assert seen["symlink_refused" if containment == "scoped" else "outside_root"]
        assert seen[HARD.decode()], "a hard link is served, and documented"


@pytest.mark.parametrize("resolver", ["openat2", "walk"])
def test_no_neighbour_gets_a_byte_from_outside_served(tmp_path: Path, resolver: str) -> None:
    """Links, directories, FIFOs and hard links change places under the root: only the hard link shows, no thread hangs."""
    attack(tmp_path, resolver, "kinds", "kinds")


@pytest.mark.machine
@pytest.mark.parametrize("resolver", ["openat2", "walk"])
def test_no_mount_that_comes_and_goes_is_served(tmp_path: Path, resolver: str) -> None:
    """The same, with bind mounts from outside over a directory and a file of the root."""
    attack(tmp_path, resolver, "kinds", "mounts", prefix=("unshare", "-Urm"))
