"""The peers' plane on real trees: the order of its checks, and what a handle gives."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from sidecar.model import Containment, FilesExport, PeerFilesExport
from sidecar.planes.handles import Claims, handle_id, mint
from sidecar.planes.routes import Planes
from tests.support.planes import CLASSES, SECRET, ask, capsule, header, paths_listed, told, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from sidecar.model import Answer, Capsule

PEER = "/resources/peer"
READER = "reader@localhost:24001"
AUDIENCE = {"x-murmur-audience": READER}
NONCE = "0123456789abcdef" * 2
WELL_FORMED = "mh1.YWJj.YWJj"


class Clock:
    """A clock that the test sets, in Unix seconds."""

    now = 1_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The planes' clock."""
    return Clock()


@pytest_asyncio.fixture
async def planes(clock: Clock) -> AsyncIterator[Planes]:
    """The planes, with the resolver of this machine."""
    planes = Planes(now=clock)
    yield planes
    assert await planes.aclose() == 0


@pytest.fixture
def served(tmp_path: Path) -> Capsule:
    """A capsule that shares `out/handoff/` with peers and exports `out/` to its operator."""
    write(tmp_path / "out/handoff/report.md", b"report")
    write(tmp_path / "out/private.md", SECRET)
    return capsule(tmp_path, peer=PeerFilesExport("out/handoff/"))


def minted(
    planes: Planes,
    served: Capsule,
    path: str = "report.md",
    *,
    expires_at_ms: int = 2_000_000,
    issuer: str = "ses_1",
) -> str:
    """Mint a handle with the key of the capsule's session, for READER."""
    return mint(planes.sharing.keys.of(served.session_id), Claims(issuer, path, expires_at_ms, NONCE), READER)


async def redeem(planes: Planes, served: Capsule, token: str, **headers: str) -> Answer:
    """Redeem a token as READER."""
    return await ask(planes, served, f"{PEER}/{token}", headers=AUDIENCE | headers, generation=3)


@pytest.mark.parametrize("containment", CLASSES)
async def test_a_handle_gives_its_file_again_and_again(
    planes: Planes, served: Capsule, tmp_path: Path, containment: Containment
) -> None:
    """It is not single use; the headers are a read's, with the handle's id and without the root."""
    served = capsule(tmp_path, peer=PeerFilesExport("out/handoff/"), containment=containment)
    token = minted(planes, served)
    answers = [await redeem(planes, served, token) for _ in range(5)]
    assert {(a.status, a.body, header(a, "etag")) for a in answers} == {
        (200, b"report", f'"sha256:{hashlib.sha256(b"report").hexdigest()}"')
    }
    assert [name for name, _ in answers[0].headers] == [
        "content-type",
        "etag",
        "x-murmur-mtime-ms",
        "x-murmur-generation",
        "x-murmur-containment",
        "x-murmur-handle-id",
    ]
    assert header(answers[0], "x-murmur-handle-id") == handle_id(token)
    assert header(answers[0], "x-murmur-containment") == containment.value
    assert header(answers[0], "x-murmur-generation") == "3"


async def test_a_conditional_redeem_is_answered_304(planes: Planes, served: Capsule) -> None:
    """As a read is."""
    token = minted(planes, served)
    etag = header(await redeem(planes, served, token), "etag") or ""
    answer = await redeem(planes, served, token, **{"if-none-match": etag})
    assert (answer.status, answer.body) == (304, b"")


async def test_the_audience_is_trimmed_and_lowercased(planes: Planes, served: Capsule) -> None:
    """Case and blanks around it make no other audience."""
    token = minted(planes, served)
    answer = await redeem(planes, served, token, **{"x-murmur-audience": "  READER@localhost:24001\t"})
    assert answer.status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
async def test_only_get_redeems(planes: Planes, served: Capsule, method: str) -> None:
    """405 comes before everything else, and leaves the file as it is."""
    for target in (PEER, f"{PEER}/{minted(planes, served)}", f"{PEER}/report.md"):
        answer = await ask(planes, served, target, method=method, headers=AUDIENCE)
        assert told(answer) == (405, "method_not_allowed")
        assert header(answer, "allow") == "GET"


async def test_the_checks_come_in_their_order(planes: Planes, served: Capsule, tmp_path: Path) -> None:
    """Token, declared, shape, audience, MAC: each is looked at only when the ones before it hold."""
    undeclared = capsule(tmp_path)
    for target in (PEER, f"{PEER}/", f"{PEER}?x", f"{PEER}/?x"):
        assert told(await ask(planes, undeclared, target)) == (404, "not_found")
        assert told(await ask(planes, served, target)) == (404, "not_found")
    for token in (WELL_FORMED, "report.md"):
        assert told(await ask(planes, undeclared, f"{PEER}/{token}")) == (404, "no_peer_plane")
    for token in ("report.md", "a/b", "mh1.YWJj", "%6dh1.YWJj.YWJj", f"{WELL_FORMED}/x"):
        assert told(await ask(planes, served, f"{PEER}/{token}")) == (400, "malformed_handle")
    assert told(await ask(planes, served, f"{PEER}/{WELL_FORMED}")) == (400, "missing_audience")
    blank = await ask(planes, served, f"{PEER}/{WELL_FORMED}", headers={"x-murmur-audience": " \t"})
    assert told(blank) == (400, "missing_audience")
    assert told(await redeem(planes, served, WELL_FORMED)) == (403, "handle_not_valid")
    assert (await ask(planes, served, f"{PEER}/{minted(planes, served)}?x=1", headers=AUDIENCE)).status == 200


