"""Binding: all addresses of a listener or none, ready to accept, with errors that name the address; and its end."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

BACKLOG: Final = 256
ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""What is said of an address that the machine has not, such as `::1` where IPv6 is off."""


class BindError(Exception):
    """An address could not be listened on. `errno` and `strerror` are the system's, `host` and `port` the address."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        super().__init__(f"{host}:{port}: {error.strerror or error}")
        self.host = host
        self.port = port
        self.errno = error.errno or 0
        self.strerror = error.strerror or str(error)


def listen(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Bind and listen on one port of every host: an address, or a name for all its addresses that this machine has.

    Takes port 0: the first address gets any port, the others the same one. A port in TIME_WAIT is taken, a port that
    another program listens on is not. IPv6 sockets take IPv6 only, so that `0.0.0.0` and `::` go together.
    A name is looked up at once, so it should be one that the machine itself knows.
    Raises BindError, with nothing left open.
    """
    bound: dict[str, socket.socket] = {}
    try:
        for host in hosts:
            _listen_on(host, port, bound)
    except BindError:
        for sock in bound.values():
            sock.close()
        raise
    return list(bound.values())


def listen_no_more(listening: asyncio.Server) -> None:
    """Listen no more, at once; the port can be bound again.

    A connection may have been accepted just now, and asyncio makes its transport in the next turn of the loop, of a
    server that is not closed: of any other it would keep the connection without ever looking at it.
    """
    loop = listening.get_loop()
    for sock in listening.sockets:
        loop.remove_reader(sock.fileno())
        sock.shutdown(socket.SHUT_RDWR)
    loop.call_soon(loop.call_soon, listening.close)


def _listen_on(host: str, port: int, bound: dict[str, socket.socket]) -> None:
    """Add the sockets of one host to those that are bound already, by address."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise BindError(host, port, error) from error
    addresses = {str(address[0]): (family, address[2:]) for family, _, _, _, address in found}
    absent: OSError | None = None
    for address, (family, rest) in addresses.items():
        if address in bound:
            continue
        at = port or (next(iter(bound.values())).getsockname()[1] if bound else 0)
        try:
            bound[address] = _listening(family, (address, at, *rest))
        except OSError as error:
            if error.errno not in ABSENT:
                raise BindError(host, at, error) from error
            absent = error
    if absent is not None and not addresses.keys() & bound.keys():
        raise BindError(host, port, absent) from absent


def _listening(family: int, address: tuple[Any, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
