"""What can go wrong between here and a door elsewhere; the texts are shown to callers."""

from __future__ import annotations

import os
import socket
from typing import Final

from sidecar.errors import visible

LONGEST: Final = 300


class TroubleError(Exception):
    """Something is wrong with the other side. The text says what and where."""


class AwayError(TroubleError):
    """It may pass: no connection, a broken one, silence, an overloaded server.

    `sent` says whether the request may have been read there.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class BusyError(AwayError):
    """The other side has no room for the task now."""

    def __init__(self, message: str) -> None:
        super().__init__(message, sent=False)


class WrongError(TroubleError):
    """It will not pass by itself: no such protocol, refused credentials, nonsense."""


class GoneError(TroubleError):
    """The other side does not know the task any more."""


def shown(text: str) -> str:
    """Return foreign text as it may stand in a message: bounded, control characters visible."""
    cut = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    return visible(cut)


def reason_of(error: BaseException) -> str:
    """Return why a connection failed, in few words and without an address."""
    os_error = getattr(error, "os_error", error)
    if isinstance(os_error, socket.gaierror):
        return "its name is not known"
    if isinstance(os_error, OSError) and os_error.strerror and os_error.errno:
        return os.strerror(os_error.errno).lower()
    return "it was closed"