async def test_every_handle_that_is_not_valid_gets_the_same_bytes(
    planes: Planes, served: Capsule, tmp_path: Path
) -> None:
    """Tampered, for another audience, of another session's key, of a foreign issuer: one answer, without the token."""
    token = minted(planes, served)
    prefix, payload, mac = token.split(".")
    flipped = ("B" if mac[0] == "A" else "A") + mac[1:]
    other = capsule(tmp_path, peer=served.manifest.peer_files, session_id="ses_2")
    answers = [
        await redeem(planes, served, f"{prefix}.{payload}.{flipped}"),
        await redeem(planes, served, f"{prefix}.{'A' + payload[1:]}.{mac}"),
        await redeem(planes, served, token + "A"),
        await redeem(planes, served, WELL_FORMED),
        await redeem(planes, served, token, **{"x-murmur-audience": "other@localhost:1"}),
        await redeem(planes, other, token),
        await redeem(planes, served, minted(planes, served, issuer="ses_2")),
    ]
    assert told(answers[0]) == (403, "handle_not_valid")
    assert {(a.status, a.headers, a.body) for a in answers} == {(403, answers[0].headers, answers[0].body)}
    assert mac.encode() not in answers[0].body
    assert payload.encode() not in answers[0].body


async def test_a_handle_expires(planes: Planes, served: Capsule, clock: Clock) -> None:
    """Up to its time it gives the file, from then on 410 and no byte of it."""
    token = minted(planes, served, expires_at_ms=1_002_000)
    clock.now = 1_001.999
    assert (await redeem(planes, served, token)).status == 200
    clock.now = 1_002.0
    answer = await redeem(planes, served, token)
    assert told(answer) == (410, "handle_expired")
    assert b"report" not in answer.body


async def test_a_closed_session_takes_its_handles_with_it(planes: Planes, served: Capsule) -> None:
    """Its key is gone: the old handle is not valid, neither for the next session nor for another process."""
    token = minted(planes, served)
    planes.session_closed(served.session_id)
    assert told(await redeem(planes, served, token)) == (403, "handle_not_valid")
    relaunched = Planes()
    assert told(await redeem(relaunched, served, token)) == (403, "handle_not_valid")
    await relaunched.aclose()


async def test_a_valid_handle_is_bound_by_the_rules_of_paths(
    planes: Planes, served: Capsule, tmp_path: Path
) -> None:
    """Whatever path was signed, nothing outside the peer root is read."""
    root = tmp_path / "out/handoff"
    (root / "link").symlink_to("../private.md")
    (root / "dir").mkdir()
    write(root / "big", b"b" * 200)
    for path, expected in {
        "../private.md": (403, "outside_root"),
        "/etc/passwd": (403, "outside_root"),
        "": (403, "outside_root"),
        "a\0b": (403, "outside_root"),
        "link": (403, "outside_root"),
        "%2e%2e/private.md": (404, "not_found"),
        "nothing": (404, "not_found"),
        "dir": (403, "not_a_regular_file"),
    }.items():
        answer = await redeem(planes, served, minted(planes, served, path))
        assert told(answer) == expected
        assert SECRET not in answer.body
    small = capsule(tmp_path, peer=PeerFilesExport("out/handoff/", max_bytes=100))
    assert told(await redeem(planes, small, minted(planes, small, "big"))) == (413, "too_large")
    scoped = capsule(tmp_path, peer=PeerFilesExport("out/handoff/"), containment=Containment.SCOPED)
    assert told(await redeem(planes, scoped, minted(planes, scoped, "link"))) == (403, "symlink_refused")


async def test_the_two_roots_are_independent(planes: Planes, served: Capsule, tmp_path: Path) -> None:
    """Each plane has its own root, and either may be declared alone."""
    assert paths_listed(await ask(planes, served, "/resources/files")) == ["handoff/report.md", "private.md"]
    alone = capsule(tmp_path, files=None, peer=PeerFilesExport("out/handoff/"))
    assert told(await ask(planes, alone, "/resources/files")) == (404, "no_resource_plane")
    assert (await redeem(planes, alone, minted(planes, alone))).body == b"report"
    swapped = capsule(tmp_path, files=FilesExport("out/handoff"), peer=PeerFilesExport("out"))
    assert (await redeem(planes, swapped, minted(planes, swapped, "private.md"))).body == SECRET
    assert told(await ask(planes, swapped, "/resources/files/private.md")) == (404, "not_found")
