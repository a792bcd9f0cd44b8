"""File, environment and flags → Config, or every problem with its place."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sidecar.config import environment
from sidecar.config.backend_checks import backend_findings, replaced_by_flag
from sidecar.config.checks import findings
from sidecar.config.credential_checks import credential_findings
from sidecar.config.effective import under_flag
from sidecar.config.pairs import read_pairs
from sidecar.config.problems import Sources, text_keys
from sidecar.config.quantities import PortRange, parse_ports
from sidecar.config.schema import DEFAULT_ROOT, Config, Keys, Places
from sidecar.config.values import Bases, Given
from sidecar.errors import InputError, Problem, Severity, unreadable
from sidecar.shapes import FaultsError, read
from sidecar.yamlfile import Document, YamlError, examine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecar.config.checks import Finding
    from sidecar.config.environment import Overlay
    from sidecar.shapes import Fault

UNREADABLE: Final = "E-CFG-001"
MALFORMED: Final = "E-CFG-002"
NOT_NOW: Final = "E-CFG-015"
MAX_BYTES: Final = 1 << 20
LOCAL_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
NOTHING: Final = (
    "no configuration: name its file with --config FILE (or SIDECAR_CONFIG; `sidecar init` writes one), "
    "or where capsules are with --root DIR"
)


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line says over everything else. Relative paths start at the current directory.

    `command` is split as a shell would, and does the tasks of all capsules (text protocol).
    """

    roots: tuple[str, ...] = ()
    state: str | None = None
    command: str | None = None


def load(
    path: str | None,
    flags: Flags,
    environ: Mapping[str, str],
    *,
    cwd: str | None = None,
    ephemeral: PortRange | None = None,
) -> Config:
    """Read the configuration: flag, then environment, then file, then default.

    `path` is what `--config` names; without one, `SIDECAR_CONFIG` does. No file is looked for by itself: where none
    is named there must be a root among the flags. `cwd` is where relative paths of flags and environment start (the
    current directory by default). `ephemeral` are the ports that the kernel hands out itself; see `ephemeral_ports`.
    Raises InputError with all problems, in file order, those of the environment and the flags last.
    """
    named = path if path is not None else environ.get(environment.CONFIG) or None
    if named is None and not flags.roots:
        raise InputError(NOTHING)
    here = cwd if cwd is not None else _cwd(environ)
    data = None if named is None else _read(os.path.join(here, named), named)  # noqa: PTH118 - text, kept as such
    return build(data, named, flags, environ, cwd=here, ephemeral=ephemeral)


def build(
    data: bytes | None,
    file: str | None,
    flags: Flags,
    environ: Mapping[str, str],
    *,
    cwd: str,
    ephemeral: PortRange | None = None,
) -> Config:
    """Do what `load` does with a file's bytes (None: no file) in hand; reads no other but secrets and certificates."""
    source = None if file is None else os.path.normpath(os.path.join(cwd, file))  # noqa: PTH118 - likewise
    directory = os.path.dirname(source) if source else cwd  # noqa: PTH120 - likewise
    bases = Bases(directory, cwd, environ.get("HOME"), environ)
    document = None if data is None or file is None else _parse(data, file)
    over = _overlay(flags, environ)
    sources = Sources(file, document, over.names)
    problems = list(over.problems)
    raw = {} if document is None else text_keys(document.value)
    merged = _merged(raw if isinstance(raw, dict) else {}, over)
    if document is not None:
        problems += [*document.refused, *sources.of_keys(), *sources.of_file(_faults(raw, bases))]
    problems += sources.of_overlay(_faults(_merged({}, over), bases))
    if _wrong(problems):
        raise _refusal(problems)
    merged.setdefault("roots", [{"path": DEFAULT_ROOT}])
    keys = read(Keys, merged, bases)
    found: list[Finding] = []
    if flags.command is not None:
        found += replaced_by_flag(keys)
        keys = under_flag(keys)
    found += [*findings(keys, ephemeral), *backend_findings(keys), *credential_findings(keys)]
    pairs, faults = read_pairs(keys)
    problems += [sources.problem(f.path, f.code, f.message) for f in (*found, *faults)]
    if _wrong(problems):
        raise _refusal(problems)
    values = {one.name: getattr(keys, one.name) for one in fields(Keys)}
    places: dict[tuple[str | int, ...], Problem] = {
        ("capsules", capsule_id): sources.problem(("capsules", capsule_id), "", "", at_key=True)
        for capsule_id in keys.capsules
    }
    for index in range(len(keys.roots)):
        places["roots", index, "path"] = sources.problem(("roots", index, "path"), "", "")
    warnings = tuple(_in_order(problems))
    return Config(**values, source=source, warnings=warnings, places=Places(places), pairs=pairs)


