"""Ports: which one a capsule must have, and which ones a free choice has to leave alone. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, KeysView, Mapping

    from sidecar.config import PortRange
    from sidecar.model import Manifest, Settings

CONFIGURED: Final = "configured"
MANIFEST: Final = "manifest"
REMEMBERED: Final = "remembered"


@dataclass(frozen=True, slots=True)
class Due:
    """The port that a capsule must have, and where that is said: `configured`, `manifest` or `remembered`."""

    port: int
    source: str


def fixed(settings: Settings, manifest: Manifest) -> Due | None:
    """Return the port that the configuration, or with `listen.internal_port` the manifest, gives; 0 means any."""
    if settings.port:
        return Due(settings.port, CONFIGURED)
    if settings.internal_port and manifest.internal_port:
        return Due(manifest.internal_port, MANIFEST)
    return None


def remembered(port: int | None, allowed: PortRange, fixed_ones: Container[int]) -> Due | None:
    """Return the remembered port where it still may be used; None leaves the choice to whoever binds.

    It may not when the range no longer holds it, or when another capsule has been given it by configuration or by
    manifest. It stays in memory until another one was bound, so a mistake that is mended moves nobody.
    """
    if port is None or port not in allowed or port in fixed_ones:
        return None
    return Due(port, REMEMBERED)


class AnyOf(Collection[int]):
    """Several collections of ports as one, which is no copy: what they hold later is in it too."""

    __slots__ = ("_parts",)

    def __init__(self, *parts: Collection[int]) -> None:
        self._parts = parts

    def __contains__(self, port: object) -> bool:
        return any(port in part for part in self._parts)

    def __iter__(self) -> Iterator[int]:
        return iter(set().union(*self._parts))

    def __len__(self) -> int:
        return len(set().union(*self._parts))


class PortMemory:
    """Which directory was bound to which port last, in both directions: a port belongs to one directory."""

    def __init__(self, rows: Mapping[str, int]) -> None:
        self._port_of: dict[str, int] = {}
        self._directory_of: dict[int, str] = {}
        for directory, port in rows.items():
            self.remember(directory, port)

    def port_of(self, directory: str) -> int | None:
        """Return the port that the directory was bound to last."""
        return self._port_of.get(directory)

    def remember(self, directory: str, port: int) -> dict[str, int | None]:
        """Take note of a successful bind; return what that changes: which directories have which port now.

        Another directory loses the port.
        """
        if self._port_of.get(directory) == port:
            return {}
        changes: dict[str, int | None] = {directory: port}
        if (loser := self._directory_of.get(port)) is not None:
            self.forget(loser)
            changes[loser] = None
        self.forget(directory)
        self._port_of[directory] = port
        self._directory_of[port] = directory
        return changes

    def forget(self, directory: str) -> None:
        """Drop what is known of a directory."""
        port = self._port_of.pop(directory, None)
        if port is not None:
            del self._directory_of[port]

    @property
    def ports(self) -> KeysView[int]:
        """All remembered ports, those of capsules that are gone included; a live view."""
        return self._directory_of.keys()
