"""The operator's plane on real trees, with every resolver and containment class."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import os
import resource
import socket
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
import pytest_asyncio

from sidecar.errors import RefusedError
from sidecar.model import Containment, FilesExport
from sidecar.planes.beneath import Rules
from sidecar.planes.memory import Memory
from sidecar.planes.reading import Tree, hash_of
from sidecar.planes.routes import Planes
from tests.support.planes import (
    CLASSES,
    FOLLOWING,
    RESOLVERS,
    SECRET,
    SECRET_SHA,
    ask,
    capsule,
    entries,
    header,
    paths_listed,
    read,
    told,
    write,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

FILES = "/resources/files"
every_class = pytest.mark.parametrize("containment", CLASSES)
METHODS = ("POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "get", "BREW")


@pytest_asyncio.fixture(params=["openat2", "walk"])
async def planes(request: pytest.FixtureRequest) -> AsyncIterator[Planes]:
    """The planes, with each of the resolvers."""
    planes = Planes(resolver=RESOLVERS[request.param]())
    yield planes
    assert await planes.aclose() == 0


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An export root in a workspace, with a secret beside the root and another beside the workspace."""
    root = tmp_path / "workspace/out"
    root.mkdir(parents=True)
    write(tmp_path / "workspace/secret.txt", SECRET)
    write(tmp_path / "workspace-secret/s", SECRET)
    write(tmp_path / "workspace/out-secret/s", SECRET)
    return root


@every_class
async def test_a_file_is_listed_and_read(planes: Planes, out: Path, containment: Containment) -> None:
    """The facts of the listing and the headers of the read say the same of the same bytes."""
    data = b"# Report\n" * 100
    report = write(out / "report.md", data)
    served = capsule(out.parent, containment=containment)
    digest = hashlib.sha256(data).hexdigest()
    mtime_ms = report.stat().st_mtime_ns // 1_000_000

    listing = await ask(planes, served, FILES)
    assert listing.status == 200
    etag = f'"sha256:{hashlib.sha256(listing.body).hexdigest()}"'
    assert listing.headers == (("content-type", "application/json"), ("etag", etag))
    document = orjson.loads(listing.body)
    assert list(document) == ["root", "mode", "max_bytes", "generation", "containment_achieved", "entries"]
    assert document == {
        "root": "out/",
        "mode": "read-only",
        "max_bytes": 10485760,
        "generation": 0,
        "containment_achieved": containment.value,
        "entries": [{"path": "report.md", "size_bytes": len(data), "mtime_ms": mtime_ms, "sha256": digest}],
    }
    assert list(document["entries"][0]) == ["path", "size_bytes", "mtime_ms", "sha256"]
    assert mtime_ms > 0

    read = await ask(planes, served, f"{FILES}/report.md")
    assert read.status == 200
    assert read.body == data
    assert dict(read.headers) == {
        "content-type": "application/octet-stream",
        "etag": f'"sha256:{digest}"',
        "x-murmur-mtime-ms": str(mtime_ms),
        "x-murmur-generation": "0",
        "x-murmur-containment": containment.value,
        "x-murmur-export-root": "out/",
    }


async def test_an_undeclared_plane_shows_nothing(planes: Planes, out: Path) -> None:
    """Without exports.files neither listing nor read give a byte, whatever the path."""
    write(out / "report.md", SECRET)
    served = capsule(out.parent, files=None)
    for target in (FILES, f"{FILES}/", f"{FILES}/report.md", f"{FILES}/../x", f"{FILES}?x=1"):
        answer = await ask(planes, served, target)
        assert told(answer) == (404, "no_resource_plane")
        assert SECRET not in answer.body


