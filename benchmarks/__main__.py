"""`make bench`: every figure beside its baseline from the same run. `python -m benchmarks NAME…` runs some of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import a2a_calls, growth, hostile, planes, requests, scale, tasks, views
from benchmarks.table import Row, as_lines

MEASURES = {
    "card": requests.card,
    "desk_cards": views.desk_cards,
    "get": requests.tasks_get,
    "send": requests.message_send,
    "a2a_get": a2a_calls.get_task,
    "a2a_send": a2a_calls.send_message,
    "a2a_wait": a2a_calls.waiting_send,
    "fanout": tasks.fan_out,
    "whole": tasks.whole_tasks,
    "file": requests.file,
    "listing": planes.listing,
    "big": planes.big_file,
    "change": scale.change,
    "growth": growth.growth,
    "start": scale.start,
    "memory": scale.memory,
    "idle": scale.idle,
    "stop": scale.stop,
    "hostile": hostile.hostile,
}


def main() -> int:
    """Run the measures, print one table; exit with 1 where a row is over its budget."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Ratios to baselines, in one run."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(MEASURES)} (default: all)"
    )
    names = parser.parse_args().names or list(MEASURES)
    if unknown := [name for name in names if name not in MEASURES]:
        parser.error(f"no such measure: {', '.join(unknown)}")
    if not Path("benchmarks").is_dir():
        parser.error("run it in the project's own directory")
    rows: list[Row] = []
    for name in names:
        print(f"{name} …", file=sys.stderr, flush=True)
        rows += MEASURES[name]()
    print("\n".join(as_lines(rows)))
    return 0 if all(row.within for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
