"""What editors are told of the configuration file."""

from __future__ import annotations

from typing import Any

from sidecar.config.schema import Keys
from sidecar.shapes.schema import schema_of


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the configuration file."""
    return schema_of(Keys, title="Configuration of sidecar")
