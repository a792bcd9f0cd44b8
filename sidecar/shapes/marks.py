"""What is said of the keys of a block, and what is wrong with a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

OF_KEY: Final = "[key]"
"""The last part of a path that means the key of a `Mapping`, and not its value."""

MISSING_KEY: Final = "missing"
UNKNOWN_KEY: Final = "unknown"
NO_TEXT: Final = "no text"
NO_NUMBER: Final = "no number"
NO_LIST: Final = "no list"
NO_BLOCK: Final = "no block"
NO_SUCH_WORD: Final = "no such word"
TOO_FEW: Final = "too few"
TOO_SMALL: Final = "too small"
TOO_LARGE: Final = "too large"
"""The kinds of faults that are found here; readers of values name their own."""

WRITTEN: Final = "written"
ALIAS: Final = "alias"
DESCRIPTION: Final = "description"
LEAST: Final = "least"
"""What a field of a block tells of its key."""

_SAME: Final = object()


class UnfitError(ValueError):
    """A value does not fit: raised by what reads one. `kind` is for those who put it in words, as is `context`."""

    def __init__(self, kind: str, **context: Any) -> None:
        super().__init__(kind)
        self.kind = kind
        self.context = context


class Fault(NamedTuple):
    """Something wrong with a value, or a key: where it is, in keys and indexes, and in which way."""

    path: tuple[Any, ...]
    kind: str
    value: Any
    context: Mapping[str, Any]


class FaultsError(ValueError):
    """A mapping is not such a block. `faults` are all that was found, in the order of the block's keys."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__(f"{len(faults)} faults")
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Plain:
    """Reads a value all by itself; with `context`, the function gets that of the reading too."""

    function: Callable[..., Any]
    context: bool = False


@dataclass(frozen=True, slots=True)
class Before:
    """Changes a value before it is read otherwise."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class After:
    """Checks or changes what was read."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the largest number that is taken."""

    least: int
    most: int


@dataclass(frozen=True, slots=True, eq=False)  # annotations are hashed, and a mapping cannot be
class Schema:
    """What JSON Schema is to say of a value."""

    schema: Mapping[str, Any]


def key(
    default: object, description: str, *, written: object = _SAME, alias: str | None = None, least: int = 0
) -> Any:
    """Make a key that may be left out.

    `written` is its default as it stands in a file, where that differs, and `alias` what it is called there. A list
    must have at least so many items, also where it is left out.
    """
    told = {
        DESCRIPTION: description,
        WRITTEN: default if written is _SAME else written,
        ALIAS: alias,
        LEAST: least,
    }
    if isinstance(default, Mapping):  # which a dataclass takes for one that could change
        return field(default_factory=lambda: default, metadata=told)
    return field(default=default, metadata=told)


def required(description: str) -> Any:
    """Make a key that must be there."""
    return field(metadata={DESCRIPTION: description})
