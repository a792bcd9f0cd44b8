"""The registry over real directories and a real database: what is served where, and what is said of it."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import structlog

from sidecar.config import CapsuleConfig, Config, Listen, PortRange, Root, Watch
from sidecar.model import CapsuleState, RegistryView
from sidecar.registry.saving import PortSaver
from tests.support.house import FORGET, GRACE, HOUR, House
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

EXPORT = "exports:\n  files:\n    root: {root}\n    mode: read-only\n"
ARTIFACT = 'name: "tool"\nversion: "1.0"\nruntime: tool\n'


@pytest_asyncio.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """Return an empty house, not started; it is stopped afterwards."""
    made = House(tmp_path)
    yield made
    if hasattr(made, "store"):
        await made.stop()


def events(logs: list[structlog.typing.EventDict], *fields: str) -> list[tuple[object, ...]]:
    """Return the events of the log with some of their fields."""
    return [(log["event"], *(log.get(field) for field in fields)) for log in logs]


def break_database(house: House) -> None:
    """Have every write to the remembered capsules fail, as a full disk would."""
    with closing(sqlite3.connect(house.base / "state" / "sidecar.db")) as connection:
        connection.executescript(
            "CREATE TRIGGER full BEFORE INSERT ON capsules BEGIN SELECT RAISE(FAIL, 'disk is full'); END;"
        )


def mend_database(house: House) -> None:
    """Take that back."""
    with closing(sqlite3.connect(house.base / "state" / "sidecar.db")) as connection:
        connection.executescript("DROP TRIGGER full;")


# What is served


async def test_every_capsule_is_wanted_in_order_of_its_directory(house: House) -> None:
    """A good manifest makes a capsule with an id, a session and a workspace, wanted on any port."""
    house.write("b", "Hello World")
    house.write("a", "other")
    await house.start()
    assert list(house.wanted) == ["a", "b"]
    capsule = house.capsule("b")
    assert capsule.id == "hello-world"
    assert re.fullmatch(r"ses_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", capsule.session_id)
    assert capsule.manifest.name == "Hello World"
    assert capsule.workspace == capsule.directory == house.path("b")
    assert capsule.changed_at == house.wall
    assert capsule.port is None
    assert house.wanted["b"].port is None
    assert house.judged == [False, False]


async def test_nothing_is_wanted_before_the_first_look(house: House) -> None:
    """An update without a snapshot, such as a reload that comes early, ends nothing that is remembered."""
    house.write("a")
    await house.start()
    session = house.capsule("a").session_id
    await house.restart()
    registry = type(house.registry)(house.store, house.config(), clock=lambda: 0.0, monotonic=lambda: 0.0)
    assert (await registry.update()).changes == {}
    assert not registry.view.ready()
    await registry.aclose()
    assert house.capsule("a").session_id == session


async def test_no_capsules_at_all_is_ready(house: House) -> None:
    """An empty root is served as well as any other."""
    desired = await house.start()
    assert desired.changes == {}
    assert desired.wake_at is None
    assert house.registry.view.ready()


async def test_a_change_makes_another_capsule_and_leaves_the_others_the_same_object(house: House) -> None:
    """Later stages compare by identity: only what changed is another object."""
    house.write("a", "a")
    house.write("b", "b")
    await house.start()
    a, b, first = house.capsule("a"), house.capsule("b"), house.wanted["a"]
    house.wall += 5
    house.write("b", "b", version="2.0")
    await house.look()
    assert house.capsule("a") is a
    assert house.wanted["a"] is first
    assert house.capsule("b").manifest.version == "2.0"
    assert house.capsule("b").session_id == b.session_id
    assert house.capsule("b").changed_at == house.wall


async def test_another_file_with_the_same_meaning_changes_nothing(house: House) -> None:
    """A comment is no change of a capsule."""
    house.write("a")
    await house.start()
    before = house.capsule("a")
    house.write("a", more="# a comment\n")
    with structlog.testing.capture_logs() as logs:
        await house.look()
    assert house.capsule("a") is before
    assert logs == []


async def test_a_change_that_no_card_shows_keeps_its_date(house: House) -> None:
    """`Last-Modified` is about the card."""
    house.write("a")
    await house.start()
    before = house.capsule("a")
    house.wall += 60
    house.registry.reconfigure(house.config(capsules={"hello": CapsuleConfig(concurrency=3)}))
    await house.look()
    assert house.capsule("a").settings.concurrency == 3
    assert house.capsule("a").changed_at == before.changed_at
    for shown in (
        {"listen": Listen(advertise="example.org")},
        {"capsules": {"hello": CapsuleConfig(door="authenticated")}},
    ):
        house.wall += 60
        house.registry.reconfigure(house.config(**shown))
        await house.look()
        assert house.capsule("a").changed_at == house.wall


# Bad manifests


@pytest.mark.parametrize("text", ["", "name: [", "name: x\n", "kind: Pod\n"])
async def test_b12_a_bad_manifest_leaves_the_last_good_one_served(house: House, text: str) -> None:
    """B12, stale targets for ever: an emptied or broken manifest is an error that shows, and the last good is served."""
    house.write("a")
    house.write("b", "b")
    await house.start()
    house.bind(("a", 24000), ("b", 24001))
    before = house.wanted
    with structlog.testing.capture_logs() as logs:
        house.write_text("a", text)
        await house.look()
        house.write_text("a", text)
        await house.look()
    assert house.wanted["a"].capsule is before["a"].capsule
    assert house.wanted["b"].capsule is before["b"].capsule
    row = house.rows["hello"]
    assert row.state is CapsuleState.SERVING
    assert row.last_error is not None
    assert row.last_error.message.startswith(f"{house.path('a')}/murmur.yaml:")
    assert "E-MAN-00" in row.last_error.message
    assert events(logs, "capsule", "last_good") == [("manifest_refused", "hello", True)]
    assert house.judged == [False, False, True]
    with structlog.testing.capture_logs() as logs:
        house.write("a", version="2.0")
        await house.look()
    assert house.rows["hello"].last_error is None
    assert house.capsule("a").manifest.version == "2.0"
    assert events(logs, "capsule") == [("capsule_changed", "hello"), ("manifest_mended", "hello")]


async def test_a_manifest_that_is_bad_at_the_start_is_refused_and_the_others_are_served(house: House) -> None:
    """A directory that was never good is listed under its own slug, with nothing that a capsule has."""
    house.write_text("Bad One", "name: {{ name }}\n")
    house.write("good", "good")
    await house.start()
    assert list(house.wanted) == ["good"]
    row = house.rows["bad-one"]
    assert row.state is CapsuleState.REFUSED
    assert (row.name, row.version, row.port, row.session_id, row.url) == (None, None, None, None, None)
    assert row.path == house.path("Bad One")
    assert row.last_error is not None
    assert f"{house.path('Bad One')}/murmur.yaml:1:" in row.last_error.message
    house.write("Bad One", "Mended")
    await house.look()
    assert house.rows["mended"].state is CapsuleState.UNBOUND
    assert "bad-one" not in house.rows


async def test_a_refused_directory_takes_no_id_from_a_capsule(house: House) -> None:
    """Capsules win: what is only listed gets a number, and is renumbered when a capsule comes."""
    house.write_text("hello", "bad: [")
    house.write_text("sub", "bad: [")
    await house.start()
    assert set(house.rows) == {"hello", "sub"}
    house.write("x", "hello")
    await house.look()
    assert house.capsule("x").id == "hello"
    assert {i: r.state for i, r in house.rows.items()} == {
        "hello": CapsuleState.UNBOUND,
        "hello~2": CapsuleState.REFUSED,
        "sub": CapsuleState.REFUSED,
    }


async def test_a_manifest_that_is_bad_after_a_restart_keeps_its_session_for_the_mending(house: House) -> None:
    """The last good manifest lives in memory, the id and the session do not."""
    house.write("a")
    await house.start()
    before = house.capsule("a")
    house.write_text("a", "name: hello\n")
    await house.restart()
    row = house.rows["hello"]
    assert (row.state, row.name, row.session_id) == (CapsuleState.REFUSED, None, None)
    assert house.wanted == {}
    await house.wait(2 * FORGET)
    house.write("a")
    await house.look()
    assert (house.capsule("a").id, house.capsule("a").session_id) == (before.id, before.session_id)


async def test_a_manifest_that_cannot_be_read_is_an_error_and_not_an_absence(house: House) -> None:
    """What cannot be read now is served as it was."""
    house.write("a")
    await house.start()
    before = house.capsule("a")
    (house.root / "a" / "murmur.yaml").unlink()
    (house.root / "a" / "murmur.yaml").mkdir()
    await house.look()
    await house.wait(GRACE)
    assert house.capsule("a") is before
    assert house.rows["hello"].last_error is not None


# Artifacts, disabled capsules


async def test_an_artifact_is_listed_and_not_served(house: House) -> None:
    """A file that only describes an artifact gets no port, no session and no error."""
    house.write_text("a", ARTIFACT)
    await house.start()
    assert house.wanted == {}
    row = house.rows["a"]
    assert (row.state, row.name, row.session_id, row.last_error) == (CapsuleState.ARTIFACT, None, None, None)
    house.write("a", "capsule")
    await house.look()
    session = house.capsule("a").session_id
    with structlog.testing.capture_logs() as logs:
        house.write_text("a", ARTIFACT)
        await house.look()
    assert house.wanted == {}
    assert house.rows["a"].state is CapsuleState.ARTIFACT
    assert events(logs, "capsule") == [("capsule_removed", "capsule")]
    house.write("a", "capsule")
    await house.look()
    assert house.capsule("a").session_id == session


async def test_an_artifact_that_turns_bad_is_refused(house: House) -> None:
    """Nothing of an artifact is a last good manifest."""
    house.write_text("a", ARTIFACT)
    await house.start()
    house.write_text("a", "name: [")
    await house.look()
    assert house.rows["a"].state is CapsuleState.REFUSED


async def test_a_disabled_capsule_is_listed_and_keeps_its_session(house: House) -> None:
    """Disabling closes the port and nothing else."""
    house.write("a")
    await house.start()
    house.bind(("a", 24000))
    session = house.capsule("a").session_id
    house.registry.reconfigure(house.config(capsules={"hello": CapsuleConfig(disabled=True)}))
    await house.wait(0)
    row = house.rows["hello"]
    assert (row.state, row.port, row.url, row.session_id) == (CapsuleState.DISABLED, None, None, session)
    assert not row.methods
    assert house.wanted == {}
    house.registry.reconfigure(house.config())
    await house.wait(0)
    assert house.wanted["a"].port == 24000
    assert house.capsule("a").session_id == session


# Names


async def test_namesakes_are_all_served_and_warned_about(house: House) -> None:
    """The first in order of directories has the plain slug, and the warning names them all."""
    for directory in ("c/app", "b", "a"):
        house.write(directory, "Same")
    with structlog.testing.capture_logs() as logs:
        await house.start()
    assert {d: w.capsule.id for d, w in house.wanted.items()} == {
        "a": "same",
        "b": "same~b",
        "c/app": "same~app",
    }
    warning = "3 directories carry the name 'Same': same, same~b, same~app"
    assert [row.warnings for row in house.rows.values()] == [(warning,)] * 3
    assert ("namesakes", "Same", 3) in events(logs, "name", "count")
    house.remove("b")
    await house.look()
    await house.wait(GRACE)
    assert house.rows["same"].warnings == ("2 directories carry the name 'Same': same, same~app",)
    house.remove("c")
    await house.look()
    await house.wait(GRACE)
    assert not house.rows["same"].warnings


async def test_namesakes_that_come_and_go_move_nobody(house: House) -> None:
    """A directory that sorts first does not take the plain slug, and one that left keeps its own."""
    house.write("m", "same")
    house.write("n", "same")
    await house.start()
    before = {d: (w.capsule.id, w.capsule.session_id) for d, w in house.wanted.items()}
    house.write("a", "same")
    house.remove("m")
    await house.look()
    await house.wait(GRACE)
    await house.restart()
    assert house.capsule("a").id == "same~a"
    assert (house.capsule("n").id, house.capsule("n").session_id) == before["n"]
    house.write("m", "same")
    await house.look()
    assert (house.capsule("m").id, house.capsule("m").session_id) == before["m"]


async def test_another_name_is_another_capsule_in_the_same_place(house: House) -> None:
    """Id and session are new at once, the port stays; the name before gets them back when it returns."""
    house.write("a", "one")
    await house.start()
    house.bind(("a", 24005))
    one = house.capsule("a")
    with structlog.testing.capture_logs() as logs:
        house.write("a", "two")
        await house.look()
    two = house.capsule("a")
    assert (two.id, house.wanted["a"].port) == ("two", 24005)
    assert two.session_id != one.session_id
    assert events(logs, "capsule") == [("capsule_removed", "one"), ("capsule_added", "two")]
    with structlog.testing.capture_logs() as logs:
        house.write("a", "one")
        await house.look()
    assert (house.capsule("a").id, house.capsule("a").session_id) == ("one", one.session_id)
    assert events(logs, "capsule") == [("capsule_removed", "two"), ("capsule_returned", "one")]
    assert set(house.rows) == {"one"}


async def test_a_path_that_is_not_utf_8_is_shown_with_escapes(house: House) -> None:
    """A name of any bytes is served and remembered; only what is shown is made printable."""
    directory = os.fsdecode(b"caf\xe9")
    house.write(directory, "odd")
    house.write_text(os.fsdecode(b"bad\xff"), "name: [")
    await house.start()
    session = house.capsule(directory).session_id
    assert house.capsule(directory).directory == house.path(directory)
    assert house.rows["odd"].path == str(house.root) + "/caf\\xe9"
    refused = house.rows["bad"]
    assert refused.last_error is not None
    assert "/bad\\xff/murmur.yaml" in refused.last_error.message
    refused.last_error.message.encode()
    house.bind((directory, 24000))
    await house.registry.save_ports()
    await house.restart()
    assert (house.capsule(directory).session_id, house.wanted[directory].port) == (session, 24000)


# Coming and going


async def test_a_manifest_that_disappears_is_served_for_the_grace(house: House) -> None:
    """Editors and deployments pass through "no file": within the grace nothing is noticed."""
    house.write("a")
    await house.start()
    before = house.capsule("a")
    with structlog.testing.capture_logs() as logs:
        (house.root / "a" / "murmur.yaml").unlink()
        desired = await house.look()
        assert desired.wake_at == house.mono + GRACE
        await house.wait(GRACE / 2)
        assert house.capsule("a") is before
        house.write("a")
        desired = await house.look()
    assert house.capsule("a") is before
    assert desired.wake_at is None
    assert logs == []
    await house.wait(10 * GRACE)
    assert house.capsule("a") is before


async def test_b12_a_removed_capsule_is_wanted_no_more_after_the_grace(house: House) -> None:
    """B12, stale targets for ever: a removed directory's listener closes, and its row goes."""
    house.write("a")
    await house.start()
    house.remove("a")
    await house.look()
    with structlog.testing.capture_logs() as logs:
        desired = await house.wait(GRACE)
    assert desired.changes == {house.path("a"): None}
    assert house.rows == {}
    assert events(logs, "capsule") == [("capsule_removed", "hello")]
    assert desired.wake_at == house.mono + FORGET


