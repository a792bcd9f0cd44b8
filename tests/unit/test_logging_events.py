"""The vocabulary of log events is one list, in docs/logging.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parents[2]
LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
LOGGER = re.compile(r"(self\.)?_?log|structlog\.get_logger\(\)(\.bind\(.*\))?")


def constants(node: ast.expr, module: ast.Module) -> Iterator[str]:
    """Yield the texts that an expression may be: a literal, either arm of a condition, or what a name was given."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from constants(node.body, module)
        yield from constants(node.orelse, module)
    elif isinstance(node, ast.Name):
        for statement in ast.walk(module):
            if isinstance(statement, ast.Assign) and any(
                ast.dump(node) == ast.dump(_loaded(t)) for t in statement.targets
            ):
                yield from constants(statement.value, module)


def _loaded(target: ast.expr) -> ast.expr:
    return ast.Name(target.id, ast.Load()) if isinstance(target, ast.Name) else target


def logged() -> dict[str, str]:
    """Return every event name that the code logs, with a file that does."""
    found = {}
    for source in sorted((PROJECT / "sidecar").rglob("*.py")):
        module = ast.parse(source.read_text())
        for node in ast.walk(module):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            by_level = (
                isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and LOGGER.fullmatch(ast.unparse(node.func.value))
            )
            if by_level or (isinstance(node.func, ast.Name) and node.func.id == "log"):
                events = list(constants(node.args[0], module))
                assert events, f"{source}:{node.lineno}: the event's name cannot be read off the code"
                found.update(dict.fromkeys(events, str(source)))
    return found


def test_event_names_are_of_one_form() -> None:
    """Each is a few lowercase words joined by underscores."""
    odd = {event: where for event, where in logged().items() if not re.fullmatch(r"[a-z]+(_[a-z]+)*", event)}
    assert odd == {}


def test_the_documentation_lists_exactly_the_events_that_there_are() -> None:
    """Every event of the code is in docs/logging.md, once, and nothing else is."""
    text = (PROJECT / "docs" / "logging.md").read_text()
    listed = re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE)
    assert sorted(listed) == sorted(logged())
