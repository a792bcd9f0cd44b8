"""Binding: all addresses of a listener or none, ready to accept, with errors that name the address."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

BACKLOG: Final = 256


class BindError(Exception):
    """An address could not be listened on. `errno` and `strerror` are the system's, `host` and `port` the address."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        super().__init__(f"{host}:{port}: {error.strerror or error}")
        self.host = host
        self.port = port
        self.errno = error.errno or 0
        self.strerror = error.strerror or str(error)


def listen(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Bind and listen on one port of every host (numeric addresses, or names that resolve at once).

    Takes port 0: the first host gets any port, the others the same one. A port in TIME_WAIT is taken, a port that
    another program listens on is not. IPv6 sockets take IPv6 only, so that `0.0.0.0` and `::` go together.
    Raises BindError, with nothing left open.
    """
    bound: list[socket.socket] = []
    try:
        for host in dict.fromkeys(hosts):
            sock = _one(host, port)
            bound.append(sock)
            port = sock.getsockname()[1]
    except BaseException:
        for sock in bound:
            sock.close()
        raise
    return bound


def _one(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise BindError(host, port, error) from error
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise BindError(host, port, error) from error
    return sock
