"""What docs/workers.md says is what there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from sidecar.tasks.said import NotSaidError, read

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "workers.md").read_text()


def bare(source: str) -> str:
    """Return the syntax of a module without its docstrings."""
    module = ast.parse(source)
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(module)


def test_the_worker_of_the_page_is_the_example() -> None:
    """Line by line, its docstrings left out."""
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len([line for line in shown.splitlines() if line]) <= 10
    assert bare(shown) == bare((PROJECT / "examples" / "workers" / "hello.py").read_text())


def test_the_page_lists_the_whole_vocabulary() -> None:
    """Every type that is taken, and no other, below the head of the table."""
    table = PAGE.partition("## What a worker says")[2].partition("## Over HTTP")[0]
    with pytest.raises(NotSaidError) as refused:
        read({"type": "?"})
    taken = str(refused.value).removeprefix("type must be one of ").split(", ")
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == sorted([*taken, "type"])