async def test_a_capsule_that_returns_is_taken_up_again(house: House) -> None:
    """Within `tasks.forget` id, session and port wait for it, over a restart too."""
    house.write("a")
    await house.start()
    house.bind(("a", 24007))
    assert await house.registry.save_ports()
    before = house.capsule("a")
    house.remove("a")
    await house.look()
    await house.wait(GRACE)
    assert set(house.registry.reserved_ports()) == {24007}
    await house.restart()
    await house.wait(FORGET - HOUR)
    with structlog.testing.capture_logs() as logs:
        house.write("a")
        await house.look()
    assert (house.capsule("a").id, house.capsule("a").session_id) == (before.id, before.session_id)
    assert (house.wanted["a"].port, house.wanted["a"].port_from) == (24007, "remembered")
    assert events(logs, "capsule") == [("capsule_returned", "hello")]


async def test_what_is_gone_for_long_is_forgotten(house: House) -> None:
    """After `tasks.forget` the id is free, the port is not reserved, and a return is a new session."""
    house.write("a")
    await house.start()
    house.bind(("a", 24007))
    before = house.capsule("a")
    house.remove("a")
    await house.look()
    await house.wait(GRACE)
    await house.wait(FORGET)
    assert set(house.registry.reserved_ports()) == set()
    with closing(sqlite3.connect(house.base / "state" / "sidecar.db")) as connection:
        assert connection.execute("SELECT count(*) FROM capsules").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM ports").fetchone() == (0,)
    house.write("b")
    house.write("a")
    await house.look()
    assert house.capsule("a").id == "hello"
    assert house.capsule("a").session_id != before.session_id
    assert house.wanted["a"].port is None


