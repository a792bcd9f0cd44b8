"""A spawned `sidecar run`, seen from outside: its log, its state directory, its ports."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from tests.support.lanes import PORTS
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

OTHER_PORTS = re.compile(r"\bports: (?!24000-31999\b)\d")
MANIFEST = (
    'name: {name}\nversion: "{version}"\nlifecycle:\n  task_acceptance: {acceptance}\n  queue_depth: 20\n'
)


def write_capsule(
    directory: Path, *, name: str | None = None, version: str = "1", acceptance: str = "queue", more: str = ""
) -> Path:
    """Write a manifest in place and return the capsule's directory."""
    directory.mkdir(parents=True, exist_ok=True)
    text = MANIFEST.format(name=name or directory.name, version=version, acceptance=acceptance) + more
    (directory / "murmur.yaml").write_text(text)
    return directory


def replace_capsule(directory: Path, **values: Any) -> None:
    """Replace a manifest by rename, as editors and deployments do."""
    aside = directory.parent / f".{directory.name}.new"
    write_capsule(aside, **{"name": directory.name, **values})
    (aside / "murmur.yaml").rename(directory / "murmur.yaml")
    aside.rmdir()


@dataclass(slots=True)
class Spawned:
    """The process, its state directory, and every line it logged as JSON."""

    process: subprocess.Popen[bytes]
    state: Path
    log: list[dict[str, Any]] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    _reader: threading.Thread | None = None

    def follow(self) -> None:
        """Collect standard error in a thread of its own, which ends with the process."""

        def read() -> None:
            assert self.process.stderr is not None
            with self.process.stderr as stream:
                for line in stream:
                    text = line.decode(errors="replace").rstrip("\n")
                    self.raw.append(text)
                    with contextlib.suppress(json.JSONDecodeError):
                        self.log.append(json.loads(text))

        self._reader = threading.Thread(target=read, name="log of the sidecar")
        self._reader.start()

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the log records with this event name."""
        return [record for record in list(self.log) if record.get("event") == name]

    def event(self, name: str, *, within: float = 20.0, **keys: Any) -> dict[str, Any]:
        """Wait for a log record with this name and these values."""

        def found() -> dict[str, Any] | None:
            self.check_alive()
            return next((r for r in self.events(name) if all(r.get(k) == v for k, v in keys.items())), None)

        record = until_sync(found, within=within, what=f"event {name} {keys}")
        assert record is not None
        return record

    def check_alive(self) -> None:
        """Fail with the log when the process has ended."""
        assert self.process.poll() is None, f"ended with {self.process.returncode}:\n" + "\n".join(self.raw)

    @property
    def desk(self) -> str:
        """The desk's URL, from run.json."""
        run = json.loads((self.state / "run.json").read_text())
        return str(run["desk"]["url"])

    def api(self, path: str, *, method: str = "GET", body: object = None) -> Any:
        """Ask the desk with the admin token and return the JSON document; a body is sent as JSON."""
        token = (self.state / "admin.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.desk + path, data, headers, method=method if body is None else "POST")
        with urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def capsules(self) -> dict[str, dict[str, Any]]:
        """Return the rows of `/api/capsules` by id."""
        return {row["id"]: row for row in self.api("/api/capsules")["capsules"]}

    def port(self, capsule_id: str) -> int:
        """Wait until a capsule is served and return its port."""

        def bound() -> int | None:
            self.check_alive()
            row = self.capsules().get(capsule_id)
            return row["port"] if row and row["state"] == "serving" else None

        port = until_sync(bound, what=f"{capsule_id} serving")
        assert port is not None
        return port

    def card(self, capsule_id: str) -> dict[str, Any]:
        """Read a capsule's card from its own port."""
        with urlopen(
            f"http://127.0.0.1:{self.port(capsule_id)}/.well-known/agent-card.json", timeout=10
        ) as answer:
            document: dict[str, Any] = json.load(answer)
            return document

    def until_version(self, capsule_id: str, version: str, *, within: float = 10.0) -> None:
        """Wait until the card shows this version."""
        until_sync(
            lambda: self.card(capsule_id)["version"] == version, within=within, what=f"version {version}"
        )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def wait(self, *, within: float = 30.0) -> int:
        """Wait for the end and return the exit status."""
        status = self.process.wait(timeout=within)
        if self._reader is not None:
            self._reader.join(timeout=10)
        return status

    def stop(self) -> int:
        """Stop it with SIGTERM and return the exit status."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait()


def environment(**more: str) -> dict[str, str]:
    """Return an environment without the settings of whoever runs the tests; bytecode is kept as it is by default."""
    others = {"NOTIFY_SOCKET", "PYTHONDONTWRITEBYTECODE"}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SIDECAR_", "XDG_")) and k not in others}
    return {**kept, "PYTHONWARNINGS": "error", **more}


def _ports(arguments: Sequence[str]) -> dict[str, str]:
    """Return the setting that keeps a sidecar to the ports of its lane, unless its configuration names others."""
    given = [Path(arguments[at + 1]) for at, word in enumerate(arguments) if word == "--config"]
    named = any(OTHER_PORTS.search(path.read_text(errors="replace")) for path in given if path.is_file())
    return {} if named else {"SIDECAR_LISTEN__PORTS": PORTS}


def start(
    arguments: Sequence[str],
    *,
    state: Path,
    env: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    stdout: int | None = None,
) -> Spawned:
    """Start `sidecar run` with these arguments, printing to `stdout` (a descriptor); the caller stops it."""
    command = [*prefix, sys.executable, "-m", "sidecar", "run", "--state", str(state), *arguments]
    settings = {"SIDECAR_DESK__PORT": "0", "SIDECAR_LOG__FORMAT": "json", **_ports(arguments), **(env or {})}
    process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=environment(**settings))
    spawned = Spawned(process, state)
    spawned.follow()
    return spawned


@contextlib.contextmanager
def running(
    arguments: Sequence[str],
    *,
    state: Path,
    env: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    within: float = 20.0,
) -> Iterator[Spawned]:
    """Start `sidecar run`, wait until it is ready, and stop it at the end; fail if it logged a traceback."""
    spawned = start(arguments, state=state, env=env, prefix=prefix)
    try:
        spawned.event("ready", within=within)
        yield spawned
    finally:
        try:
            spawned.stop()
        except subprocess.TimeoutExpired:
            spawned.process.kill()
            spawned.wait()
            raise
    assert not [line for line in spawned.raw if "Traceback" in line], "\n".join(spawned.raw)


def sidecar(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one command of the command line to its end."""
    return subprocess.run(
        [sys.executable, "-m", "sidecar", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
        env=environment(**(env or {})),
    )
