"""What hostile days are made of, and the neighbours that must not notice them."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.spawned import Spawned

CARD = "/.well-known/agent-card.json"
WATCH = b'{"jsonrpc":"2.0","id":1,"method":"stream/watch"}'
PATIENCE = 10.0
"""Seconds for which a neighbour waits for one answer: a busy machine is no hostility."""

SLACK = 3
"""Descriptors that may have come since: the neighbour's connection, one to the desk, and a database's."""


class Neighbour:
    """A client of a capsule that has nothing to do with it all: asks for the card again and again, and holds a stream."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answers = 0
        self.troubles: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="neighbour")
        self._stream = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(WATCH)}\r\n\r\n"
        self._stream.sendall(head.encode() + WATCH)
        self._seen = b""
        while b"connection-ack" not in self._seen:
            piece = self._stream.recv(65536)
            assert piece, self._seen
            self._seen += piece

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        while not self._ended.wait(0.01):
            try:
                connection.request("GET", CARD)
                answer = connection.getresponse()
                json.loads(answer.read())
                if answer.status == http.HTTPStatus.OK:
                    self.answers += 1
                else:
                    self.troubles.append(f"status {answer.status}")
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.troubles.append(repr(error))
                connection.close()
        connection.close()

    def end(self) -> None:
        """Stop asking, and hold what was noticed against the sidecar."""
        self._ended.set()
        self._thread.join()
        self._stream.setblocking(False)
        try:
            while piece := self._stream.recv(65536):
                self._seen += piece
            self.troubles.append("its stream ended")
        except BlockingIOError:
            pass
        finally:
            self._stream.close()
        assert b"capsule-closed" not in self._seen
        assert self.troubles == []
        assert self.answers > 0


@contextmanager
def undisturbed(sidecar: Spawned, capsule_id: str = "calm") -> Iterator[Neighbour]:
    """Have a neighbour while the block runs; it must get each answer, keep its stream, and the desk must answer too."""
    neighbour = Neighbour(sidecar.port(capsule_id))
    neighbour.start()
    try:
        yield neighbour
        count = neighbour.answers
        until_sync(lambda: neighbour.answers > count or neighbour.troubles, within=PATIENCE)
        assert sidecar.api("/healthz")
    finally:
        neighbour.end()


def descriptors(pid: int) -> int:
    """Count the open descriptors of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def until_back(pid: int, before: int, *, within: float = 20.0) -> None:
    """Wait until a process has no more descriptors open than before, but for a connection or two of who asks."""
    try:
        until_sync(lambda: descriptors(pid) <= before + SLACK, within=within)
    except AssertionError:
        held = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        raise AssertionError(f"{before} descriptors before, now {sorted(held)}") from None


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def troubles(sidecar: Spawned) -> list[dict[str, object]]:
    """Return what the sidecar logged as an error: faults of its own, which no hostility may bring about."""
    return [record for record in list(sidecar.log) if record.get("level") in ("error", "critical")]
