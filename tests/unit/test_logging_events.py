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
HELPERS = frozenset({"_say", "_log"})
"""Methods of ours that take a level and an event."""
CLIENT = "worker"
"""The package that runs within other programs, and logs sentences for them."""
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


def place_of_event(call: ast.Call) -> int | None:
    """Return which argument of a call is an event's name; None where it logs nothing."""
    function = call.func
    if isinstance(function, ast.Name):
        return 0 if function.id == "log" else None
    if not isinstance(function, ast.Attribute):
        return None
    if function.attr in HELPERS:
        return 1
    return 0 if function.attr in LEVELS and LOGGER.fullmatch(ast.unparse(function.value)) else None


def logged() -> dict[str, str]:
    """Return every event name that the sidecar logs, with a file that does."""
    found = {}
    for source in sorted((PROJECT / "sidecar").rglob("*.py")):
        if source.parent.name == CLIENT:
            continue
        module = ast.parse(source.read_text())
        for node in ast.walk(module):
            place = place_of_event(node) if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and place is not None and len(node.args) > place:
                events = list(constants(node.args[place], module))
                assert events or place, (
                    f"{source}:{node.lineno}: the event's name cannot be read off the code"
                )
                found.update(dict.fromkeys(events, str(source.relative_to(PROJECT))))
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
