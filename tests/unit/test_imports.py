"""The layout shows the flow: imports go down only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "sidecar"

STEPS: tuple[frozenset[str], ...] = tuple(
    frozenset(step.split())
    for step in (
        "model errors events schema shapes tracing words yamlparts yamlplain",
        "certificates statefiles upgrade yamltree",
        "yamlfile store state",
        "config dialects ops web",
        "watch manifest cards tasks planes auth",
        "registry doors",
        "serve desk",
        "listeners",
        "daemon",
        "cli",
    )
)
APART = frozenset({"worker"})
"""Imports nothing of ours, and nothing of ours imports it."""


def step_of(part: str) -> int:
    """Return the height of a module or folder in the layout."""
    return next(height for height, step in enumerate(STEPS) if part in step)


def parts_imported(source: Path) -> set[str]:
    """Return the top-level parts of our package that a file imports, wherever it does so."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}: relative import"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "sidecar" else [module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("sidecar.")}
    return found - {"__version__"}


def sources() -> list[Path]:
    """Return every module of the package."""
    return sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("source", sources(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_what_lies_below_it(source: Path) -> None:
    """Imports go down the steps of the layout, and never sideways to another part of the same step."""
    part = source.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part in ("__init__", "__main__"):
        return
    imported = parts_imported(source) - {part}
    if part in APART:
        assert not imported
        return
    wrong = {other for other in imported if other in APART or step_of(other) >= step_of(part)}
    assert not wrong, f"{source.relative_to(PACKAGE)} imports {sorted(wrong)}"


def test_every_part_of_the_package_has_its_step() -> None:
    """A new folder or module must be given its place in the layout."""
    known = frozenset().union(*STEPS) | APART
    parts = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in sources()}
    assert parts - known - {"__init__", "__main__"} == set()
