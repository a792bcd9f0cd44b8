"""Processes that tell what they have done until they are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def killed_after(lines: int, module: str, directory: Path) -> list[str]:
    """Run a module on a directory, kill it after so many lines, and return all that it printed whole."""
    command = [sys.executable, "-m", module, str(directory)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        said += child.stdout.readlines()
        child.wait()
    assert all(said[:lines]), "the process ended by itself"
    return [line.decode().rstrip("\n") for line in said if line.endswith(b"\n")]
