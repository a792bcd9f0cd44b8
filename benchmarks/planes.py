"""What big trees and big files cost, and who else feels it."""

from __future__ import annotations

import hashlib
import http.client
import statistics
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import get, load
from benchmarks.requests import CARD, one_capsule
from benchmarks.table import Row

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = 100_000
BIG = 1 << 30
ROUND = 1_000
CONNECTIONS = 8


def fetch(port: int, path: str) -> tuple[float, int, str, str]:
    """Take an answer whole; returns seconds, bytes, their SHA-256 and the etag."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    begun = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    digest, size = hashlib.sha256(), 0
    while data := answer.read(1 << 20):
        digest.update(data)
        size += len(data)
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status}")
    return time.perf_counter() - begun, size, digest.hexdigest(), answer.headers["etag"]


def peak_kib(pid: int) -> int:
    """Return the most memory that was resident since the last `reset_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def reset_peak(pid: int) -> int:
    """Begin to watch the peak anew, and return what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak_kib(pid)


def beside(work: Callable[[], Any], port: int) -> list[dict[str, Any]]:
    """Put load on the card for as long as something else takes, and return the rounds that ran beside it."""
    other = threading.Thread(target=work)
    other.start()
    rounds: list[dict[str, Any]] = []
    while other.is_alive():
        figures = load(port, ROUND, get(CARD), CONNECTIONS)
        if other.is_alive() or not rounds:
            rounds.append(figures)
    other.join()
    return rounds


def grow(directory: Path, count: int) -> None:
    """Write many small files, a thousand to a directory."""
    for n in range(0, count, 1000):
        folder = directory / f"d{n // 1000:03}"
        folder.mkdir()
        for k in range(min(1000, count - n)):
            (folder / f"f{k:03}.txt").write_bytes(b"%d" % (n + k) * 20)


def listing() -> list[Row]:
    """A listing of 100,000 files: what the door feels of it, its memory, and how quick the second one is."""
    times: list[float] = []
    with one_capsule() as (_, ours, directory):
        grow(directory / "out", FILES)
        time.sleep(2.5)  # hashes of files that are younger than two seconds are not kept
        load(ours.port, 500, get(CARD), CONNECTIONS)
        idle = [load(ours.port, ROUND, get(CARD), CONNECTIONS) for _ in range(9)]
        before = reset_peak(ours.pid)

        def work() -> None:
            times.append(fetch(ours.port, "/resources/files")[0])

        first = beside(work, ours.port)
        second = beside(work, ours.port)
        grown = (peak_kib(ours.pid) - before) / 1024
        idle += [load(ours.port, ROUND, get(CARD), CONNECTIONS) for _ in range(9)]
        work()
    quiet = statistics.median(f["p99"] for f in idle)
    return [
        Row(
            f"GET card beside the {name} listing of {FILES:,} files, p99",
            statistics.median(f["p99"] for f in rounds),
            "ms",
            "the idle door",
            quiet,
            most=2,
        )
        for name, rounds in (("first", first), ("second", second))
    ] + [
        Row(f"first listing of {FILES:,} files, beside the load", times[0], "s"),
        Row("second listing, beside the load", times[1], "s", "the first", times[0]),
        Row(f"listing of {FILES:,} known files, alone", times[2], "s"),
        Row("memory that both took at most", grown, "MB"),
    ]


def big_file() -> list[Row]:
    """A read of 1 GiB: memory, and that the etag is that of the bytes."""
    more = f"    max_bytes: {BIG // (1 << 30)}Gi\n"
    with one_capsule(more=more) as (_, ours, directory):
        with (directory / "out" / "big.bin").open("wb") as file:
            for n in range(64):
                file.seek(n * BIG // 64)
                file.write(b"%d" % n * 1000)
            file.truncate(BIG)
        time.sleep(2.5)
        fetch(ours.port, "/resources/files/file.bin")
        before = reset_peak(ours.pid)
        rows = []
        for name in ("first", "second"):
            seconds, size, digest, etag = fetch(ours.port, "/resources/files/big.bin")
            if size != BIG or etag != f'"sha256:{digest}"':
                raise SystemExit(f"big file: {size} bytes, {digest} under {etag}")
            rows.append(Row(f"{name} read of 1 GiB, hashed on both sides", size / seconds / 1e6, "MB/s"))
        rows.append(Row("memory that they took at most", (peak_kib(ours.pid) - before) / 1024, "MB", most=64))
    return rows
