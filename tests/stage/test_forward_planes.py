"""Planes that are read from the door elsewhere (`forward.planes: forward`)."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from sidecar.errors import RefusedError
from sidecar.model import Answer, PeerFilesExport
from sidecar.planes.handles import handle_id
from sidecar.planes.routes import Planes
from sidecar.planes.switch import PlaneSwitch
from sidecar.web.answers import refusal_answer
from tests.support.forwarding import Forwarding, forwarded, forwarding
from tests.support.scripted_door import Call, ScriptedDoor, scripted_door, send

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from sidecar.web.answers import Streamed

ETAG = '"sha256:00"'


def files(body: bytes) -> Callable[[Call, asyncio.StreamWriter], Awaitable[bool]]:
    """Return what answers reads with one body."""

    async def answer(call: Call, writer: asyncio.StreamWriter) -> bool:
        if not call.target.startswith("/resources/"):
            return False
        if call.headers.get("if-none-match") == ETAG:
            writer.write(f"HTTP/1.1 304 X\r\netag: {ETAG}\r\nconnection: close\r\n\r\n".encode())
        elif "missing" in call.target:
            send(writer, 404, b'{"error":"not_found","message":"no"}')
        elif "odd" in call.target:
            send(writer, 404, b'{"error":"odd"}')
        elif "broken" in call.target:
            writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\nhalf")
            await writer.drain()
            writer.transport.abort()
        elif "credentials" in call.target:
            send(writer, 401, b"{}", "application/json", "www-authenticate: Bearer")
        else:
            headers = (f"etag: {ETAG}", "x-murmur-generation: 3", "set-cookie: a=b")
            send(writer, 200, body, "application/octet-stream", *headers)
        return True

    return answer


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[tuple[ScriptedDoor, Forwarding]]:
    """A door with files, and what forwards to it."""
    async with scripted_door() as door:
        door.planes = ["files"]
        door.fault = files(b"x" * 200_000)
        async with forwarding(tmp_path, forwarded(door.url, planes="forward", token="s3cret")) as one:
            yield door, one


@asynccontextmanager
async def switched(one: Forwarding) -> AsyncIterator[PlaneSwitch]:
    """Have the planes of one session passed on, and those of others read here."""
    local = Planes()
    try:
        yield PlaneSwitch(
            local, lambda session: one.backend.planes if session == one.capsule.session_id else None
        )
    finally:
        await local.aclose()


async def read(one: Forwarding, target: str, method: str = "GET", **headers: str) -> Answer | Streamed:
    """Read a target."""
    asked = {name.replace("_", "-"): value for name, value in headers.items()}
    async with switched(one) as switch:
        return await switch.answer(one.capsule, method, target, asked.get, 0)


async def whole(answer: Answer | Streamed) -> bytes:
    """Return all of a body."""
    if isinstance(answer, Answer):
        return answer.body
    body = b""
    try:
        while piece := await answer.body.next():
            body += piece
    finally:
        answer.body.close()
    return body


async def test_a_read_is_passed_on_as_it_stands(here: tuple[ScriptedDoor, Forwarding]) -> None:
    """The raw target goes there, bytes and facts come back, and no header beside those of the planes."""
    door, one = here
    answer = await read(one, "/resources/files/a%2Fb/../c%?x=1")
    assert await whole(answer) == b"x" * 200_000
    assert dict(answer.headers) == {
        "content-type": "application/octet-stream",
        "etag": ETAG,
        "x-murmur-generation": "3",
    }
    call = door.calls[-1]
    assert call.target == "/resources/files/a%2Fb/../c%?x=1"
    assert call.headers["authorization"] == "Bearer s3cret"


async def test_a_condition_and_a_refusal_are_passed_on(here: tuple[ScriptedDoor, Forwarding]) -> None:
    """304 and 404 come back as they are: what is refused in the one shape as a refusal, anything else as an answer."""
    _, one = here
    answer = await read(one, "/resources/files/a", if_none_match=ETAG)
    assert (answer.status, await whole(answer)) == (304, b"")
    with pytest.raises(RefusedError) as refused:
        await read(one, "/resources/files/missing")
    assert refusal_answer(refused.value.refusal).body == b'{"error":"not_found","message":"no"}'
    answer = await read(one, "/resources/files/odd")
    assert (answer.status, await whole(answer)) == (404, b'{"error":"odd"}')


async def test_a_body_that_breaks_off_is_no_whole_one(here: tuple[ScriptedDoor, Forwarding]) -> None:
    """The rest does not come, and that is said."""
    _, one = here
    answer = await read(one, "/resources/files/broken")
    with pytest.raises(ConnectionError):
        await whole(answer)


@pytest.mark.parametrize(
    ("method", "target", "code"),
    [
        ("POST", "/resources/files/a", "method_not_allowed"),
        ("GET", "/resources/peer/mh1.a.b", "no_peer_plane"),
        ("GET", "/resources/other", "not_found"),
        ("GET", "/resources/files/credentials", "unavailable"),
    ],
)
async def test_what_is_not_there_is_refused(
    here: tuple[ScriptedDoor, Forwarding], method: str, target: str, code: str
) -> None:
    """Other methods, planes that the manifest does not declare, and troubles that are not the caller's."""
    _, one = here
    with pytest.raises(RefusedError) as refused:
        await read(one, target, method)
    assert refused.value.refusal.code == code


