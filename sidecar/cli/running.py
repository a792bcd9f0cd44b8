"""Finding the running sidecar through its state directory, and talking to its desk. Standard library only."""

from __future__ import annotations

import http.client
import json
import os
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from sidecar import state
from sidecar.errors import SidecarError

TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Running:
    """Where the running sidecar is: its state directory and the address of its desk."""

    state: str
    desk_url: str

    @classmethod
    def find(cls, flag: str | None, configured: str | None = None) -> Running:
        """Find it by `run.json` in the state directory; raise SidecarError when none runs there."""
        directory = state.default_state_dir(os.environ, flag=flag, configured=configured)
        run = state.read_run(directory)
        if run is None:
            raise SidecarError(
                f"no sidecar is running on the state in {directory} (other state: --state DIR)"
            )
        return cls(str(directory), run.desk_url)


@dataclass(frozen=True, slots=True)
class DeskAnswer:
    """What the desk answered."""

    status: int
    body: bytes

    def document(self) -> Any:
        """Return the JSON of a 200; raise SidecarError with the desk's own words otherwise."""
        document = json.loads(self.body)
        if self.status != HTTPStatus.OK:
            raise SidecarError(f"the desk refused: {document.get('message', self.status)}")
        return document


def call(running: Running, method: str, path: str, *, token: bool = True) -> DeskAnswer:
    """Ask the desk, with the admin token unless told otherwise; raise SidecarError when it cannot be reached."""
    address = urlsplit(running.desk_url)
    headers = {"Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {state.read_admin_token(running.state)}"
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=TIMEOUT)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return DeskAnswer(response.status, response.read())
    except (OSError, http.client.HTTPException) as error:
        raise SidecarError(f"the desk at {running.desk_url} does not answer: {error}") from error
    finally:
        connection.close()