@every_class
@pytest.mark.parametrize(
    "rest",
    [
        "../secret.txt",
        "%2e%2e%2fsecret.txt",
        "%2e%2e/secret.txt",
        "out/../../secret.txt",
        "/etc/passwd",
        "%2Fetc/passwd",
        "../../workspace-secret/s",
        "../out-secret/s",
        "a%00b",
        "%ff",
        "./report.md",
        "sub//x",
    ],
)
async def test_a_path_that_would_leave_the_root_is_refused(
    planes: Planes, out: Path, containment: Containment, rest: str
) -> None:
    """Badly shaped paths are outside_root before anything is opened (B40, B43, H27)."""
    answer = await ask(planes, capsule(out.parent, containment=containment), f"{FILES}/{rest}")
    assert told(answer) == (403, "outside_root")


@every_class
async def test_names_are_percent_decoded_once(planes: Planes, out: Path, containment: Containment) -> None:
    """Spaces, percent signs, hashes and plus signs in names can be asked for; %2F separates."""
    for name in ("sub dir/report.md", "100%", "a+b", "%2e%2e", "ä/ö", "a#b"):
        write(out / name, name.encode())
    served = capsule(out.parent, containment=containment)
    for raw, name in {
        "sub%20dir/report.md": "sub dir/report.md",
        "sub%20dir%2Freport.md": "sub dir/report.md",
        "sub%20dir/report.md/": "sub dir/report.md",
        "100%": "100%",
        "a+b": "a+b",
        "%252e%252e": "%2e%2e",
        "%C3%A4/%c3%b6": "ä/ö",
        "a%23b": "a#b",
        "a+b?generation=1": "a+b",
    }.items():
        answer = await ask(planes, served, f"{FILES}/{raw}")
        assert (answer.status, answer.body) == (200, name.encode())


@every_class
async def test_a_link_out_of_the_root_is_refused_and_never_listed(
    planes: Planes, out: Path, containment: Containment
) -> None:
    """Neither the file it names nor its hash comes through a link, relative, absolute or of a directory, nor to a sibling whose name begins like the root (B39, B40)."""
    (out / "relative").symlink_to("../secret.txt")
    (out / "sibling").symlink_to("../out-secret/s")
    (out / "dir").symlink_to("../out-secret")
    (out / "absolute").symlink_to(out.parent / "secret.txt")
    (out / "up").symlink_to("..")
    (out / "passwd").symlink_to("/etc/passwd")
    served = capsule(out.parent, containment=containment)
    expected = "symlink_refused" if containment is Containment.SCOPED else "outside_root"
    for rest in ("relative", "sibling", "dir/s", "absolute", "up", "up/secret.txt", "passwd"):
        assert told(await ask(planes, served, f"{FILES}/{rest}")) == (403, expected)
    listing = await ask(planes, served, FILES)
    assert paths_listed(listing) == []
    assert SECRET_SHA.encode() not in listing.body


@every_class
async def test_an_absolute_link_inside_the_root_is_refused_too(
    planes: Planes, out: Path, containment: Containment
) -> None:
    """One rule for both resolvers: an absolute target is outside, wherever it leads (H42)."""
    write(out / "report.md")
    (out / "link").symlink_to(out / "report.md")
    served = capsule(out.parent, containment=containment)
    expected = "symlink_refused" if containment is Containment.SCOPED else "outside_root"
    assert told(await ask(planes, served, f"{FILES}/link")) == (403, expected)
    assert paths_listed(await ask(planes, served, FILES)) == ["report.md"]


@pytest.mark.parametrize("containment", FOLLOWING)
async def test_a_link_inside_the_root_is_followed(
    planes: Planes, out: Path, containment: Containment
) -> None:
    """It is an entry of its own with its target's facts; a linked directory is read through, not descended into."""
    write(out / "dir/report.md", b"report")
    (out / "link.md").symlink_to("dir/report.md")
    (out / "dir/up.md").symlink_to("../link.md")
    (out / "linkdir").symlink_to("dir")
    (out / "self").symlink_to(".")
    served = capsule(out.parent, containment=containment)
    for rest in ("link.md", "dir/up.md", "linkdir/report.md", "linkdir/up.md", "self/self/link.md"):
        answer = await ask(planes, served, f"{FILES}/{rest}")
        assert (answer.status, answer.body) == (200, b"report")
    listing = orjson.loads((await ask(planes, served, FILES)).body)["entries"]
    assert [e["path"] for e in listing] == ["dir/report.md", "dir/up.md", "link.md"]
    assert len({(e["size_bytes"], e["mtime_ms"], e["sha256"]) for e in listing}) == 1


