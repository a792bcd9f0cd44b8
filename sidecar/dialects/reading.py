"""What reading a foreign document has in common: one error, and members that are what they must be."""

from __future__ import annotations

from typing import Any

import orjson

Object = dict[str, Any]


class UnreadableError(Exception):
    """What came is not what the protocol has there; the text says in which way, as the rest of a sentence."""


def parsed(data: bytes, what: str) -> Any:
    """Return what JSON says. Raises UnreadableError; `what` begins its sentence."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        raise UnreadableError(f"{what} is not JSON") from None


def an_object(value: object, what: str) -> Object:
    """Return an object. Raises UnreadableError."""
    if type(value) is not dict:
        raise UnreadableError(f"{what} is not a JSON object")
    return value


def a_text(holder: Object, key: str, what: str) -> str:
    """Return a member that must be text. Raises UnreadableError."""
    value = holder.get(key)
    if type(value) is not str:
        raise UnreadableError(f"{what} has no text called {key}")
    return value


def text_or(holder: Object, key: str, otherwise: str = "") -> str:
    """Return a member that is text, else something else."""
    value = holder.get(key)
    return value if type(value) is str else otherwise


def maybe_text(holder: Object, key: str) -> str | None:
    """Return a member that is text and not empty, else None."""
    return text_or(holder, key) or None


def objects(value: object) -> tuple[Object, ...]:
    """Return the objects of a list; anything else in it, or in its place, is left out."""
    return tuple(each for each in value if type(each) is dict) if type(value) is list else ()
