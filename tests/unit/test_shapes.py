"""Blocks of keys: what is read into them, what is said of what does not fit, and what editors are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar import shapes
from sidecar.shapes import After, Before, Bounds, Fault, FaultsError, Plain, Schema, UnfitError, key, read
from sidecar.shapes.schema import schema_of


class Colour(Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


def short(value: str) -> str:
    """Refuse what is long."""
    if len(value) > 3:
        raise UnfitError("long", most=3)
    return value.upper()


def doubled(value: Any, times: Any) -> Any:
    """Repeat a text as often as the context says."""
    return value * times


class Leaf(shapes.Block):
    """A leaf."""

    name: Annotated[str, After(short)] = shapes.required("What it is called.")
    size: Annotated[int, Bounds(1, 9)] | None = key(None, "How large it is.")


class Tree(shapes.Block):
    """A tree."""

    BLANK: ClassVar[bool] = True

    kind: Literal["oak", "elm"] = key("oak", "Which one.")
    colour: Colour | None = key(None, "Of its leaves.", alias="hue")
    first: Leaf | None = key(None, "The first leaf.")
    leaves: tuple[Leaf, ...] = key((), "All leaves.", written=[])
    named: Mapping[Annotated[str, After(short), Schema({"type": "string", "pattern": "^.{0,3}$"})], Leaf] = (
        key({}, "Some leaves.")
    )
    words: Annotated[
        tuple[str, ...], Before(lambda value: value.split() if isinstance(value, str) else value)
    ] = key((), "Words.", written=[])
    song: Annotated[str, Plain(doubled, context=True), Schema({"type": "string"})] = key("", "A song.")


class Wood(shapes.Block):
    """A wood."""

    FORGIVING: ClassVar[bool] = True

    names: tuple[str, ...] = key((), "At least one name.", written=[], least=1)


def faults(block: type[shapes.Block], value: object) -> list[tuple[tuple[Any, ...], str]]:
    """Return where faults are, and of which kind."""
    with pytest.raises(FaultsError) as caught:
        read(block, value, 2)
    return [(fault.path, fault.kind) for fault in caught.value.faults]


def test_what_is_left_out_is_the_default() -> None:
    """And what was made in code is equal to what was read."""
    assert read(Tree, {}) == Tree()
    assert read(Tree, None) == Tree()
    assert Tree().leaves == ()


def test_what_is_given_is_read_by_its_annotation() -> None:
    """Words, blocks within blocks, lists, mappings, and what readers make of values."""
    found = read(
        Tree,
        {
            "kind": "elm",
            "hue": "blue",
            "first": {"name": "a"},
            "leaves": [{"name": "b", "size": 9}, {"name": "c", "size": None}],
            "named": {"x": {"name": "d"}},
            "words": "one two",
            "song": "la",
        },
        3,
    )
    assert found == Tree(
        kind="elm",
        colour=Colour.BLUE,
        first=Leaf(name="A"),
        leaves=(Leaf(name="B", size=9), Leaf(name="C")),
        named={"X": Leaf(name="D")},
        words=("one", "two"),
        song="lalala",
    )


def test_all_that_is_wrong_is_said_at_once() -> None:
    """Each with its place, in the order of the keys, those that are unknown last."""
    wrong = {
        "other": 1,
        "colour": "blue",
        "kind": ["oak"],
        "hue": "green",
        "first": [],
        "leaves": [{"name": 1, "size": True}, {"size": 10}, {"name": "long", "size": 0}],
        "named": {"long": {"name": "long"}},
        "words": 7,
    }
    assert faults(Tree, wrong) == [
        (("kind",), shapes.NO_SUCH_WORD),
        (("hue",), shapes.NO_SUCH_WORD),
        (("first",), shapes.NO_BLOCK),
        (("leaves", 0, "name"), shapes.NO_TEXT),
        (("leaves", 0, "size"), shapes.NO_NUMBER),
        (("leaves", 1, "name"), shapes.MISSING_KEY),
        (("leaves", 1, "size"), shapes.TOO_LARGE),
        (("leaves", 2, "name"), "long"),
        (("leaves", 2, "size"), shapes.TOO_SMALL),
        (("named", "long", shapes.OF_KEY), "long"),
        (("named", "long", "name"), "long"),
        (("words",), shapes.NO_LIST),
        (("other",), shapes.UNKNOWN_KEY),
        (("colour",), shapes.UNKNOWN_KEY),
    ]


def test_a_fault_tells_what_can_be_said_of_it() -> None:
    """The value, and what its reader, a bound or a choice has to add."""
    with pytest.raises(FaultsError) as caught:
        read(Tree, {"kind": "ash", "first": {"name": "long", "size": 10}})
    assert caught.value.faults == (
        Fault(("kind",), shapes.NO_SUCH_WORD, "ash", {"words": ("oak", "elm")}),
        Fault(("first", "name"), "long", "long", {"most": 3}),
        Fault(("first", "size"), shapes.TOO_LARGE, 10, {"bound": 9}),
    )
    assert "ash" not in str(caught.value), "what was written may be a secret"


def test_a_list_that_needs_items_needs_them_where_it_is_left_out_too() -> None:
    """At the place where it would be."""
    assert faults(Wood, {}) == faults(Wood, {"names": []}) == [(("names",), shapes.TOO_FEW)]
    assert read(Wood, {"names": ["a"], "unknown": 1, 2: 3}) == Wood(names=("a",))


def test_null_is_no_block_unless_it_is_said_to_be() -> None:
    """Neither is anything but a mapping."""
    values: tuple[object, ...] = (None, [], "text", 1)
    for value in values:
        assert faults(Wood, value) == [((), shapes.NO_BLOCK)]


def test_a_block_does_not_change() -> None:
    """So that stages may pass it on."""
    tree: Any = Tree()
    with pytest.raises(FrozenInstanceError):
        tree.kind = "elm"


def test_editors_are_told_of_every_block() -> None:
    """With titles, defaults as a file has them, and what is needed."""
    schema = schema_of(Tree, title="A tree")
    assert schema["title"] == "A tree"
    assert schema["$defs"]["Leaf"] == {
        "title": "Leaf",
        "description": "A leaf.",
        "type": "object",
        "properties": {
            "name": {"title": "Name", "description": "What it is called.", "type": "string"},
            "size": {
                "title": "Size",
                "description": "How large it is.",
                "anyOf": [{"type": "integer", "minimum": 1, "maximum": 9}, {"type": "null"}],
                "default": None,
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    assert schema["$defs"]["Colour"]["enum"] == ["red", "blue"]
    properties = schema["properties"]
    assert properties["kind"]["enum"] == ["oak", "elm"]
    assert properties["leaves"]["items"] == {"$ref": "#/$defs/Leaf"}
    assert properties["named"]["patternProperties"] == {"^.{0,3}$": {"$ref": "#/$defs/Leaf"}}
    assert properties["hue"]["anyOf"] == [{"$ref": "#/$defs/Colour"}, {"type": "null"}]
    wood = schema_of(Wood, title="A wood")
    assert wood["properties"]["names"]["minItems"] == 1
    assert "additionalProperties" not in wood


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 11) | st.sampled_from(["oak", "elm", "red", "a", "long"]),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "hue", "first", "leaves", "named", "words", "name", "size", "x"]), below
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_whatever_is_read_is_a_block_or_refused(value: object) -> None:
    """Nothing else is raised, and every fault lies at a place that is there, or that could be."""
    found: tuple[Fault, ...] = ()
    try:
        assert isinstance(read(Tree, value, 1), Tree)
    except FaultsError as error:
        found = error.faults
    for fault in found:
        at: Any = value
        for part in fault.path[:-1]:
            at = at[part]
        assert fault.path == () or fault.path[-1] == shapes.OF_KEY or isinstance(at, dict | list)
