"""What the shapes of the keys and the checks found → problems with their place, in words that say what to write instead.

| Code | When |
|---|---|
| `E-CFG-001` | the file cannot be read |
| `E-CFG-002` | not YAML, not a mapping, a key twice, or a value of the wrong type |
| `E-CFG-003` | an unknown key |
| `E-CFG-004` | a value that is not allowed, or a missing one |
| `E-CFG-005` | two keys contradict each other |
| `W-CFG-006` | a port within the range that the kernel gives to outgoing connections |
| `W-CFG-007` | the desk's port within the range of the capsules' ports |
| `W-CFG-008` | reachable from other hosts without credentials |
| `W-CFG-009` | a name in the environment that looks meant, but sets nothing |
| `W-CFG-010` | a key that nothing uses |
| `W-CFG-011` | a secret that would be sent unencrypted |
| `E-CFG-012` | a command that is not tied to a directory where several carry the name (`sidecar check`) |
| `E-CFG-013` | a root that is not there, is no directory, or cannot be read (`sidecar check`) |
| `W-CFG-014` | settings of a capsule that there is not (`sidecar check`) |
| `W-CFG-016` | a door that is open although the capsule has credentials |
| `W-CFG-017` | a public URL that is the same for all capsules |
| `E-CFG-018` | a certificate or a key that cannot be used |
| `W-CFG-019` | a key that everybody on the machine may open |
| `E-CFG-020` | a key that needs packages which are not installed |
| `W-CFG-021` | a channel that another capsule would have had (`sidecar check`) |
| `E-CFG-015` | good, but not to be had at a reload: the desk's place is taken, or the state is another one |
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, get_args

from sidecar.config.environment import FLAGS, WHERE
from sidecar.config.quantities import quoted
from sidecar.config.schema import Keys
from sidecar.config.values import NOT_ALLOWED, WITHOUT_UNIT, WRONG_TYPE
from sidecar.errors import Problem, Severity
from sidecar.shapes import MISSING_KEY, NO_LIST, NO_SUCH_WORD, OF_KEY, UNKNOWN_KEY, block_in, keys_of
from sidecar.words import nearest
from sidecar.yamlfile import dotted
from sidecar.yamlparts import OtherKey, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sidecar.shapes import Fault
    from sidecar.yamlfile import Document

TYPE: Final = "E-CFG-002"
UNKNOWN: Final = "E-CFG-003"
VALUE: Final = "E-CFG-004"

_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)", re.ASCII)

Path = tuple[Any, ...]


class Sources:
    """Knows where each value came from: a place in the file, a variable, a flag, or nowhere (a default)."""

    def __init__(self, file: str | None, document: Document | None, names: Mapping[Path, str]) -> None:
        self._file = file
        self._document = document
        self._names = names

    def of_file(self, faults: Iterable[Fault]) -> Iterator[Problem]:
        """Yield the problems of the file alone, from what its shape refuses; one per place."""
        document = self._document
        if document is None:
            return
        faults = tuple(faults)
        secrets = {fault.path for fault in faults if fault.context.get("secret")}
        taken = {(p.line, p.column) for p in document.refused}
        durations = {fault.path for fault in faults if _lacks_unit(fault)}
        for path, number in _integers(document.value) if document.odd_integers else ():
            if path in durations:
                continue  # which says what to write
            if any(path[: len(hidden)] == hidden for hidden in secrets):
                continue  # it would be shown
            if not _DECIMAL.fullmatch(spelt := shortened(document.source(path))):
                plain = re.sub("^([-+]?)0+(?=[0-9])", r"\1", spelt)
                write = plain if plain.isdecimal() else f'{number}, or quote it: "{spelt}"'
                found = self._at(path, TYPE, f"YAML reads {spelt} as {number}; write {write}")
                taken.add((found.line, found.column))
                yield found
        seen = set()
        for fault in faults:
            path, at_key = _in_document(fault.path, document.value)
            at_key = at_key or fault.kind == UNKNOWN_KEY
            if document.place(path, key=at_key) in taken or (path, at_key) in seen:
                continue
            seen.add((path, at_key))
            code, message = explain(fault, _Spelt(document, path, at_key=at_key))
            yield self._at(path, code, message, at_key=at_key)

    def of_keys(self) -> Iterator[Problem]:
        """Yield the keys of the file that are no text. They are to be left out of what is checked otherwise."""
        document = self._document
        for path in _odd_keys(document.value) if document is not None else ():
            assert document is not None  # noqa: S101 - there are no paths without one
            place = document.place(path, key=True)
            source = shortened(document.source(path, key=True))
            message = "keys are text" + _hint(_plain(path[-1]), source)
            shown = shortened(dotted((*path[:-1], source)), 120)
            yield Problem(self._file or "", *place, TYPE, shown, message)

    def of_overlay(self, faults: Iterable[Fault]) -> Iterator[Problem]:
        """Yield the problems of what flags and the environment say."""
        for fault in faults:
            path = tuple(part for part in fault.path if part != OF_KEY)
            name = self._name(path) or self._below(path)
            code, message = explain(fault, None)
            yield Problem(_where(name), 0, 0, code, name, message)

    def problem(self, path: Path, code: str, message: str, *, at_key: bool = False) -> Problem:
        """Make a problem or, by its code, a warning at a value or its key, wherever it came from."""
        severity = Severity.WARNING if code.startswith("W") else Severity.ERROR
        if name := self._name(path):
            return Problem(_where(name), 0, 0, code, name, message, severity)
        document = self._document
        written = () if document is None else _in_document(path, document.value)[0]
        if document is not None and document.source(written, key=at_key):
            if at_key and written != path and (name := self._below(path)):
                return Problem(_where(name), 0, 0, code, name, message, severity)
            return self._at(written, code, message, severity, at_key=at_key)
        if name := self._below(path):
            return Problem(_where(name), 0, 0, code, name, message, severity)
        return Problem(self._file or "defaults", 0, 0, code, dotted(path), message, severity)

    def _at(
        self,
        path: Path,
        code: str,
        message: str,
        severity: Severity = Severity.ERROR,
        *,
        at_key: bool = False,
    ) -> Problem:
        document = self._document
        line, column = document.place(path, key=at_key) if document is not None else (0, 0)
        return Problem(self._file or "", line, column, code, shortened(dotted(path), 120), message, severity)

    def _below(self, path: Path) -> str:
        """Return a variable or flag that gave something below a path."""
        return next((name for at, name in self._names.items() if at[: len(path)] == path), "")

    def _name(self, path: Path) -> str:
        """Return the variable or flag that gave the value at a path, or one above it."""
        return next((self._names[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._names), "")


class _Spelt:
    """How a value (or key) of the file is spelt, and what YAML made of it."""

    def __init__(self, document: Document, path: Path, *, at_key: bool) -> None:
        self.source = shortened(document.source(path, key=at_key))
        self.value = path[-1] if at_key and path else _value_at(document.value, path)

    def hint(self, *, quotable: bool = True) -> str:
        """Say what to quote, where YAML made something else of a word that was meant as text."""
        return _hint(self.value, self.source, quotable=quotable)


def _lacks_unit(fault: Fault) -> bool:
    expected = fault.context.get("expected")
    return isinstance(expected, str) and expected.startswith(WITHOUT_UNIT)


def text_keys(value: Any) -> Any:
    """Return a value of the file without the entries whose key is no text, at any depth."""
    if isinstance(value, dict):
        return {key: text_keys(below) for key, below in value.items() if isinstance(key, str)}
    return [text_keys(below) for below in value] if isinstance(value, list) else value


def _odd_keys(value: Any, path: Path = ()) -> Iterator[Path]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in below:
        if isinstance(value, list) or isinstance(key, str):
            yield from _odd_keys(item, (*path, key))
        else:
            yield (*path, key)


def _plain(key: object) -> object:
    return key.value if isinstance(key, OtherKey) else key


def _hint(value: object, source: str, *, quotable: bool = True) -> str:
    if value is None:
        return "; it is blank here"
    if isinstance(value, str | list | dict) or not quotable:
        return ""
    return f'; YAML reads {source} as {_kind(value)}: quote it, "{source}"'


def explain(fault: Fault, spelt: _Spelt | None) -> tuple[str, str]:
    """Return code and message of what a shape refuses."""
    path, kind, value, context = fault
    if kind == NOT_ALLOWED:
        return VALUE, context["text"]
    if kind == WRONG_TYPE:
        expected = context["expected"]
        return TYPE, f"must be {expected}" + (
            spelt.hint(quotable=context["text"]) if spelt is not None else ""
        )
    if kind == UNKNOWN_KEY:
        return UNKNOWN, _unknown(path)
    if kind == MISSING_KEY:
        return VALUE, f"is missing; write `{path[-1]}: …`"
    if kind == NO_SUCH_WORD:
        words = context["words"]
        near = nearest(value, words) if isinstance(value, str) else None
        shown = quoted(spelt.source if spelt is not None else value)
        return VALUE, f"{shown} is not one of {', '.join(words)}" + (
            f"; did you mean {near}?" if near else ""
        )
    if kind == NO_LIST:
        return TYPE, "must be a list" + (
            f"; write [{spelt.source}]" if spelt and isinstance(spelt.value, str) else ""
        )
    known = ", ".join(keys_at(path))
    return TYPE, "must be a block of keys" + (f": {known}" if known else "")


def keys_at(path: Sequence[Any]) -> tuple[str, ...]:
    """Return the keys of the block at a path, as they are written; none where there is no block."""
    at: Any = Keys
    for part in path:
        block = block_in(at)
        if block is not None:
            at = next((key.annotation for key in keys_of(block) if key.written == part), None)
        else:
            at = next((below for below in get_args(at) if block_in(below) is not None), None)
    block = block_in(at)
    return () if block is None else tuple(key.written for key in keys_of(block))


def _unknown(path: Sequence[Any]) -> str:
    known = keys_at(path[:-1])
    near = nearest(str(path[-1]), known)
    return "unknown key; " + (f"did you mean {near}?" if near else f"known here: {', '.join(known)}")


def _in_document(loc: Sequence[Any], value: object) -> tuple[Path, bool]:
    """Return the part of a location that the file has, and whether the key is meant."""
    path: Path = ()
    for part in loc:
        if part == OF_KEY:
            return path, True
        below = isinstance(value, dict) and part in value
        listed = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if not below and not listed:
            named = isinstance(part, str) and isinstance(value, dict)
            return ((*path, part), False) if named else (path, False)
        value = value[part]  # type: ignore[index]  # a dict or a list, as just found
        path = (*path, part)
    return path, False


def _value_at(value: Any, path: Path) -> Any:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return {}
    return value


def _integers(value: object, path: Path = ()) -> Iterator[tuple[Path, int]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _integers(below, (*path, key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _integers(below, (*path, index))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path, value


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    return f"a {type(value).__name__}"


def _where(name: str) -> str:
    return FLAGS if name.startswith("--") else WHERE
