"""A start imports what every sidecar needs, and nothing that only some need."""

from __future__ import annotations

import subprocess
import sys

LEFT_OUT = (
    "aiohttp.client",
    "aiohttp.web",
    "decimal",
    "importlib.metadata",
    "joserfc",
    "prometheus_client",
    "sidecar.config.editors",
    "sidecar.manifest.editors",
    "sidecar.ops.exposition",
    "sidecar.shapes.schema",
    "sidecar.tasks.backends.forward",
    "sidecar.tasks.forwarding",
    "sidecar.worker",
)
STARTED = (
    "from sidecar.ops.server_half import leave_client_out; leave_client_out(); "
    "import sidecar.cli.main, sidecar.cli.serving, sidecar.daemon.daemon, sys"
)


def said_by(script: str) -> str:
    """Return what a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_a_start_leaves_out_what_only_some_need() -> None:
    """The client half of aiohttp alone would cost a tenth of a second and several megabytes.

    Metadata of distributions and decimals are what libraries bring in.
    """
    imported = set(said_by(f"{STARTED}; print(*sys.modules)").split())
    assert {"aiohttp.web_server", "sidecar.daemon.daemon"} <= imported
    assert imported & set(LEFT_OUT) == set()


def test_the_client_comes_with_its_first_use() -> None:
    """Whoever asks aiohttp for its client has it; the server's half, its version and what is missing stay the same."""
    script = """
import aiohttp
from aiohttp.web_request import BaseRequest
half = aiohttp.__version__
for name in ("ClientSession", "ClientSesion"):
    print(getattr(aiohttp, name, None) is not None)
import aiohttp.web
print(half == aiohttp.__version__, aiohttp.web.BaseRequest is BaseRequest, aiohttp.hdrs.HOST)
"""
    assert said_by(STARTED + script).split() == ["True", "False", "True", "True", "Host"]


def test_a_package_that_is_there_already_stays_as_it_is() -> None:
    """Leaving the client out comes too late then, and changes nothing."""
    assert (
        said_by(f"import aiohttp\nbefore = aiohttp\n{STARTED}\nprint(sys.modules['aiohttp'] is before)")
        == "True"
    )
