"""The dashboard and the alert rules, against what the sidecar really shows."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
RULES = PROJECT / "deploy" / "prometheus"
DASHBOARD = PROJECT / "deploy" / "grafana" / "sidecar.json"
OWN = re.compile(r"\b(?:sidecar|process)_[a-z_]+\b")


def documented() -> set[str]:
    """Return the metrics that docs/metrics.md names, which another test holds to the code."""
    return set(OWN.findall((PROJECT / "docs" / "metrics.md").read_text()))


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    document: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return document


def queries() -> list[str]:
    """Return every expression of the dashboard, its variables put in."""
    panels = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    notes = [note["expr"] for note in dashboard()["annotations"]["list"]]
    values = {"$__rate_interval": "1m", "$instance": ".*", "$job": "sidecar"}
    return [re.sub("|".join(map(re.escape, values)), lambda m: values[m[0]], e) for e in (*panels, *notes)]


def test_dashboard_and_alerts_ask_for_nothing_that_is_not_there() -> None:
    """A metric that was renamed would leave a panel empty and an alert silent."""
    rules = [
        rule["expr"]
        for group in yaml.safe_load((RULES / "alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
    ]
    asked = {name for expression in (*queries(), *rules) for name in OWN.findall(expression)}
    assert asked <= documented()
    assert {name for name in documented() if name.startswith("sidecar_")} - asked <= {
        "sidecar_build_info",
        "sidecar_handle_calls_total",
        "sidecar_config_last_success_timestamp_seconds",
    }


def test_every_panel_says_what_it_shows_and_lies_beside_the_others() -> None:
    """A title, a line of explanation, an id of its own, and a place that no other panel covers."""
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] and panel["description"] for panel in panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        mine = {(x + place["x"], y + place["y"]) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not mine & cells
        cells |= mine


@pytest.mark.machine
def test_prometheus_understands_every_expression_and_the_rules_raise_what_they_should(tmp_path: Path) -> None:
    """The rules by their own tests; the dashboard's expressions as rules, since the same parser reads those."""
    for arguments in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
        done = subprocess.run(
            ["promtool", *arguments], cwd=RULES, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(queries())]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
