"""What YAML 1.1 takes a plain scalar for, as PyYAML does, and what others take it for. Pure."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TAG: Final = "tag:yaml.org,2002:"
MAX_NUMBER: Final = 100
"""The longest number in characters: base 60 takes quadratic time."""
BOOLEANS_ELSEWHERE: Final = frozenset("yYnN")
"""What YAML 1.1 takes for booleans, and PyYAML does not."""

_NUMBER_ELSEWHERE: Final = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|0o[0-7]+|0x[0-9a-fA-F]+"
)
"""The numbers of YAML 1.2."""
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_SAFE: Final = SafeConstructor()
_MAKERS: Final[Mapping[str, Callable[[yaml.ScalarNode], Any]]] = MappingProxyType(
    {
        TAG + "int": _SAFE.construct_yaml_int,
        TAG + "float": _SAFE.construct_yaml_float,
        TAG + "timestamp": _SAFE.construct_yaml_timestamp,
    }
)
FIRST_OF_NUMBERS: Final = "-+.0123456789"
_NUMBERS: Final[Mapping[str, tuple[tuple[str, re.Pattern[str]], ...]]] = MappingProxyType(
    {
        first: tuple((t, p) for t, p in Resolver.yaml_implicit_resolvers[first] if t in _MAKERS)
        for first in FIRST_OF_NUMBERS
    }
)
WORDS: Final[Mapping[str, bool | None]] = MappingProxyType(
    dict.fromkeys(("", "~", "null", "Null", "NULL"))
    | {
        spelt: meaning
        for word, meaning in SafeConstructor.bool_values.items()
        for spelt in (word, word.capitalize(), word.upper())
    }
)


def is_number_elsewhere(text: str) -> bool:
    """Whether YAML 1.2 takes an unquoted text for a number."""
    return _NUMBER_ELSEWHERE.fullmatch(text) is not None


def tag_of_number(text: str) -> str | None:
    """Return the tag of a number or date that a plain text which is not empty is, None where it is none."""
    return next((tag for tag, pattern in _NUMBERS.get(text[0], ()) if pattern.match(text)), None)


def is_plain_decimal(text: str) -> bool:
    """Whether an integer is written in decimal digits alone."""
    return _DECIMAL.fullmatch(text) is not None


def number(tag: str, text: str) -> object:
    """Return a number or date; what looks like a date but is none stays text.

    Raises ValueError for what cannot be taken as a number: why, and what to do, to be read after the text itself.
    """
    what = "looks like a number, but cannot be one: mend it"
    if len(text) <= MAX_NUMBER:
        try:
            return _MAKERS[tag](yaml.ScalarNode(tag, text))
        except (ValueError, OverflowError):
            if tag == TAG + "timestamp":
                return text
    else:
        what = f"is too long for a number: write one of at most {MAX_NUMBER} characters"
    raise ValueError(f"{what}, or quote it where text is meant") from None
