"""What editors are told of `murmur.yaml`."""

from __future__ import annotations

from typing import Any

from sidecar.manifest.schema import KNOWN, ManifestFile
from sidecar.shapes.schema import schema_of


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a manifest. Unknown keys are allowed in it, as the sidecar allows them."""
    schema = schema_of(ManifestFile, title="murmur.yaml")
    for path, known in KNOWN.items():
        properties = _block(schema, path)["properties"]
        for name in known:
            properties.setdefault(
                name, {"description": "Read by the capsule's own runtime, not by the sidecar."}
            )
    return schema


def _block(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return the part of a schema that describes a block, or the items of a list of blocks."""
    block = schema
    for part in path:
        options = block["properties"][part]["anyOf"]
        named = next(
            option.get("items", option)["$ref"] for option in options if option.get("type") != "null"
        )
        block = schema["$defs"][named.removeprefix("#/$defs/")]
    return block
