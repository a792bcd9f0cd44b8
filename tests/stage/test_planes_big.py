"""Big files and big listings: sent in pieces, whole or cut off, and never more of them than there is room for."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import orjson
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from sidecar.errors import RefusedError
from sidecar.model import FilesExport, PeerFilesExport
from sidecar.planes.beneath import Openat2, Rules
from sidecar.planes.bodies import Lane, Places, hash_of
from sidecar.planes.memory import Memory
from sidecar.planes.opened import PIECE, SLICE, Opened
from sidecar.planes.pool import Pool
from sidecar.planes.reading import IN_MEMORY, Tree
from sidecar.planes.reading import read as read_any
from sidecar.planes.routes import Planes
from sidecar.web.answers import Streamed
from tests.support.planes import ask, capsule, drained, entries, header, paths_listed, told, write
from tests.support.ports import served_on_a_port
from tests.support.rawhttp import exchange, read_answer, request_bytes
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Hashable

    from sidecar.model import Capsule

P = ParamSpec("P")
T = TypeVar("T")

FILES = "/resources/files"
BIG = 8 * 1024 * 1024 + 12_345
"""More than the kernel holds for a connection whose client does not read."""
EXPORT = FilesExport("out", 1 << 30)


def pattern(size: int) -> bytes:
    """Return bytes of which no two pieces are alike."""
    return b"".join(n.to_bytes(8, "big") for n in range(size // 8 + 1))[:size]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An export root."""
    root = tmp_path / "w/out"
    root.mkdir(parents=True)
    return root


@pytest.fixture
def served(out: Path) -> Capsule:
    """A capsule that exports it."""
    return capsule(out.parent, files=EXPORT)


@pytest.fixture
def memory() -> Memory:
    """Hashes that are kept at once, as if every file had been at rest for long."""
    return Memory(now_ns=lambda: 2**62)


@pytest_asyncio.fixture
async def planes(memory: Memory) -> AsyncIterator[Planes]:
    """The planes, with places for two big files of one session."""
    planes = Planes(memory=memory, places=Places(most_of_one=2))
    yield planes
    assert await planes.aclose() == 0