async def test_a_capsule_that_returns_too_late_is_a_new_one(house: House) -> None:
    """Also when nobody had noticed before its return that the time was over."""
    house.write("a")
    await house.start()
    before = house.capsule("a")
    house.remove("a")
    await house.look()
    await house.wait(GRACE)
    house.wall += FORGET
    house.write("a")
    await house.look()
    assert house.capsule("a").id == before.id
    assert house.capsule("a").session_id != before.session_id
    await house.restart()
    assert house.capsule("a").session_id != before.session_id


async def test_what_went_while_nothing_ran_is_gone_from_the_next_start_on(house: House) -> None:
    """A capsule that is not there at the start keeps its id for `tasks.forget` from then."""
    house.write("a")
    await house.start()
    session = house.capsule("a").session_id
    house.remove("a")
    house.wall += 10 * FORGET
    await house.restart()
    await house.wait(FORGET - HOUR)
    house.write("a")
    await house.look()
    assert house.capsule("a").session_id == session


async def test_a_clock_that_was_set_back_forgets_nothing(house: House) -> None:
    """A time of going that lies in the future is no reason to forget."""
    house.write("a")
    await house.start()
    session = house.capsule("a").session_id
    house.remove("a")
    await house.look()
    await house.wait(GRACE)
    house.wall -= 100 * FORGET
    await house.wait(0)
    house.write("a")
    await house.look()
    assert house.capsule("a").session_id == session