async def test_scoped_refuses_every_link(planes: Planes, out: Path) -> None:
    """Also those that stay inside, also of directories on the way; listings leave them out."""
    write(out / "dir/report.md", b"report")
    (out / "link.md").symlink_to("dir/report.md")
    (out / "linkdir").symlink_to("dir")
    (out / "dangling").symlink_to("nowhere")
    served = capsule(out.parent, containment=Containment.SCOPED)
    for rest in ("link.md", "linkdir/report.md", "linkdir", "dangling"):
        assert told(await ask(planes, served, f"{FILES}/{rest}")) == (403, "symlink_refused")
    assert (await ask(planes, served, f"{FILES}/dir/report.md")).status == 200
    assert paths_listed(await ask(planes, served, FILES)) == ["dir/report.md"]


@every_class
async def test_a_loop_of_links_is_refused(planes: Planes, out: Path, containment: Containment) -> None:
    """Links in circles are symlink_refused in every class, and not listed."""
    (out / "ping").symlink_to("pong")
    (out / "pong").symlink_to("ping")
    served = capsule(out.parent, containment=containment)
    assert told(await ask(planes, served, f"{FILES}/ping")) == (403, "symlink_refused")
    assert paths_listed(await ask(planes, served, FILES)) == []


@every_class
async def test_what_is_not_there_is_not_found(planes: Planes, out: Path, containment: Containment) -> None:
    """Nothing there, a file for a directory, a name or a path too long, a dangling link (B43, H25, H27)."""
    write(out / "a.txt")
    served = capsule(out.parent, containment=containment)
    for rest in ("b.txt", "a.txt/b", "no/such/dir", "n" * 256, "n" * 300 + "/x", "a/" * 2100 + "x"):
        assert told(await ask(planes, served, f"{FILES}/{rest}")) == (404, "not_found")
    if containment in FOLLOWING:
        (out / "dangling").symlink_to("nowhere")
        assert told(await ask(planes, served, f"{FILES}/dangling")) == (404, "not_found")
        assert paths_listed(await ask(planes, served, FILES)) == ["a.txt"]


