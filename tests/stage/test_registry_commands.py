"""Which directory a command of a capsule's own is for: where several carry one name, the configuration must say so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest_asyncio
import structlog

from sidecar.config import CapsuleConfig, Command, Config, OwnCommand, Root
from sidecar.model import CapsuleState
from sidecar.registry.examination import examine
from tests.support.house import GRACE, House

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

OWN = CapsuleConfig(backend="command", command=OwnCommand(argv=("agent.sh",)))
KEY = "capsules.hello.path"
EXPORT = "exports:\n  files:\n    root: out\n    mode: read-only\n"


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """Return an empty house, not started; it is stopped afterwards."""
    made = House(tmp_path)
    yield made
    if hasattr(made, "store"):
        await made.stop()


def error(house: House, capsule_id: str) -> str:
    """Return the last error of a capsule that is not served."""
    row = house.rows[capsule_id]
    assert row.state is CapsuleState.UNBOUND
    assert row.last_error is not None
    return row.last_error.message


async def test_a_command_without_its_directory_is_run_where_one_directory_carries_the_name(
    house: House,
) -> None:
    """Nothing has to be said where nothing is unclear."""
    house.write("a")
    house.write("b", "other")
    await house.start(capsules={"hello": OWN})
    command = house.capsule("a").settings.command
    assert command is not None
    assert command.argv == ("agent.sh",)
    assert house.rows["hello"].last_error is None


async def test_a_command_without_its_directory_is_run_by_no_namesake(house: House) -> None:
    """The capsule is unbound, its last error names the key, and the log says it once; the namesake is served."""
    house.write("a")
    house.write("b")
    with structlog.testing.capture_logs() as logs:
        await house.start(capsules={"hello": OWN})
        await house.wait(1)
    assert list(house.wanted) == ["b"]
    assert house.capsule("b").settings.backend == "inbox"
    assert error(house, "hello") == (
        "2 directories carry the name 'hello', and capsules.hello does not say which of them may run its command: "
        f"set {KEY} in the configuration"
    )
    assert [(log["capsule"], log["log_level"]) for log in logs if log["event"] == "capsule_unbound"] == [
        ("hello", "warning")
    ]
    house.bind(("b", 24001))
    assert house.registry.view.ready()


async def test_a_namesake_that_comes_stops_the_command_and_one_that_goes_starts_it(house: House) -> None:
    """Whoever can write below a root cannot take over the command by a name, nor keep it stopped by going."""
    house.write("b")
    await house.start(capsules={"hello": OWN})
    house.bind(("b", 24001))
    house.write("a")
    await house.look()
    assert list(house.wanted) == ["a"]
    assert house.capsule("a").settings.command is None
    assert KEY in error(house, "hello")
    assert house.rows["hello"].port is None
    house.bind(("b", 24001))  # it was opened while that became known
    assert KEY in error(house, "hello")
    house.remove("a")
    await house.look()
    await house.wait(GRACE)
    assert list(house.wanted) == ["b"]
    assert house.wanted["b"].port == 24001
    assert house.rows["hello"].last_error is None


async def test_a_namesake_that_takes_another_name_lets_the_command_run(house: House) -> None:
    """And the other way round."""
    house.write("a")
    house.write("b")
    await house.start(capsules={"hello": OWN})
    house.write("b", "other")
    await house.look()
    assert list(house.wanted) == ["a", "b"]
    house.write("b", "hello")
    await house.look()
    assert KEY in error(house, "hello")


async def test_the_path_says_which_of_them_runs_the_command(house: House) -> None:
    """By a reload; the others get what is said for all."""
    house.write("a")
    house.write("b")
    await house.start(capsules={"hello": OWN})
    assert KEY in error(house, "hello")
    tied = replace(OWN, path=house.path("a"))
    house.registry.reconfigure(house.config(capsules={"hello": tied}))
    await house.wait(0)
    assert [(d, w.capsule.settings.backend) for d, w in house.wanted.items()] == [
        ("a", "command"),
        ("b", "inbox"),
    ]
    assert house.rows["hello"].last_error is None
    house.registry.reconfigure(house.config(capsules={"hello": OWN}))
    await house.wait(0)
    assert list(house.wanted) == ["b"]


async def test_a_command_for_all_is_run_by_namesakes_too(house: House) -> None:
    """It is meant for every directory."""
    house.write("a")
    house.write("b")
    await house.start(
        backend="command",
        command=Command(argv=("agent.sh",)),
        capsules={"hello": CapsuleConfig(concurrency=2)},
    )
    assert [w.capsule.settings.backend for w in house.wanted.values()] == ["command", "command"]


async def test_a_disabled_capsule_needs_no_path(house: House) -> None:
    """It runs nothing, and has no error."""
    house.write("a")
    house.write("b")
    await house.start(capsules={"hello": OWN})
    disabled = replace(OWN, disabled=True)
    house.registry.reconfigure(house.config(capsules={"hello": disabled}))
    await house.wait(0)
    assert house.rows["hello"].state is CapsuleState.DISABLED
    assert house.rows["hello"].last_error is None


async def test_names_that_make_the_same_id_count_as_one(house: House) -> None:
    """Settings go by the id, and the id by the slug of the name."""
    house.write("a", "Hello!")
    house.write("b", "hello")
    await house.start(capsules={"hello": OWN})
    assert list(house.wanted) == ["b"]
    assert "the name 'Hello!'" in error(house, "hello")


async def test_a_namesake_whose_manifest_is_refused_leaves_its_command_to_nobody(house: House) -> None:
    """The id may go to another directory then, but the command does not."""
    (house.base / "outside").mkdir()
    house.write("a", more=EXPORT)
    (house.root / "a" / "out").symlink_to(house.base / "outside")
    house.write("b")
    await house.start(capsules={"hello": OWN})
    assert house.rows["hello"].path == house.path("b")
    assert not house.wanted
    assert KEY in error(house, "hello")


async def test_a_namesake_that_was_spoilt_after_a_restart_still_counts(house: House) -> None:
    """What the directory was remembered to carry is what it carries until it is mended."""
    house.write("a")
    house.write("b")
    await house.start()
    house.write_text("b", "name: [")
    await house.restart(capsules={"hello": OWN})
    assert KEY in error(house, "hello")


async def test_an_artifact_carries_no_name_of_a_capsule(house: House) -> None:
    """It is listed, not served, and has no id to be configured by."""
    house.write("a")
    house.write("b")
    await house.start(capsules={"hello": OWN})
    house.write_text("b", 'name: "hello"\nversion: "1.0"\nruntime: tool\n')
    await house.look()
    assert list(house.wanted) == ["a"]


def test_check_says_so_too(tmp_path: Path) -> None:
    """An error, before anything is served."""
    house = House(tmp_path)
    house.write("a")
    house.write("b")
    config = Config(roots=(Root(path=str(house.root)),), capsules={"hello": OWN})
    (problem,) = (p for p in examine(config).problems if p.code == "E-CFG-012")
    assert str(problem).startswith(
        "configuration: E-CFG-012 capsules.hello: 2 directories carry the name 'hello'"
    )
    tied = replace(OWN, path=house.path("a"))
    config = Config(roots=(Root(path=str(house.root)),), capsules={"hello": tied})
    assert not [p for p in examine(config).problems if p.code == "E-CFG-012"]
