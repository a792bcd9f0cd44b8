"""What `sidecar check` and `sidecar card` say of a tree, on real directories."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
import structlog

from sidecar import config
from sidecar.errors import InputError
from sidecar.registry.examination import examine, preview
from tests.support.house import House

if TYPE_CHECKING:
    from pathlib import Path

EXPORT = "exports:\n  files:\n    root: {root}\n    mode: read-only\n"


def configured(base: Path, text: str, environ: dict[str, str] | None = None) -> config.Config:
    """Load a configuration that was written to `c.yaml` in a directory, with the name it has there."""
    (base / "c.yaml").write_text(text)
    return config.load("c.yaml", config.Flags(), environ or {}, cwd=str(base))


def said(found: config.Config, base: Path, *codes: str, guarded: tuple[str, ...] = ()) -> list[str]:
    """Return the problems with these codes, paths shortened."""
    problems = examine(found, guarded=guarded).problems
    return [str(p).replace(f"{base}/", "") for p in problems if not codes or p.code in codes]


def test_namesakes_are_warned_about_at_each_name(tmp_path: Path) -> None:
    """With the ids that they would be served under, as the log of a start says it."""
    house = House(tmp_path)
    for directory in ("a", "b"):
        house.write(directory)
    house.write("c", "other")
    found = configured(tmp_path, "roots: [{path: capsules}]\n")
    text = "W-MAN-004 name: 2 directories carry the name 'hello': hello, hello~b"
    assert said(found, tmp_path) == [f"capsules/{d}/murmur.yaml:1:7: {text}" for d in "ab"]


async def test_settings_of_no_capsule_are_warned_about_at_their_place(tmp_path: Path) -> None:
    """In the file and in the environment; those of what is refused, an artifact or disabled belong to something."""
    house = House(tmp_path)
    house.write("a")
    house.write("b", "other")
    house.write_text("broken", "name: x\n")
    house.write_text("tool", 'name: y\nversion: "1"\nruntime: tool\n')
    text = (
        "roots: [{path: capsules}]\n"
        "capsules:\n  hello: {disabled: true}\n  helo: {card: full}\n  broken: {}\n  tool: {}\n  x: {}\n"
    )
    environ = {"SIDECAR_CAPSULES__OTHR__CARD": "full", "SIDECAR_CAPSULES__OTHER__CARD": "full"}
    found = configured(tmp_path, text, environ)
    message = "is not used: there is no capsule with this id"
    assert said(found, tmp_path, "W-CFG-014") == [
        f"c.yaml:4:3: W-CFG-014 capsules.helo: {message}; did you mean hello?",
        f"c.yaml:7:3: W-CFG-014 capsules.x: {message}",
        f"environment: W-CFG-014 SIDECAR_CAPSULES__OTHR__CARD: {message}; did you mean other?",
    ]
    with structlog.testing.capture_logs() as logs:
        await house.start(found)
    await house.stop()
    unused = [(line["config"], line["key"]) for line in logs if line["event"] == "settings_unused"]
    assert unused == [
        ("c.yaml", "capsules.helo"),
        ("environment", "SIDECAR_CAPSULES__OTHR__CARD"),
        ("c.yaml", "capsules.x"),
    ]


def test_a_channel_that_takes_another_capsules_place_is_warned_about(tmp_path: Path) -> None:
    """Where that one has a channel of its own, or there is none of this id, nobody loses anything."""
    house = House(tmp_path)
    house.write("a")
    house.write("b", "other")
    text = "roots: [{path: capsules}]\ncapsules:\n  hello: {channel_id: CHANNEL}\n"
    found = configured(tmp_path, text.replace("CHANNEL", "other"))
    (line,) = said(found, tmp_path, "W-CFG-021")
    assert line.startswith(
        "c.yaml:3:3: W-CFG-021 capsules.hello: its channel_id other is the id of another capsule"
    )
    moved = text.replace("CHANNEL", "other") + "  other: {channel_id: elsewhere}\n"
    for fine in (moved, text.replace("CHANNEL", "hello"), text.replace("CHANNEL", "nobody")):
        assert said(configured(tmp_path, fine), tmp_path, "W-CFG-021") == []


def test_a_root_that_is_none_is_said_where_it_is_configured(tmp_path: Path) -> None:
    """Its path once, and under a code of its own."""
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    loop = "it is a link that leads back to itself"
    text = "roots:\n  - path: nope\n  - {path: file}\n  - path: loop\n"
    assert said(configured(tmp_path, text), tmp_path) == [
        "c.yaml:2:11: E-CFG-013 roots[0].path: nope does not exist (yet); it is taken up as soon as it does",
        "c.yaml:3:12: E-CFG-013 roots[1].path: file is not a directory; name one that holds capsules, or is one",
        f"c.yaml:4:11: E-CFG-013 roots[2].path: loop cannot be read: {os.strerror(errno.ELOOP)} ({loop})",
    ]
    flags = config.Flags(roots=(str(tmp_path / "nope"),))
    (line,) = said(config.load(None, flags, {}), tmp_path)
    assert line.startswith("command line: E-CFG-013 --root: nope does not exist")


async def test_a_manifest_that_is_none_is_said_with_its_path_once(tmp_path: Path) -> None:
    """A link that leads nowhere is meant to be one; a start lists it as refused."""
    house = House(tmp_path)
    for name, target in (("dangling", "../gone"), ("null", "/dev/null")):
        (house.root / name).mkdir()
        (house.root / name / "murmur.yaml").symlink_to(target)
    found = configured(tmp_path, "roots: [{path: capsules}]\n")
    dangling = "No such file or directory (it is a link that leads nowhere; mend it, or remove it)"
    assert said(found, tmp_path) == [
        f"capsules/dangling/murmur.yaml: E-MAN-001 cannot be read: {dangling}",
        "capsules/null/murmur.yaml: E-MAN-001 is not a regular file; put a file or a link to one there",
    ]
    await house.start(found)
    await house.stop()
    rows = {row.id: row for row in house.registry.view.capsules()}
    assert [row.state.value for row in rows.values()] == ["refused", "refused"]
    error = rows["dangling"].last_error
    assert error is not None
    assert error.message == f"{house.path('dangling')}/murmur.yaml: cannot be read: {dangling}"


def test_a_file_that_its_mount_shows_as_it_was_is_warned_about(tmp_path: Path) -> None:
    """As the log of a start does."""
    house = House(tmp_path)
    manifest = house.write("a")
    with manifest.open("rb") as file:
        manifest.unlink()
        manifest.symlink_to(f"/proc/self/fd/{file.fileno()}")
        (line,) = said(configured(tmp_path, "roots: [{path: capsules}]\n"), tmp_path)
    assert line.startswith("capsules/a/murmur.yaml: W-MAN-005 the mount shows a file that was replaced")


def test_an_export_that_would_serve_the_state_is_refused_as_by_a_start(tmp_path: Path) -> None:
    """The state directory is a guarded path, and so is the configuration."""
    house = House(tmp_path)
    house.write("a", more=EXPORT.format(root="own"))
    state = house.root / "a" / "own" / "state"
    state.mkdir(parents=True)
    found = configured(tmp_path, "roots: [{path: capsules}]\n")
    assert said(found, tmp_path) == []
    (line,) = said(found, tmp_path, guarded=(str(state),))
    assert "would serve capsules/a/own/state, which is the sidecar's own" in line


def no_card(found: config.Config, directory: str) -> str:
    """Return why there is no card of a directory."""
    with pytest.raises(InputError) as caught:
        preview(found, directory)
    return str(caught.value)


def test_a_card_of_no_capsule_says_what_to_name_instead(tmp_path: Path) -> None:
    """A root, an empty directory, one beside the roots, and a manifest that cannot be read."""
    house = House(tmp_path)
    house.write("a")
    house.write("b")
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "murmur.yaml").write_text("name: a\n")
    (house.root / "empty").mkdir()
    (house.root / "null").mkdir()
    (house.root / "null" / "murmur.yaml").symlink_to("/dev/null")
    found = configured(tmp_path, "roots: [{path: capsules}]\n")
    root = str(house.root)
    assert no_card(found, root) == (
        f"{root} holds no murmur.yaml itself, but capsules: name one of them, such as {root}/a, or one of 2 others"
    )
    assert no_card(found, f"{root}/empty") == f"{root}/empty holds no murmur.yaml: name a directory that does"
    assert no_card(found, str(tmp_path / "beside")) == (
        f"{tmp_path}/beside lies below no root of the configuration: add it to roots, or leave --config out"
    )
    assert no_card(found, f"{root}/null").startswith(f"{root}/null/murmur.yaml is not a regular file")


def test_a_card_is_found_however_its_directory_is_called(tmp_path: Path) -> None:
    """Also by a link to it that lies below no root."""
    house = House(tmp_path)
    house.write("a")
    (tmp_path / "link").symlink_to(house.path("a"))
    found = configured(tmp_path, "roots: [{path: capsules}]\n")
    assert preview(found, str(tmp_path / "link")).directory == house.path("a")
