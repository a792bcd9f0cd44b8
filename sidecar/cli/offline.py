"""Commands that need no running sidecar: check, card, init, schema, version."""

from __future__ import annotations

import os
from importlib.metadata import version as distribution_version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from sidecar.cli.output import complain, print_json, print_lines
from sidecar.errors import InputError, SidecarError

if TYPE_CHECKING:
    import argparse

    from sidecar.config import Config

FIRST_CAPSULE = """\
# The manifest of a capsule: `sidecar schema manifest` prints its schema, `sidecar check` says what is wrong with it.
name: hello
version: "0.1.0"
description: Says hello

lifecycle:
  task_acceptance: queue
  queue_depth: 2

exports:
  files:
    root: out/
    mode: read-only
"""


EXAMPLE_AGENTS = "\n\n  # The agents of the example capsules."
"""From here on the example configuration is about the examples alone."""


def _config(arguments: argparse.Namespace, roots: list[str]) -> Config:
    from sidecar.config.loading import Flags, ephemeral_ports, load

    flags = Flags(roots=tuple(roots), state=None)
    return load(arguments.config, flags, os.environ, ephemeral=ephemeral_ports())


def check(arguments: argparse.Namespace) -> int:
    """Print every problem of the configuration and of every manifest below its roots, then a summary line."""
    from sidecar.manifest.report import as_json, as_lines
    from sidecar.registry.examination import examine

    report = examine(_config(arguments, arguments.root))
    if arguments.json:
        print_json(as_json(report))
    else:
        print_lines(as_lines(report))
    if not report.capsules + report.artifacts:
        complain(
            "no murmur.yaml was found: roots are searched `depth` levels deep (roots[].depth, 1 by default)"
        )
    failed = report.errors or (arguments.strict and report.warnings)
    return 2 if failed else 0


def version(arguments: argparse.Namespace) -> int:
    """Print the version of the installed distribution."""
    text = distribution_version("capsule-sidecar")
    if arguments.json:
        print_json({"version": text})
    else:
        print(f"sidecar {text}")
    return 0


def schema(arguments: argparse.Namespace) -> int:
    """Print the JSON Schema of one kind of file."""
    if arguments.which == "config":
        from sidecar.config.schema import json_schema
    else:
        from sidecar.manifest.schema import json_schema
    print_json(json_schema())
    return 0


def init(arguments: argparse.Namespace) -> int:
    """Write `config.yaml` and `capsules/hello/murmur.yaml`; overwrite nothing."""
    directory = Path(arguments.directory)
    example = files("sidecar.cli").joinpath("config.example.yaml").read_text(encoding="utf-8")
    texts = {
        directory / "config.yaml": example.partition(EXAMPLE_AGENTS)[0].replace(
            "./examples/capsules", "./capsules"
        )
        + "\n",
        directory / "capsules" / "hello" / "murmur.yaml": FIRST_CAPSULE,
    }
    if there := [path for path in texts if os.path.lexists(path)]:
        raise InputError(f"{there[0]} is there already: nothing was written (choose another DIR)")
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print_lines([f"wrote {path}"])
    except OSError as error:
        raise SidecarError(f"cannot write {error.filename}: {error.strerror}") from error
    print_lines([f"next: sidecar run --config {directory / 'config.yaml'}"])
    return 0


def card(arguments: argparse.Namespace) -> int:
    """Print the card that a capsule would be served with; what only serving decides is said on standard error."""
    from sidecar.cards.reference import card as card_of
    from sidecar.registry.examination import preview

    directory = Path(arguments.directory)
    named = arguments.config or os.environ.get("SIDECAR_CONFIG")
    capsule = preview(_config(arguments, [] if named else [str(directory)]), str(directory.absolute()))
    print_json(card_of(capsule))
    complain("url and session_id are decided when it is served first; the ones shown are examples")
    return 0
