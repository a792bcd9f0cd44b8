"""What is wrong with a manifest, in words: what it is, where, and what to write instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sidecar.errors import Problem, Severity
from sidecar.manifest.schema import EXAMPLES, INTEGERS, KNOWN, OLD_RUNTIMES, READ_CAPABILITIES
from sidecar.manifest.values import BLANK, seconds_of
from sidecar.shapes import (
    MISSING_KEY,
    NO_BLOCK,
    NO_LIST,
    NO_NUMBER,
    NO_SUCH_WORD,
    NO_TEXT,
    TOO_FEW,
    TOO_LARGE,
    TOO_SMALL,
)
from sidecar.words import nearest
from sidecar.yamlfile import dotted
from sidecar.yamlparts import shortened
from sidecar.yamlplain import BOOLEANS_ELSEWHERE, is_number_elsewhere
from sidecar.yamltree import PLACEHOLDER

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from sidecar.shapes import Fault
    from sidecar.yamlfile import Document, Path

MISSING: Final = "E-MAN-001"
WRONG_TYPE: Final = "E-MAN-002"
NOT_ALLOWED: Final = "E-MAN-003"
OUTSIDE: Final = "E-CAP-007"
HANDLES_TOO_LONG: Final = "E-CAP-008"
UNKNOWN: Final = "W-SEC-019"
DOUBTFUL: Final = "W-MAN-003"
EXPOSED: Final = "W-CAP-007"
NAMESAKES: Final = "W-MAN-004"
STALE: Final = "W-MAN-005"
MORE_ERRORS: Final = "E-MAN-000"
MORE_WARNINGS: Final = "W-MAN-000"

SLEEPING_TTL: Final = 900
"""Seconds: a capsule that sleeps after its task must not leave handles about for longer."""
MAX_SUGGESTIONS: Final = 100
"""So many unknown keys of one file are compared with the known ones."""

_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_ANCHORED: Final = re.compile(r"((?:&\S+\s+)?)(.*)", re.DOTALL)
_WANTED: Final = {
    NO_TEXT: "text",
    NO_NUMBER: "a whole number",
    NO_LIST: "a list",
    NO_BLOCK: "a block of keys",
}


def at(
    document: Document,
    path: Path,
    code: str,
    message: str,
    *,
    key: bool = False,
    severity: Severity = Severity.ERROR,
) -> Problem:
    """Make a problem of the value at a path, or of its key."""
    return Problem(
        document.file,
        *document.place(path, key=key),
        code,
        _shown(document, path, key=key),
        message,
        severity,
    )


def _shown(document: Document, path: Path, *, key: bool) -> str:
    """Return a path as users write it; a last key that is no text as it stands in the file."""
    if key and path and not isinstance(path[-1], str):
        return dotted((*path[:-1], shortened(document.source(path, key=True))))
    return shortened(dotted(path), 120)


def of_shape(faults: Iterable[Fault], document: Document) -> Iterator[Problem]:
    """Yield what a shape refuses."""
    for fault in faults:
        code, message, at_key = _explained(fault, shortened(document.source(fault.path)))
        yield at(document, fault.path, code, message, key=at_key)


def _explained(fault: Fault, source: str) -> tuple[str, str, bool]:
    """Return code, message, and whether it is the key that is wrong."""
    path, kind, value, context = fault
    write = _example(path)
    if kind == MISSING_KEY:
        return MISSING, f"is missing; write {write}", True
    if kind == BLANK or (kind == NO_TEXT and value is None and not source):
        return MISSING, f"is blank; write {write}", False
    if kind == TOO_FEW:
        return NOT_ALLOWED, f"needs at least one entry; write {write}, or remove `{path[-2]}`", True
    if kind == NO_SUCH_WORD:
        allowed = [word for word in context["words"] if word not in OLD_RUNTIMES]
        return _not_one_of(allowed, value, source)
    if kind in (TOO_SMALL, TOO_LARGE):
        least = kind == TOO_SMALL
        return (
            NOT_ALLOWED,
            f"{source} is too {'small' if least else 'large'}; write at {'least' if least else 'most'} {context['bound']}",
            False,
        )
    if kind in _WANTED:
        return WRONG_TYPE, _mistyped(value, source, path, _WANTED[kind]), False
    return NOT_ALLOWED, f"{source or 'this'} {context['text']}", False


def _not_one_of(allowed: list[str], value: object, source: str) -> tuple[str, str, bool]:
    choice = (
        f"write {' or '.join((', '.join(allowed[:-1]), allowed[-1]))}"
        if allowed[1:]
        else f"write {allowed[0]}"
    )
    if not isinstance(value, str):
        return WRONG_TYPE, f"{_what(value, source)}; {choice}", False
    near = nearest(value, allowed)
    return (
        NOT_ALLOWED,
        f"{source} is not taken here; {choice}" + (f" (did you mean {near}?)" if near else ""),
        False,
    )


def _mistyped(value: object, source: str, path: Path, wanted: str) -> str:
    """Say what YAML takes the source for, and how to write what is wanted."""
    found = _what(value, source) + (f", not {wanted}" if value is not None or source else "")
    if wanted == "text" and not isinstance(value, list | dict):
        if source.startswith("*"):
            return f"{found}; quote it where &{source[1:]} stands"
        return f"{found}; quote it: {_written(path, _quoted(source))}"
    if wanted == "a whole number" and isinstance(value, str) and _DECIMAL.fullmatch(value):
        return f"{found}; remove the quotes: {_written(path, value)}"
    if wanted == "a list" and isinstance(value, str):
        return f"{found}; write {_written(path, f'[{source}]')}"
    if wanted == "a block of keys":
        return f"{found}; write its keys as `key: value` lines below it"
    return f"{found}; write {_example(path)}"


def _what(value: object, source: str) -> str:
    """Name what YAML makes of a source."""
    if value is None:
        return f"{source} is null to YAML" if source else "has no value"
    if isinstance(value, list | dict):
        return "is a list" if isinstance(value, list) else "is a block of keys"
    kinds = ((bool, "a boolean"), (float, "a decimal number"), (int, "a number"), (str, "text"))
    kind = next((name for types, name in kinds if isinstance(value, types)), "a date")
    return f"{source} is {kind} to YAML"


def _quoted(source: str) -> str:
    """Return a source in quotes, behind its anchor where it has one."""
    anchor, plain = _ANCHORED.fullmatch(source).groups()  # type: ignore[union-attr] # matches any text
    return f'{anchor}"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _example(path: Path) -> str:
    """Return what could be written at a path; of a list the one item where it is an item that is wrong."""
    example = EXAMPLES.get(_generic(path), "…")
    if path and isinstance(path[-1], int) and example.startswith("["):
        example = example[1:-1]
    return _written(path, example)


def _written(path: Path, value: str) -> str:
    """Return a key with its value, or a list item, as it would be written."""
    name = path[-1] if path else ""
    return f"`- {value}`" if isinstance(name, int) else f"`{name}: {value}`"


def _generic(path: Path) -> str:
    return ".".join(part for part in path if isinstance(part, str))


def odd_integers(document: Document) -> Iterator[Problem]:
    """Yield the integers of fields we read that YAML 1.1 takes for another number than people do."""
    for path, value in _leaves(document.value):
        source = document.source(path)
        if type(value) is int and _generic(path) in INTEGERS and not _DECIMAL.fullmatch(source):
            message = f"{shortened(source)} is the number {value} to YAML; write {_written(path, str(value))}"
            yield at(document, path, WRONG_TYPE, message)


def odd_text(document: Document) -> Iterator[Problem]:
    """Yield the unquoted texts of fields we read that other readers of YAML take for a number."""
    for path, value in _leaves(document.value):
        if type(value) is not str or _generic(path) not in EXAMPLES.keys() - INTEGERS:
            continue
        source = document.source(path)
        if is_number_elsewhere(source):
            quoted = _written(path, _quoted(source))
            message = f"{shortened(source)} is a number to other readers of YAML; quote it: {quoted}"
            yield at(document, path, WRONG_TYPE, message)


def odd_words(document: Document) -> Iterator[Problem]:
    """Yield the unquoted letters of fields we read that other readers of YAML 1.1 take for booleans."""
    for path, value in _leaves(document.value):
        if type(value) is not str or value not in BOOLEANS_ELSEWHERE or _generic(path) not in EXAMPLES:
            continue
        source = document.source(path)
        if source == value:
            meant = "true" if value in "yY" else "false"
            message = f"{source} is text here, and {meant} to other readers of YAML; quote it: {_written(path, _quoted(source))}"
            yield at(document, path, DOUBTFUL, message, severity=Severity.WARNING)


def quoted_placeholders(document: Document, wrong: Container[str]) -> Iterator[Problem]:
    """Yield the placeholders that are text to YAML: errors in fields we read or found wrong, warnings elsewhere."""
    unquoted = {problem.key for problem in document.refused}
    for path, value in _leaves(document.value):
        for text, key in ((value, False), (path[-1] if path else None, True)):
            found = PLACEHOLDER.search(text) if isinstance(text, str) else None
            if found is None or dotted(path) in unquoted:
                continue
            read = not key and (_generic(path) in EXAMPLES or dotted(path) in wrong)
            place = document.place_of(path, found[0], key=key)
            message = f"the placeholder {shortened(found[0])} was left in; write the value itself"
            code, severity = (NOT_ALLOWED, Severity.ERROR) if read else (DOUBTFUL, Severity.WARNING)
            yield Problem(document.file, *place, code, _shown(document, path, key=key), message, severity)


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield all values, and the paths to them."""
    yield path, value
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _leaves(below, (*path, key))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _leaves(below, (*path, index))


