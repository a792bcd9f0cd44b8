"""Capsules come, go, change their names and break, and the sidecar restarts: against a model, with a real database."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sidecar.model import CapsuleState
from tests.support.house import FORGET, GRACE, HOUR, House

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

DIRECTORIES = st.sampled_from(["a", "b", "c/app", "d"])
NAMES = st.sampled_from(["one", "two", "a", "One!"])
BAD = ["", "name: [", "name: one\n", "kind: Pod\n"]
ARTIFACT = 'name: "one"\nversion: "1"\nruntime: skill\n'


class Life(RuleBasedStateMachine):
    """The model is what a user would say: who is served under which name, and what is remembered of whom."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.house = House(self.base)
        self.files: dict[str, tuple[str, str]] = {}
        self.served: dict[str, str] = {}
        self.held: dict[str, str] = {}
        self.remembered: dict[tuple[str, str], tuple[str, str]] = {}
        self.gone: dict[tuple[str, str], float] = {}
        self.ports: dict[str, int] = {}
        self.next_port = 24000
        self.run(self.house.start())

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        """Run something of the house to its end."""
        self.runner.run(work)

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.run(self.house.stop())
        self.runner.close()
        shutil.rmtree(self.base)

    # What happens

    @rule(directory=DIRECTORIES, name=NAMES, version=st.sampled_from(["1", "2"]))
    def write(self, directory: str, name: str, version: str) -> None:
        """A manifest is written, or written anew."""
        self.house.write(directory, name, version=version)
        self.files[directory] = ("good", name)
        self.turn()

    @rule(directory=DIRECTORIES, text=st.sampled_from(BAD))
    def spoil(self, directory: str, text: str) -> None:
        """A manifest is emptied, cut off, or replaced by something else."""
        self.house.write_text(directory, text)
        self.files[directory] = ("bad", "")
        self.turn()

    @rule(directory=DIRECTORIES)
    def make_artifact(self, directory: str) -> None:
        """The file describes an artifact from now on."""
        self.house.write_text(directory, ARTIFACT)
        self.files[directory] = ("artifact", "")
        self.turn()

    @rule(directory=DIRECTORIES)
    def remove(self, directory: str) -> None:
        """A directory goes, if it is there."""
        if self.files.pop(directory, None) is not None:
            self.house.remove(directory)
            self.turn()

    @rule()
    def bind_all(self) -> None:
        """Every listener that is wanted is bound, to the port that is asked for or to a free one."""
        self.run(self.bind())
        self.run(self.house.wait(0))

    async def bind(self) -> None:
        """Bind, as whoever owns the listeners does."""
        for directory, wanted in self.house.wanted.items():
            port = wanted.port
            if port is None:
                while self.next_port in self.house.registry.reserved_ports():
                    self.next_port += 1
                port = self.next_port
                self.next_port += 1
            self.house.bind((directory, port))
            self.ports[directory] = port
        await self.house.registry.save_ports()

    @rule(hours=st.sampled_from([1, 13, 25]))
    def wait(self, hours: int) -> None:
        """Time passes."""
        self.forget_after(hours * HOUR)
        self.run(self.house.wait(hours * HOUR))

    @rule()
    def restart(self) -> None:
        """The sidecar is restarted; what it had in memory only is lost."""
        self.served.clear()
        self.run(self.house.restart())
        self.turn()

    @rule(directory=DIRECTORIES, name=NAMES)
    def restart_after_a_change(self, directory: str, name: str) -> None:
        """Something changes while no sidecar runs."""
        self.run(self.house.stop())
        self.house.write(directory, name)
        self.files[directory] = ("good", name)
        self.served.clear()
        self.run(self.house.start())
        self.turn()

    # What should come of it

    def turn(self) -> None:
        """Look, and look again after the grace; take the model along."""
        self.run(self.house.look())
        self.forget_after(GRACE)
        self.run(self.house.wait(GRACE))
        self.settle()

    def forget_after(self, seconds: float) -> None:
        """Let the model forget what will have been gone for too long."""
        now = self.house.wall + seconds
        for pair in [pair for pair, since in self.gone.items() if now - since >= FORGET]:
            del self.gone[pair]
            del self.remembered[pair]
            if not any(directory == pair[0] for directory, _ in self.remembered):
                self.ports.pop(pair[0], None)

    def settle(self) -> None:
        """Work out who is served and who is remembered, and learn the ids and sessions that are new."""
        for directory in list(self.served):
            if self.files.get(directory, ("gone",))[0] in ("gone", "artifact"):
                del self.served[directory]
        for directory, (kind, name) in self.files.items():
            if kind == "good":
                self.served[directory] = name
        holding = {
            d: n for d, n in self.held.items() if self.files.get(d, ("gone",))[0] == "bad"
        } | self.served
        for directory, name in self.held.items():
            if holding.get(directory) != name:
                self.gone[directory, name] = self.house.wall - (
                    0 if self.files.get(directory) is None else GRACE
                )
        self.held = holding
        for pair in holding.items():
            self.gone.pop(pair, None)
        for directory, name in self.served.items():
            capsule = self.house.capsule(directory)
            known = self.remembered.setdefault((directory, name), (capsule.id, capsule.session_id))
            assert (capsule.id, capsule.session_id) == known

    @invariant()
    def the_right_ones_are_served(self) -> None:
        """Exactly the capsules of the model are wanted, each under its name, in sorted order of directories."""
        assert {d: w.capsule.manifest.name for d, w in self.house.wanted.items()} == self.served
        assert list(self.house.wanted) == sorted(self.served)

    @invariant()
    def nobody_shares_anything(self) -> None:
        """Ids and sessions are distinct over all that is remembered, and ids are of their alphabet."""
        for which in (0, 1):
            values = [row[which] for row in self.remembered.values()]
            assert len(set(values)) == len(values)
        assert all(re.fullmatch(r"[a-z0-9._~-]{1,129}", row_id) for row_id in self.house.rows)
        assert len(self.house.rows) == len(self.files)

    @invariant()
    def ports_are_kept(self) -> None:
        """A directory wants the port that it was bound to last, and all of them are reserved."""
        assert {d: w.port for d, w in self.house.wanted.items()} == {
            d: self.ports.get(d) for d in self.served
        }
        assert set(self.house.registry.reserved_ports()) == set(self.ports.values())

    @invariant()
    def the_rows_say_so(self) -> None:
        """Every directory with a file has a row whose state is what the model says."""
        states = {
            Path(row.path).relative_to(self.house.root).as_posix(): row for row in self.house.rows.values()
        }
        for directory, (kind, _) in self.files.items():
            row = states[directory]
            if directory in self.served:
                assert row.state in (CapsuleState.SERVING, CapsuleState.UNBOUND)
                assert (row.last_error is not None) == (kind == "bad")
            else:
                assert row.state is (CapsuleState.REFUSED if kind == "bad" else CapsuleState.ARTIFACT)


def test_capsules_come_and_go_as_the_model_says() -> None:
    """Whatever happens in whatever order, nobody loses an id, a session or a port that is remembered."""
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
