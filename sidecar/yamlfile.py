"""Hardened loading of YAML files, with the place of everything in them: for manifests and for the configuration.

One pass over the events of libyaml's parser checks the file and builds its values at the same time. What is beyond a
bound is refused before anything is made of it: other encodings, too many bytes, deep nesting, aliases that multiply.
What else a file of ours has no use for is noted, and the rest of it read all the same: more than one document,
duplicate keys (the first counts), tags other than `!!str`, `!!seq` and `!!map`, numbers that are none, and unquoted
placeholders such as `{{ name }}`. Anchors, aliases and merge keys (`<<`) are understood.
Plain scalars mean what YAML 1.1 says they mean, so that strict types above can tell a user what to quote.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import yaml
from yaml import events
from yaml.reader import ReaderError

from sidecar.errors import Problem, SidecarError
from sidecar.yamlparts import Mark, Node, Text, shortened
from sidecar.yamltree import PLACEHOLDER, SECOND, TOO_DEEP, Builder, Refused, Unfilled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Path: TypeAlias = tuple[Any, ...]
"""Mapping keys and list indexes, from the top of the file down."""

MAX_AGAIN: Final = 1 << 20
"""So many bytes are looked at again, all together, when placeholders broke the syntax of a file."""
MAX_UNFILLED: Final = 100
"""So many placeholders are reported one by one."""

_BOM: Final = b"\xef\xbb\xbf"
_COMMENT: Final = re.compile(r"(?:^|\s)#")
_OPENED_BEFORE: Final = frozenset({"could not find expected ':'", "found unexpected end of stream"})
_NO_DOCUMENT: Final = "did not find expected <document start>"
_HINTS: Final[Mapping[str | None, str]] = MappingProxyType(
    {
        "could not find expected ':'": "is no `key: value`; mend the line or its indentation",
        "found unexpected end of stream": "the quote that begins here is never closed; close it",
        "mapping values are not allowed in this context": "a second `: ` in a value, or wrong indentation; "
        "quote the value, or mend the indentation",
        _NO_DOCUMENT: "does not belong to what stands above; mend the indentation",
        "did not find expected key": "is no `key: value` of the block around it; mend the line or its indentation",
        "did not find expected node content": "a value is missing here, or a bracket is not closed",
        "did not find expected '-' indicator": "is no `- item` of the list around it; mend its indentation",
    }
)


class YamlError(SidecarError):
    """The file cannot be taken as YAML at all. `problems` are in file order, `problem` is the first of them."""

    exit_status = 2

    def __init__(self, problem: Problem, *others: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.problems = (problem, *others)


class Document:
    """A parsed file: its value, and the place of every part of it.

    `value` is plain Python: dict, list, str, int, float, bool, None, date, datetime (and `OtherKey` among keys).
    `refused` is what is wrong with it as YAML, in file order: unquoted placeholders, which stand as text in the
    value, duplicate keys, tags and the like. Such a file is not to be taken. `odd_integers` says that some integer is not written in
    plain decimal digits (`0123`, `12:30`, `0x1F`, `1_000`), `odd_text` that some unquoted text is a number to
    YAML 1.2 (`1e3`, `08`, `0o17`), `odd_words` that some is a boolean to others (`y`, `n`), `braces` that the text may hold placeholders.
    What is not there falls back to its nearest parent.
    """

    __slots__ = (
        "_root",
        "_text",
        "braces",
        "file",
        "odd_integers",
        "odd_text",
        "odd_words",
        "refused",
        "value",
    )

    def __init__(self, file: str, text: Text, root: Node, builder: Builder) -> None:
        self.file = file
        self.value: Any = root.value
        self.refused: tuple[Problem, ...] = ()
        self.odd_integers = builder.odd_integers
        self.odd_text = builder.odd_text
        self.odd_words = builder.odd_words
        self.braces = "{{" in text.text
        self._root = root
        self._text = text

    def _find(self, path: Path) -> tuple[Node, Node, bool]:
        """Return the nodes of the value at a path and of its key (or itself), and whether all of it is there."""
        node = key = self._root
        for part in path:
            children = node.children
            if isinstance(children, dict) and part in children:
                key, node = children[part]
            elif isinstance(children, list) and isinstance(part, int) and 0 <= part < len(children):
                key = node = children[part]
            else:
                return node, key, False
        return node, key, True

    def place(self, path: Path, *, key: bool = False) -> tuple[int, int]:
        """Return line and column, from 1, of the value at a path, or of its key."""
        node, key_node, _ = self._find(path)
        return self._text.place(self._text.extent(key_node if key else node)[0])

    def source(self, path: Path, *, key: bool = False) -> str:
        """Return how the value at a path, or its key, is written in the file; nothing where there is none."""
        node, key_node, found = self._find(path)
        start, end = self._text.extent(key_node if key else node)
        return self._text.text[start:end].strip() if found else ""

    def place_of(self, path: Path, text: str, *, key: bool = False) -> tuple[int, int]:
        """Return line and column of a text within the value, or key, at a path; of that itself if it is not there."""
        node, key_node, _ = self._find(path)
        start, end = self._text.extent(key_node if key else node)
        return self._text.place(max(start, self._text.text.find(text, start, end)))

    def path_at(self, offset: int) -> Path:
        """Return the path of the innermost value that covers an offset of the text, or whose key does."""
        path: Path = ()
        node: Node | None = self._root
        while node is not None:
            below = node.children or ()
            pairs = below.items() if isinstance(below, dict) else ((i, (n, n)) for i, n in enumerate(below))
            node = None
            for part, ends in pairs:
                (key, key_end), (start, end) = map(self._text.extent, ends)
                if start <= offset < end:
                    path, node = (*path, part), ends[1]
                    break
                if key <= offset < key_end:
                    return path
        return path


def parse(data: bytes, *, file: str, code: str, max_bytes: int) -> Document:
    """Parse a file of which nothing may be wrong.

    Raises YamlError, whose problems carry `file` and `code`.
    """
    document = examine(data, file=file, code=code, max_bytes=max_bytes)
    if document.refused:
        raise YamlError(*document.refused)
    return document


def examine(data: bytes, *, file: str, code: str, max_bytes: int) -> Document:
    """Parse a file, leaving in `Document.refused` what is wrong while the rest can be looked at too.

    Raises YamlError, whose problems carry `file` and `code`, where that cannot be.
    """
    data = data.removeprefix(_BOM)
    original = _decode(data, max_bytes, file=file, code=code)
    text, found = original, dict[int, str]()

    def problem(message: str, offset: int, path: Path = (), count: int = 1) -> Problem:
        return Problem(file, *original.place(offset), code, dotted(path), message, count=count)

    def unfilled(path_at: Callable[[int], Path]) -> list[Problem]:
        places = sorted(found)
        problems = [
            problem(
                f"the placeholder {shortened(found[at])} was left in; write the value itself", at, path_at(at)
            )
            for at in places[:MAX_UNFILLED]
        ]
        if (more := len(places) - MAX_UNFILLED) > 0:
            problems.append(problem(f"and {more} more placeholders", places[-1], (), more))
        return problems

    def wrong(builder: Builder) -> list[Problem]:
        problems = [
            problem(one.message, text.offset(one.mark.line, one.mark.column), one.path)
            for one in builder.wrong
        ]
        if builder.unlisted:
            problems.append(
                problem(f"and {builder.unlisted} more of this kind", len(text.text), (), builder.unlisted)
            )
        return problems

    for _ in range(min(MAX_UNFILLED, 1 + MAX_AGAIN // (len(data) + 1))):
        builder = Builder(text.text.encode() if found else data, text)
        try:
            root = builder.build()
        except (Unfilled, Refused, yaml.YAMLError) as error:
            found |= builder.unfilled
            message, at, placeholder = _explain(error, builder, text)
            if placeholder is None:
                problems = [*unfilled(lambda _: ()), *wrong(builder), problem(message, at)]
                raise YamlError(*sorted(problems)) from None
            found[at] = placeholder
            text = Text(_masked(text.text, at, placeholder, len(found)))
        else:
            found |= builder.unfilled
            document = Document(file, original, root, builder)
            document.refused = tuple(sorted([*unfilled(document.path_at), *wrong(builder)]))
            return document
    last = problem("and perhaps more: nothing is read behind so many placeholders", max(found))
    raise YamlError(*unfilled(lambda _: ()), last)


def _decode(data: bytes, max_bytes: int, *, file: str, code: str) -> Text:
    """Return the text of a file that is small enough and UTF-8."""
    try:
        text = Text(data[:max_bytes].decode())
    except UnicodeDecodeError as error:
        text = Text(data[: error.start].decode())
        if len(data) <= max_bytes or error.reason != "unexpected end of data":
            message = "is not UTF-8 from here on; save it as UTF-8"
            raise YamlError(Problem(file, *text.place(len(text.text)), code, "", message)) from None
    if len(data) > max_bytes:
        message = (
            f"is longer than {max_bytes} bytes, which end here and are the most that is read; make it shorter"
        )
        raise YamlError(Problem(file, *text.place(len(text.text)), code, "", message))
    return text


def _explain(wrong: Exception, builder: Builder, text: Text) -> tuple[str, int, str | None]:
    """Return what is wrong, at which offset, and the placeholder that explains it, if one does."""
    if isinstance(wrong, Unfilled):
        at = text.offset(*wrong.at)
        found = PLACEHOLDER.match(text.text, at)
        return "", at, found[0] if found else ""
    if isinstance(wrong, Refused):
        return str(wrong), text.offset(*wrong.at), None
    if isinstance(wrong, ReaderError):
        at = len(text.text.encode()[: wrong.position].decode(errors="ignore"))
        return f"the character {wrong.character:#x} cannot be in a YAML file; remove it", at, None
    if not isinstance(wrong, yaml.MarkedYAMLError):
        return f"is not YAML: {shortened(str(wrong))}", 0, None
    opened = wrong.context_mark if wrong.problem in _OPENED_BEFORE else wrong.problem_mark
    at = text.offset(opened.line, opened.column) if opened else 0
    found = _placeholder_before(text, builder.last, at)
    if found is not None:
        return "", found.start(), found[0]
    ended = builder.last
    if wrong.problem == _NO_DOCUMENT and isinstance(ended, events.DocumentEndEvent) and ended.explicit:
        return SECOND, at, None
    return _hint(wrong, text.text[at : at + 1]), at, None


def _hint(wrong: yaml.MarkedYAMLError, character: str) -> str:
    """Return what is wrong with the syntax and what to write instead."""
    if character == "\t":
        return "a tab cannot indent YAML; use spaces"
    if wrong.problem == "exceeded maximum nesting depth":  # libyaml's own bound, met while it looks ahead
        return TOO_DEEP
    if wrong.problem == "found character that cannot start any token":
        return f"a value cannot begin with `{character}`; quote it"
    return "is not YAML: " + _HINTS.get(
        wrong.problem, f"{wrong.problem} ({wrong.context or 'while reading it'})"
    )


def _placeholder_before(text: Text, last: events.Event | None, at: int) -> re.Match[str] | None:
    """Return the first placeholder outside of comments between what was understood and the line of an error."""
    end: Mark = last.end_mark if last else None
    passed = text.offset(end.line, end.column) if end else 0
    end_of_line = text.text.find("\n", at)
    for found in PLACEHOLDER.finditer(text.text, passed):
        if found.start() > end_of_line >= 0:
            break
        line_start = text.text.rfind("\n", 0, found.start()) + 1
        if not _COMMENT.search(text.text, line_start, found.start()):
            return found
    return None


def _masked(text: str, at: int, placeholder: str, number: int) -> str:
    """Return the text with a word of its own, of the same extent, for a placeholder."""
    word = "p" + chr(ord("a") + number % 26) + re.sub(r"\S", "_", placeholder[2:])
    return text[:at] + word + text[at + len(placeholder) :]


def dotted(path: Path) -> str:
    """Return a path as users write it: `artifacts[0].version`."""
    return "".join(f"[{p}]" if type(p) is int else f".{p}" for p in path).removeprefix(".")
