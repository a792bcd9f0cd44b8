"""What follows changes ends where looking at everything does, whatever happens on the way."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sidecar.cards.served import Cards
from sidecar.listeners.pool import Pool
from sidecar.model import Capsule, Manifest, Settings, Wanted
from sidecar.ops.metrics import Counters
from sidecar.planes.routes import Planes
from sidecar.serve.endpoint import Served
from sidecar.web.guards import Guards, Rules
from sidecar.web.refusals import RefusalLog
from sidecar.web.server import HttpLimits, Policy
from tests.support.credentials import access_of
from tests.support.ports import Shut
from tests.support.serving import Facts

if TYPE_CHECKING:
    from collections.abc import Mapping

FAULTY = "3"
"""The version of a manifest that cannot be served."""
WIDTH = 8
FREE = WIDTH // 2
_NET = f"127.{64 + os.getpid() % 128}.{os.getpid() // 128 % 256}"
ONE, OTHER = f"{_NET}.1", f"{_NET}.2"
HOSTS = [(ONE,), (OTHER,), (ONE, OTHER)]
"""Loopback addresses that no other run has, so that the ports on them are free."""
FIRST = 19_100

Wish = tuple[int | None, tuple[str, ...], str, str, int | None]
"""A port within the range, hosts, a name, a version, and a second port within the range."""
WISHES = st.tuples(
    st.none() | st.integers(0, FREE - 1),
    st.sampled_from(HOSTS),
    st.sampled_from("xy"),
    st.sampled_from(["1", "2", FAULTY]),
    st.sampled_from([None, None, 0, 1, FREE]),
)
STEPS = st.lists(st.dictionaries(st.sampled_from("abcd"), st.none() | WISHES, max_size=4), max_size=6)


class Faulty:
    """Doors that open, but for one version, and keep note of the sessions that they have open."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()

    async def open(self, capsule: Capsule) -> Served:
        """Return what the port shows."""
        self.sessions.add(capsule.session_id)
        if capsule.manifest.version == FAULTY:
            raise ValueError
        return Served(capsule, Cards(capsule), self, Shut, Counters(), lambda: 0, access_of())

    async def close(self, session_id: str) -> None:
        """Let go."""
        self.sessions.remove(session_id)

    async def call(self, _body: bytes, _last_event_id: str | None = None) -> bytes:
        """Say nothing."""
        return b""


class Side:
    """One of the two pools that are compared, on ports of its own."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.doors = Faulty()
        self.facts = Facts()
        self.pool = Pool(
            doors=self.doors,
            planes=Planes(),
            facts=self.facts,
            policy=Policy(
                Guards(Rules("listen", advertised=("localhost",))), HttpLimits(), RefusalLog(lines=1000)
            ),
            ports=(first + FREE, first + WIDTH - 1),
            most=10,
            budget=5.0,
            first_retry=3600.0,
        )

    def wanted(self, directory: str, wish: Wish) -> Wanted:
        """Make a wish for these ports."""
        port, hosts, name, version, second = wish
        capsule = Capsule(
            id=f"{directory}-{name}",
            directory=directory,
            session_id=f"ses_{directory}_{name}",
            manifest=Manifest(name, version),
            settings=Settings(hosts=hosts, a2a_port=None if second is None else self.first + second),
            workspace=directory,
            changed_at=0.0,
        )
        return Wanted(capsule, None if port is None else self.first + port, "configured")

    def shown(self) -> object:
        """Return what is open and what is not, apart from the numbers of ports."""
        listeners = {
            capsule.directory: (replace(capsule, settings=Settings(hosts=capsule.settings.hosts), port=None))
            for capsule in self.pool.capsules()
        }
        ports = {directory: port - self.first for directory, port in self.facts.ports.items()}
        fixed = {directory: port for directory, port in ports.items() if port < FREE}
        return listeners, ports.keys(), fixed, self._texts(), self.doors.sessions

    def _texts(self) -> object:
        texts: dict[str, str | None] = {d: reasons[-1] for d, reasons in self.facts.reasons.items()}
        texts |= {f"{d} too": reason for d, reason in self.facts.troubles.items()}
        for number in range(WIDTH):
            texts = {
                d: text and text.replace(str(self.first + number), f"+{number}") for d, text in texts.items()
            }
        return texts


@example(steps=[{"a": (0, HOSTS[0], "x", "1", None)}, {"b": (0, HOSTS[0], "x", "1", None)}, {"a": None}])
@example(steps=[{"a": (None, HOSTS[0], "x", "1", None)}, {"a": (None, HOSTS[0], "y", FAULTY, None)}, {}])
@example(steps=[{"a": (0, HOSTS[0], "x", "1", 1), "b": (1, HOSTS[0], "x", "1", None)}, {"b": None}])
@example(
    steps=[
        {"a": (0, HOSTS[0], "x", "1", None), "b": (0, HOSTS[1], "x", "1", None)},
        {"a": (0, HOSTS[2], "x", "1", None)},
    ]
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_following_changes_ends_where_looking_at_everything_does(
    steps: list[Mapping[str, Wish | None]],
) -> None:
    """Two pools, one of which is told what has changed and the other all that is wanted, do the same at each step."""
    asyncio.run(_compared(steps))


async def _compared(steps: list[Mapping[str, Wish | None]]) -> None:
    following, looking = Side(FIRST), Side(FIRST + WIDTH)
    wishes: dict[str, Wanted] = {}
    for step in steps:
        changes = {d: None if wish is None else following.wanted(d, wish) for d, wish in step.items()}
        await following.pool.follow(changes)
        everything: dict[str, Wanted | None] = dict.fromkeys(wishes)
        for directory, wish in step.items():
            wishes.pop(directory, None)
            if wish is not None:
                wishes[directory] = looking.wanted(directory, wish)
        await looking.pool.follow(everything | wishes)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert following.shown() == looking.shown()
    for side in (following, looking):
        await side.pool.aclose()
