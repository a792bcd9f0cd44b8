"""Workspaces in other places than the capsule's directory: by template, later than the capsule, behind a link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from sidecar.model import FilesExport
from sidecar.planes.routes import Planes
from sidecar.registry.checks import workspace_of
from tests.support.planes import SECRET, ask, capsule, paths_listed, told, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

FILES = "/resources/files"


@pytest_asyncio.fixture
async def planes() -> AsyncIterator[Planes]:
    """The planes of this machine."""
    planes = Planes()
    yield planes
    assert await planes.aclose() == 0


async def test_each_session_has_its_own_workspace_by_template(planes: Planes, tmp_path: Path) -> None:
    """`{session_id}` and `{id}` in the template: one session never sees the files of another."""
    for session in ("ses_1", "ses_2"):
        workspace = workspace_of("work/{id}/{session_id}", str(tmp_path), capsule_id="a", session_id=session)
        assert workspace == str(tmp_path / "work/a" / session)
        write(tmp_path / "work/a" / session / "out/f", session.encode())
    for session in ("ses_1", "ses_2"):
        served = capsule(tmp_path / "work/a" / session, session_id=session)
        assert (await ask(planes, served, f"{FILES}/f")).body == session.encode()
        assert paths_listed(await ask(planes, served, FILES)) == ["f"]


async def test_a_workspace_that_appears_later_is_served_from_then_on(planes: Planes, tmp_path: Path) -> None:
    """And one that goes is missing: empty and not found, as a missing root."""
    served = capsule(tmp_path / "later")
    assert paths_listed(await ask(planes, served, FILES)) == []
    assert told(await ask(planes, served, f"{FILES}/f")) == (404, "not_found")
    write(tmp_path / "later/out/f", b"here")
    assert paths_listed(await ask(planes, served, FILES)) == ["f"]
    assert (await ask(planes, served, f"{FILES}/f")).body == b"here"
    (tmp_path / "later").rename(tmp_path / "gone")
    assert paths_listed(await ask(planes, served, FILES)) == []
    assert told(await ask(planes, served, f"{FILES}/f")) == (404, "not_found")
    write(tmp_path / "later")
    assert paths_listed(await ask(planes, served, FILES)) == []
    assert told(await ask(planes, served, f"{FILES}/f")) == (404, "not_found")


async def test_a_workspace_may_be_a_link_that_is_turned(planes: Planes, tmp_path: Path) -> None:
    """The operator's configuration says where it is: it is looked up anew each time, and nothing beside it is served."""
    write(tmp_path / "v1/out/f", b"one")
    write(tmp_path / "v2/out/f", b"two")
    write(tmp_path / "secret", SECRET)
    (tmp_path / "v2/out/up").symlink_to("../../secret")
    (tmp_path / "current").symlink_to("v1")
    served = capsule(tmp_path / "current")
    assert (await ask(planes, served, f"{FILES}/f")).body == b"one"
    (tmp_path / "next").symlink_to(tmp_path / "v2")
    (tmp_path / "next").rename(tmp_path / "current")
    assert (await ask(planes, served, f"{FILES}/f")).body == b"two"
    assert told(await ask(planes, served, f"{FILES}/up")) == (403, "outside_root")
    assert paths_listed(await ask(planes, served, FILES)) == ["f"]


async def test_a_workspace_whose_name_is_no_utf8_is_served(planes: Planes, tmp_path: Path) -> None:
    """Names of directories are bytes."""
    place = tmp_path / b"w\xff".decode(errors="surrogateescape")
    write(place / "out/f", b"here")
    served = capsule(place, files=FilesExport("out"))
    assert (await ask(planes, served, f"{FILES}/f")).body == b"here"
