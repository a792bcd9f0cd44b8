"""Export roots on a real disk: what leads out of the workspace, and what serves too much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.manifest.load import export_problems, load

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.errors import Problem


def problems(
    directory: Path, workspace: Path, files: str, peer_files: str = "handoff"
) -> tuple[Problem, ...]:
    """Return what is said of a capsule with these export roots."""
    text = (
        'name: a\nversion: "1"\nexports:\n'
        f'  files: {{root: "{files}", mode: read-only}}\n  peer_files: {{root: "{peer_files}"}}\n'
    )
    (directory / "murmur.yaml").write_text(text)
    loaded = load(text.encode(), file="murmur.yaml", max_bytes=1 << 16)
    assert loaded.manifest is not None
    return export_problems(loaded, directory=str(directory), workspace=str(workspace))


@pytest.fixture
def capsule(tmp_path: Path) -> Path:
    """Make a capsule directory with something outside of it."""
    (tmp_path / "outside").mkdir()
    capsule = tmp_path / "capsule"
    (capsule / "out").mkdir(parents=True)
    return capsule


def test_a_root_within_the_workspace_is_fine(capsule: Path) -> None:
    """There or not there yet, a directory or a link to one within."""
    (capsule / "link").symlink_to("out")
    for root in ("out", "out/", "later/too", "link", "./out"):
        assert problems(capsule, capsule, root) == ()


@pytest.mark.parametrize("target", ["../outside", "/", "../capsule-secret"])
def test_a_link_out_of_the_workspace_is_refused(capsule: Path, target: str) -> None:
    """Also to a sibling whose name begins like the workspace's."""
    (capsule.parent / "capsule-secret").mkdir()
    (capsule / "link").symlink_to(target)
    found = problems(capsule, capsule, "link", "link")
    assert [(p.code, p.line, p.column, p.key) for p in found] == [
        ("E-CAP-007", 4, 17, "exports.files.root"),
        ("E-CAP-007", 5, 22, "exports.peer_files.root"),
    ]
    assert "leads out of the workspace" in found[0].message


def test_a_link_to_nothing_and_a_loop_are_fine_until_they_lead_somewhere(capsule: Path) -> None:
    """What is not there serves nothing, and is looked at anew for each request."""
    (capsule / "gone").symlink_to("../nowhere")
    (capsule / "loop").symlink_to("loop")
    assert problems(capsule, capsule, "gone", "loop") == ()


def test_a_root_that_holds_the_manifest_is_warned_about(capsule: Path) -> None:
    """It serves what was meant to configure."""
    (capsule / "self").symlink_to(".")
    (found,) = problems(capsule, capsule, ".")
    assert (found.code, found.severity) == ("W-CAP-007", "warning")
    assert "serves the whole workspace" in found.message
    assert [p.code for p in problems(capsule, capsule, "self")] == ["W-CAP-007"]
    (found,) = problems(capsule, capsule.parent, "capsule")
    assert "the directory of this manifest" in found.message


def test_the_whole_of_another_workspace_is_warned_about_too(capsule: Path) -> None:
    """Though the manifest is elsewhere."""
    (capsule / "work").mkdir()
    assert [p.code for p in problems(capsule, capsule / "work", "./")] == ["W-CAP-007"]


def test_the_workspace_itself_may_be_reached_by_a_link(capsule: Path) -> None:
    """What counts is where it really is."""
    (capsule.parent / "here").symlink_to(capsule)
    assert problems(capsule, capsule.parent / "here", "out") == ()


def test_what_exports_nothing_is_not_looked_at() -> None:
    """No manifest, no roots."""
    loaded = load(b"name: 1\n", file="m", max_bytes=100)
    assert export_problems(loaded, directory="/nowhere", workspace="/nowhere") == ()
