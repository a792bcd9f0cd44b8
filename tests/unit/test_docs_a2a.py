"""What docs/a2a.md shows is what there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from sidecar.tasks.said import NotSaidError, read

PROJECT = Path(__file__).parents[2]
EXAMPLES = PROJECT / "examples" / "clients"
PAGE = (PROJECT / "docs" / "a2a.md").read_text()


def bare(source: str) -> str:
    """Return the syntax of the function in a source, without its docstring."""
    (function,) = [node for node in ast.parse(source).body if isinstance(node, ast.AsyncFunctionDef)]
    if ast.get_docstring(function) is not None:
        del function.body[0]
    return ast.dump(function)


def test_the_clients_of_the_page_are_the_examples() -> None:
    """What matters of each, line by line."""
    python = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    files = [EXAMPLES / "a2a_1.py", EXAMPLES / "a2a_03.py"]
    assert [bare(shown) for shown in python] == [bare(file.read_text()) for file in files]
    for shown, name in zip(
        re.findall(r"```javascript\n(.*?)```", PAGE, re.DOTALL), ("a2a_1.mjs", "a2a_03.mjs"), strict=True
    ):
        assert (EXAMPLES / name).read_text().endswith(shown)


def test_the_page_says_what_becomes_of_everything_that_a_worker_says() -> None:
    """Every type of the vocabulary is in its table, and no other."""
    table = PAGE.partition("| The worker says |")[2].partition("\n\n")[0]
    with pytest.raises(NotSaidError) as refused:
        read({"type": "?"})
    taken = str(refused.value).removeprefix("type must be one of ").split(", ")
    first = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert sorted(re.findall(r"`([a-z-]+)`", "".join(first))) == sorted(taken)
