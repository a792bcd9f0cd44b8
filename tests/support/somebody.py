"""Being another user for a while, and places that such a one can get to. For tests that run as root."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

AS_ROOT: Final = os.geteuid() == 0
NOBODY: Final = 65534


@contextlib.contextmanager
def somebody() -> Iterator[None]:
    """Be a user and a group that are nobody's, in all threads; files are made as such a one."""
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextlib.contextmanager
def open_place() -> Iterator[Path]:
    """Make a directory that everybody may enter, and root alone may write to; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)
