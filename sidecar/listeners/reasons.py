"""Why a capsule has no port, in words: what, where, and what to do. Pure."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sidecar.listeners.plan import Clash
    from sidecar.model import Capsule, Wanted
    from sidecar.web.sockets import BindError

PRIVILEGED: Final = 1024
SECOND: Final = "second"
"""Where the port of a wish comes from that is the second one of its capsule."""


def another_port(wanted: Wanted) -> str:
    """Say how to give a capsule another port."""
    key = f"capsules.{wanted.capsule.id}.port"
    if wanted.port_from == "configured":
        return f"change {key} in the configuration"
    if wanted.port_from == SECOND:
        return f"change capsules.{wanted.capsule.id}.a2a_port in the configuration"
    if wanted.port_from == "manifest":
        return f"change network.internal_port in its manifest, or set {key} in the configuration"
    return f"set {key} in the configuration"


def clash(found: Clash) -> str:
    """Say that two capsules want one port."""
    other = found.other
    return (
        f"port {found.wanted.port} is also wanted by the capsule {other.id} ({other.directory}), which has it; "
        f"{another_port(found.wanted)}"
    )


def held(wanted: Wanted, other: Capsule) -> str:
    """Say that a port is one on which another capsule, or this one, is served already."""
    return f"port {wanted.port} is that of the capsule {other.id} ({other.directory}); {another_port(wanted)}"


def bind_failed(wanted: Wanted, error: BindError) -> str:
    """Say why a port could not be listened on."""
    where = f"port {error.port} on {error.host}"
    if error.errno == errno.EADDRINUSE:
        was = ", its port before," if wanted.port_from == "remembered" else ""
        return (
            f"{where}{was} is in use by another program; stop that, and the capsule gets it, "
            f"or {another_port(wanted)}"
        )
    if error.errno == errno.EACCES and error.port < PRIVILEGED:
        return (
            f"{where} is only for privileged programs; {another_port(wanted)} to one from {PRIVILEGED} up, "
            "or give the sidecar CAP_NET_BIND_SERVICE"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where}: this machine has no such address; correct listen.host, or bring the interface up"
    if error.errno < 0:
        return f"{where}: the name does not resolve ({error.strerror}); correct listen.host"
    return f"{where} cannot be listened on: {error.strerror}; correct listen.host, or {another_port(wanted)}"


def exhausted(first: int, last: int) -> str:
    """Say that no port is left."""
    return f"no port of {first}-{last} is free; widen listen.ports in the configuration"


def over_budget(limit: int) -> str:
    """Say that there are no descriptors for another listener."""
    return (
        f"all {limit} listeners that the limit on open files leaves room for are open; "
        "raise it (ulimit -n, LimitNOFILE=) and restart"
    )


FAILED: Final = "it could not be opened; the log says why (capsule_failed)"