async def test_a_root_that_cannot_be_read_is_an_error_and_not_an_absence(house: House) -> None:
    """Its capsules go on, over a restart their sessions do, and they are gone only once that is seen."""
    house.write("a")
    await house.start()
    before = house.capsule("a")
    aside = house.root.rename(house.base / "aside")
    house.root.symlink_to(house.root)
    await house.look()
    await house.wait(10 * GRACE)
    assert house.capsule("a") is before
    (root,) = house.registry.view.roots()
    assert root.last_error is not None
    await house.restart()
    assert house.rows == {}
    await house.wait(2 * FORGET)
    house.root.unlink()
    aside.rename(house.root)
    await house.look()
    assert (house.capsule("a").id, house.capsule("a").session_id) == (before.id, before.session_id)
    assert house.registry.view.roots()[0].last_error is None


async def test_a_root_that_becomes_unreadable_within_the_grace_stops_the_clock(house: House) -> None:
    """What was missing and is unknown now goes on."""
    house.write("a")
    await house.start()
    before = house.capsule("a")
    aside = (house.root / "a").rename(house.base / "aside")
    await house.look()
    house.root.rename(house.base / "root")
    house.root.symlink_to(house.root)
    await house.look()
    await house.wait(10 * GRACE)
    assert house.capsule("a") is before
    house.root.unlink()
    (house.base / "root").rename(house.root)
    aside.rename(house.root / "a")
    await house.look()
    assert house.capsule("a") is before


