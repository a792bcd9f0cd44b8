"""The example configuration and the JSON Schema say what the model says."""

from __future__ import annotations

import json
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sidecar import config
from sidecar.config.editors import json_schema
from sidecar.yamlfile import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parents[2]
EXAMPLE = PROJECT / "config.example.yaml"
DIFFERS = {("roots", "path"): "./examples/capsules"}
"""What the example needs for `make run`, and says so."""
DEFAULT_ROOT = "./capsules"


def keys_of_the_schema(
    schema: dict[str, Any], at: dict[str, Any], above: tuple[str, ...] = ()
) -> Iterator[Any]:
    """Yield every key with its default as it stands in a file; items of lists and capsules without their place.

    The items of a list that is empty by default are explained in a comment.
    """
    for name, key in at["properties"].items():
        path = (*above, name)
        (named,) = key.get("patternProperties", {"": key}).values()
        reference = named.get("items", named).get("$ref", "")
        block = schema["$defs"][reference.rpartition("/")[2]] if reference else {}
        if "properties" in block and key.get("default") != []:
            yield from keys_of_the_schema(schema, block, path)
        else:
            yield path, key.get("default", DEFAULT_ROOT)


def keys_of_the_file(value: Any, above: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield every key of the example with its value, in the same form."""
    for name, below in value.items():
        path = (*above, name)
        if name == "roots":
            (root,) = below
            yield from keys_of_the_file(root, path)
        elif name == "capsules":
            yield from keys_of_the_file(below["hello"], path)
        elif isinstance(below, dict):
            yield from keys_of_the_file(below, path)
        else:
            yield path, below


def example() -> dict[str, Any]:
    """Return the example as YAML has it."""
    value: dict[str, Any] = parse(EXAMPLE.read_bytes(), file="example", code="E", max_bytes=1 << 20).value
    return value


def test_the_example_holds_every_key_with_its_true_default() -> None:
    """Neither a key nor a default can drift: not in the example, not in the model."""
    schema = json_schema()
    assert dict(keys_of_the_file(example())) == dict(keys_of_the_schema(schema, schema)) | DIFFERS


def test_the_example_keeps_the_order_of_the_model() -> None:
    """So that one is easily read beside the other."""
    schema = json_schema()
    assert [path for path, _ in keys_of_the_file(example())] == [
        p for p, _ in keys_of_the_schema(schema, schema)
    ]


def test_every_key_of_the_example_is_explained() -> None:
    """By a comment on its line, or right above it."""
    lines = EXAMPLE.read_text().splitlines()
    leaves = [(above, line) for above, line in pairwise(lines) if ": " in line and line.lstrip()[0] != "#"]
    assert [line for above, line in leaves if "#" not in line and above.lstrip()[:1] != "#"] == []


def test_the_example_works_as_it_stands() -> None:
    """`make run` serves the example capsules with it, and nothing is warned about."""
    found = config.load(str(EXAMPLE), config.Flags(), {}, ephemeral=config.PortRange(32768, 60999))
    assert [root.path for root in found.roots] == [str(PROJECT / "examples/capsules")]
    assert found.warnings == ()
    defaults = config.build(b"{}", str(EXAMPLE), config.Flags(), {}, cwd="/")
    for name in (one.name for one in fields(defaults)):
        if name not in ("roots", "capsules"):
            assert getattr(found, name) == getattr(defaults, name)
    assert found.capsules["hello"] == config.CapsuleConfig()
    assert {name for name, own in found.capsules.items() if own.backend == "command"} == {
        "greeter",
        "planner",
    }


def test_the_schema_describes_every_key() -> None:
    """Each key has a title and a description, refuses unknown neighbours, and the whole is JSON."""
    schema = json_schema()
    json.dumps(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for block in (schema, *schema["$defs"].values()):
        if "properties" in block:
            assert block["additionalProperties"] is False, block["title"]
            assert block["description"]
            for name, key in block["properties"].items():
                described = key if "$ref" not in key else schema["$defs"][key["$ref"].rpartition("/")[2]]
                assert described["description"], (block["title"], name)
                assert described.get("title") or "anyOf" in key, (block["title"], name)
    assert "hosts" not in schema["$defs"]["Listen"]["properties"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("Listen", "ports"), "24000-31999"),
        (("Listen", "host"), "127.0.0.1"),
        (("Watch", "settle"), "40ms"),
        (("Limits", "manifest"), "128KiB"),
        (("Tasks", "keep_tasks"), "30d"),
        (("Desk", "port"), 7410),
        (("CapsuleConfig", "input_modes"), ["text/plain"]),
    ],
)
def test_defaults_in_the_schema_are_as_the_file_writes_them(path: tuple[str, str], expected: object) -> None:
    """An editor that fills in a default writes something that loads."""
    block, key = path
    assert json_schema()["$defs"][block]["properties"][key]["default"] == expected
