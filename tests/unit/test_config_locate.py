"""Where a key stands that is good, and cannot be had now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.config.loading import Flags, locate

if TYPE_CHECKING:
    from pathlib import Path

PORT = ("desk", "port")


def test_a_key_of_the_file_is_located_there(tmp_path: Path) -> None:
    """File, line and column of the value."""
    file = tmp_path / "c.yaml"
    file.write_text("roots: []\ndesk:\n  port: 1234\n")
    found = locate(str(file), Flags(), {}, PORT)
    assert (found.file, found.line, found.column) == (str(file), 3, 9)
    assert (found.code, found.key, found.message) == ("E-CFG-015", "desk.port", "")


def test_a_key_of_the_environment_is_located_by_its_variable(tmp_path: Path) -> None:
    """It counts more than the file."""
    file = tmp_path / "c.yaml"
    file.write_text("desk:\n  port: 1234\n")
    found = locate(str(file), Flags(), {"SIDECAR_DESK__PORT": "1"}, PORT)
    assert (found.file, found.line, found.key) == ("environment", 0, "SIDECAR_DESK__PORT")


def test_a_default_has_no_place(tmp_path: Path) -> None:
    """Nor has a key of a file that is gone, or broken, by now."""
    file = tmp_path / "c.yaml"
    for text in ("{}", "roots: [", None):
        if text is not None:
            file.write_text(text)
        else:
            file.unlink()
        found = locate(str(file), Flags(), {}, PORT)
        assert (found.line, found.code, found.key) == (0, "E-CFG-015", "desk.port")
    assert locate(None, Flags(roots=("/x",)), {}, PORT).line == 0
