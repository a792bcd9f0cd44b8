"""Single values from the environment: `SIDECAR_LISTEN__HOST` is `listen.host`.

A name is `SIDECAR_` and the path in capitals, joined by two underscores. Settings of one capsule are
`SIDECAR_CAPSULES__<id>__<KEY>`: the id stands there as it is (capitals are taken for small letters), so that ids with
`-`, `.` or `~` need a way of setting variables which allows such names, as container engines and `env` do. Lists
and the roots are for the file and the flags. An empty variable counts as not set. Names without two underscores that
match no key are left alone: other programs use the prefix too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_origin

from pydantic import BeforeValidator

from sidecar.config.schema import Block, CapsuleConfig, Keys
from sidecar.config.values import Given, one_or_more
from sidecar.errors import Problem, Severity
from sidecar.yamlfile import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

PREFIX: Final = "SIDECAR_"
CONFIG: Final = "SIDECAR_CONFIG"
WHERE: Final = "environment"
FLAGS: Final = "command line"
OUTSIDE: Final = (WHERE, FLAGS)
UNMATCHED: Final = "W-CFG-009"

KeyPath = tuple[str, ...]
Path = tuple[str | int, ...]


class Overlay(NamedTuple):
    """Values that lie over those of the file, each with the name of the variable or flag that it came from."""

    values: Mapping[Path, Any]
    names: Mapping[Path, str]
    problems: tuple[Problem, ...] = ()


def read(environ: Mapping[str, str]) -> Overlay:
    """Return the values that the environment sets, and a warning for each name that looks meant but matches no key."""
    known = {"__".join(path).upper(): (path, scalar) for path, scalar in _keys(Keys)}
    own = {path[0].upper(): (path, scalar) for path, scalar in _keys(CapsuleConfig)}
    values: dict[Path, Any] = {}
    names: dict[Path, str] = {}
    problems = []
    for name in sorted(environ):
        text = environ[name]
        if not name.startswith(PREFIX) or not text or name == CONFIG:
            continue
        rest = name.removeprefix(PREFIX)
        path, scalar = known.get(rest, ((), False))
        block, _, tail = rest.partition("__")
        capsule_id, _, key = tail.rpartition("__")
        if block == "CAPSULES" and capsule_id and key in own:
            path, scalar = ("capsules", capsule_id.lower(), *own[key][0]), own[key][1]
        if path and scalar:
            values[path], names[path] = Given(text), name
        elif path or "__" in rest:
            near = nearest(rest, known)
            message = f"matches no key, and is ignored{f'; did you mean {PREFIX}{near}?' if near else ''}"
            if path:
                message = f"is ignored: {'.'.join(path)} takes a list; set it in the file"
                message += ", or use --root" if path == ("roots",) else ""
            problems.append(Problem(WHERE, 0, 0, UNMATCHED, name, message, Severity.WARNING))
    return Overlay(values, names, tuple(problems))


def _keys(block: type[Block], above: KeyPath = ()) -> Iterator[tuple[KeyPath, bool]]:
    """Yield the path of every key below a block, and whether it can be given as one text."""
    for name, field in block.model_fields.items():
        path = (*above, field.alias or name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Block):
            yield from _keys(field.annotation, path)
        elif path != ("capsules",):
            yield path, _scalar(field)


def _scalar(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is not tuple or any(
        isinstance(item, BeforeValidator) and item.func is one_or_more for item in field.metadata
    )
