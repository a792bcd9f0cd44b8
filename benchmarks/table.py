"""The table that `make bench` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Row:
    """One figure, what it is compared with, and its budget where it has one.

    `most` and `least` bound `ratio` (or `value` itself where there is no baseline).
    """

    work: str
    value: float
    unit: str
    against: str = ""
    baseline: float | None = None
    most: float | None = None
    least: float | None = None

    @property
    def measured(self) -> float:
        """What the budget bounds: the ratio to the baseline, or the value."""
        return self.value / self.baseline if self.baseline else self.value

    @property
    def within(self) -> bool:
        """Whether the budget is kept; a row without one always is."""
        return (self.most is None or self.measured <= self.most) and (
            self.least is None or self.measured >= self.least
        )

    @property
    def budget(self) -> str:
        """The budget in words."""
        if self.most is None and self.least is None:
            return "-"
        return f"≤ {self.most:g}" if self.most is not None else f"≥ {self.least:g}"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def as_lines(rows: Sequence[Row]) -> list[str]:
    """Lay the rows out as a Markdown table."""
    lines = ["| work | measured | baseline | ratio | budget | |", "|---|---|---|---|---|---|"]
    for row in rows:
        baseline = f"{_number(row.baseline)} {row.unit} {row.against}" if row.baseline else row.against or "-"
        ratio = f"{row.measured:.2f}" if row.baseline else "-"
        verdict = "" if row.budget == "-" else ("ok" if row.within else "OVER")
        lines.append(
            f"| {row.work} | {_number(row.value)} {row.unit} | {baseline} | {ratio} | {row.budget} | {verdict} |"
        )
    return lines
