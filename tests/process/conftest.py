"""One spawned sidecar on one root of capsules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.everruns import house
from tests.support.spawned import Spawned, running, write_capsule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.everruns import House


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with one capsule, `a`, at version 1."""
    path = tmp_path / "capsules"
    write_capsule(path / "a", more="exports:\n  files:\n    root: out/\n    mode: read-only\n")
    return path


@pytest.fixture
def sidecar(root: Path, tmp_path: Path) -> Iterator[Spawned]:
    """A sidecar that is ready and serves the root."""
    with running(["--root", str(root)], state=tmp_path / "state") as spawned:
        yield spawned


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Agents that do as they are told, for all tests of the Everruns view: a start takes longer than most of them."""
    with house(tmp_path_factory.mktemp("house")) as made:
        for name in ("described", "keyed", "none", "one", "other"):
            made.sidecar.port(name)
        yield made
