"""What to do with the listeners: a pure difference between what is wanted and what is open."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sidecar.model import Capsule, Wanted

WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound

NOBODY: Final[Mapping[int, Sequence[Capsule]]] = MappingProxyType({})


class Listening(Protocol):
    """What the plan must know of an open listener."""

    @property
    def wanted(self) -> Wanted:
        """What it was opened or swapped for."""

    @property
    def port(self) -> int:
        """The port that it is bound to."""


@dataclass(frozen=True, slots=True)
class Clash:
    """A capsule that cannot have its port, because `other` has it or comes first."""

    wanted: Wanted
    other: Capsule


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, in this order; `close` and `keep` name directories, the others are in path order.

    Of `open`, those with a port of their own come first, so that no free choice takes it. `again` are those of `keep`
    whose listener was opened for another value that says the same.
    """

    keep: tuple[str, ...]
    close: tuple[str, ...]
    swap: tuple[Wanted, ...]
    open: tuple[Wanted, ...]
    clashes: tuple[Clash, ...]
    again: tuple[Wanted, ...] = ()


def plan(
    wanted: Sequence[Wanted],
    listening: Mapping[str, Listening],
    beside: Mapping[int, Sequence[Capsule]] = NOBODY,
) -> Plan:
    """Plan the way from the open listeners, by directory, to the wanted ones, given in path order.

    A listener whose hosts and port fit stays open, whoever else wants its port: what did not change is not
    disturbed. Else the first in path order has a port, and those that want it too clash. Where only some directories
    are planned for, `beside` are those who have a port and stay, by that (see `others`).
    """
    keep: list[str] = []
    again: list[Wanted] = []
    swap: list[Wanted] = []
    rest: list[Wanted] = []
    for one in wanted:
        capsule = one.capsule
        now = listening.get(capsule.directory)
        if now is not None and now.wanted is one:  # as are almost all where everything is planned anew
            keep.append(capsule.directory)
        elif now is None or not _fits(one, now):
            rest.append(one)
        elif now.wanted.capsule is capsule or now.wanted.capsule == capsule:
            keep.append(capsule.directory)
            again.append(one)
        else:
            swap.append(one)
    stays = {*keep, *(one.capsule.directory for one in swap)}
    holders = _holders(
        (one.capsule for one in wanted if one.capsule.directory in stays) if rest else (), listening, beside
    )
    opens: list[Wanted] = []
    free: list[Wanted] = []
    clashes: list[Clash] = []
    for one in rest:
        if one.port is None:
            free.append(one)
        elif (other := _holder(one.capsule, holders[one.port])) is not None:
            clashes.append(Clash(one, other))
        else:
            holders[one.port].append(one.capsule)
            opens.append(one)
    return Plan(
        keep=tuple(keep),
        close=tuple(directory for directory in listening if directory not in stays),
        swap=tuple(swap),
        open=(*opens, *free),
        clashes=tuple(clashes),
        again=tuple(again),
    )


def others(
    wanted: Iterable[Wanted],
    planned: Mapping[str, Listening],
    listening: Mapping[str, Listening],
    taken: Callable[[int], bool],
) -> Mapping[int, Sequence[Capsule]]:
    """Return who of the open listeners, apart from the `planned` ones, has a port that is wanted anew.

    They are gone through only where one of these ports is `taken` at all.
    """
    ports = {
        one.port
        for one in wanted
        if one.port is not None
        and taken(one.port)
        and ((now := planned.get(one.capsule.directory)) is None or not _fits(one, now))
    }
    holders: defaultdict[int, list[Capsule]] = defaultdict(list)
    for directory, listener in listening.items() if ports else ():
        if listener.port in ports and directory not in planned:
            holders[listener.port].append(listener.wanted.capsule)
    return holders


def _holders(
    capsules: Iterable[Capsule],
    listening: Mapping[str, Listening],
    beside: Mapping[int, Sequence[Capsule]],
) -> defaultdict[int, list[Capsule]]:
    """Return who has which port."""
    holders: defaultdict[int, list[Capsule]] = defaultdict(list)
    holders.update((port, list(held)) for port, held in beside.items())
    for capsule in capsules:
        holders[listening[capsule.directory].port].append(capsule)
    return holders


def _fits(wanted: Wanted, now: Listening) -> bool:
    return wanted.port in (None, now.port) and (
        wanted.capsule.settings.hosts == now.wanted.capsule.settings.hosts
    )


def _holder(capsule: Capsule, others: Sequence[Capsule]) -> Capsule | None:
    hosts = frozenset(capsule.settings.hosts)
    for other in others:
        theirs = frozenset(other.settings.hosts)
        if hosts & theirs or (hosts | theirs) & WILDCARDS:
            return other
    return None
