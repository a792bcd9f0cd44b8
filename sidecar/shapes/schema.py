"""What editors are told of blocks: JSON Schema, draft 2020-12."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from inspect import getdoc
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from sidecar.shapes.block import bare, block_in, keys_of, without_null, words_of
from sidecar.shapes.marks import DESCRIPTION, LEAST, WRITTEN, Bounds, Schema

if TYPE_CHECKING:
    from sidecar.shapes.block import Block, Key

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema_of(block: type[Block], *, title: str) -> dict[str, Any]:
    """Return the schema of a block by itself, with those of all blocks that it leads to."""
    parts: dict[str, Any] = {}
    whole = _of_block(block, parts)
    return {"$schema": DIALECT, **whole, "title": title, "$defs": dict(sorted(parts.items()))}


def _of_block(block: type[Block], parts: dict[str, Any]) -> dict[str, Any]:
    keys = keys_of(block)
    needed = [key.written for key in keys if key.required]
    return {
        "title": block.__name__,
        "description": getdoc(block),
        "type": "object",
        "properties": {key.written: _of_key(key, parts) for key in keys},
        **({"required": needed} if needed else {}),
        **({} if block.FORGIVING else {"additionalProperties": False}),
    }


def _of_key(key: Key, parts: dict[str, Any]) -> dict[str, Any]:
    told = key.told
    return {
        **({} if block_in(key.annotation) else {"title": key.written.replace("_", " ").title()}),
        **({"description": told[DESCRIPTION]} if DESCRIPTION in told else {}),
        **_of_type(key.annotation, key.marks, parts),
        **({"minItems": told[LEAST]} if told.get(LEAST) else {}),
        **({"default": told[WRITTEN]} if WRITTEN in told else {}),
    }


def _of_type(annotation: Any, marks: tuple[Any, ...], parts: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for mark in marks:
        if isinstance(mark, Schema):
            said |= mark.schema
        elif isinstance(mark, Bounds):
            said |= {"minimum": mark.least, "maximum": mark.most}
    return said if "type" in said or "anyOf" in said else {**_of_plain(annotation, parts), **said}


def _of_plain(annotation: Any, parts: dict[str, Any]) -> dict[str, Any]:
    plain, nullable = without_null(annotation)
    if nullable:
        return {"anyOf": [_of_type(*bare(plain), parts), {"type": "null"}]}
    if (block := block_in(annotation)) is not None:
        if block.__name__ not in parts:
            parts[block.__name__] = {}  # so that it is not gone into again
            parts[block.__name__] = _of_block(block, parts)
        return {"$ref": f"#/$defs/{block.__name__}"}
    if words := words_of(annotation):
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            parts[annotation.__name__] = {
                "title": annotation.__name__,
                "description": getdoc(annotation),
                "type": "string",
                "enum": list(words),
            }
            return {"$ref": f"#/$defs/{annotation.__name__}"}
        return {"type": "string", **({"enum": list(words)} if words[1:] else {"const": words[0]})}
    if get_origin(annotation) is tuple:
        return {"type": "array", "items": _of_type(*bare(get_args(annotation)[0]), parts)}
    if get_origin(annotation) is Mapping:
        name, below = (_of_type(*bare(part), parts) for part in get_args(annotation))
        return {"type": "object", "patternProperties": {name["pattern"]: below}}
    return {"type": "string" if annotation is str else "integer"}