def state_of(path: str | None, environ: Mapping[str, str], *, cwd: str | None = None) -> str | None:
    """Return the state directory that a configuration names, whatever else may be wrong with it; None: the default.

    It is how a sidecar is found that runs on an earlier version of the file, or with secrets that are not at hand.
    `path` and `cwd` are as for `load`. Raises InputError where the file cannot be read, or its `state` is no path.
    """
    named = path if path is not None else environ.get(environment.CONFIG) or None
    here = cwd if cwd is not None else _cwd(environ)
    over = environment.read(environ)
    sources, directory = Sources(named, None, over.names), here
    raw: object = {}
    if named is not None:
        at = os.path.normpath(os.path.join(here, named))  # noqa: PTH118 - text, kept as such
        document = _parse(_read(at, named), named)
        sources = Sources(named, document, over.names)
        directory = os.path.dirname(at)  # noqa: PTH120 - likewise
        raw = text_keys(document.value)
    merged = _merged(raw if isinstance(raw, dict) else {}, over)
    told = {"state": merged["state"]} if "state" in merged else {}
    bases = Bases(directory, here, environ.get("HOME"), environ)
    told_by = sources.of_overlay if ("state",) in over.values else sources.of_file
    if problems := list(told_by(_faults(told, bases))):
        raise _refusal(problems)
    return read(Keys, told, bases).state


def locate(
    path: str | None,
    flags: Flags,
    environ: Mapping[str, str],
    key: tuple[str | int, ...],
    *,
    cwd: str | None = None,
) -> Problem:
    """Return the problem that a good configuration cannot be put in force now, at the key that stands in the way.

    The message is left to the caller. Reads what `load` read.
    """
    named = path if path is not None else environ.get(environment.CONFIG) or None
    here = cwd if cwd is not None else _cwd(environ)
    document = None
    if named is not None:
        with suppress(InputError):  # another file by now: then without a place
            document = _parse(_read(os.path.join(here, named), named), named)  # noqa: PTH118 - text, kept as such
    return Sources(named, document, _overlay(flags, environ).names).problem(key, NOT_NOW, "")


def ephemeral_ports() -> PortRange | None:
    """Return the ports that the kernel gives to outgoing connections; None where it does not say."""
    try:
        first, last = LOCAL_PORTS.read_text(encoding="ascii").split()
        return parse_ports(f"{first}-{last}")
    except (OSError, ValueError):
        return None


def _cwd(environ: Mapping[str, str]) -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - text, kept as such
    except FileNotFoundError:
        return environ.get("PWD") or "/"  # it was removed under us; what is named absolutely still works


def _read(path: str, shown: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - likewise
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        hint = "; `sidecar init` writes one" if isinstance(error, FileNotFoundError) else ""
        raise _refusal([Problem(shown, 0, 0, UNREADABLE, "", f"{unreadable(error)}{hint}")]) from None


def _parse(data: bytes, file: str) -> Document:
    try:
        document = examine(data, file=file, code=MALFORMED, max_bytes=MAX_BYTES)
    except YamlError as error:
        raise _refusal(error.problems) from None
    if document.value is None:
        message = "is empty; name at least the roots, or write {} where every default is wanted"
        raise _refusal([Problem(file, 0, 0, MALFORMED, "", message)])
    return document


def _overlay(flags: Flags, environ: Mapping[str, str]) -> Overlay:
    over = environment.read(environ)
    values: dict[tuple[str | int, ...], Any] = dict(over.values)
    names = dict(over.names)
    if flags.state is not None:
        values["state",], names["state",] = Given(flags.state), "--state"
    if flags.roots:
        values["roots",], names["roots",] = [{"path": Given(root)} for root in flags.roots], "--root"
    if flags.command is not None:
        said: dict[tuple[str | int, ...], Any] = {
            ("backend",): "command",
            ("command", "argv"): Given(flags.command),
            ("command", "protocol"): "text",
        }
        values |= said
        names |= dict.fromkeys(said, "--command")
    return over._replace(values=values, names=names)


def _merged(raw: dict[Any, Any], over: Overlay) -> dict[Any, Any]:
    """Lay the overlay's values over those of a file, which stay as they are."""
    result = dict(raw)
    for path, value in over.values.items():
        block = result
        for part in path[:-1]:
            below = block.get(part)
            block[part] = block = dict(below) if isinstance(below, dict) else {}
        block[path[-1]] = value
    return result


def _faults(raw: object, bases: Bases) -> tuple[Fault, ...]:
    try:
        read(Keys, raw, bases)
    except FaultsError as error:
        return error.faults
    return ()


def _wrong(problems: Iterable[Problem]) -> bool:
    return any(p.severity is Severity.ERROR for p in problems)


def _in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Sort by place: the file's, then those of the environment, then the command line's."""
    last = environment.OUTSIDE
    return sorted(problems, key=lambda p: (p.file in last and last.index(p.file) + 1, p.line, p.column))


def _refusal(problems: Iterable[Problem]) -> InputError:
    found = _in_order(problems)
    count = sum(p.severity is Severity.ERROR for p in found)
    return InputError(f"the configuration is refused: {count} error{'s' if count > 1 else ''}", found)
