"""Commands that talk to the running sidecar's desk."""

from __future__ import annotations

import json
import os
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from sidecar.cli.output import complain, print_json, print_lines, table
from sidecar.cli.running import Running, call

if TYPE_CHECKING:
    import argparse


def running_of(arguments: argparse.Namespace) -> Running:
    """Find the running sidecar that `--state` or `--config` means; raises SidecarError when there is none."""
    configured = None
    if arguments.state is None and (arguments.config or os.environ.get("SIDECAR_CONFIG")):
        from sidecar import config

        configured = config.state_of(arguments.config, os.environ)
    return Running.find(arguments.state, configured)


def list_capsules(arguments: argparse.Namespace) -> int:
    """Show the capsules: id, state, url, session, tasks, workers and the last error."""
    document = call(running_of(arguments), "GET", "/api/capsules").document()
    if arguments.json:
        print_json(document)
        return 0
    rows = [_row(capsule) for capsule in document["capsules"]]
    print_lines(table(("ID", "STATE", "URL", "SESSION", "TASKS", "WORKERS", "LAST ERROR"), rows))
    for root in document["roots"]:
        if root["last_error"]:
            complain(f"the root {root['path']} {root['last_error']['message']}")
    if document["config"]["last_error"]:
        complain(f"the configuration in force is an older one: {document['config']['last_error']['message']}")
    return 0


def _row(capsule: dict[str, Any]) -> tuple[str, ...]:
    tasks = ", ".join(f"{count} {state}" for state, count in sorted(capsule["tasks"].items()) if count)
    error = capsule["last_error"]["message"] if capsule["last_error"] else ""
    cells = (capsule["id"], capsule["state"], capsule["url"], capsule["session_id"], tasks)
    return (*(cell or "-" for cell in cells), str(capsule["workers"]), error)


def link(arguments: argparse.Namespace) -> int:
    """Print a fresh link that opens the page."""
    document = call(running_of(arguments), "POST", "/api/link").document()
    if arguments.json:
        print_json(document)
    else:
        print_lines([document["url"]])
    return 0


def reload(arguments: argparse.Namespace) -> int:
    """Reload the configuration; exit with 2 and every problem when the new one is refused and the old one stays."""
    answer = call(running_of(arguments), "POST", "/api/reload")
    if answer.status == HTTPStatus.UNPROCESSABLE_ENTITY:
        document = json.loads(answer.body)
        if arguments.json:
            print_json(document)
        for problem in document["problems"]:
            complain(problem)
        complain("the new configuration is refused, the old one stays in force")
        return 2
    document = answer.document()
    if arguments.json:
        print_json(document)
    else:
        print("reloaded" if document["changed"] else _unchanged(document["loaded_at"]))
    return 0


def _unchanged(loaded_at: float) -> str:
    return (
        f"nothing changed since {time.strftime('%H:%M:%S', time.localtime(loaded_at))}, when it was read last"
    )
