"""What hostilities that are cheap to play cost everybody else: the p99 of a neighbour's card, beside its p99 at rest."""

from __future__ import annotations

import contextlib
import itertools
import json
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import get, load
from benchmarks.requests import CARD, SEND, call
from benchmarks.table import Row
from tests.support.spawned import Spawned, replace_capsule, running, write_capsule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 5
COUNT = 3_000
CONNECTIONS = 4
"""Few, so that the latency is the server's and not that of the load itself."""
MANY = 200
OPEN = 3_000
TRICKLES = 200
MOST = 2.0
BODY = (
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
)
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
FLOOD = [sys.executable, "-c", "import os\nwhile True: os.write(1, b'y' * 65536)"]


@contextlib.contextmanager
def repeated(work: Callable[[], None], pause: float) -> Iterator[None]:
    """Do something again and again, in a thread, while the block runs."""
    ended = threading.Event()

    def go() -> None:
        while not ended.wait(pause):
            work()

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def flapping(_sidecar: Spawned, root: Path) -> Iterator[None]:
    """A manifest is good, then bad, every 50 ms."""
    manifest = root / "struck" / "murmur.yaml"
    good = manifest.read_text()
    texts = ["name: [", good.replace('"1"', '"2"'), good]

    def flap() -> None:
        texts.append(texts.pop(0))
        manifest.write_text(texts[0])

    with repeated(flap, 0.05):
        yield
    manifest.write_text(good)


@contextlib.contextmanager
def coming_and_going(_sidecar: Spawned, root: Path) -> Iterator[None]:
    """Two hundred capsules come and go, again and again."""
    aside = root.parent / "aside"
    for number in range(MANY):
        write_capsule(aside / f"c{number:03}")

    def move() -> None:
        for directory in aside.iterdir():
            directory.rename(root / directory.name)
        for number in range(MANY):
            (root / f"c{number:03}").rename(aside / f"c{number:03}")

    with repeated(move, 1.0):
        yield
    shutil.rmtree(aside)


@contextlib.contextmanager
def left_open(sidecar: Spawned, _root: Path) -> Iterator[None]:
    """Thousands of connections to another capsule, of which most are over its limit, again and again."""
    port = sidecar.port("struck")
    with contextlib.ExitStack() as stack:
        for _ in range(OPEN):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        yield


def trickling(start: bytes) -> Callable[[Spawned, Path], contextlib.AbstractContextManager[None]]:
    """Return what has clients of another capsule send a byte ten times a second, one after the other."""

    @contextlib.contextmanager
    def trickle(sidecar: Spawned, _root: Path) -> Iterator[None]:
        port = sidecar.port("struck")
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(TRICKLES)
            ]
            for client in clients:
                client.sendall(start)

            turns = itertools.cycle(clients)

            def send() -> None:
                for client in itertools.islice(turns, TRICKLES // 20):
                    with contextlib.suppress(OSError):
                        client.sendall(b"x")

            with repeated(send, 0.005):
                yield

    return trickle


@contextlib.contextmanager
def flooding(sidecar: Spawned, _root: Path) -> Iterator[None]:
    """A worker says more than can be kept, until its task fails, and then the next one."""
    port = sidecar.port("noisy")

    def send() -> None:
        call(port, SEND)

    with repeated(send, 0.5):
        yield
    call(port, {"jsonrpc": "2.0", "id": 1, "method": "session/stop"})


@contextlib.contextmanager
def events_without_end(_sidecar: Spawned, root: Path) -> Iterator[None]:
    """Another program makes and removes a file beside a manifest as fast as it can."""
    script = "import os, sys\nwhile True: os.close(os.open(sys.argv[1], os.O_CREAT)); os.unlink(sys.argv[1])"
    with subprocess.Popen(["nice", sys.executable, "-c", script, str(root / "struck" / "t")]) as process:
        try:
            yield
        finally:
            process.kill()


HOSTILITIES = {
    "a manifest flaps every 50 ms": flapping,
    f"{MANY} capsules come and go": coming_and_going,
    f"{OPEN:,} connections are left open": left_open,
    f"{TRICKLES} headers trickle": trickling(HEAD),
    f"{TRICKLES} bodies trickle": trickling(BODY),
    "a worker floods": flooding,
    "file events without end": events_without_end,
}


def p99(port: int) -> float:
    """Return the neighbour's p99 in milliseconds, the median of a few rounds."""
    rounds = [load(port, COUNT, get(CARD), connections=CONNECTIONS) for _ in range(ROUNDS)]
    return statistics.median(float(figures["p99"]) for figures in rounds)


def hostile() -> list[Row]:
    """Play each hostility against one capsule while the card of another is read; each beside the rest before and after it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "capsules")
        for name in ("calm", "struck", "noisy"):
            write_capsule(root / name)
        config = Path(scratch, "config.yaml")
        noisy = {"backend": "command", "command": {"argv": FLOOD}}
        config.write_text(json.dumps({"roots": [{"path": str(root)}], "capsules": {"noisy": noisy}}))
        env = {"SIDECAR_LISTEN__PORTS": "20000-29999", "SIDECAR_LIMITS__BODY_TIMEOUT": "60s"}
        with running(["--config", str(config)], state=Path(scratch, "state"), env=env) as sidecar:
            port = sidecar.port("calm")
            p99(port)
            for name, play in HOSTILITIES.items():
                before = p99(port)
                with play(sidecar, root):
                    struck = p99(port)
                rest = statistics.mean((before, p99(port)))
                rows.append(
                    Row(f"another's card, p99, while {name}", struck, "ms", "at rest", rest, most=MOST)
                )
            replace_capsule(root / "calm", version="9")
            sidecar.until_version("calm", "9", within=30)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return rows
