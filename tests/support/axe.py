"""axe-core, which finds what keeps people from using a page: installed from npm by name, once per checkout."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.support.installed import from_npm

if TYPE_CHECKING:
    from tests.support.browser import Tab

PACKAGE = "axe-core@4.14.1"


def source() -> str:
    """Return the script, installed where it is not there yet."""
    place = from_npm("axe", PACKAGE)
    return (place / "node_modules" / "axe-core" / "axe.min.js").read_text()


async def violations(tab: Tab, script: str) -> list[str]:
    """Return what axe-core, all of its rules, finds wrong with what a tab shows now: the rule, and where."""
    if not await tab.run("Boolean(window.axe)"):
        await tab.run(f"{script}; undefined")
    told = await tab.run(
        "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => JSON.stringify("
        "violations.map((v) => [v.id, v.nodes.map((n) => n.target.join(' ') + ': ' + n.failureSummary)])))"
    )
    return [f"{rule}: {node}" for rule, nodes in json.loads(told) for node in nodes]
