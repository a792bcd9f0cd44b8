"""Packages of others that tests use unmodified: installed by name, once per checkout, by whichever lane comes first."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENTS = Path(__file__).parents[2] / "build" / "venvs"
WITHIN = 120.0
TRIES = 3
"""How often an installer may stand still for so many seconds, or fail, before the test does."""


@contextmanager
def made_once(name: str, wanted: str) -> Iterator[tuple[Path, bool]]:
    """Yield the directory of an environment, and whether what is wanted is yet to be installed in it."""
    place = ENVIRONMENTS / name
    place.mkdir(parents=True, exist_ok=True)
    made = place / ".installed"
    with (ENVIRONMENTS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = not made.exists() or made.read_text() != wanted
        yield place, missing
        if missing:
            made.write_text(wanted)


def from_npm(name: str, package: str) -> Path:
    """Return the directory in which a package is installed from npm."""
    with made_once(name, package) as (place, missing):
        if missing:
            (place / "package.json").write_text('{"private": true}\n')
            npm = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
            _install([*npm, "--silent", package], place)
    return place


def from_pypi(name: str, packages: tuple[str, ...]) -> Path:
    """Return the interpreter of an environment that holds these packages."""
    with made_once(name, "\n".join(packages)) as (place, missing):
        python = place / "bin" / "python"
        if missing:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _install([*pip, *packages], place)
    return python


def _install(command: list[str], place: Path) -> None:
    for left in reversed(range(TRIES)):
        try:
            subprocess.run(command, cwd=place, check=True, timeout=WITHIN)
        except (subprocess.SubprocessError, OSError):
            if not left:
                raise
        else:
            return