async def test_a_directory_seen_through_two_roots_is_one_capsule(house: House) -> None:
    """Roots may overlap; the innermost one says what the workspace is."""
    house.write("a")
    roots = (Root(path=str(house.root)), Root(path=house.path("a"), workspace="work"))
    await house.start(roots=roots)
    assert list(house.wanted) == ["a"]
    assert house.capsule("a").workspace == house.path("a") + "/work"
    assert [root.path for root in house.registry.view.roots()] == [root.path for root in roots]


# Restarts


async def test_a_restart_keeps_ids_sessions_and_ports(house: House) -> None:
    """Everything that callers know a capsule by is the same after it."""
    for directory in ("a", "b", "c"):
        house.write(directory, "same")
    await house.start()
    house.bind(("a", 24000), ("b", 24001), ("c", 24002))
    assert await house.registry.save_ports()
    before = {d: (w.capsule.id, w.capsule.session_id) for d, w in house.wanted.items()}
    await house.restart()
    assert {d: (w.capsule.id, w.capsule.session_id) for d, w in house.wanted.items()} == before
    assert {d: (w.port, w.port_from) for d, w in house.wanted.items()} == {
        "a": (24000, "remembered"),
        "b": (24001, "remembered"),
        "c": (24002, "remembered"),
    }


async def test_what_the_database_cannot_take_is_not_served_and_tried_again(house: House) -> None:
    """With a full disk the known capsules are served and reloaded, and a new one waits and says why."""
    house.write("a", "a")
    await house.start()
    session = house.capsule("a").session_id
    break_database(house)
    house.write("b", "b")
    house.write("a", "a", version="2.0")
    with structlog.testing.capture_logs() as logs:
        desired = await house.look()
        await house.wait(1)
    assert list(house.wanted) == ["a"]
    assert house.capsule("a").manifest.version == "2.0"
    assert desired.wake_at is not None
    row = house.rows["b"]
    assert row.state is CapsuleState.REFUSED
    assert row.last_error is not None
    assert "disk is full" in row.last_error.message
    assert [log["event"] for log in logs].count("registry_not_saved") == 1
    mend_database(house)
    desired = await house.wait(5)
    assert list(house.wanted) == ["a", "b"]
    assert house.rows["b"].last_error is None
    assert house.capsule("a").session_id == session
    assert desired.wake_at is None
    assert house.judged == [False, False, False]


async def test_a_changed_name_that_cannot_be_remembered_leaves_the_old_one_served(house: House) -> None:
    """The place is not left without a capsule because the disk is full."""
    house.write("a", "one")
    await house.start()
    before = house.capsule("a")
    break_database(house)
    house.write("a", "two")
    await house.look()
    assert house.capsule("a") is before
    assert house.rows["one"].last_error is not None
    mend_database(house)
    await house.wait(5)
    assert house.capsule("a").id == "two"
    assert set(house.rows) == {"two"}