@every_class
async def test_special_files_are_refused_without_blocking(
    planes: Planes, out: Path, containment: Containment
) -> None:
    """Directory, FIFO and socket are no regular files; opening none of them blocks or is felt (H27)."""
    (out / "dir").mkdir()
    os.mkfifo(out / "fifo")
    place = os.open(out, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{place}/socket")
        os.close(place)
        served = capsule(out.parent, containment=containment)
        for rest in ("dir", "dir/", "fifo", "socket"):
            answer = await asyncio.wait_for(ask(planes, served, f"{FILES}/{rest}"), 10)
            assert told(answer) == (403, "not_a_regular_file")
        assert paths_listed(await asyncio.wait_for(ask(planes, served, FILES), 10)) == []


async def test_reading_is_not_felt_by_a_fifo(planes: Planes, out: Path) -> None:
    """A writer that waits for a reader goes on waiting: the FIFO was looked at and never opened."""
    os.mkfifo(out / "fifo")
    opened: list[int] = []
    writer = threading.Thread(target=lambda: opened.append(os.open(out / "fifo", os.O_WRONLY)))
    writer.start()
    served = capsule(out.parent)
    for _ in range(20):
        await ask(planes, served, f"{FILES}/fifo")
        await ask(planes, served, FILES)
    assert opened == []
    reader = os.open(out / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    writer.join()
    os.close(reader)
    os.close(opened[0])


@every_class
async def test_a_file_over_the_limit_is_listed_and_not_read(
    planes: Planes, out: Path, containment: Containment
) -> None:
    """Its real size and hash are listed; a file of exactly the limit is served."""
    write(out / "big", b"b" * 4096)
    write(out / "just", b"j" * 1024)
    write(out / "over", b"o" * 1025)
    write(out / "small", b"s" * 100)
    served = capsule(out.parent, files=FilesExport("out/", 1024), containment=containment)
    entries = {e["path"]: e for e in orjson.loads((await ask(planes, served, FILES)).body)["entries"]}
    assert entries["big"]["size_bytes"] == 4096
    assert entries["big"]["sha256"] == hashlib.sha256(b"b" * 4096).hexdigest()
    for name, status in {"big": 413, "over": 413, "just": 200, "small": 200}.items():
        answer = await ask(planes, served, f"{FILES}/{name}")
        assert answer.status == status
        if status == 413:
            assert told(answer) == (413, "too_large")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("files", [FilesExport("out/"), None])
async def test_only_get_is_allowed_whatever_is_asked_for(
    planes: Planes, out: Path, method: str, files: FilesExport | None
) -> None:
    """405 with allow GET comes first: declared or not, known or not; nothing is changed or made."""
    report = write(out / "report.md", b"report")
    served = capsule(out.parent, files=files)
    for target in (
        FILES,
        f"{FILES}/report.md",
        f"{FILES}/new",
        f"{FILES}/../x",
        "/resources/nope",
        "/resources/peer",
    ):
        answer = await ask(planes, served, target, method=method)
        assert told(answer) == (405, "method_not_allowed")
        assert header(answer, "allow") == "GET"
    assert report.read_bytes() == b"report"
    assert os.listdir(out) == ["report.md"]  # noqa: PTH208 -- names are enough


@pytest.mark.parametrize(
    "target", ["/resources/", "/resources/nope", "/resources/filesystem", "/resources/peerless/x"]
)
async def test_another_name_under_resources_is_not_found(planes: Planes, out: Path, target: str) -> None:
    """Only the two planes have names."""
    assert told(await ask(planes, capsule(out.parent), target)) == (404, "not_found")


async def test_the_generation_is_shown_and_changes_no_etag(planes: Planes, out: Path) -> None:
    """It counts ended tasks; the etag belongs to the bytes; a query has no effect."""
    write(out / "a")
    served = capsule(out.parent)
    before = await ask(planes, served, f"{FILES}/a", generation=0)
    after = await ask(planes, served, f"{FILES}/a?generation=1", generation=7)
    assert (header(before, "x-murmur-generation"), header(after, "x-murmur-generation")) == ("0", "7")
    assert header(before, "etag") == header(after, "etag")
    assert (
        orjson.loads((await ask(planes, served, f"{FILES}/?generation=1", generation=7)).body)["generation"]
        == 7
    )


@every_class
async def test_a_missing_root_lists_nothing(planes: Planes, out: Path, containment: Containment) -> None:
    """Missing, or not a directory, or the workspace is missing: an empty listing, and reads are not found."""
    write(out / "file")
    for root in ("nowhere", "nowhere/at/all", "out/file", "n" * 300):
        served = capsule(out.parent, files=FilesExport(root), containment=containment)
        assert paths_listed(await ask(planes, served, FILES)) == []
        assert told(await ask(planes, served, f"{FILES}/x")) == (404, "not_found")
    served = capsule(out / "no-workspace", containment=containment)
    assert paths_listed(await ask(planes, served, FILES)) == []
    assert told(await ask(planes, served, f"{FILES}/x")) == (404, "not_found")


@every_class
async def test_the_root_itself_may_be_a_link_inside_the_workspace(
    planes: Planes, out: Path, containment: Containment
) -> None:
    """It is resolved anew for each request, so that a swapped or replaced root is served at once (H43)."""
    workspace = out.parent
    write(workspace / "v1/a", b"one")
    write(workspace / "v2/a", b"two")
    (workspace / "current").symlink_to("v1")
    served = capsule(workspace, files=FilesExport("current"), containment=containment)
    assert (await ask(planes, served, f"{FILES}/a")).body == b"one"
    (workspace / "next").symlink_to("v2")
    (workspace / "next").rename(workspace / "current")
    assert (await ask(planes, served, f"{FILES}/a")).body == b"two"
    (workspace / "v2").rename(workspace / "old")
    write(workspace / "v2/a", b"three")
    assert (await ask(planes, served, f"{FILES}/a")).body == b"three"
    assert paths_listed(await ask(planes, served, FILES)) == ["a"]


@every_class
async def test_a_root_that_leads_out_of_the_workspace_is_refused(
    planes: Planes, out: Path, containment: Containment
) -> None:
    """Whatever the class, neither listing nor read go there."""
    (out.parent / "far").symlink_to("../workspace-secret")
    served = capsule(out.parent, files=FilesExport("far"), containment=containment)
    assert told(await ask(planes, served, FILES)) == (403, "outside_root")
    assert told(await ask(planes, served, f"{FILES}/s")) == (403, "outside_root")


async def test_a_link_may_not_leave_the_root_for_the_workspace(planes: Planes, out: Path) -> None:
    """The workspace is no second root: a link from one export into a sibling is outside."""
    write(out.parent / "other/x", SECRET)
    (out / "x").symlink_to("../other/x")
    assert told(await ask(planes, capsule(out.parent), f"{FILES}/x")) == (403, "outside_root")


@pytest.mark.parametrize("root", [".", "./", "out", "out/", "./out//", "a/b/c"])
async def test_a_root_is_echoed_as_it_is_written(planes: Planes, out: Path, root: str) -> None:
    """The manifest's spelling is kept in listing and header."""
    write(out.parent / root / "f", b"f")
    served = capsule(out.parent, files=FilesExport(root))
    answer = await ask(planes, served, f"{FILES}/f")
    assert (answer.body, header(answer, "x-murmur-export-root")) == (b"f", root)
    assert orjson.loads((await ask(planes, served, FILES)).body)["root"] == root


async def test_a_root_with_control_characters_cannot_break_the_header(planes: Planes, out: Path) -> None:
    """What a header cannot hold is shown by its escape; letters of any script pass."""
    for root, shown in {"a\r\nb: c": "a\\r\\nb: c", "ä\x7f": "ä\\x7f"}.items():
        write(out.parent / root / "f")
        answer = await ask(planes, capsule(out.parent, files=FilesExport(root)), f"{FILES}/f")
        assert header(answer, "x-murmur-export-root") == shown
    nul = capsule(out.parent, files=FilesExport("a\0b"))
    assert told(await ask(planes, nul, f"{FILES}/f")) == (404, "not_found")
    assert paths_listed(await ask(planes, nul, FILES)) == []


@every_class
async def test_a_listing_is_recursive_and_sorted_by_path(
    planes: Planes, out: Path, containment: Containment
) -> None:
    """Sorted by the bytes of the whole path, dotfiles included; names that cannot be spelled are left out."""
    names = ["a", "a-b", "a.d/x", "a.d/.hidden/y", "b/c/d/e", ".env", "Z", "ä", "z\n"]
    for name in names:
        write(out / name, name.encode())
    write(out / os.fsdecode(b"bad\xff"))
    write(out / os.fsdecode(b"bad\xfe/file"))
    (out / "empty").mkdir()
    listing = await ask(planes, capsule(out.parent, containment=containment), FILES)
    assert paths_listed(listing) == sorted(names, key=str.encode)
    for entry in orjson.loads(listing.body)["entries"]:
        assert entry["sha256"] == hashlib.sha256(entry["path"].encode()).hexdigest()


async def test_a_deep_tree_is_listed_with_few_descriptors(planes: Planes, out: Path) -> None:
    """Depth costs no descriptors: a tree much deeper than there are descriptors left is listed whole."""
    path = "d/" * 200 + "leaf"
    write(out / path)
    served = capsule(out.parent, containment=Containment.SCOPED)
    await ask(planes, served, FILES)  # the thread is there
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 10, hard))  # noqa: PTH208 -- names are enough
    try:
        assert paths_listed(await ask(planes, served, FILES)) == [path]
        assert (await ask(planes, served, f"{FILES}/{path}")).status == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("name", RESOLVERS)
