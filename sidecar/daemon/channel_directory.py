"""Where the channels of the Everruns view lead: to what is served now, or to what is known and is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.model import CapsuleState

if TYPE_CHECKING:
    from sidecar.config import Config
    from sidecar.daemon.fronts import Front, Fronts
    from sidecar.model import RegistryView


class ChannelDirectory:
    """Finds capsules by channel id: the one that the configuration gives them, else their own id. One event loop."""

    def __init__(self, fronts: Fronts, view: RegistryView, config: Config) -> None:
        self._fronts = fronts
        self._view = view
        self._config = config

    def reconfigure(self, config: Config) -> None:
        """Take over another configuration."""
        self._config = config

    def channel(self, channel_id: str) -> Front | None:
        """Return what is served at a channel now."""
        front = self._fronts.of(self._config.channels.get(channel_id, channel_id))
        if front is None:
            return None
        own = front.capsule.settings.channel_id
        return front if (own or front.capsule.id) == channel_id else None

    def knows_channel(self, channel_id: str) -> bool:
        """Whether a channel leads to a capsule, served or not."""
        capsule_id = self._config.channels.get(channel_id, channel_id)
        row = self._view.capsule(capsule_id)
        if row is None:
            return False
        own = self._config.settings_for(row.id, row.path).channel_id
        return row.state is not CapsuleState.ARTIFACT and (own or row.id) == channel_id