def unknown_keys(document: Document) -> Iterator[Problem]:
    """Yield a warning for each unknown key of the blocks that are known whole, and for near misses elsewhere."""
    suggestions = MAX_SUGGESTIONS
    for path, block, known in _blocks(document.value, KNOWN):
        for key in [key for key in block if key not in known]:
            source = (
                key if type(key) is str and not document.braces else document.source((*path, key), key=True)
            )
            if PLACEHOLDER.search(source):
                continue
            name = key if isinstance(key, str) else source
            near = nearest(name, known) if suggestions > 0 else None
            suggestions -= 1
            yield _unknown(document, (*path, key), near)
    for path, block, known in _blocks(document.value, READ_CAPABILITIES):
        for key in [key for key in block if key not in known]:
            near = nearest(key, known) if isinstance(key, str) and suggestions > 0 else None
            suggestions -= 1
            if near is not None:
                yield _unknown(document, (*path, key), near)


def _unknown(document: Document, path: Path, near: str | None) -> Problem:
    message = "is not a key of this block, and is ignored" + (f"; did you mean `{near}`?" if near else "")
    return at(document, path, UNKNOWN, message, key=True, severity=Severity.WARNING)


def _blocks(
    value: dict[Any, Any], known: Mapping[tuple[str, ...], tuple[str, ...]]
) -> Iterator[tuple[Path, dict[Any, Any], tuple[str, ...]]]:
    """Yield those of the blocks that are there: path, block and known keys; a list stands for its items."""
    for path, keys in known.items():
        block: Any = value
        for part in path:
            block = block.get(part) if isinstance(block, dict) else None
        if isinstance(block, dict):
            yield path, block, keys
        elif isinstance(block, list):
            yield from (((*path, i), item, keys) for i, item in enumerate(block) if isinstance(item, dict))


