"""Real manifests from public documentation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sidecar.manifest.load import Loaded, load
from sidecar.manifest.report import as_lines, report
from sidecar.model import MANIFEST_NAME

HERE = Path(__file__).parents[1] / "fixtures" / "manifests"


def read(path: Path) -> Loaded:
    """Load one of the files."""
    return load(path.read_bytes(), file=str(path.relative_to(HERE)), max_bytes=1 << 17)


def files(kind: str) -> list[Path]:
    """Return all files of a kind."""
    found = sorted((HERE / kind).glob(f"*/{MANIFEST_NAME}"))
    assert found
    return found


@pytest.mark.parametrize("path", files("capsules"), ids=lambda path: path.parent.name)
def test_documented_capsules_are_taken(path: Path) -> None:
    """With warnings at most."""
    loaded = read(path)
    assert loaded.manifest is not None
    assert loaded.errors == ()
    assert {problem.code for problem in loaded.warnings} <= {"W-MAN-003"}


@pytest.mark.parametrize("path", files("artifacts"), ids=lambda path: path.parent.name)
def test_documented_artifacts_are_listed_and_not_served(path: Path) -> None:
    """They have a runtime, and nothing of a capsule."""
    loaded = read(path)
    assert loaded.artifact is not None
    assert loaded.manifest is None


@pytest.mark.parametrize(
    ("name", "places"),
    [
        (
            "06-quickstart",
            {"{{ v.murmur_driver_deepseek }}": (6, "E-MAN-003"), "{{ v.model_deepseek }}": (17, "E-MAN-002")},
        ),
        (
            "22-context-compaction",
            {
                "{{ v.max_tokens_openai }}": (5, "E-MAN-002"),
                "{{ v.murmur_driver_openai }}": (9, "E-MAN-003"),
                "{{ v.murmur_hook_compact }}": (12, "E-MAN-003"),
                "{{ v.model_openai }}": (23, "E-MAN-002"),
            },
        ),
    ],
)
def test_raw_documentation_is_refused_by_its_placeholders(
    name: str, places: dict[str, tuple[int, str]]
) -> None:
    """Each is named with its line, and nothing else is said."""
    loaded = read(HERE / "refused" / name / MANIFEST_NAME)
    assert (loaded.manifest, loaded.artifact) == (None, None)
    assert len(loaded.problems) == len(places)
    for problem, (placeholder, (line, code)) in zip(loaded.problems, places.items(), strict=True):
        assert placeholder in problem.message
        assert (problem.line, problem.code) == (line, code)


def test_the_largest_documented_manifest_is_read_whole() -> None:
    """It shows every block, most of which are not for the sidecar."""
    manifest = read(HERE / "capsules" / "65-manifest" / MANIFEST_NAME).manifest
    assert manifest is not None
    assert (manifest.name, manifest.version, manifest.internal_port) == ("my-capsule", "0.1.0", 14159)
    assert [artifact.name for artifact in manifest.artifacts if artifact.model_visible] == ["some-tool"]
    assert manifest.shell_allow == ("bash",)
    assert manifest.lifecycle.queue_depth == 2
    assert manifest.lifecycle.input_timeout_secs == 60


def test_a_tree_of_them_is_summed_up() -> None:
    """Namesakes are no problem of the files."""
    found = [read(path) for kind in ("capsules", "artifacts", "refused") for path in files(kind)]
    names = Counter(loaded.manifest.name for loaded in found if loaded.manifest is not None)
    assert names["my-agent"] == 3
    lines = as_lines(report(found))
    assert lines[-1] == "9 capsules, 4 artifacts, 6 errors, 3 warnings"
    assert lines[:-1] == sorted(lines[:-1], key=lambda line: line.split(":")[0])
