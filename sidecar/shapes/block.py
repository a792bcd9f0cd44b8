"""Classes of blocks, and how a mapping is read into one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from functools import cached_property
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from sidecar.shapes.marks import (
    ALIAS,
    LEAST,
    MISSING_KEY,
    NO_BLOCK,
    NO_LIST,
    NO_NUMBER,
    NO_SUCH_WORD,
    NO_TEXT,
    OF_KEY,
    TOO_FEW,
    TOO_LARGE,
    TOO_SMALL,
    UNKNOWN_KEY,
    After,
    Before,
    Bounds,
    Fault,
    FaultsError,
    Plain,
    UnfitError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Path = tuple[Any, ...]
    Reader = Callable[[Any, Path, "_Reading"], Any]

_UNREAD: Final = object()


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Block:
    """A block of keys: each class below it is a frozen dataclass, made by naming what it holds."""

    FORGIVING: ClassVar[bool] = False
    """Whether unknown keys are let be."""
    BLANK: ClassVar[bool] = False
    """Whether null stands for a block without keys."""
    SHAPE: ClassVar[Shape]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)
        cls.SHAPE = Shape(cls)


B = TypeVar("B", bound=Block)


class Key(NamedTuple):
    """A key of a block: the name of its attribute, how it is written in a file, its type, and what is told of it.

    `annotation` is without the marks of `Annotated`, which are `marks`; a null that is taken is still part of it.
    """

    name: str
    written: str
    annotation: Any
    marks: tuple[Any, ...]
    told: Mapping[str, Any]
    required: bool
    default: Any


def read(block: type[B], value: object, context: object = None) -> B:
    """Read a value into a block, handing a context to its readers. Raises FaultsError."""
    reading = _Reading(context, [])
    made: B = block.SHAPE.read(value, (), reading)
    if reading.faults:
        raise FaultsError(tuple(reading.faults))
    return made


def keys_of(block: type[Block]) -> tuple[Key, ...]:
    """Return the keys of a block, in the order of its class."""
    return block.SHAPE.keys


def bare(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return an annotation without the marks of `Annotated`, and these."""
    if get_origin(annotation) is not Annotated:
        return annotation, ()
    plain, *marks = get_args(annotation)
    return plain, tuple(marks)


def without_null(annotation: Any) -> tuple[Any, bool]:
    """Return an annotation without its `| None`, and whether it had it."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation, False
    (rest,) = (part for part in get_args(annotation) if part is not NoneType)
    return rest, True


def block_in(annotation: Any) -> type[Block] | None:
    """Return the block that a key holds, or may hold."""
    plain, _ = without_null(annotation)
    return plain if isinstance(plain, type) and not get_args(plain) and issubclass(plain, Block) else None


def words_of(annotation: Any) -> tuple[str, ...]:
    """Return the words that a value is one of; none where it is something else."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if isinstance(annotation, type) and not get_args(annotation) and issubclass(annotation, Enum):
        return tuple(word.value for word in annotation)
    return ()


class _Reading(NamedTuple):
    """One reading: what it was given besides the value, and what it found wrong."""

    context: object
    faults: list[Fault]

    def refuse(self, path: Path, kind: str, value: object, **context: Any) -> object:
        self.faults.append(Fault(path, kind, value, context))
        return _UNREAD


def _reader(annotation: Any, marks: Iterable[Any] = ()) -> Reader:
    """Return how a value of this type is read; the reader returns `_UNREAD` where it found a fault."""
    wholly = next((mark for mark in marks if isinstance(mark, Plain)), None)
    reader = _of_type(annotation) if wholly is None else _plain(wholly)
    for mark in marks:
        if isinstance(mark, Before):
            reader = _after(_plain(Plain(mark.function)), reader)
        elif isinstance(mark, After):
            reader = _after(reader, _plain(Plain(mark.function)))
        elif isinstance(mark, Bounds):
            reader = _after(reader, _bounded(mark))
    return reader


def _of_type(annotation: Any) -> Reader:
    plain, nullable = without_null(annotation)
    if nullable:
        inner = _reader(*bare(plain))
        return lambda value, path, reading: None if value is None else inner(value, path, reading)
    block = block_in(annotation)
    if block is not None:
        return block.SHAPE.read
    if words_of(annotation):
        return _of_words(annotation)
    parts = [_reader(*bare(part)) for part in get_args(annotation) if part is not ...]
    if get_origin(annotation) is tuple:
        return _of_list(*parts)
    if get_origin(annotation) is Mapping:
        return _of_mapping(*parts)
    return _of_text if annotation is str else _of_number


def _of_text(value: Any, path: Path, reading: _Reading) -> Any:
    return value if isinstance(value, str) else reading.refuse(path, NO_TEXT, value)


