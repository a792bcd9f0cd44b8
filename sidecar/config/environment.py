"""Single values from the environment: `SIDECAR_LISTEN__HOST` is `listen.host`.

A name is `SIDECAR_` and the path in capitals, joined by two underscores. Settings of one capsule are
`SIDECAR_CAPSULES__<id>__<KEY>`: the id stands there as it is (capitals are taken for small letters), so that ids with
`-`, `.` or `~` need a way of setting variables which allows such names, as container engines and `env` do. Lists
and the roots are for the file and the flags. A secret is never the variable's text: `<PATH>__ENV` and `<PATH>__FILE`
say where it is. An empty variable counts as not set. Names without two underscores that match no key are left alone:
other programs use the prefix too.
"""

from __future__ import annotations

from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_origin

from sidecar.config.backend_values import PARTS, secret
from sidecar.config.backends import CapsuleConfig
from sidecar.config.schema import Keys
from sidecar.config.values import Given, one_or_more
from sidecar.errors import Problem, Severity
from sidecar.shapes import Before, Plain, bare, block_in, keys_of, without_null
from sidecar.words import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sidecar import shapes
    from sidecar.shapes import Block

PREFIX: Final = "SIDECAR_"
CONFIG: Final = "SIDECAR_CONFIG"
WHERE: Final = "environment"
FLAGS: Final = "command line"
OUTSIDE: Final = (WHERE, FLAGS)
UNMATCHED: Final = "W-CFG-009"
FLAG_FOR: Final = MappingProxyType({("roots",): "--root", ("command", "argv"): "--command"})

KeyPath = tuple[str, ...]
Path = tuple[str | int, ...]


class Kind(Enum):
    """What a variable can say of a key."""

    SCALAR = auto()
    LIST = auto()
    SECRET = auto()
    PART_OF_SECRET = auto()


class Key(NamedTuple):
    """A key of the configuration."""

    path: KeyPath
    kind: Kind


class Overlay(NamedTuple):
    """Values that lie over those of the file, each with the name of the variable or flag that it came from."""

    values: Mapping[Path, Any]
    names: Mapping[Path, str]
    problems: tuple[Problem, ...] = ()


def read(environ: Mapping[str, str]) -> Overlay:
    """Return the values that the environment sets, and a warning for each name that looks meant but matches no key."""
    known = {"__".join(key.path).upper(): key for key in _keys(Keys)}
    own = {"__".join(key.path).upper(): key for key in _keys(CapsuleConfig)}
    values: dict[Path, Any] = {}
    names: dict[Path, str] = {}
    problems = []
    for name in sorted(environ):
        text = environ[name]
        if not name.startswith(PREFIX) or not text or name == CONFIG:
            continue
        rest = name.removeprefix(PREFIX)
        block, _, tail = rest.partition("__")
        key = (_of_capsule(tail, own) if block == "CAPSULES" else None) or known.get(rest)
        if key is not None and key.kind is Kind.SCALAR:
            values[key.path], names[key.path] = Given(text), name
        elif key is not None and key.kind is Kind.PART_OF_SECRET:
            # the whole secret: where the file has it otherwise is not wanted beside this
            *above, part = key.path
            values.setdefault(tuple(above), {})[part] = Given(text)
            names[tuple(above)] = name
        elif key is not None or "__" in rest:
            message = _matches_nothing(rest, known) if key is None else _ignored(key, name)
            problems.append(Problem(WHERE, 0, 0, UNMATCHED, name, message, Severity.WARNING))
    return Overlay(values, names, tuple(problems))


def _of_capsule(tail: str, own: Mapping[str, Key]) -> Key | None:
    """Return the key of `<id>__<KEY>`. An id may hold double underscores, and so does the key of a block below."""
    parts = tail.split("__")
    for start in range(1, len(parts)):
        key = own.get("__".join(parts[start:]))
        if key is not None and (capsule_id := "__".join(parts[:start]).lower()):
            return Key(("capsules", capsule_id, *key.path), key.kind)
    return None


def _matches_nothing(rest: str, known: Mapping[str, Key]) -> str:
    near = nearest(rest, known)
    return f"matches no key, and is ignored{f'; did you mean {PREFIX}{near}?' if near else ''}"


def _ignored(key: Key, name: str) -> str:
    dotted = ".".join(key.path)
    if key.kind is Kind.SECRET:
        parts = " or ".join(f"{name}__{part.upper()}" for part in PARTS)
        return f"is ignored: {dotted} is a secret, which is said where to find: set {parts}"
    flag = FLAG_FOR.get(key.path)
    return f"is ignored: {dotted} takes a list; set it in the file" + (f", or use {flag}" if flag else "")


def _keys(block: type[Block], above: KeyPath = ()) -> Iterator[Key]:
    """Yield every key below a block."""
    for key in keys_of(block):
        path = (*above, key.written)
        below = block_in(key.annotation)
        if below is not None:
            yield from _keys(below, path)
        elif _read_by(key, secret):
            yield Key(path, Kind.SECRET)
            yield from (Key((*path, part), Kind.PART_OF_SECRET) for part in PARTS)
        elif path != ("capsules",):
            yield Key(path, Kind.LIST if _is_list(key) else Kind.SCALAR)


def _is_list(key: shapes.Key) -> bool:
    """Whether a key takes a list, and no single text in its place."""
    plain, _ = bare(without_null(key.annotation)[0])
    return get_origin(plain) is tuple and not _read_by(key, one_or_more)


def _read_by(key: shapes.Key, reader: Callable[..., object]) -> bool:
    return any(isinstance(mark, Before | Plain) and mark.function is reader for mark in key.marks)