class Meddled(Pool):
    """A pool after each of whose jobs something is done, as if by somebody else."""

    def __init__(self, meddle: Callable[[], None]) -> None:
        super().__init__()
        self.meddle = meddle
        self.jobs = 0

    async def run(
        self, lane: Hashable, limit: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a job, then meddle."""
        result = await super().run(lane, limit, work, *args, **kwargs)
        self.jobs += 1
        self.meddle()
        return result


@pytest.mark.parametrize("size", [IN_MEMORY, IN_MEMORY + 1, PIECE * 5, SLICE, BIG])
async def test_a_file_of_any_size_comes_whole_under_its_own_hash(
    planes: Planes, out: Path, served: Capsule, size: int
) -> None:
    """Held or in pieces: bytes, length and headers are the same, and the connection stays usable."""
    data = pattern(size)
    place = write(out / "f", data)
    async with served_on_a_port(served, planes) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(b"GET /resources/files/f HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = await read_answer(reader)
            assert answer.status == 200
            assert answer.body == data
            assert answer.headers.pop("date")
            assert answer.headers == {
                "content-type": "application/octet-stream",
                "etag": f'"sha256:{hashlib.sha256(data).hexdigest()}"',
                "x-murmur-mtime-ms": str(place.stat().st_mtime_ns // 1_000_000),
                "x-murmur-generation": "0",
                "x-murmur-containment": "advisory",
                "x-murmur-export-root": "out",
                "content-length": str(size),
            }
        writer.close()
        await writer.wait_closed()
        old = await exchange(port, b"GET /resources/files/f HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert (old.body == data, old.headers["connection"]) == (True, "close")


async def test_a_conditional_read_of_a_big_file_sends_none_of_it(
    planes: Planes, out: Path, served: Capsule
) -> None:
    """304 with the same validators; no place is kept, so that any number of them may come."""
    write(out / "f", pattern(BIG))
    full = await ask(planes, served, f"{FILES}/f")
    etag = header(full, "etag") or ""
    for _ in range(5):
        answer = await ask(planes, served, f"{FILES}/f", headers={"if-none-match": etag})
        assert (answer.status, answer.body, header(answer, "etag")) == (304, b"", etag)


def no_header(_name: str) -> None:
    """Look up a header of a request that has none."""


async def begun(planes: Planes, served: Capsule, name: str = "f") -> Streamed:
    """Ask for a big file and take nothing of it yet."""
    answer = await planes.answer(served, "GET", f"{FILES}/{name}", no_header, 0)
    assert isinstance(answer, Streamed)
    return answer


def shrink(place: Path) -> None:
    """Cut a file off in the middle."""
    os.truncate(place, BIG // 2)


def grow(place: Path) -> None:
    """Append to a file."""
    with place.open("ab") as file:
        file.write(b"more")


def change(place: Path) -> None:
    """Write other bytes of the same number, and set the time back."""
    facts = place.stat()
    with place.open("r+b") as file:
        file.seek(BIG - 10)
        file.write(b"different")
    os.utime(place, ns=(facts.st_atime_ns, facts.st_mtime_ns))


@pytest.mark.parametrize("meddle", [shrink, grow, change])
async def test_a_file_that_changes_while_it_is_sent_is_cut_off(
    planes: Planes, out: Path, served: Capsule, meddle: Callable[[Path], None]
) -> None:
    """The client sees less than the length it was promised, at once, and never a whole body under a wrong etag."""
    place = write(out / "f", pattern(BIG))
    async with served_on_a_port(served, planes) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
        writer.write(request_bytes("GET", f"{FILES}/f"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length: %d\r\n" % BIG in head
        meddle(place)
        body = b""
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(10):
                while data := await reader.read(2**16):
                    body += data
        assert len(body) < BIG
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()
    now = place.read_bytes()
    answer = await ask(planes, served, f"{FILES}/f")
    assert answer.body == now
    assert header(answer, "etag") == f'"sha256:{hashlib.sha256(now).hexdigest()}"'


async def test_a_remembered_hash_that_is_wrong_is_found_out_and_forgotten(
    out: Path, served: Capsule, memory: Memory
) -> None:
    """Bytes that change with none of the five facts (a shared mapping): cut off once, right from then on."""
    place = write(out / "f", pattern(BIG))
    memory.keep(place.stat(), place.stat(), b"\0" * 32)
    planes = Planes(memory=memory)
    body = (await begun(planes, served)).body
    with pytest.raises(ConnectionError):
        await drained(body)
    answer = await ask(planes, served, f"{FILES}/f")
    assert header(answer, "etag") == f'"sha256:{hashlib.sha256(answer.body).hexdigest()}"'
    assert await planes.aclose() == 0


async def test_a_file_that_never_rests_is_an_error(out: Path, memory: Memory) -> None:
    """It is hashed a few times over, and then refused; one that grows past the limit is too large."""
    place = write(out / "f", pattern(BIG))
    tree = Tree(str(out.parent), b"out", Rules(links=True, mounts=False))
    pool = Meddled(lambda: grow(place))
    for limit, code in ((1 << 30, "io_error"), (BIG + 4, "too_large")):
        place.write_bytes(pattern(BIG))
        opened = read_any(Openat2(), tree, b"f", limit, memory)
        assert isinstance(opened, Opened)
        with pytest.raises(RefusedError) as caught:
            await hash_of(opened, limit, Lane(pool, "a", 1), memory)
        assert caught.value.refusal.code == code
        opened.close()
    assert await pool.aclose() == 0


async def test_a_file_that_changes_once_while_it_is_hashed_is_hashed_again(out: Path, memory: Memory) -> None:
    """Then its facts are those of the second look."""
    place = write(out / "f", pattern(BIG))
    tree = Tree(str(out.parent), b"out", Rules(links=True, mounts=False))
    pool = Meddled(lambda: None if pool.jobs > 1 else shrink(place))
    opened = read_any(Openat2(), tree, b"f", 1 << 30, memory)
    assert isinstance(opened, Opened)
    digest = await hash_of(opened, 1 << 30, Lane(pool, "a", 1), memory)
    assert digest == hashlib.sha256(pattern(BIG)[: BIG // 2]).digest()
    assert opened.size == BIG // 2
    opened.close()
    assert await pool.aclose() == 0


async def test_a_file_that_many_want_at_once_is_hashed_once(
    out: Path, served: Capsule, memory: Memory
) -> None:
    """Each opens it; one takes the slices and the last look, and the others find the hash."""
    data = pattern(BIG)
    write(out / "f", data)
    pool = Meddled(lambda: None)
    planes = Planes(memory=memory, pool=pool)
    answers = await asyncio.gather(*(begun(planes, served) for _ in range(5)))
    assert pool.jobs == 5 + 2 + 1
    etags = {value for answer in answers for name, value in answer.headers if name == "etag"}
    assert etags == {f'"sha256:{hashlib.sha256(data).hexdigest()}"'}
    for answer in answers:
        answer.body.close()
    assert await planes.aclose() == 0


async def test_a_slow_reader_holds_no_thread_and_no_more_places_than_there_are(
    planes: Planes, out: Path, served: Capsule
) -> None:
    """Small files are read beside it; one too many big ones is 503, until a place is free; B45."""
    write(out / "f", pattern(BIG))
    write(out / "small", b"small")
    async with served_on_a_port(served, planes) as port:
        slow = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
            writer.write(request_bytes("GET", f"{FILES}/f"))
            await reader.readuntil(b"\r\n\r\n")
            slow.append((reader, writer))
        for _ in range(20):
            assert (await exchange(port, request_bytes("GET", f"{FILES}/small"))).body == b"small"
        refused = await exchange(port, request_bytes("GET", f"{FILES}/f"))
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        for reader, writer in slow:
            writer.transport.abort()
            await asyncio.wait_for(reader.read(), 10)

        async def is_free() -> bool:
            return (await exchange(port, request_bytes("GET", f"{FILES}/f"))).status == 200

        await until(is_free)


def is_open(place: Path) -> bool:
    """Whether this process has the file open."""
    return str(place) in {os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("plane", ["files", "peer"])
async def test_work_for_a_client_that_left_ends_and_is_on_record(
    planes: Planes, out: Path, plane: str
) -> None:
    """A file of 64 GiB is hashed no further, although what a client that leaves sends looks like half a close."""
    place = write(out / "f", b"")
    os.truncate(place, 1 << 36)
    served = capsule(out.parent, files=FilesExport("out", 1 << 40), peer=PeerFilesExport("out", 60, 1 << 40))
    head = request_bytes("GET", f"{FILES}/f")
    if plane == "peer":
        handle = await planes.sharing.mint(served, "f", "a@b:1")
        head = request_bytes("GET", f"/resources/peer/{handle.token}", headers={"x-murmur-audience": "a@b:1"})
    with capture_logs() as lines:
        async with served_on_a_port(served, planes, idle=0.2) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head)
            await until(lambda: is_open(place))
            writer.close()
            await writer.wait_closed()
            await until(lambda: not is_open(place), within=30.0)
    event = "file_read" if plane == "files" else "handle_redeemed"
    assert [(line["event"], line["outcome"]) for line in lines] == [(event, "cut")]


async def test_a_reader_that_takes_nothing_is_cut_off(planes: Planes, out: Path, served: Capsule) -> None:
    """After the idle time its file is closed and its place is free."""
    write(out / "f", pattern(BIG))
    async with served_on_a_port(served, planes, idle=0.3) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
        writer.write(request_bytes("GET", f"{FILES}/f"))
        await reader.readuntil(b"\r\n\r\n")
        assert is_open(out / "f")
        await until(lambda: not is_open(out / "f"))
        writer.transport.abort()


async def test_a_file_is_closed_only_once_no_thread_reads_it(out: Path) -> None:
    """Else its number could be given to another file under the read."""
    place = write(out / "f", pattern(IN_MEMORY))
    fd = os.open(place, os.O_RDONLY)
    opened = Opened(fd, os.fstat(fd))
    inside, go = threading.Event(), threading.Event()

    class Slow:
        """A digest that takes its time."""

        def update(self, _data: bytes) -> None:
            inside.set()
            go.wait()

    thread = threading.Thread(target=opened.piece, args=(Slow(), 0))
    thread.start()
    inside.wait()
    opened.close()
    os.fstat(fd)
    go.set()
    thread.join()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    with pytest.raises(OSError, match="let go of"):
        opened.now()
    opened.close()


async def test_what_nobody_waits_for_any_more_is_closed(out: Path) -> None:
    """A caller that leaves while its file is opened, or in the very moment in which it comes, leaves no descriptor."""
    place = write(out / "f", pattern(IN_MEMORY))
    pool = Pool()
    opened: list[Opened] = []
    inside, gate = threading.Event(), threading.Event()

    def work() -> Opened:
        inside.set()
        gate.wait()
        fd = os.open(place, os.O_RDONLY)
        opened.append(Opened(fd, os.fstat(fd)))
        return opened[-1]

    early = asyncio.ensure_future(pool.run("a", 1, work))
    await until(inside.is_set)
    early.cancel()
    gate.set()
    loop = asyncio.get_running_loop()

    def left_behind() -> Opened:
        # the cancelling comes to the loop just before the file, and so is felt just after it, or just before
        cancel: Callable[[], object] = late[-1].cancel
        loop.call_soon_threadsafe(lambda: loop.call_soon(cancel))
        return work()

    late: list[asyncio.Future[Opened]] = []
    for _ in range(20):
        late.append(asyncio.ensure_future(pool.run("b", 1, left_behind)))
        with contextlib.suppress(asyncio.CancelledError):
            (await late[-1]).close()
    assert await pool.aclose() == 0
    assert len(opened) == 21
    assert not is_open(place)


async def test_a_listing_has_an_etag_of_its_own(planes: Planes, out: Path, served: Capsule) -> None:
    """It is the hash of the body, stays while nothing changes, and a client that names it is answered 304."""
    write(out / "a", b"a")
    full = await ask(planes, served, FILES)
    etag = header(full, "etag") or ""
    assert etag == f'"sha256:{hashlib.sha256(full.body).hexdigest()}"'
    for value in (etag, f'"x", W/{etag}', "*"):
        answer = await ask(planes, served, f"{FILES}/", headers={"if-none-match": value})
        assert (answer.status, answer.body, answer.headers) == (304, b"", (("etag", etag),))
    other = await ask(planes, served, FILES, headers={"if-none-match": etag}, generation=1)
    assert other.status == 200
    write(out / "b", b"b")
    changed = await ask(planes, served, FILES, headers={"if-none-match": etag})
    assert paths_listed(changed) == ["a", "b"]


async def test_big_listings_that_are_alike_are_held_once(out: Path, memory: Memory) -> None:
    """Clients that read slowly share the bytes; other ones are refused once there is no room for them."""
    for n in range(3000):
        write(out / f"file-{n:04}", b"x")
    planes = Planes(memory=memory, places=Places(held=600_000))
    served = capsule(out.parent)
    answers = [await planes.answer(served, "GET", FILES, no_header, 0) for _ in range(3)]
    bodies = [answer.body for answer in answers if isinstance(answer, Streamed)]
    assert len(bodies) == 3
    refused = await ask(planes, served, FILES, generation=1)
    assert told(refused) == (503, "unavailable")
    for body in bodies:
        assert len(orjson.loads(await drained(body))["entries"]) == 3000
        body.close()
    assert (await ask(planes, served, FILES, generation=1)).status == 200
    assert await planes.aclose() == 0


def test_a_listing_that_would_be_endless_is_refused(out: Path, memory: Memory) -> None:
    """Files count with their entries, directories with their names while they wait."""
    for n in range(20):
        write(out / f"d{n:02}/file", b"x")
    tree = Tree(str(out.parent), b"out", Rules(links=True, mounts=False))
    whole = entries(Openat2(), tree, memory)
    assert [e.path for e in whole] == [f"d{n:02}/file" for n in range(20)]
    assert entries(Openat2(), tree, memory, most=20 * 140) == whole
    for most in (20 * 100, 30):
        with pytest.raises(RefusedError) as caught:
            entries(Openat2(), tree, memory, most=most)
        assert caught.value.refusal.code == "too_large"


class Counted(Openat2):
    """A resolver that counts what it opens."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0

    def open(self, base: int, path: bytes, rules: Rules, flags: int = 0) -> int:
        """Open, and count."""
        self.opened += 1
        return super().open(base, path, rules, flags)


def test_a_second_listing_opens_no_file(out: Path, memory: Memory) -> None:
    """Files whose hash is known are looked at, in their directory; one that changed is opened again."""
    for n in range(30):
        write(out / f"d{n % 3}/f{n}", b"%d" % n)
    tree = Tree(str(out.parent), b"out", Rules(links=True, mounts=False))
    resolver = Counted()
    first = entries(resolver, tree, memory)
    assert resolver.opened == 1 + 4 + 30
    resolver.opened = 0
    assert entries(resolver, tree, memory) == first
    assert resolver.opened == 1 + 4
    write(out / "d1/f4", b"other")
    resolver.opened = 0
    second = {e.path: e.sha256 for e in entries(resolver, tree, memory)}
    assert resolver.opened == 1 + 4 + 1
    assert second["d1/f4"] == hashlib.sha256(b"other").hexdigest()
