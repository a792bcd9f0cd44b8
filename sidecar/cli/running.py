"""Finding the running sidecar through its state directory, and talking to its desk. Standard library only."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from sidecar import state
from sidecar.errors import SidecarError

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT: Final = 10.0
STREAM_TIMEOUT: Final = 120.0
RECONNECTS: Final = 5
RECONNECT_PAUSE: Final = 1.0
"""How often a broken stream is taken up again, and the seconds before each attempt."""


class AwayError(SidecarError):
    """The desk cannot be reached, or fell silent; it may be back later."""


@dataclass(frozen=True, slots=True)
class Running:
    """Where the running sidecar is: its state directory and the address of its desk.

    `fingerprint` is the SHA-256 of the one certificate that the desk may show, in hex.
    """

    state: str
    desk_url: str
    fingerprint: str | None = None

    @classmethod
    def again(cls, before: Running) -> Running:
        """Find it anew in the same state directory; it may have restarted meanwhile."""
        run = state.read_run(before.state)
        return before if run is None else cls(before.state, run.desk_url, run.desk_fingerprint)

    @classmethod
    def find(cls, flag: str | None, configured: str | None = None) -> Running:
        """Find it by `run.json` in the state directory; raise SidecarError when none runs there."""
        directory = state.default_state_dir(os.environ, flag=flag, configured=configured)
        run = state.read_run(directory)
        if run is None:
            raise SidecarError(
                f"no sidecar is running on the state in {directory} (other state: --state DIR)"
            )
        return cls(str(directory), run.desk_url, run.desk_fingerprint)


@dataclass(frozen=True, slots=True)
class DeskAnswer:
    """What the desk answered. `last_event_id` is the frame behind which the outcome of a message comes."""

    status: int
    body: bytes
    last_event_id: str | None = None

    def document(self) -> Any:
        """Return the JSON of a 200; raise SidecarError with the desk's own words otherwise."""
        document = json.loads(self.body)
        if self.status != HTTPStatus.OK:
            raise SidecarError(f"the desk refused: {document.get('message', self.status)}")
        return document


@dataclass(frozen=True, slots=True)
class Event:
    """One frame of a stream: its id (None where it has no number), its kind, and its data as it came."""

    id: str | None
    kind: str
    json: str

    @property
    def data(self) -> dict[str, Any]:
        """The data as a document."""
        document: dict[str, Any] = json.loads(self.json)
        return document


def call(
    running: Running,
    method: str,
    path: str,
    *,
    token: bool = True,
    body: dict[str, Any] | None = None,
    timeout: float = TIMEOUT,
) -> DeskAnswer:
    """Ask the desk, with the admin token unless told otherwise; raise SidecarError when it cannot be reached.

    `timeout` are the seconds for which it may be silent, the connecting included.
    """
    with _asked(running, method, path, token=token, body=body, timeout=timeout) as response:
        return DeskAnswer(response.status, response.read(), response.headers.get("Last-Event-ID"))


def events(running: Running, path: str, after: str | None = None) -> Iterator[Event]:
    """Follow a stream of the desk to its end, from behind a frame, taking it up again where the connection broke.

    A silent stream is not a dead one: the desk sends comments.
    """
    last = after
    for attempt in range(RECONNECTS + 1):
        try:
            for event in _stream(running, path, last):
                last = event.id or last
                if event.kind != "capsule-closed":
                    yield event
        except SidecarError:
            if attempt == RECONNECTS:
                raise
        time.sleep(RECONNECT_PAUSE)
        running = Running.again(running)


def _stream(running: Running, path: str, last: str | None) -> Iterator[Event]:
    headers = {"Last-Event-ID": last} if last is not None else {}
    with _asked(running, "GET", path, headers=headers, timeout=STREAM_TIMEOUT) as response:
        if response.status != HTTPStatus.OK:
            DeskAnswer(response.status, response.read()).document()
        fields: dict[str, str] = {}
        for line in response:
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(":")
                fields[name] = value.removeprefix(" ")
            elif "event" in fields:
                yield Event(fields.get("id"), fields["event"], fields.get("data", "{}"))
                fields = {}
            else:
                fields = {}


@contextmanager
def _asked(
    running: Running,
    method: str,
    path: str,
    *,
    token: bool = True,
    body: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> Iterator[http.client.HTTPResponse]:
    address = urlsplit(running.desk_url)
    fields = {"Accept": "application/json", **(headers or {})}
    if token:
        fields["Authorization"] = f"Bearer {state.read_admin_token(running.state)}"
    if body is not None:
        fields["Content-Type"] = "application/json"
    connection = _connection(address.hostname or "", address.port, timeout, running.fingerprint)
    until = time.monotonic() + timeout
    try:
        connection.connect()
        connection.sock.settimeout(max(0.1, until - time.monotonic()))
        connection.request(method, path, None if body is None else json.dumps(body), fields)
        with connection.getresponse() as response:
            yield response
    except TimeoutError as error:
        raise AwayError(
            f"the desk at {running.desk_url} does not answer: nothing came for {timeout:g} s"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise AwayError(
            f"the desk at {running.desk_url} does not answer: {str(error) or 'connection closed'}"
        ) from error
    finally:
        connection.close()


def _connection(
    host: str, port: int | None, timeout: float, fingerprint: str | None
) -> http.client.HTTPConnection:
    if fingerprint is None:
        return http.client.HTTPConnection(host, port, timeout=timeout)
    return _Pinned(host, port, timeout, fingerprint)


class _Pinned(http.client.HTTPConnection):
    """A connection over TLS to who shows one certificate, whatever name or age it has, and shows it alone."""

    def __init__(self, host: str, port: int | None, timeout: float, fingerprint: str) -> None:
        super().__init__(host, port, timeout=timeout)
        self._fingerprint = fingerprint

    def connect(self) -> None:
        """Connect. Raises OSError where another certificate is shown."""
        from hashlib import sha256

        super().connect()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # it is compared instead
        self.sock = secured = context.wrap_socket(self.sock)
        shown = secured.getpeercert(binary_form=True) or b""
        if sha256(shown).hexdigest() != self._fingerprint:
            self.close()
            raise OSError(
                "it shows another certificate than run.json names; try again if it was just renewed"
            )
