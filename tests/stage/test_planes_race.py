"""Reads and listings while another process swaps everything on the way for links to a secret."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from sidecar.errors import RefusedError
from sidecar.planes.beneath import Openat2, Rules, Walk
from sidecar.planes.cached import Cached
from sidecar.planes.memory import Memory
from sidecar.planes.reading import Tree
from sidecar.planes.reading import read as read_any
from tests.support import swapper
from tests.support.planes import SECRET, SECRET_SHA, contested, entries, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sidecar.planes.beneath import Resolver

SECONDS = 1.5
PATHS = (b"file", b"dir/f", b"deep/a/f", b"link/f", b"deep/a/up/dir/f", b"outside/f", b"f")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """What everybody fights over."""
    return contested(tmp_path)


@contextlib.contextmanager
def swapping(workspace: Path) -> Iterator[None]:
    """Run the hostile neighbour meanwhile; it must live to the end."""
    command = [sys.executable, swapper.__file__, str(workspace)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as neighbour:
        try:
            yield
        finally:
            alive = neighbour.poll() is None
            assert neighbour.stdin is not None
            neighbour.stdin.close()
            neighbour.wait(10)
    assert alive


def look(resolver: Resolver, tree: Tree, until: float, seen: Counter[str]) -> None:
    """Read and list until the time is over; count what came."""
    memory, cached = Memory(now_ns=lambda: 2**62), Cached()
    while time.monotonic() < until:
        for path in PATHS:
            try:
                seen[read(resolver, tree, path, 1000, memory).data.decode()] += 1
            except RefusedError as error:
                seen[error.refusal.code] += 1
            with suppress(RefusedError):
                read_any(Openat2(), tree, path, 1000, memory, cached.learn)
            quick = cached.read(tree, path, 1000)
            if quick is not None:
                seen[quick.data.decode()] += 1
                seen["quick"] += 1
        try:
            for entry in entries(resolver, tree, memory):
                seen[entry.sha256] += 1
                seen["listed"] += 1
        except RefusedError as error:
            seen[f"list {error.refusal.code}"] += 1


@pytest.mark.parametrize("links", [True, False], ids=["advisory-or-sealed", "scoped"])
@pytest.mark.parametrize("resolver", [Openat2(), Walk()], ids=lambda r: str(r.name))
def test_no_byte_from_outside_is_served_whatever_races(
    workspace: Path, resolver: Resolver, *, links: bool
) -> None:
    """Files, directories on the way and the root itself become links to secrets and back, all the time."""
    tree = Tree(str(workspace), b"root", Rules(links=links, mounts=False))
    seen: Counter[str] = Counter()
    with swapping(workspace):
        deadline = time.monotonic() + SECONDS
        lookers = [threading.Thread(target=look, args=(resolver, tree, deadline, seen)) for _ in range(2)]
        for looker in lookers:
            looker.start()
        for looker in lookers:
            looker.join()
    assert SECRET.decode() not in seen
    assert SECRET_SHA not in seen
    assert seen["inside"]
    assert seen["listed"]
    assert seen["symlink_refused" if not links else "outside_root"]
    assert not seen["io_error"]
