"""What parsed YAML is made of: nodes with their extent, texts with their lines, and what is wrong with a part."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from yaml import events

Mark: TypeAlias = Any
"""Of the parser: `line` and `column` from 0. The stubs say that events may lack them; those of libyaml never do."""

_BREAK: Final = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_EDITOR_BREAK: Final = re.compile("\r\n|[\r\n]")


class Wrong(NamedTuple):
    """What is wrong with a part of a file while the rest can be read; `path` is where that stands as far as is known."""

    message: str
    mark: Mark
    path: tuple[Any, ...]


class OtherKey:
    """A key that equals another one of its mapping for Python alone, such as `true` beside `1`."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OtherKey):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((OtherKey, type(self.value), self.value))

    def __str__(self) -> str:
        return str(self.value)


class Node:
    """A value with its extent. `children` are the nodes below: of a mapping by key, each with its key's node."""

    __slots__ = ("children", "end", "size", "start", "value")

    def __init__(self, value: Any, event: events.Event, children: Any = None) -> None:
        self.value = value
        self.start: Mark = event.start_mark
        self.end: Mark = event.end_mark
        self.children = children
        self.size = 1


class Text:
    """A text and its lines. YAML breaks lines where editors do not (NEL, LS, PS): places are the editor's."""

    __slots__ = ("_lines", "_yaml_lines", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines: list[int] = []
        self._yaml_lines: list[int] = []

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a mark of the parser."""
        if not self._yaml_lines:
            self._yaml_lines = [0, *(found.end() for found in _BREAK.finditer(self.text))]
        starts = self._yaml_lines
        return min(starts[line] + column, len(self.text)) if line < len(starts) else len(self.text)

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, from 1."""
        if not self._lines:
            self._lines = [0, *(found.end() for found in _EDITOR_BREAK.finditer(self.text))]
        line = bisect_right(self._lines, offset)
        return line, offset - self._lines[line - 1] + 1

    def extent(self, node: Node) -> tuple[int, int]:
        """Return the offsets at which a node begins and ends."""
        return self.offset(node.start.line, node.start.column), self.offset(node.end.line, node.end.column)


def shortened(text: str, most: int = 60) -> str:
    """Return a text on one line, cut to so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