async def test_a_going_that_cannot_be_remembered_is_remembered_later(house: House) -> None:
    """The listener closes all the same, and the time of going is written when the database takes it."""
    house.write("a")
    await house.start()
    break_database(house)
    house.remove("a")
    await house.look()
    desired = await house.wait(GRACE)
    assert desired.changes == {house.path("a"): None}
    mend_database(house)
    await house.wait(5)
    with closing(sqlite3.connect(house.base / "state" / "sidecar.db")) as connection:
        assert connection.execute("SELECT gone_at FROM capsules").fetchone() == (house.wall,)


async def test_ports_that_cannot_be_saved_are_saved_later(house: House) -> None:
    """A bind counts at once, and is committed by itself as soon as that is possible."""
    house.write("a")
    await house.start()
    saver = PortSaver(house.store, lambda: house.wall, retry=0.01)
    database = house.base / "state" / "sidecar.db"
    with closing(sqlite3.connect(database)) as connection, structlog.testing.capture_logs() as logs:
        connection.executescript(
            "CREATE TRIGGER t BEFORE INSERT ON ports BEGIN SELECT RAISE(FAIL, 'no'); END;"
        )
        saver.note(house.path("a"), 24000)
        assert not await saver.flush()
        saver.note(house.path("b"), 24001)
        assert not await saver.flush()
        assert [log["event"] for log in logs] == ["ports_not_saved"]
        connection.executescript("DROP TRIGGER t;")
        await until(lambda: connection.execute("SELECT count(*) FROM ports").fetchone() == (2,))
    await saver.aclose()
    await house.restart()
    assert house.wanted["a"].port == 24000


async def test_a_port_that_changed_hands_is_remembered_for_the_last(house: House) -> None:
    """The order of the binds decides, also when several are committed together."""
    house.write("a", "a")
    house.write("b", "b")
    await house.start()
    house.bind(("a", 24000), ("b", 24001), ("b", 24000), ("a", 24002), ("b", 24003), ("a", 24000))
    await house.restart()
    assert {d: w.port for d, w in house.wanted.items()} == {"a": 24000, "b": 24003}


# Ports


async def test_the_port_comes_from_the_configuration_the_manifest_or_memory(house: House) -> None:
    """In this order, and where none of them says one, whoever binds is free to choose."""
    house.write("a", "a", more="network:\n  internal_port: 30001\n")
    house.write("b", "b", more="network:\n  internal_port: 30002\n")
    house.write("c", "c", more="network:\n  internal_port: 0\n")
    await house.start(listen=Listen(internal_port=True), capsules={"a": CapsuleConfig(port=29999)})
    assert {d: (w.port, w.port_from) for d, w in house.wanted.items()} == {
        "a": (29999, "configured"),
        "b": (30002, "manifest"),
        "c": (None, None),
    }
    house.bind(("a", 29999), ("b", 30002), ("c", 24000))
    house.registry.reconfigure(house.config())
    await house.wait(0)
    assert {d: (w.port, w.port_from) for d, w in house.wanted.items()} == {
        "a": (29999, "remembered"),
        "b": (30002, "remembered"),
        "c": (24000, "remembered"),
    }


async def test_a_remembered_port_outside_of_the_range_is_not_asked_for(house: House) -> None:
    """A range that changed is obeyed at the next bind; one that is changed back moves nobody."""
    house.write("a")
    await house.start()
    house.bind(("a", 24000))
    house.registry.reconfigure(house.config(listen=Listen(ports=PortRange(25000, 25010))))
    await house.wait(0)
    assert house.wanted["a"].port is None
    house.registry.reconfigure(house.config())
    await house.wait(0)
    assert house.wanted["a"].port == 24000


async def test_a_remembered_port_gives_way_to_a_configured_one(house: House) -> None:
    """The operator's word decides; the other capsule is free to choose, and its memory goes at the bind."""
    house.write("a", "a")
    house.write("b", "b")
    await house.start()
    house.bind(("a", 24000), ("b", 24001))
    await house.registry.save_ports()
    await house.restart(capsules={"b": CapsuleConfig(port=24000)})
    assert {d: w.port for d, w in house.wanted.items()} == {"a": None, "b": 24000}
    house.bind(("b", 24000), ("a", 24002))
    await house.registry.save_ports()
    await house.restart()
    assert {d: w.port for d, w in house.wanted.items()} == {"a": 24002, "b": 24000}


