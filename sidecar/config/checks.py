"""What keys say about each other: contradictions (errors), and what is legal but likely not meant (warnings)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from sidecar.config.hosts import IN_PUBLIC_URL, WILDCARDS, address_of, is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.config.quantities import PortRange
    from sidecar.config.schema import Keys

CONTRADICTION = "E-CFG-005"
EPHEMERAL = "W-CFG-006"
CROWDED = "W-CFG-007"
REACHABLE = "W-CFG-008"
ONE_PLACE = "W-CFG-017"
NOT_INSTALLED = "E-CFG-020"
TRACING = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter")


class Finding(NamedTuple):
    """A finding at a key; codes with `W` are warnings."""

    path: tuple[str | int, ...]
    code: str
    message: str


def findings(keys: Keys, ephemeral: PortRange | None) -> Iterator[Finding]:
    """Yield everything that is odd about keys which are fine one by one.

    `ephemeral` are the ports that the kernel gives to outgoing connections (`net.ipv4.ip_local_port_range`).
    """
    yield from _roots(keys)
    yield from _hosts(keys)
    yield from _ports(keys)
    yield from _channels(keys)
    yield from _codes(keys)
    yield from _public_url(keys)
    if ephemeral is not None:
        yield from _ephemeral(keys, ephemeral)
    yield from _reachable(keys)
    yield from _traces(keys)


def _roots(keys: Keys) -> Iterator[Finding]:
    seen = set()
    for index, root in enumerate(keys.roots):
        if root.path in seen:
            yield Finding(("roots", index, "path"), CONTRADICTION, f"the root {root.path} is listed twice")
        seen.add(root.path)


def _hosts(keys: Keys) -> Iterator[Finding]:
    for wildcard in set(WILDCARDS) & set(keys.listen.hosts):
        for index, host in enumerate(keys.listen.hosts):
            if host != wildcard and _version(host) == _version(wildcard):
                message = f"{wildcard} listens on {host} too; leave one of them out"
                yield Finding(("listen", "host", index), CONTRADICTION, message)


def _ports(keys: Keys) -> Iterator[Finding]:
    desk, listen = keys.desk, keys.listen
    same_host = any(_overlap(desk.host, host) for host in listen.hosts)
    taken = {desk.port: "desk.port"} if desk.port and same_host else {}
    for path, port in _configured(keys):
        other = taken.setdefault(port, ".".join(path))
        if other != ".".join(path):
            yield Finding(path, CONTRADICTION, f"{port} is {other} already")
    if same_host and desk.port in listen.ports:
        message = (
            f"{desk.port} lies within listen.ports ({listen.ports}): a capsule may find it taken, or take it"
        )
        yield Finding(("desk", "port"), CROWDED, message)


def _configured(keys: Keys) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Yield the ports that single capsules are given, with their keys."""
    for capsule_id, own in keys.capsules.items():
        for name, port in (("port", own.port), ("a2a_port", own.a2a_port)):
            if port is not None and not own.disabled:
                yield ("capsules", capsule_id, name), port


def _public_url(keys: Keys) -> Iterator[Finding]:
    url = keys.listen.public_url
    if url is not None and not any(placeholder in url for placeholder in IN_PUBLIC_URL):
        message = (
            f"{url}: the cards of all capsules name this one place; put {{id}} or {{port}} in it, "
            "unless there is one capsule only"
        )
        yield Finding(("listen", "public_url"), ONE_PLACE, message)


def _channels(keys: Keys) -> Iterator[Finding]:
    """Yield the channel ids that lead to two capsules."""
    taken = {name: f"capsules.{name}" for name, own in keys.capsules.items() if own.channel_id is None}
    for name, own in keys.capsules.items():
        if own.channel_id is not None:
            other = taken.setdefault(own.channel_id, f"capsules.{name}.channel_id")
            if other != f"capsules.{name}.channel_id":
                message = f"{own.channel_id} leads to {other} already"
                yield Finding(("capsules", name, "channel_id"), CONTRADICTION, message)


def _codes(keys: Keys) -> Iterator[Finding]:
    """Yield the codes that lead to two capsules of one workspace."""
    taken: dict[tuple[str, str], str] = {}
    for name, own in keys.capsules.items():
        if own.agent_code is not None:
            other = taken.setdefault((own.moi_workspace, own.agent_code), name)
            if other != name:
                message = (
                    f"{own.agent_code} is the code of {other} already, in the workspace {own.moi_workspace}"
                )
                yield Finding(("capsules", name, "agent_code"), CONTRADICTION, message)


def _ephemeral(keys: Keys, ephemeral: PortRange) -> Iterator[Finding]:
    why = f"the kernel gives ports {ephemeral} to outgoing connections (net.ipv4.ip_local_port_range)"
    if keys.listen.ports.overlaps(ephemeral):
        message = f"{keys.listen.ports}: {why}, which may take a capsule's port while it is not bound"
        yield Finding(("listen", "ports"), EPHEMERAL, message)
    for path, port in ((("desk", "port"), keys.desk.port), *_configured(keys)):
        if port in ephemeral:
            yield Finding(path, EPHEMERAL, f"{port}: {why}, which may take it while it is not bound")


def _reachable(keys: Keys) -> Iterator[Finding]:
    if not keys.auth.providers:
        for index, host in enumerate(keys.listen.hosts):
            if not is_loopback(host):
                message = (
                    f"whoever reaches {host} may use the doors and files of capsules that have no credentials: "
                    "give them keys (sidecar keys create), or set auth.providers"
                )
                yield Finding(("listen", "host", index), REACHABLE, message)
        if keys.desk.auth != "none" and not is_loopback(keys.desk.host):
            message = (
                f"whoever reaches {keys.desk.host} may use capsules that have no credentials through the desk"
            )
            yield Finding(("desk", "host"), REACHABLE, message)
    if keys.desk.auth == "none" and not is_loopback(keys.desk.host):
        message = f"whoever reaches {keys.desk.host} may do what is the operator's; set it to token"
        yield Finding(("desk", "auth"), REACHABLE, message)


def _traces(keys: Keys) -> Iterator[Finding]:
    if keys.traces.endpoint is not None and not all(map(_is_installed, TRACING)):
        message = "needs what is not installed: pip install 'capsule-sidecar[otel]'"
        yield Finding(("traces", "endpoint"), NOT_INSTALLED, message)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # nor is the package that it would be in


def _version(host: str) -> int:
    address = address_of(host)
    return 0 if address is None else address.version


def _overlap(one: str, other: str) -> bool:
    """Whether two listeners on these hosts and one port would get into each other's way."""
    if one == other:
        return True
    for wildcard, host in ((one, other), (other, one)):
        if wildcard in WILDCARDS and _version(host) in (0, _version(wildcard)):
            return True
    return is_loopback(one) and is_loopback(other) and 0 in (_version(one), _version(other))