def test_a_listing_that_nobody_waits_for_ends_early(name: str, tmp_path: Path) -> None:
    """It asks between any two files, and while it hashes a big one."""
    for n in range(20):
        write(tmp_path / f"d{n}/f")
    tree = Tree(str(tmp_path), b".", Rules(links=True, mounts=False))
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > 30

    assert 0 < len(entries(RESOLVERS[name](), tree, Memory(), stopped)) < 20
    assert asked < 40
    big = os.open(write(tmp_path / "big", b"b" * 2_000_000), os.O_RDONLY)
    assert hash_of(big, 2_000_000, lambda: True) is None
    os.close(big)


async def test_an_error_of_the_disk_names_no_host_path(planes: Planes) -> None:
    """Anything else is io_error: a file that opens and cannot be read."""
    served = capsule(Path("/proc/self"), files=FilesExport("."))
    assert told(await ask(planes, served, f"{FILES}/mem")) == (500, "io_error")


@pytest.mark.parametrize("name", RESOLVERS)
def test_a_file_that_is_longer_than_it_says_is_bounded_too(name: str) -> None:
    """What grew past the limit while it was read is too_large; below it, all that came is served (H26)."""
    resolver, tree = RESOLVERS[name](), Tree("/proc/self", b".", Rules(links=True, mounts=False))
    with pytest.raises(RefusedError) as caught:
        read(resolver, tree, b"status", 10, Memory())
    assert caught.value.refusal.code == "too_large"
    content = read(resolver, tree, b"cmdline", 10_000_000, Memory())
    assert content.data == Path("/proc/self/cmdline").read_bytes()
    assert content.sha256 == hashlib.sha256(content.data).hexdigest()


