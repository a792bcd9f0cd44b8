r"""Blocks of keys as frozen classes: a mapping is read into one, or all that is wrong with it is said at once.

A block is a class below `Block`, and its annotations say how the values of its keys are read:

| Annotation | Takes |
|---|---|
| `str`, `int` | text; a whole number, which `true` is not |
| `Literal["a", "b"]`, an `Enum` of texts | one of these words |
| `tuple[X, ...]` | a list of them |
| `Mapping[K, V]` | a block of any keys |
| a block | its keys |
| `X \| None` | null too |
| `Annotated[X, …]` | what `Plain` makes of it, or an `X` with what `Before`, `After` and `Bounds` do to it, in this order |

Whoever makes a block in code passes what it is to hold: nothing of that is checked. `schema.py` describes blocks to
editors.
"""

from sidecar.shapes.block import Block, Key, bare, block_in, keys_of, read, without_null
from sidecar.shapes.marks import (
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
    WRITTEN,
    After,
    Before,
    Bounds,
    Fault,
    FaultsError,
    Plain,
    Schema,
    UnfitError,
    key,
    required,
)

__all__ = [
    "MISSING_KEY",
    "NO_BLOCK",
    "NO_LIST",
    "NO_NUMBER",
    "NO_SUCH_WORD",
    "NO_TEXT",
    "OF_KEY",
    "TOO_FEW",
    "TOO_LARGE",
    "TOO_SMALL",
    "UNKNOWN_KEY",
    "WRITTEN",
    "After",
    "Before",
    "Block",
    "Bounds",
    "Fault",
    "FaultsError",
    "Key",
    "Plain",
    "Schema",
    "UnfitError",
    "bare",
    "block_in",
    "key",
    "keys_of",
    "read",
    "required",
    "without_null",
]
