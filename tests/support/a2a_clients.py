"""The official A2A clients, unmodified, each in an environment of its own; and one shape for what they all see."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.agents import PROJECT, environment
from tests.support.installed import from_npm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DRIVERS = PROJECT / "tests" / "clients" / "drivers"
CONFIG = PROJECT / "tests" / "clients" / "config.yaml"
NPM = {"0.3": "@a2a-js/sdk@0.3.14", "1.0": "@a2a-js/sdk@1.3.0"}
WITHIN = 120.0
"""Seconds within which a driver is done with all its scenarios, of which the longest takes 7."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client: its language and the version of A2A that it speaks."""

    language: str
    version: str

    def __str__(self) -> str:
        return f"{self.language} {self.version}"

    def command(self) -> list[str]:
        """Return the command that runs this client's driver, its environment made where it is not there yet."""
        name = f"{self.language}_{self.version.replace('.', '')}"
        if self.language == "python":
            return [str(environment(self.version)), str(DRIVERS / f"{name}.py")]
        return ["node", str(beside_its_packages(self.version, DRIVERS / f"{name}.mjs"))]


PYTHON = (Client("python", "1.0"), Client("python", "0.3"))
JS = (Client("js", "1.0"), Client("js", "0.3"))


def beside_its_packages(version: str, driver: Path) -> Path:
    """Return a driver's copy in its environment: node looks for packages beside the script."""
    return Path(shutil.copy(driver, from_npm(f"a2a-js-{version}", NPM[version])))


def run_all(clients: Iterable[Client], url: str, directory: Path) -> dict[Client, dict[str, Any] | str]:
    """Run the drivers of these clients side by side; return what each of them saw, or what became of it otherwise."""
    commands = {client: client.command() for client in clients}
    started = {}
    for number, (client, command) in enumerate(commands.items()):
        gates = directory / f"client-{number}"
        gates.mkdir()
        started[client] = subprocess.Popen(
            [*command, "all", url, str(gates)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    results: dict[Client, dict[str, Any] | str] = {}
    for client, process in started.items():
        with process:
            try:
                out, errors = process.communicate(timeout=WITHIN)
            except subprocess.TimeoutExpired:
                out, errors = "", f"not done within {WITHIN} s"
            finally:
                process.kill()
        results[client] = json.loads(out) if out else errors
    return results


@contextmanager
def watching(client: Client, url: str, task_id: str) -> Iterator[subprocess.Popen[str]]:
    """Have a client watch a task until the end of the block: a line of JSON on stdout for each event."""
    command = [*client.command(), "watch", url, task_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        patience = threading.Timer(WITHIN, process.kill)
        patience.start()
        try:
            yield process
        finally:
            patience.cancel()
            patience.join()
            process.kill()


def opened(event: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the kind of an event of either version, as 0.3 calls it, and what it holds."""
    if "kind" in event:
        return event["kind"], event
    names = {
        "task": "task",
        "message": "message",
        "statusUpdate": "status-update",
        "artifactUpdate": "artifact-update",
    }
    ((key, value),) = event.items()
    return names[key], value


def state_of(status: dict[str, Any]) -> str:
    """Return the state of a status of either version, as 0.3 calls it."""
    return str(status["state"]).removeprefix("TASK_STATE_").lower().replace("_", "-")


def part_of(part: dict[str, Any]) -> Any:
    """Return what a part of either version holds: text as it stands, else its kind and value."""
    file = part.get("file", {})
    for key, value in (("raw", file.get("bytes")), ("url", file.get("uri"))):
        if value is not None:
            return {key: value}
    return (
        part["text"] if "text" in part else {key: part[key] for key in ("raw", "url", "data") if key in part}
    )


def texts(parts: Iterable[dict[str, Any]]) -> str:
    """Return the text of parts that hold nothing else."""
    return "".join(part_of(part) for part in parts)


def story(events: Iterable[dict[str, Any]]) -> list[Any]:
    """Return what a stream tells after its task: artifacts with their pieces put together, statuses, the end."""
    told: list[Any] = []
    for event in events:
        kind, body = opened(event)
        if kind == "artifact-update":
            name = body["artifact"].get("name")
            parts = [part for part in map(part_of, body["artifact"].get("parts", ())) if part != ""]
            if body.get("append") and told and told[-1][0] == name:
                told[-1][1].extend(parts)
            elif parts:
                told.append([name, parts])
        elif kind == "status-update":
            state, said = state_of(body["status"]), texts(body["status"].get("message", {}).get("parts", ()))
            if said or state not in ("submitted", "working"):
                told.append([state, said])
        else:
            told.append([kind, texts(body.get("parts", ()))])
    return [[name, "".join(said) if all(isinstance(s, str) for s in said) else said] for name, said in told]


def picture(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what a task of either version shows, in one shape."""
    task = answer.get("task", answer)
    artifacts = {
        each.get("name"): [part_of(part) for part in each["parts"]] for each in task.get("artifacts", ())
    }
    return {
        "state": state_of(task["status"]),
        "artifacts": {
            name: "".join(parts) if all(isinstance(part, str) for part in parts) else parts
            for name, parts in artifacts.items()
        },
        "history": [
            (str(message["role"]).removeprefix("ROLE_").lower(), texts(message["parts"]))
            for message in task.get("history", ())
        ],
    }