async def test_a_second_port_is_nobodys_first_one(house: House) -> None:
    """Neither one that was remembered nor one to choose; what is wrong with it is shown until it is not."""
    house.write("a", "a")
    house.write("b", "b")
    await house.start()
    house.bind(("a", 24000), ("b", 24001))
    await house.registry.save_ports()
    await house.restart(capsules={"b": CapsuleConfig(a2a_port=24000)})
    assert {d: w.port for d, w in house.wanted.items()} == {"a": None, "b": 24001}
    assert 24000 in house.registry.reserved_ports()
    house.bind(("a", 24002), ("b", 24001))
    house.registry.troubled(house.path("b"), "port 24000 is in use")
    house.registry.troubled(house.path("nowhere"), "gone by now")
    row = house.rows["b"]
    assert row.state is CapsuleState.SERVING
    assert row.last_error is not None
    assert row.last_error.message == "port 24000 is in use"
    house.registry.troubled(house.path("b"), None)
    assert house.rows["b"].last_error is None


async def test_an_unbound_capsule_says_why_until_it_is_bound(house: House) -> None:
    """The reason is its last error, and the manifest's errors come back when it is gone."""
    house.write("a")
    await house.start()
    house.registry.unbound(house.path("a"), "port 24000 is in use")
    house.registry.unbound(house.path("nowhere"), "gone by now")
    row = house.rows["hello"]
    assert (row.state, row.port, row.url) == (CapsuleState.UNBOUND, None, None)
    assert row.last_error is not None
    assert (row.last_error.message, row.last_error.at) == ("port 24000 is in use", house.wall)
    house.bind(("a", 24000), ("nowhere", 24001))
    row = house.rows["hello"]
    assert (row.state, row.port, row.url, row.last_error) == (
        CapsuleState.SERVING,
        24000,
        "localhost:24000",
        None,
    )
    assert set(house.registry.reserved_ports()) == {24000}


# Workspaces and exports


async def test_a_workspace_is_made_of_its_template(house: House) -> None:
    """`{id}` and `{session_id}` are the capsule's own, and a relative path starts at its directory."""
    house.write("a")
    template = "../work/{id}/{session_id}"
    await house.start(roots=(Root(path=str(house.root), workspace=template),))
    capsule = house.capsule("a")
    assert capsule.workspace == f"{house.root}/work/hello/{capsule.session_id}"


async def test_an_export_root_outside_of_the_workspace_refuses_the_manifest(house: House) -> None:
    """E-CAP-007 at the start is a refused manifest, later it is an error beside the last good one."""
    outside = house.base / "outside"
    outside.mkdir()
    for directory in ("a", "b"):
        house.write(directory, directory, more=EXPORT.format(root="out"))
    (house.root / "a" / "out").symlink_to(outside)
    await house.start()
    assert list(house.wanted) == ["b"]
    row = house.rows["a"]
    assert row.state is CapsuleState.REFUSED
    assert row.last_error is not None
    assert "E-CAP-007" in row.last_error.message
    before = house.capsule("b")
    (house.root / "b" / "leak").symlink_to(outside)
    house.write("b", "b", more=EXPORT.format(root="leak"))
    await house.look()
    assert house.capsule("b") is before
    assert house.rows["b"].last_error is not None
    house.write("b", "b", version="2.0", more=EXPORT.format(root="out"))
    await house.look()
    assert house.capsule("b").manifest.version == "2.0"
    assert house.rows["b"].last_error is None


async def test_a_last_good_manifest_follows_the_configuration(house: House) -> None:
    """While the newest manifest is bad, in itself or in its exports, new settings reach what is served."""
    (house.base / "outside").mkdir()
    for directory in ("a", "b"):
        house.write(directory, directory, more=EXPORT.format(root="out"))
    await house.start()
    (house.root / "a" / "leak").symlink_to(house.base / "outside")
    house.write("a", "a", version="2.0", more=EXPORT.format(root="leak"))
    house.write_text("b", "")
    await house.look()
    house.registry.reconfigure(house.config(card="reference"))
    await house.wait(0)
    for directory in ("a", "b"):
        assert house.capsule(directory).settings.card == "reference"
        assert house.capsule(directory).manifest.version == "1.0"
        assert house.rows[directory].last_error is not None


async def test_a_refused_export_takes_no_id_from_a_namesake(house: House) -> None:
    """Ids are given to what is served only, the workspace by the id included."""
    outside = house.base / "outside"
    outside.mkdir()
    for directory in ("a", "b"):
        house.write(directory, "same", more=EXPORT.format(root="out"))
        (house.root / directory / "same").mkdir()
    (house.root / "a" / "same" / "out").symlink_to(outside)
    await house.start(roots=(Root(path=str(house.root), workspace="{id}"),))
    assert {d: w.capsule.id for d, w in house.wanted.items()} == {"b": "same"}
    assert house.capsule("b").workspace == house.path("b") + "/same"
    assert house.rows["a"].state is CapsuleState.REFUSED


