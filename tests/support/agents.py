"""Real A2A agents: the official SDK's servers, each version in an environment of its own that is made at first need."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.installed import from_pypi

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parents[2]
PACKAGES = {
    "0.3": ("a2a-sdk[http-server]==0.3.26", "uvicorn"),
    "1.0": ("a2a-sdk[http-server]==1.3.0", "uvicorn"),
}
EVERRUNS = ("everruns-sdk==0.3.1",)
"""The published client of Everruns."""
MOI = ("moi-python-sdk==0.1.1.dev0",)
"""The published client of MOI."""
OTEL = (
    "opentelemetry-api==1.45.2",
    "opentelemetry-sdk==1.45.2",
    "opentelemetry-exporter-otlp-proto-http==1.45.2",
)
"""What sends spans to a collector."""
SCHEMAS = ("jsonschema[format-nongpl]==4.23.0",)
"""What checks documents against JSON schemas."""
SCRIPTS = {
    version: PROJECT / "tests" / "clients" / "agents" / f"agent_{version.replace('.', '')}.py"
    for version in PACKAGES
}


def environment(version: str) -> Path:
    """Return the interpreter of a version's environment, which is made where it is not there yet."""
    return from_pypi(f"a2a-{version}", PACKAGES[version])


@dataclass
class Agent:
    """A running agent."""

    version: str
    options: tuple[str, ...]
    port: int = 0
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """Where its card is."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Run it: on a free port at first, later on the same one."""
        command = [str(environment(self.version)), str(SCRIPTS[self.version]), str(self.port), *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        """End it at once, with all that it knows."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None


@contextmanager
def agent(version: str, *options: str) -> Iterator[Agent]:
    """Run an agent of a version until the end of the block; `plain` has it not stream."""
    running = Agent(version, options)
    running.start()
    try:
        yield running
    finally:
        running.kill()
