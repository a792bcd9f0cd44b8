"""Handles as the operator makes, lists and revokes them, and the record that is kept of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from sidecar.errors import RefusedError
from sidecar.model import Containment, PeerFilesExport
from sidecar.planes import sharing
from sidecar.planes.audit import BURST, Audit
from sidecar.planes.handles import handle_id
from sidecar.planes.routes import Planes
from tests.support.planes import CLASSES, RESOLVERS, SECRET, ask, capsule, told, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from sidecar.model import Answer, Capsule

PEER = "/resources/peer"
READER = "reader@localhost:24001"


class Clock:
    """A clock that the test sets, in seconds."""

    now = 1_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of handles and of the record."""
    return Clock()


@pytest_asyncio.fixture(params=["openat2", "walk"])
async def planes(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[Planes]:
    """The planes, with each of the resolvers."""
    planes = Planes(resolver=RESOLVERS[request.param](), audit=Audit(clock), now=clock)
    yield planes
    assert await planes.aclose() == 0


@pytest.fixture
def served(tmp_path: Path) -> Capsule:
    """A capsule that shares `out/` with peers for at most a minute."""
    write(tmp_path / "out/report.md", b"report")
    write(tmp_path / "out/100%", b"percent")
    write(tmp_path / "secret", SECRET)
    return capsule(tmp_path, peer=PeerFilesExport("out", max_ttl=60, max_bytes=100))


async def redeem(planes: Planes, served: Capsule, token: str, audience: str = READER) -> Answer:
    """Present a token."""
    return await ask(planes, served, f"{PEER}/{token}", headers={"x-murmur-audience": audience})


async def refused_with(
    planes: Planes, served: Capsule, path: str, audience: str = READER, ttl: int | None = None
) -> str:
    """Return the code with which a handle is refused; none is kept of it."""
    with pytest.raises(RefusedError) as caught:
        await planes.sharing.mint(served, path, audience, ttl)
    if served.manifest.peer_files is not None:
        assert planes.sharing.listed(served) == ()
    return caught.value.refusal.code


async def test_a_minted_handle_opens_its_file_for_its_audience(planes: Planes, served: Capsule) -> None:
    """What is listed says all but the handle."""
    minted = await planes.sharing.mint(served, "report.md", " Reader@LOCALHOST:24001", 30)
    shared = minted.shared
    assert shared.handle_id == handle_id(minted.token)
    assert (shared.path, shared.audience) == ("report.md", READER)
    assert (shared.minted_at_ms, shared.expires_at_ms) == (1_000_000, 1_030_000)
    assert planes.sharing.listed(served) == (shared,)
    assert minted.token not in repr(planes.sharing.listed(served))
    assert (await redeem(planes, served, minted.token)).body == b"report"
    assert told(await redeem(planes, served, minted.token, "other@localhost:1")) == (403, "handle_not_valid")


async def test_two_handles_for_the_same_are_two(planes: Planes, served: Capsule) -> None:
    """Each has an id of its own, and may be revoked alone."""
    one, two = [await planes.sharing.mint(served, "report.md", READER) for _ in range(2)]
    assert one.token != two.token
    planes.sharing.revoke(served, one.shared.handle_id)
    assert told(await redeem(planes, served, one.token)) == (410, "handle_expired")
    assert (await redeem(planes, served, two.token)).status == 200


@pytest.mark.parametrize(("ttl", "lifetime"), [(None, 60), (1, 1), (60, 60), (61, 60), (10**12, 60)])
async def test_the_time_to_live_is_cut_to_the_limit(
    planes: Planes, served: Capsule, ttl: int | None, lifetime: int
) -> None:
    """`max_ttl` is the most, and what is taken where nothing is said."""
    minted = await planes.sharing.mint(served, "report.md", READER, ttl)
    assert minted.shared.expires_at_ms == (1_000 + lifetime) * 1000


@pytest.mark.parametrize("containment", CLASSES)
async def test_no_handle_is_made_for_what_could_not_be_read(
    planes: Planes, served: Capsule, tmp_path: Path, containment: Containment
) -> None:
    """The path goes through the rules of a read, and must be a regular file that is small enough."""
    out = tmp_path / "out"
    (out / "away").symlink_to("../secret")
    (out / "far").symlink_to(tmp_path / "secret")
    (out / "inside").symlink_to("report.md")
    (out / "dir").mkdir()
    write(out / "big", b"b" * 101)
    served = capsule(tmp_path, peer=served.manifest.peer_files, containment=containment)
    scoped = containment is Containment.SCOPED
    for path, code in {
        "../secret": "outside_root",
        "%2e%2e%2fsecret": "not_found",
        "/etc/passwd": "outside_root",
        "": "outside_root",
        "./report.md": "outside_root",
        "a\0b": "outside_root",
        "\udcff": "outside_root",
        "away": "symlink_refused" if scoped else "outside_root",
        "far": "symlink_refused" if scoped else "outside_root",
        "nothing": "not_found",
        "report.md/x": "not_found",
        "dir": "not_a_regular_file",
        "big": "too_large",
    }.items():
        assert await refused_with(planes, served, path) == code
    if scoped:
        assert await refused_with(planes, served, "inside") == "symlink_refused"
    else:
        assert (
            await redeem(planes, served, (await planes.sharing.mint(served, "inside", READER)).token)
        ).status == 200
    percent = await planes.sharing.mint(served, "100%", READER)
    assert (await redeem(planes, served, percent.token)).body == b"percent"


@pytest.mark.parametrize(
    ("audience", "code"),
    [
        ("", "missing_audience"),
        (" \t", "missing_audience"),
        ("reader", "bad_request"),
        ("reader@localhost", "bad_request"),
        ("@localhost:1", "bad_request"),
        ("reader@:1", "bad_request"),
        ("reader@localhost:x", "bad_request"),
        ("a\r\nb@localhost:1", "bad_request"),
        ("n" * 600 + "@localhost:1", "bad_request"),
    ],
)
async def test_an_audience_that_nobody_could_be_is_refused(
    planes: Planes, served: Capsule, audience: str, code: str
) -> None:
    """A handle that nobody can use would only be found out later."""
    assert await refused_with(planes, served, "report.md", audience) == code


@pytest.mark.parametrize("audience", ["My Agent@localhost:1", "a@b@[::1]:65535", "ä@host.example:80"])
async def test_names_of_any_kind_may_be_audiences(planes: Planes, served: Capsule, audience: str) -> None:
    """A capsule's name is free text."""
    minted = await planes.sharing.mint(served, "report.md", audience)
    assert (await redeem(planes, served, minted.token, audience.upper())).status == 200


async def test_nothing_is_shared_where_nothing_is_declared(
    planes: Planes, served: Capsule, tmp_path: Path
) -> None:
    """Minting, listing and revoking are no_peer_plane; a lifetime of nothing is refused."""
    undeclared = capsule(tmp_path)
    assert await refused_with(planes, undeclared, "report.md") == "no_peer_plane"
    for call in (planes.sharing.listed, lambda c: planes.sharing.revoke(c, "x")):
        with pytest.raises(RefusedError) as caught:
            call(undeclared)
        assert caught.value.refusal.code == "no_peer_plane"
    assert await refused_with(planes, served, "report.md", ttl=0) == "bad_request"


async def test_revoking_is_for_good(planes: Planes, served: Capsule, clock: Clock) -> None:
    """A handle that was revoked before, is not known, or has expired, is not there to be revoked."""
    minted = await planes.sharing.mint(served, "report.md", READER)
    wanted = minted.shared.handle_id
    assert planes.sharing.revoke(served, wanted).revoked
    with pytest.raises(RefusedError) as caught:
        planes.sharing.revoke(served, wanted)
    assert (caught.value.refusal.code, caught.value.refusal.message) == (
        "not_found",
        "This handle is revoked already.",
    )
    assert told(await redeem(planes, served, minted.token)) == (410, "handle_expired")
    assert [one.revoked for one in planes.sharing.listed(served)] == [True]
    clock.now += 60
    assert planes.sharing.listed(served) == ()
    for gone in (wanted, "0" * 16):
        with pytest.raises(RefusedError) as caught:
            planes.sharing.revoke(served, gone)
        assert caught.value.refusal.code == "not_found"


async def test_other_sessions_know_nothing_of_a_handle(
    planes: Planes, served: Capsule, tmp_path: Path
) -> None:
    """Neither list nor revoke reach into another session; a session that closes takes its handles along."""
    other = capsule(tmp_path, peer=served.manifest.peer_files, session_id="ses_2")
    minted = await planes.sharing.mint(served, "report.md", READER)
    assert planes.sharing.listed(other) == ()
    with pytest.raises(RefusedError):
        planes.sharing.revoke(other, minted.shared.handle_id)
    planes.session_closed(served.session_id)
    assert planes.sharing.listed(served) == ()
    assert told(await redeem(planes, served, minted.token)) == (403, "handle_not_valid")


async def test_only_so_many_handles_are_remembered(
    planes: Planes, served: Capsule, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has expired makes room."""
    monkeypatch.setattr(sharing, "MOST", 3)
    for _ in range(3):
        await planes.sharing.mint(served, "report.md", READER)
    with pytest.raises(RefusedError) as caught:
        await planes.sharing.mint(served, "report.md", READER)
    assert caught.value.refusal.code == "unavailable"
    clock.now += 60
    await planes.sharing.mint(served, "report.md", READER)


async def test_each_use_of_a_handle_is_on_record_and_never_the_handle(
    planes: Planes, served: Capsule
) -> None:
    """Minting, redeeming, refusals and revoking are one event each, by the handle's id."""
    with capture_logs() as lines:
        minted = await planes.sharing.mint(served, "report.md", READER)
        await redeem(planes, served, minted.token)
        await redeem(planes, served, minted.token, "other@localhost:1")
        await redeem(planes, served, "")
        planes.sharing.revoke(served, minted.shared.handle_id)
        await redeem(planes, served, minted.token)
        await refused_with_any(planes, served)
    wanted = minted.shared.handle_id
    assert [(line["event"], line.get("outcome"), line.get("handle_id")) for line in lines] == [
        ("handle_minted", None, wanted),
        ("handle_redeemed", "ok", wanted),
        ("handle_refused", "handle_not_valid", wanted),
        ("handle_refused", "not_found", None),
        ("handle_revoked", None, wanted),
        ("handle_refused", "handle_expired", wanted),
        ("handle_not_minted", "outside_root", None),
    ]
    assert all(line["capsule"] == "a" for line in lines)
    assert lines[1]["bytes"] == 6
    assert lines[1]["etag"].startswith('"sha256:')
    _, payload, mac = minted.token.split(".")
    assert payload not in repr(lines)
    assert mac not in repr(lines)


async def refused_with_any(planes: Planes, served: Capsule) -> None:
    """Have a handle refused."""
    with pytest.raises(RefusedError):
        await planes.sharing.mint(served, "../secret", READER)


async def test_each_look_at_the_operators_plane_is_on_record(
    planes: Planes, tmp_path: Path, served: Capsule
) -> None:
    """One event per list and read, with outcome, bytes and etag."""
    etags = []
    with capture_logs() as lines:
        for target in ("/resources/files", "/resources/files/report.md"):
            full = await ask(planes, served, target)
            etags.append(dict(full.headers)["etag"])
            await ask(planes, served, target, headers={"if-none-match": etags[-1]})
        await ask(planes, served, "/resources/files/../secret")
        await ask(planes, capsule(tmp_path, files=None), "/resources/files")
    seen = [tuple(line.get(k) for k in ("event", "path", "outcome", "etag")) for line in lines]
    assert seen == [
        ("files_listed", None, "ok", etags[0]),
        ("files_listed", None, "not_modified", etags[0]),
        ("file_read", "report.md", "ok", etags[1]),
        ("file_read", "report.md", "not_modified", etags[1]),
        ("file_read", "../secret", "outside_root", None),
        ("files_listed", None, "no_resource_plane", None),
    ]
    assert [line["bytes"] for line in lines][2:5] == [6, 0, 0]


async def test_a_flood_leaves_most_of_its_lines_out_and_says_how_many(
    planes: Planes, served: Capsule, clock: Clock
) -> None:
    """Each kind has an allowance of its own, so that refusals cannot hide what was read."""
    with capture_logs() as lines:
        for _ in range(BURST + 50):
            await ask(planes, served, "/resources/files/nothing")
        await ask(planes, served, "/resources/files/report.md")
        clock.now += 10
        for _ in range(30):
            await ask(planes, served, "/resources/files/nothing")
    refusals = [line for line in lines if line["outcome"] == "not_found"]
    assert len(refusals) == BURST + 20
    assert [line["not_logged"] for line in refusals if "not_logged" in line] == [50]
    assert [line["outcome"] for line in lines if line["outcome"] == "ok"] == ["ok"]
    with capture_logs() as lines:
        await planes.aclose()
    assert [(line["event"], line["refused_reads"]) for line in lines] == [("audit_left_out", 10)]