def _of_number(value: Any, path: Path, reading: _Reading) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return reading.refuse(path, NO_NUMBER, value)


def _of_words(annotation: Any) -> Reader:
    words = words_of(annotation)
    made = {word: word if get_origin(annotation) is Literal else annotation(word) for word in words}

    def read(value: Any, path: Path, reading: _Reading) -> Any:
        if isinstance(value, str) and value in made:
            return made[value]
        return reading.refuse(path, NO_SUCH_WORD, value, words=words)

    return read


def _of_list(item: Reader) -> Reader:
    def read(value: Any, path: Path, reading: _Reading) -> Any:
        if not isinstance(value, list | tuple):
            return reading.refuse(path, NO_LIST, value)
        before = len(reading.faults)
        found = tuple([item(one, (*path, index), reading) for index, one in enumerate(value)])
        return found if len(reading.faults) == before else _UNREAD

    return read


def _of_mapping(of_key: Reader, of_value: Reader) -> Reader:
    def read(value: Any, path: Path, reading: _Reading) -> Any:
        if not isinstance(value, dict):
            return reading.refuse(path, NO_BLOCK, value)
        before = len(reading.faults)
        found = [
            (of_key(name, (*path, name, OF_KEY), reading), of_value(below, (*path, name), reading))
            for name, below in value.items()
        ]
        return dict(found) if len(reading.faults) == before else _UNREAD

    return read


def _plain(mark: Plain) -> Reader:
    function, context = mark.function, mark.context

    def read(value: Any, path: Path, reading: _Reading) -> Any:
        try:
            return function(value, reading.context) if context else function(value)
        except UnfitError as error:
            return reading.refuse(path, error.kind, value, **error.context)

    return read


def _after(first: Reader, then: Reader) -> Reader:
    def read(value: Any, path: Path, reading: _Reading) -> Any:
        found = first(value, path, reading)
        return found if found is _UNREAD else then(found, path, reading)

    return read


def _bounded(bounds: Bounds) -> Reader:
    def read(value: Any, path: Path, reading: _Reading) -> Any:
        if value < bounds.least:
            return reading.refuse(path, TOO_SMALL, value, bound=bounds.least)
        return value if value <= bounds.most else reading.refuse(path, TOO_LARGE, value, bound=bounds.most)

    return read


def _long_enough(least: int) -> Reader:
    def read(value: Any, path: Path, reading: _Reading) -> Any:
        return value if len(value) >= least else reading.refuse(path, TOO_FEW, value)

    return read


class Shape:
    """The keys of a class of blocks, and how they are read. Made out at the first use: many blocks are never met."""

    def __init__(self, block: type[Block]) -> None:
        self._block = block

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The keys, in the order of the class."""
        hints = get_type_hints(self._block, include_extras=True)
        return tuple(
            Key(
                one.name,
                one.metadata.get(ALIAS) or one.name,
                *bare(hints[one.name]),
                one.metadata,
                one.default is MISSING and one.default_factory is MISSING,
                one.default,
            )
            for one in fields(self._block)  # type: ignore[arg-type]  # every class below Block is a dataclass
        )

    @cached_property
    def _readers(self) -> dict[str, tuple[Key, Reader, bool]]:
        """The keys and how they are read, as they are written; and whether it matters that one is left out."""
        return {
            key.written: (key, _of_key(key), key.required or bool(key.told.get(LEAST))) for key in self.keys
        }

    def read(self, value: Any, path: Path, reading: _Reading) -> Any:
        """Read a value that stands at a path; what is wrong goes to the reading."""
        if value is None and self._block.BLANK:
            value = {}
        if not isinstance(value, dict):
            return reading.refuse(path, NO_BLOCK, value)
        before, given = len(reading.faults), self._given(value, path, reading)
        if not self._block.FORGIVING:
            for name in value:
                if name not in self._readers:
                    reading.refuse((*path, name), UNKNOWN_KEY, value[name])
        return self._block(**given) if len(reading.faults) == before else _UNREAD

    def _given(self, value: dict[Any, Any], path: Path, reading: _Reading) -> dict[str, Any]:
        given = {}
        for written, (key, reader, matters) in self._readers.items():
            if written in value:
                given[key.name] = reader(value[written], (*path, written), reading)
            elif matters and key.required:
                reading.refuse((*path, written), MISSING_KEY, value)
            elif matters:
                given[key.name] = reader(key.default, (*path, written), reading)
        return given


def _of_key(key: Key) -> Reader:
    reader, least = _reader(key.annotation, key.marks), key.told.get(LEAST, 0)
    return _after(reader, _long_enough(least)) if least else reader
