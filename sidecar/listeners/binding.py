"""Binding the sockets of one listener: its own port, or the next free one of the range."""

from __future__ import annotations

import errno
from itertools import chain
from typing import TYPE_CHECKING

from sidecar.listeners import reasons
from sidecar.web.sockets import BindError, listen

if TYPE_CHECKING:
    import socket
    from collections.abc import Container

    from sidecar.model import Wanted


class UnboundError(Exception):
    """A listener cannot be opened; the text is for the user."""


class Binder:
    """Binds, and counts what is bound. `ports` are first and last of the range, `most` is how many sockets may be.

    A port is found free by binding it, and held from then on: nobody can take it in between.
    """

    def __init__(self, ports: tuple[int, int], most: int) -> None:
        self.ports = ports
        self._most = most
        self._taken: set[int] = set()
        self._sockets = 0
        self._next = ports[0]
        self._full = False

    def look_again(self) -> None:
        """Take no earlier failure for granted: somebody else may have freed a port."""
        self._full = False

    def has(self, port: int) -> bool:
        """Tell whether a port is bound by one of its own."""
        return port in self._taken

    def bind(self, wanted: Wanted, reserved: Container[int]) -> list[socket.socket]:
        """Return the listening sockets of a wish, on all its hosts; a free choice takes no `reserved` port.

        Raises UnboundError.
        """
        hosts = wanted.capsule.settings.hosts
        if self._sockets + len(hosts) > self._most:
            raise UnboundError(reasons.over_budget(self._most))
        try:
            sockets = listen(hosts, wanted.port) if wanted.port else self._any(wanted, reserved)
        except BindError as error:
            raise UnboundError(reasons.bind_failed(wanted, error)) from None
        self._taken.add(sockets[0].getsockname()[1])
        self._sockets += len(sockets)
        return sockets

    def give_back(self, port: int, sockets: int) -> None:
        """Take note that so many sockets on a port were closed."""
        self._taken.discard(port)
        self._sockets -= sockets

    def _any(self, wanted: Wanted, reserved: Container[int]) -> list[socket.socket]:
        """Bind to the next free port, counted on from the last one chosen."""
        first, last = self.ports
        if not self._full:
            start = self._next if first <= self._next <= last else first
            for port in chain(range(start, last + 1), range(first, start)):
                if port in self._taken or port in reserved:
                    continue
                try:
                    sockets = listen(wanted.capsule.settings.hosts, port)
                except BindError as error:
                    if error.errno == errno.EADDRINUSE:
                        continue
                    raise
                self._next = port + 1
                return sockets
            self._full = True
        raise UnboundError(reasons.exhausted(first, last))
