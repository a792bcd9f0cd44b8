"""What the desk's cards cost, beside the capsule's own card from the same process."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from benchmarks.harness import compare, get
from benchmarks.requests import CARD, one_capsule
from benchmarks.table import Row

VIEWS = {"MOI": "/newmoi/agents/card?agent_id=bench", "Everruns": "/v1/channels/bench"}
MOST = 1.2


def desk_cards() -> list[Row]:
    """GET of the card in the views of the desk."""
    with one_capsule() as (spawned, ours, _directory):
        desk = urlsplit(spawned.desk).port or 0
        servers = [(ours, get(CARD))]
        servers += [(replace(ours, name=name, port=desk), get(path)) for name, path in VIEWS.items()]
        costs = compare(servers)
    for name, cost in costs.items():
        if set(cost.statuses) != {"200"}:
            raise SystemExit(f"{name}: {cost.statuses}")
    own = costs[ours.name].cpu
    return [
        Row(
            f"GET {name} card, CPU a request", costs[name].cpu, "µs", "the capsule's own card", own, most=MOST
        )
        for name in VIEWS
    ]