async def test_a_door_that_is_away_is_unavailable(here: tuple[ScriptedDoor, Forwarding]) -> None:
    """Nothing of the reason goes to the caller."""
    door, one = here
    await door.stop()
    with pytest.raises(RefusedError) as refused:
        await read(one, "/resources/files/a")
    assert refused.value.refusal.code == "unavailable"
    assert str(door.port) not in refused.value.refusal.message


async def test_each_capsule_has_the_planes_that_it_is_configured_to(
    here: tuple[ScriptedDoor, Forwarding], tmp_path: Path
) -> None:
    """The switch asks the door for one session, and the workspace for another."""
    door, one = here
    async with switched(one) as switch:
        passed = await switch.answer(one.capsule, "GET", "/resources/files/a", lambda _: None, 0)
        assert await whole(passed) == b"x" * 200_000
        elsewhere = forwarded(door.url, session_id="ses_other")
        listed = await switch.answer(elsewhere, "GET", "/resources/files", lambda _: None, 0)
        assert b'"entries":[]' in await whole(listed)


async def test_what_is_passed_on_is_on_record(here: tuple[ScriptedDoor, Forwarding]) -> None:
    """Each listing and each read with its outcome, bytes and etag, like those of files that are here."""
    _, one = here
    with capture_logs() as logged:
        await whole(await read(one, "/resources/files/a%20b"))
        await whole(await read(one, "/resources/files/a", if_none_match=ETAG))
        await whole(await read(one, "/resources/files/"))
        for target in ("/resources/files/missing", "/resources/files/odd", "/resources/files/credentials"):
            with suppress(RefusedError):
                await whole(await read(one, target))
        broken = await read(one, "/resources/files/broken")
        with pytest.raises(ConnectionError):
            await whole(broken)
    recorded = [
        (one["event"], one.get("path"), one["outcome"], one["bytes"], one["etag"])
        for one in logged
        if one["event"] in ("file_read", "files_listed")
    ]
    assert recorded == [
        ("file_read", "a b", "ok", 200_000, ETAG),
        ("file_read", "a", "not_modified", 0, ETAG),
        ("files_listed", None, "ok", 200_000, ETAG),
        ("file_read", "missing", "not_found", 0, None),
        ("file_read", "odd", "other", 15, None),
        ("file_read", "credentials", "unavailable", 0, None),
        ("file_read", "broken", "cut", 4, None),
    ]


async def test_a_handle_that_is_passed_on_is_on_record_without_its_token(tmp_path: Path) -> None:
    """By its id, with the outcome that the door gave."""
    token = "mh1.YWJj.YWJj"
    async with scripted_door() as door:
        door.planes = ["peer_files"]
        door.fault = files(b"shared")
        served = forwarded(door.url, planes="forward")
        served = replace(served, manifest=replace(served.manifest, peer_files=PeerFilesExport("out/")))
        async with forwarding(tmp_path, served) as one:
            with capture_logs() as logged:
                assert await whole(await read(one, f"/resources/peer/{token}")) == b"shared"
                with pytest.raises(RefusedError):
                    await read(one, "/resources/peer/missing")
    recorded = [(e["event"], e["handle_id"], e["outcome"]) for e in logged if "handle_id" in e]
    assert recorded == [
        ("handle_redeemed", handle_id(token), "ok"),
        ("handle_refused", handle_id("missing"), "not_found"),
    ]
    assert token not in repr(logged)
