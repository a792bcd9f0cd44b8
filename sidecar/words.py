"""What a reader makes of a word: whether it can be seen, and which known one was probably meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from unicodedata import category

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHAPELESS: Final = frozenset({"Cc", "Cf", "Zs", "Zl", "Zp"})
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
"""What Unicode counts as letters or marks though it shows nothing: fillers, joiners, variation selectors."""


def is_blank(text: str) -> bool:
    """Whether nothing of a text can be seen: it is empty, or all white space, controls and characters without a shape."""
    return all(category(letter) in _SHAPELESS or _UNSEEN.fullmatch(letter) for letter in text)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant: at most max(1, length / 3) edits away, the nearest first.

    An edit inserts, drops or replaces a letter, or swaps two neighbours.
    """
    most = max(1, len(word) // 3)
    best: tuple[int, str] | None = None
    for other in known:
        if abs(len(other) - len(word)) > most or sum(letter not in other for letter in word) > most:
            continue
        edits = _edits(word, other)
        if edits <= most and (best is None or edits < best[0]):
            best = (edits, other)
    return best[1] if best else None


def _edits(word: str, other: str) -> int:
    """Return the optimal string alignment distance of two words."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(word, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            edits = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and word[i - 2] == b:
                edits = min(edits, older[j - 2] + 1)
            row.append(edits)
    return row[-1]
