"""Ending listeners: nobody new, then a last word on every stream, then what still runs, then the scissors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sidecar.web.server import CUT

if TYPE_CHECKING:
    from collections.abc import Collection

    from sidecar.listeners.listener import Listener


async def drain(listeners: Collection[Listener], *, budget: float, cut: float = CUT) -> None:
    """End listeners and all their connections, within `budget` seconds altogether.

    Streams end with their closing frame, requests with their answer; clients that do not read are cut off after
    `cut` seconds.
    """
    servers = [server for listener in listeners for server in listener.servers]
    for server in servers:
        server.stop_accepting()
    for listener in listeners:
        listener.endpoint.end_streams()
    async with asyncio.TaskGroup() as group:
        for server in servers:
            if server.busy:
                group.create_task(server.drain(budget=budget, cut=cut), name=f"drain {server.name}")
