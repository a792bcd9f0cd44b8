"""What the log says of capsules that let strangers in: once each, until that changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from sidecar.config.hosts import is_loopback

if TYPE_CHECKING:
    from sidecar.auth.access import Access
    from sidecar.model import Capsule

log = structlog.get_logger()


class Exposed:
    """Tells of capsules that are open to other hosts, and of doors that are open although there are credentials."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._told: dict[str, tuple[bool, bool]] = {}

    def note(self, capsule: Capsule) -> None:
        """Look at a capsule as it is about to be served."""
        hosts = [host for host in capsule.settings.hosts if not is_loopback(host)]
        wants = self._access.wants(capsule)
        told = bool(hosts) and not wants, wants and not self._access.guards_door(capsule)
        if told == self._told.get(capsule.session_id, (False, False)):
            return
        self._told[capsule.session_id] = told
        if told[0]:
            log.warning(
                "capsule_open_to_others",
                capsule=capsule.id,
                hosts=hosts,
                remedy=f"sidecar keys create {capsule.id}, auth.providers, or listen.host: 127.0.0.1",
            )
        if told[1]:
            log.warning(
                "door_open_beside_credentials",
                capsule=capsule.id,
                remedy=f"capsules.{capsule.id}.door: auto, unless anyone may use POST / and read the files",
            )

    def forget(self, session_id: str) -> None:
        """Forget a session that is served no longer."""
        self._told.pop(session_id, None)
