"""One pass over a YAML file's parser events: values, with the extent of each, or why the file is not taken."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from yaml import events

from sidecar.errors import SidecarError
from sidecar.yamlparts import Mark, Node, OtherKey, Text, Wrong, shortened
from sidecar.yamlplain import (
    BOOLEANS_ELSEWHERE,
    FIRST_OF_NUMBERS,
    TAG,
    WORDS,
    is_number_elsewhere,
    is_plain_decimal,
    number,
    tag_of_number,
)

try:
    from yaml.cyaml import CParser  # type: ignore[attr-defined] # the stubs leave it out
except ImportError as error:  # pragma: no cover - PyYAML's own wheels have it
    raise SidecarError(
        "PyYAML was built without libyaml, which alone is fast and strict enough: install a PyYAML wheel"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_DEPTH: Final = 64
TOO_DEEP: Final = f"is more than {MAX_DEPTH} levels deep here; make it flatter"
MAX_ALIASED: Final = 10_000
"""So many values may be repeated by the aliases of one file, all together."""
MAX_WRONG: Final = 1000
"""So many of what is wrong with a file and leaves the rest of it readable are kept; the others are counted."""
PLACEHOLDER: Final = re.compile(r"\{\{[^{}]*\}\}")

_MERGE: Final = object()
_NOWHERE: Final = events.Event()
SECOND: Final = "a second document begins here, and a file holds one: remove it"
_TAGS: Final[Mapping[type, tuple[str | None, ...]]] = MappingProxyType(
    {
        events.ScalarEvent: (TAG + "str",),
        events.SequenceStartEvent: (None, "!", TAG + "seq"),
        events.MappingStartEvent: (None, "!", TAG + "map"),
    }
)


class Refused(Exception):  # noqa: N818 - a signal, turned into a YamlError where the file's name is known
    """What is beyond a bound, and where, in YAML's own count of lines and columns from 0: nothing is read behind it."""

    def __init__(self, message: str, mark: Mark) -> None:
        super().__init__(message)
        self.at = (mark.line, mark.column)


class Unfilled(Exception):  # noqa: N818 - likewise
    """A placeholder begins at this mark and makes no sense as YAML."""

    def __init__(self, mark: Mark) -> None:
        super().__init__()
        self.at = (mark.line, mark.column)


class _Enough(Exception):  # noqa: N818 - a signal within this module
    """What is left of the file is not to be read."""