@pytest.mark.skipif(
    not Path("/sys/kernel/fscaps").exists(), reason="needs a file that is shorter than it says"
)
@pytest.mark.parametrize("name", RESOLVERS)
def test_a_file_that_is_shorter_than_it_says_is_served_as_it_is(name: str) -> None:
    """Length and etag are those of the bytes served, not of the size seen before (H26)."""
    place = Path("/sys/kernel/fscaps")
    content = read(
        RESOLVERS[name](),
        Tree("/sys/kernel", b".", Rules(links=True, mounts=False)),
        b"fscaps",
        9999,
        Memory(),
    )
    assert len(content.data) < place.stat().st_size
    assert content.data == place.read_bytes()
    assert content.sha256 == hashlib.sha256(content.data).hexdigest()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look with another's eyes")
@pytest.mark.parametrize("name", RESOLVERS)
def test_what_may_not_be_read_is_left_out_of_a_listing(name: str) -> None:
    """A file or directory without permission costs nobody else his entry; reading it is io_error."""
    resolver = RESOLVERS[name]()
    setfsuid = ctypes.CDLL(None).setfsuid
    with tempfile.TemporaryDirectory() as place:
        top = Path(place)
        top.chmod(0o755)
        write(top / "out/open")
        write(top / "out/shut").chmod(0o600)
        write(top / "out/closed/file")
        (top / "out/closed").chmod(0o700)
        tree = Tree(place, b"out", Rules(links=True, mounts=False))
        setfsuid(65534)
        try:
            assert [e.path for e in entries(resolver, tree, Memory())] == ["open"]
            for path in (b"shut", b"closed/file"):
                with pytest.raises(RefusedError) as caught:
                    read(resolver, tree, path, 100, Memory())
                assert caught.value.refusal.code == "io_error"
            with pytest.raises(RefusedError) as caught:
                entries(resolver, Tree(place, b"out/closed", tree.rules), Memory())
            assert caught.value.refusal.code == "io_error"
        finally:
            setfsuid(0)