def of_artifacts(document: Document) -> Iterator[Problem]:
    """Yield what is wrong between the keys of an artifact, and old words for its runtime."""
    artifacts = document.value.get("artifacts")
    for index, artifact in enumerate(artifacts if isinstance(artifacts, list) else ()):
        if not isinstance(artifact, dict):
            continue
        path = ("artifacts", index)
        if artifact.get("version") is None and artifact.get("source") is None:
            blank = "version" in artifact
            example = _written(("version",), EXAMPLES["artifacts.version"])
            message = f"is {'blank' if blank else 'missing'}; write {example}, or a `source`"
            yield at(document, (*path, "version"), MISSING, message, key=not blank)
        if artifact.get("runtime") in OLD_RUNTIMES:
            message = f"{artifact['runtime']} is an older word, taken as tool; write `runtime: tool`"
            yield at(document, (*path, "runtime"), DOUBTFUL, message, severity=Severity.WARNING)


def of_handles(document: Document) -> Iterator[Problem]:
    """Yield why handles would outlive what a sleeping capsule promises (E-CAP-008)."""
    lifecycle, exports = document.value.get("lifecycle"), document.value.get("exports")
    peer_files = exports.get("peer_files") if isinstance(exports, dict) else None
    if (
        not isinstance(peer_files, dict)
        or not isinstance(lifecycle, dict)
        or lifecycle.get("after_task") != "sleep"
    ):
        return
    path = ("exports", "peer_files", "max_ttl")
    limit = f"`after_task: sleep` takes at most {SLEEPING_TTL}s; write `max_ttl: {SLEEPING_TTL}s` or less"
    if "max_ttl" not in peer_files:
        yield at(document, path, HANDLES_TOO_LONG, f"is missing, and {limit}", key=True)
    elif (seconds := seconds_of(peer_files["max_ttl"])) is not None and seconds > SLEEPING_TTL:
        yield at(document, path, HANDLES_TOO_LONG, f"{shortened(document.source(path))} is too long: {limit}")
