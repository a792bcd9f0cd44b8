"""What a registry shows to the desk, as plain values that a test sets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sidecar.model import AuthSettings, ConfigStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecar.model import Capsule, CapsuleStatus, RootStatus


@dataclass
class Shown:
    """A `RegistryView` whose answers are its fields."""

    rows: Sequence[CapsuleStatus] = ()
    places: Sequence[RootStatus] = ()
    settings: ConfigStatus = field(default_factory=lambda: ConfigStatus(None, 1700000000.0))
    is_ready: bool = True
    counts: Mapping[str, Any] = field(default_factory=dict)

    def capsules(self) -> Sequence[CapsuleStatus]:
        """Return the rows."""
        return self.rows

    def capsule(self, capsule_id: str) -> CapsuleStatus | None:
        """Return the row with this id."""
        return next((row for row in self.rows if row.id == capsule_id), None)

    def roots(self) -> Sequence[RootStatus]:
        """Return the roots."""
        return self.places

    def config(self) -> ConfigStatus:
        """Return the configuration."""
        return self.settings

    def ready(self) -> bool:
        """Return whether it is ready."""
        return self.is_ready

    def detail(self) -> Mapping[str, Any]:
        """Return the counts."""
        return self.counts


class NoAgents:
    """A directory of agents in which there are none."""

    auth = AuthSettings()
    workspaces = ("system",)

    def agent(self, _agent_id: str) -> None:
        """Return that there is no such agent."""

    def now(self, _agent_id: str) -> None:
        """Return that there is no such agent."""

    def coded(self, _code: str, _workspace: str) -> None:
        """Return that there is no such agent."""

    def served(self) -> Sequence[Capsule]:
        """Return that nothing is served."""
        return ()


class NoChannels:
    """A directory of channels that leads nowhere."""

    def channel(self, _channel_id: str) -> None:
        """Return that nothing is served."""

    def knows_channel(self, _channel_id: str) -> bool:
        """Return that there is no such channel."""
        return False
