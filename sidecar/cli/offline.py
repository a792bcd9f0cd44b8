"""Commands that need no running sidecar: check, card, init, schema, completion, version, help."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from sidecar import __version__
from sidecar.cli.output import complain, print_json, print_lines
from sidecar.errors import InputError, Problem, SidecarError, visible
from sidecar.model import MANIFEST_NAME

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
    """Print every problem of the configuration and of every manifest below its roots, then a summary line.

    Where the configuration is refused, the manifests below `--root` are looked at all the same.
    """
    from sidecar.manifest.report import Report, as_json, as_lines
    from sidecar.registry.examination import examine

    refused: InputError | None = None
    config: Config | None
    try:
        config = _config(arguments, arguments.root)
    except InputError as error:
        refused, config = error, _roots_alone(arguments.root)
    state = () if config is None else _state_of(config)
    report = Report() if config is None else examine(config, guarded=state, with_keys=_with_keys(state))
    if refused is not None:
        report = replace(report, problems=(*_problems(refused), *report.problems))
    if arguments.json:
        print_json({**as_json(report), "manifests_checked": config is not None})
    else:
        print_lines(as_lines(report))
    if refused is not None:
        unlooked = "; the manifests were not looked at: mend it, or say where they are with --root DIR"
        complain(str(refused) if config is not None or not refused.problems else f"{refused}{unlooked}")
        return refused.exit_status
    if not report.capsules + report.artifacts:
        complain(
            "no murmur.yaml was found: roots are searched `depth` levels deep (roots[].depth, 1 by default)"
        )
    failed = report.errors or (arguments.strict and report.warnings)
    return 2 if failed else 0


def _problems(refused: InputError) -> tuple[Problem, ...]:
    """Return the problems of a configuration; where there is none at all, that is the problem."""
    return tuple(refused.problems) or (Problem("command line", 0, 0, "E-CFG-001", "", str(refused)),)


def _roots_alone(roots: list[str]) -> Config | None:
    """Return a configuration that says nothing but where the capsules are, None where that is not known."""
    from sidecar.config.loading import Flags, load

    home = {name: os.environ[name] for name in ("HOME", "PWD") if name in os.environ}
    try:
        return load(None, Flags(roots=tuple(roots)), home) if roots else None
    except InputError:
        return None


def _state_of(config: Config) -> tuple[str, ...]:
    """Return the state directory that a start would use."""
    from sidecar.state import default_state_dir

    try:
        return (str(default_state_dir(os.environ, None, config.state)),)
    except SidecarError:
        return ()  # a start says so


def _with_keys(state: tuple[str, ...]) -> frozenset[tuple[str, str]]:
    """Return the capsules that have agent keys, as far as the state directory says so."""
    from sidecar.auth.keys import capsules_with_keys
    from sidecar.state import DATABASE

    return frozenset().union(*(capsules_with_keys(os.path.join(path, DATABASE)) for path in state))  # noqa: PTH118 - text, kept as such


def version(arguments: argparse.Namespace) -> int:
    """Print the version."""
    if arguments.json:
        print_json({"version": __version__})
    else:
        print(f"sidecar {__version__}")
    return 0


def completion(arguments: argparse.Namespace) -> int:
    """Print what a shell is to load to complete the command line."""
    name = {"bash": "sidecar.bash", "zsh": "_sidecar", "fish": "sidecar.fish"}[arguments.shell]
    print(files("sidecar.cli").joinpath("shell", name).read_text(encoding="utf-8"), end="")
    return 0


def help_of(arguments: argparse.Namespace) -> int:
    """Print the help of a command, or of all."""
    parser: argparse.ArgumentParser = arguments.parser
    parser.parse_args([*arguments.topic, "--help"])
    return 0


def nothing(arguments: argparse.Namespace) -> int:
    """Say what there is, to somebody who named no command."""
    parser: argparse.ArgumentParser = arguments.parser
    parser.print_help(sys.stderr)
    return 2


def schema(arguments: argparse.Namespace) -> int:
    """Print the JSON Schema of one kind of file."""
    if arguments.which == "config":
        from sidecar.config.editors import json_schema
    else:
        from sidecar.manifest.editors import json_schema
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
    except OSError as error:
        raise SidecarError(f"cannot write {error.filename}: {error.strerror}") from error
    if arguments.json:
        print_json({"written": [visible(str(path)) for path in texts]})
    else:
        print_lines(
            [*(f"wrote {path}" for path in texts), f"next: sidecar run --config {directory / 'config.yaml'}"]
        )
    return 0


def _must_be_directory(directory: Path) -> None:
    """Raise InputError with what to name instead."""
    if directory.is_dir():
        return
    if not os.path.lexists(directory):
        raise InputError(f"there is no {directory}: name a directory with a murmur.yaml")
    if directory.name == MANIFEST_NAME:
        raise InputError(f"{directory} is the manifest itself: name its directory, {directory.parent}")
    raise InputError(f"{directory} is no directory: name one with a murmur.yaml")


def card(arguments: argparse.Namespace) -> int:
    """Print the card that a capsule would be served with; what only serving decides is said on standard error."""
    from sidecar.cards.reference import card as card_of
    from sidecar.registry.examination import preview

    directory = Path(arguments.directory)
    _must_be_directory(directory)
    named = arguments.config or os.environ.get("SIDECAR_CONFIG")
    capsule = preview(_config(arguments, [] if named else [str(directory)]), os.path.abspath(directory))  # noqa: PTH100 - without the `..`
    print_json(card_of(capsule))
    complain("url and session_id are decided when it is served first; the ones shown are examples")
    return 0