async def test_a_conditional_read_is_answered_304(planes: Planes, out: Path) -> None:
    """If-None-Match with the current etag, in a list, weak, or `*`; another etag gets the bytes."""
    write(out / "a", b"data")
    served = capsule(out.parent)
    full = await ask(planes, served, f"{FILES}/a")
    etag = header(full, "etag") or ""
    for value in (etag, f'"x", W/{etag}', "*"):
        answer = await ask(planes, served, f"{FILES}/a", headers={"if-none-match": value})
        assert (answer.status, answer.body) == (304, b"")
        assert set(answer.headers) == set(full.headers) - {("content-type", "application/octet-stream")}
    answer = await ask(planes, served, f"{FILES}/a", headers={"if-none-match": '"sha256:0"'})
    assert (answer.status, answer.body) == (200, b"data")


async def test_a_range_gets_the_whole_file(planes: Planes, out: Path) -> None:
    """Ranges are not served: 200 and all of it."""
    write(out / "a", b"data")
    answer = await ask(planes, capsule(out.parent), f"{FILES}/a", headers={"range": "bytes=0-1"})
    assert (answer.status, answer.body) == (200, b"data")


async def test_a_compressed_sibling_is_never_served_instead(planes: Planes, out: Path) -> None:
    """Nothing is negotiated: the bytes of a.txt, whatever a.txt.gz or a.txt.br are (B42, H24)."""
    write(out / "a.txt", b"plain")
    write(out / "a.txt.br", b"other")
    (out / "a.txt.gz").symlink_to("/etc/passwd")
    answer = await ask(planes, capsule(out.parent), f"{FILES}/a.txt", headers={"accept-encoding": "gzip, br"})
    assert (answer.status, answer.body) == (200, b"plain")
    assert header(answer, "content-encoding") is None


async def test_twenty_parallel_reads_are_all_served(planes: Planes, out: Path) -> None:
    """More than there are threads for one capsule: they queue."""
    write(out / "a", b"data" * 1000)
    served = capsule(out.parent)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ask(planes, served, f"{FILES}/a")) for _ in range(20)]
    assert {(t.result().status, t.result().body) for t in tasks} == {(200, b"data" * 1000)}


async def test_a_hash_is_remembered_until_the_file_changes(out: Path) -> None:
    """Device, inode, size, mtime and ctime decide; a file touched just now is hashed again each time."""
    later = Memory(now_ns=lambda: 2**62)
    planes = Planes(memory=later)
    served = capsule(out.parent)
    path = write(out / "a", b"one")

    async def listed() -> str:
        (entry,) = orjson.loads((await ask(planes, served, FILES)).body)["entries"]
        return str(entry["sha256"])

    assert await listed() == hashlib.sha256(b"one").hexdigest()
    facts = path.stat()
    assert later.find(facts) == hashlib.sha256(b"one").digest()
    assert not later.wants(facts)
    path.write_bytes(b"two")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert await listed() == hashlib.sha256(b"two").hexdigest()
    path.write_bytes(b"three")
    answer = await ask(planes, served, f"{FILES}/a")
    assert later.find(path.stat()) == hashlib.sha256(b"three").digest()
    assert header(answer, "etag") == f'"sha256:{hashlib.sha256(b"three").hexdigest()}"'
    await planes.aclose()

    fresh = Memory()
    path.write_bytes(b"four")
    assert not fresh.wants(path.stat())
    fresh.keep(path.stat(), path.stat(), b"x")
    assert fresh.find(path.stat()) is None


def test_the_memory_keeps_the_newest(tmp_path: Path) -> None:
    """It is bounded; what was hashed last stays; what was found to be wrong is forgotten."""
    memory = Memory(limit=2, now_ns=lambda: 2**62)
    one, two, three = (write(tmp_path / n).stat() for n in "abc")
    memory.keep(one, one, b"1")
    memory.keep(two, two, b"2")
    assert memory.find(one) == b"1"
    memory.keep(one, one, b"1")
    memory.keep(three, three, b"3")
    assert (memory.find(one), memory.find(two), memory.find(three)) == (b"1", None, b"3")
    memory.keep(two, three, b"x")
    assert memory.find(two) is None
    memory.forget(one)
    assert memory.find(one) is None