@pytest.mark.parametrize("root", [".", "state", "link"])
async def test_an_export_that_reaches_the_state_is_refused(house: House, root: str) -> None:
    """The sidecar's own files are served to nobody, also where a link leads to them."""
    (house.base / "link").symlink_to(house.base / "state")
    house.write("a", more=EXPORT.format(root=root))
    await house.start(roots=(Root(path=str(house.root), workspace="../.."),))
    row = house.rows["a"]
    assert row.state is CapsuleState.REFUSED
    assert row.last_error is not None
    assert ": E-MAN-003 exports.files.root: " in row.last_error.message
    assert f"{house.base}/state" in row.last_error.message
    house.write("a", more=EXPORT.format(root="other"))
    await house.look()
    assert list(house.wanted) == ["a"]


async def test_warnings_of_the_manifest_show_and_are_said_once(house: House) -> None:
    """A typo and an export of everything are warned about, in the row and in one line of the log."""
    house.write("a", more="lifecycel: {}\n" + EXPORT.format(root="."))
    with structlog.testing.capture_logs() as logs:
        await house.start()
        house.registry.reconfigure(house.config(card="reference"))
        await house.wait(0)
    warnings = house.rows["hello"].warnings
    assert len(warnings) == 2
    assert "did you mean `lifecycle`" in warnings[0]
    assert [log["event"] for log in logs].count("manifest_warnings") == 1
    house.write("a")
    await house.look()
    assert not house.rows["hello"].warnings


# Configuration and readiness


async def test_settings_that_belong_to_no_capsule_are_said_once(house: House) -> None:
    """`capsules.<id>` of nobody is most likely a typo."""
    house.write("a")
    config = house.config(capsules={"helo": CapsuleConfig(), "hello": CapsuleConfig()})
    with structlog.testing.capture_logs() as logs:
        await house.start(config)
        house.write("b", "b")
        await house.look()
    assert [log["key"] for log in logs if log["event"] == "settings_unused"] == ["capsules.helo"]


async def test_the_same_configuration_is_no_change(house: House) -> None:
    """It does no work and forgets an error of before."""
    house.write("a")
    await house.start()
    before = house.wanted["a"]
    house.registry.configuration_refused("config.yaml:1:1: bad")
    status = house.registry.view.config()
    assert status.last_error is not None
    assert (status.last_error.message, status.last_error.at) == ("config.yaml:1:1: bad", house.wall)
    assert not house.registry.reconfigure(house.config())
    assert house.registry.view.config().last_error is None
    assert (await house.wait(0)).changes == {}
    assert house.wanted["a"] is before


async def test_ready_is_when_every_capsule_was_tried_once(house: House) -> None:
    """Bound or not does not matter; capsules that come later change nothing, a stop does."""
    for directory in ("a", "b", "c"):
        house.write(directory, directory)
    await house.start()
    view: RegistryView = house.registry.view
    assert not view.ready()
    assert view.detail() == {"draining": False, "untried": 3}
    house.bind(("a", 24000))
    house.registry.unbound(house.path("b"), "busy")
    assert not view.ready()
    house.remove("c")
    await house.look()
    await house.wait(GRACE)
    assert view.ready()
    house.write("d", "d")
    await house.look()
    assert view.ready()
    house.registry.view.drain()
    assert not view.ready()


async def test_a_row_says_what_a_capsule_serves(house: House) -> None:
    """Methods and planes are those of its card, and the tasks are counted by the engines."""
    house.write("a", more="lifecycle:\n  task_acceptance: none\n" + EXPORT.format(root="out"))
    await house.start()
    row = house.rows["hello"]
    assert (row.name, row.version, row.session_id) == ("hello", "1.0", house.capsule("a").session_id)
    assert row.methods == ("stream/watch", "tasks/get", "tasks/cancel", "session/stop")
    assert row.planes == ("files",)
    house.tasks[house.capsule("a").session_id] = {"working": 2}
    assert house.rows["hello"].tasks == {"working": 2}
    assert row.tasks == {}


async def test_the_watch_of_a_configuration_that_changed_is_obeyed(house: House) -> None:
    """A reload may change the grace while a manifest is missing."""
    house.write("a")
    await house.start()
    house.remove("a")
    await house.look()
    house.registry.reconfigure(Config(roots=house.config().roots, watch=Watch(grace=60.0)))
    await house.wait(2 * GRACE)
    assert list(house.wanted) == ["a"]
    await house.wait(60)
    assert house.wanted == {}