class Builder:
    """One pass over a parser's events, with a stack of the collections that are open.

    `wrong` is what was found to be wrong on the way, `unlisted` how much more of that there is.
    """

    def __init__(self, data: bytes, text: Text) -> None:
        self.odd_integers = False
        self.odd_text = False
        self.odd_words = False
        self.unfilled: dict[int, str] = {}
        self.wrong: list[Wrong] = []
        self.unlisted = 0
        self.last: events.Event | None = None
        self._text = text
        self._braces = "{{" in text.text
        self._next = CParser(data).get_event
        self._root: Node | None = None
        self._parent: Node | None = None
        self._key: Node | None = None
        self._nowhere = Node(None, _NOWHERE)
        self._stack: list[tuple[Node | None, Node | None, str | None, Node | None]] = []
        self._anchors: dict[str, Node | None] = {}
        self._count = 0
        self._aliased = 0

    def build(self) -> Node:
        """Return the node of the file's first document. Raises Refused, Unfilled, and what the parser raises."""
        handlers, following = self._HANDLERS, self._next
        try:
            while (event := following()) is not None:
                self.last = event
                handler = handlers.get(type(event))
                if handler is not None:
                    handler(self, event)
        except _Enough:
            pass
        assert self._root is not None  # noqa: S101 - the end of the stream has set it
        return self._root

    def _document(self, event: events.DocumentStartEvent) -> None:
        if self._root is not None:
            self.refuse(SECOND, event.start_mark)
            raise _Enough

    def refuse(self, message: str, mark: Mark, *, path: tuple[Any, ...] = ()) -> None:
        """Note what is wrong while the rest can be read."""
        if len(self.wrong) < MAX_WRONG:
            self.wrong.append(Wrong(message, mark, path))
        else:
            self.unlisted += 1

    def _here(self) -> tuple[Any, ...]:
        """Return the path of what comes next, as far as it leads through keys that are kept."""
        path: list[Any] = []
        opened = [(parent, key, True) for parent, _, _, key in self._stack]
        for parent, key, behind in [*opened, (self._parent, self._key, False)]:
            if parent is None:
                continue
            if type(parent.value) is list:
                path.append(len(parent.value) - behind)
            elif key is None or key is self._nowhere or key.value is _MERGE:
                break
            else:
                path.append(key.value)
        return tuple(path)

    def _end(self, event: events.StreamEndEvent) -> None:
        if self._root is None:
            self._root = Node(None, event)

    def _attach(self, node: Node) -> None:
        """Put a node where the parser stands: as the root, an item, a key or a value."""
        parent, key = self._parent, self._key
        self._count += node.size
        if parent is None:
            self._root = node
        elif type(parent.value) is list:
            parent.value.append(node.value)
            parent.children.append(node)
        elif key is None:
            self._key = self._checked_key(parent, node)
        elif key is self._nowhere:
            self._key = None
        else:
            self._key = None
            parent.children[key.value] = (key, node)
            if key.value is not _MERGE:
                parent.value[key.value] = node.value

    def _checked_key(self, parent: Node, node: Node) -> Node:
        """Return the key's node, or the one whose value is dropped."""
        if node.children is not None:
            self.refuse("a list or a mapping cannot be a key; write one word", node.start)
            return self._nowhere
        if node.value not in parent.children:
            return node
        known = node.value
        if type(parent.children[known][0].value) is not type(known):
            node.value = known = OtherKey(known)
            if known not in parent.children:
                return node
        first = self._text.place(self._text.extent(parent.children[known][0])[0])[0]
        start, end = self._text.extent(node)
        name = shortened(self._text.text[start:end])
        self.refuse(f"the key {name} is in line {first} already; keep one of the two", node.start)
        return self._nowhere

    def _scalar(self, event: events.ScalarEvent) -> None:
        value: Any = event.value
        if event.tag is not None and event.tag != "!":
            self._check_tag(event)
        elif event.implicit[0]:
            value = self._plain(event)
        node = Node(value, event)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        self._attach(node)

    def _plain(self, event: events.ScalarEvent) -> object:
        """Return what YAML 1.1 takes a plain scalar for."""
        value: str = event.value
        if value in WORDS:
            return WORDS[value]
        if value[0] in FIRST_OF_NUMBERS:
            tag = tag_of_number(value)
            if tag is not None:
                return self._number(tag, event)
            if is_number_elsewhere(value):
                self.odd_text = True
        elif value in BOOLEANS_ELSEWHERE:
            self.odd_words = True
        elif value == "<<" and self._key is None and self._parent and type(self._parent.value) is dict:
            return _MERGE
        if self._braces and "{{" in value:
            start, end = self._text.extent(Node(None, event))
            self.unfilled |= {m.start(): m[0] for m in PLACEHOLDER.finditer(self._text.text, start, end)}
        return value

    def _number(self, tag: str, event: events.ScalarEvent) -> object:
        value: str = event.value
        if tag == TAG + "int" and not is_plain_decimal(value):
            self.odd_integers = True
        try:
            return number(tag, value)
        except ValueError as error:
            self.refuse(f"{shortened(value)} {error}", event.start_mark, path=self._here())
            return value

    def _check_tag(self, event: Any) -> None:
        tag: str = event.tag
        if tag not in _TAGS[type(event)]:
            name = "!!" + tag.removeprefix(TAG) if tag.startswith(TAG) else tag
            self.refuse(
                f"the tag {shortened(name)} is not taken; remove it", event.start_mark, path=self._here()
            )

    def _open(self, event: events.CollectionStartEvent) -> None:
        parent = self._parent
        mark: Mark = event.start_mark
        self._check_tag(event)
        if len(self._stack) == MAX_DEPTH:
            raise Refused(TOO_DEEP, mark)
        mapping = type(event) is events.MappingStartEvent
        node = Node({}, event, {}) if mapping else Node([], event, [])
        if self._braces and parent is not None and self._key is None and type(parent.value) is dict:
            for start in (parent.start, mark):
                if PLACEHOLDER.match(self._text.text, self._text.offset(start.line, start.column)):
                    raise Unfilled(start)
        below = self._key
        self._attach(node)
        node.size = self._count
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._stack.append((parent, self._key, event.anchor, below))
        self._parent, self._key = node, None

    def _close(self, event: events.CollectionEndEvent) -> None:
        node = self._parent
        assert node is not None  # noqa: S101 - the parser pairs them
        node.end = event.end_mark
        node.size = self._count - node.size + 1
        if type(node.value) is dict and _MERGE in node.children:
            self._merge(node, *node.children.pop(_MERGE))
        self._parent, self._key, anchor, _ = self._stack.pop()
        if anchor is not None:
            self._anchors[anchor] = node

    def _merge(self, node: Node, key: Node, source: Node) -> None:
        """Take over what `<<` names; the mapping's own keys, and earlier sources, win."""
        for one in source.children if type(source.value) is list else (source,):
            if type(one.value) is not dict:
                self.refuse("`<<` takes a mapping or a list of mappings", key.start)
                continue
            for name, child in one.children.items():
                if name not in node.children:
                    node.children[name] = child
                    node.value[name] = child[1].value

    def _alias(self, event: events.AliasEvent) -> None:
        name, mark = event.anchor or "", event.start_mark
        named = self._anchors.get(name)
        if named is None:
            why = f"has no anchor &{shortened(name)} above it"
            if name in self._anchors:
                why = "contains itself"
            self.refuse(f"the alias *{shortened(name)} {why}", mark, path=self._here())
            self._attach(Node(None, event))
            return
        self._aliased += named.size
        if self._aliased > MAX_ALIASED:
            raise Refused(f"the aliases up to here repeat more than {MAX_ALIASED} values; write fewer", mark)
        if len(self._stack) + _height(named) > MAX_DEPTH:
            raise Refused(TOO_DEEP, mark)
        node = Node(named.value, event, named.children)
        node.size = named.size
        self._attach(node)

    # Not on the instance: bound methods there are a cycle that keeps every tree until the collector comes.
    _HANDLERS: ClassVar[Mapping[type, Callable[[Builder, Any], None]]] = MappingProxyType(
        {
            events.ScalarEvent: _scalar,
            events.MappingStartEvent: _open,
            events.SequenceStartEvent: _open,
            events.MappingEndEvent: _close,
            events.SequenceEndEvent: _close,
            events.AliasEvent: _alias,
            events.DocumentStartEvent: _document,
            events.StreamEndEvent: _end,
        }
    )


def _height(node: Node) -> int:
    """Return how many levels a node adds; 0 for a scalar. Bounded by what aliases may repeat."""
    if node.children is None:
        return 0
    below = (pair[1] for pair in node.children.values()) if isinstance(node.children, dict) else node.children
    return 1 + max(map(_height, below), default=0)
