"""Durations, sizes and ranges of ports: from how a person writes them to numbers. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sidecar.model import Rate

LAST_PORT: Final = 65535
LONGEST_SHOWN: Final = 60
LONGEST_NUMBER: Final = 15
A_CENTURY: Final = 100 * 365 * 86400.0

UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
SIZES: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
OFTEN_WRITTEN: Final = {
    "ms": "msec msecs",
    "s": "sec secs second seconds",
    "m": "min mins minute minutes",
    "h": "hr hrs hour hours",
    "d": "day days",
    "KiB": "k kb ki kib",
    "MiB": "m mb mi mib",
    "GiB": "g gb gi gib",
}

_QUANTITY: Final = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z]*)", re.ASCII)
_RATE: Final = re.compile(r"(?P<requests>[1-9][0-9]{0,8})/(?P<unit>s|m|h)", re.ASCII)
_RANGE: Final = re.compile(r"(?P<first>[1-9][0-9]{0,4})(?:-(?P<last>[1-9][0-9]{0,4}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PortRange:
    """A range of TCP ports, both ends included."""

    first: int
    last: int

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def overlaps(self, other: PortRange) -> bool:
        """Whether the two have a port in common."""
        return self.first <= other.last and other.first <= self.last


def quoted(value: object) -> str:
    """Return a value as a message shows it: quoted, and cut where it is long."""
    text = str(value)
    return f'"{text[:LONGEST_SHOWN]}…"' if len(text) > LONGEST_SHOWN else f'"{text}"'


def parse_duration(text: str, unit: str = "s") -> float:
    """Return seconds from `40ms`, `2s`, `1.5h`, `30d`.

    Raises ValueError with what to write instead; `unit` is the one that is proposed where there is none.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or match["unit"] not in UNITS or len(match[0]) != len(match["number"] + match["unit"]):
        hint = _suggestion(text, UNITS, unit) or ", such as 40ms, 2s, 5m, 24h or 30d"
        raise ValueError(f"{quoted(text)} is no duration: a number and its unit (ms, s, m, h, d){hint}")
    number = float(match["number"])
    seconds = number / 1000 if match["unit"] == "ms" else number * UNITS[match["unit"]]
    if seconds > A_CENTURY:
        raise ValueError(f"{quoted(text)} is more than a hundred years")
    return seconds


def parse_size(text: str) -> int:
    """Return bytes from `1048576`, `128KiB`, `1MiB`, `2GiB`.

    Raises ValueError with what to write instead.
    """
    match = _QUANTITY.fullmatch(text)
    whole = match is not None and match["number"].isdigit() and len(match["number"]) <= LONGEST_NUMBER
    if match is None or not whole or match["unit"] not in SIZES or " " in text:
        hint = (_suggestion(text, SIZES, "") if whole else "") or ", such as 512, 128KiB or 1MiB"
        raise ValueError(
            f"{quoted(text)} is no size: whole bytes, or a whole number and KiB, MiB or GiB{hint}"
        )
    return int(match["number"]) * SIZES[match["unit"]]


def _suggestion(text: str, units: dict[str, float] | dict[str, int], bare: str) -> str:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return ""
    unit = match["unit"] or bare
    near = (known for known in units if unit == known or unit.lower() in OFTEN_WRITTEN.get(known, "").split())
    known = next(near, None)
    return "" if known is None else f"; write {match['number']}{known}"


def written_duration(seconds: float) -> str:
    """Return a duration as it is written, in seconds or milliseconds."""
    return f"{seconds:g}s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:g}ms"


def parse_rate(text: str) -> Rate:
    """Return the rate of `10/s`, `600/m` or `1000/h`.

    Raises ValueError with what to write instead.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{quoted(text)} is no rate; write it like 10/s, 600/m or 1000/h")
    return Rate(int(match["requests"]), float(UNITS[match["unit"]]))


def parse_ports(text: str) -> PortRange:
    """Return the range of `24000-31999`, or of one port.

    Raises ValueError with what to write instead.
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{quoted(text)} is no range of ports; write it like 24000-31999")
    found = PortRange(int(match["first"]), int(match["last"] or match["first"]))
    if max(found.first, found.last) > LAST_PORT:
        raise ValueError(f"{text} goes beyond the last port, {LAST_PORT}")
    if found.first > found.last:
        raise ValueError(f"{text} is empty; write {found.last}-{found.first}")
    return found
