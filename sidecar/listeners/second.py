"""The second ports of listeners, which serve A2A at their root: opened beside the first, and tried again where busy."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from sidecar.listeners import reasons
from sidecar.listeners.binding import UnboundError
from sidecar.listeners.listener import Second

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable, Mapping

    from sidecar.listeners.binding import Binder
    from sidecar.listeners.listener import Listener
    from sidecar.web.server import HttpServer, Policy

LAST_PAUSE: Final = 4.0
"""Seconds between two attempts, once many have failed."""

log = structlog.get_logger()


class Facts(Protocol):
    """Who is told what is wrong with a capsule that is served all the same, by directory."""

    def troubled(self, directory: str, reason: str | None) -> None:
        """Take note of what is wrong, None where nothing is any more."""


class Owner(Protocol):
    """Who owns the tasks."""

    def __call__(self, work: Coroutine[None, None, None], name: str) -> None:
        """Have this done."""


@dataclass(slots=True)
class _Waiting:
    """A port that could not be opened, and when it is tried again (loop time)."""

    port: int
    reason: str
    pause: float
    due: float


class SecondPorts:
    """Makes the second ports equal to what the open listeners want. Called under the lock of their owner.

    `leaving` are the servers of ports that are wanted no longer, while their connections end.
    """

    def __init__(
        self, *, binder: Binder, facts: Facts, policy: Policy, own: Owner, first_pause: float
    ) -> None:
        self.leaving: set[HttpServer] = set()
        self._binder = binder
        self._facts = facts
        self._policy = policy
        self._own = own
        self._first_pause = first_pause
        self._waiting: dict[str, _Waiting] = {}

    def dues(self) -> Collection[float]:
        """Return when something is to be tried again (loop time)."""
        return [waits.due for waits in self._waiting.values()]

    async def reconcile(
        self, listeners: Mapping[str, Listener], directories: Iterable[str], *, budget: float
    ) -> None:
        """Close what the open listeners of these directories do not want any more, then open what is missing.

        What is closed has `budget` seconds to end in.
        """
        missing = {}
        for directory in directories:
            if (listener := listeners.get(directory)) is None:
                self._waiting.pop(directory, None)
                continue
            settings = listener.endpoint.capsule.settings
            second = listener.second
            if second is not None and (second.port, second.hosts) != (settings.a2a_port, settings.hosts):
                self._leave(listener, second, budget)
            if settings.a2a_port is not None and listener.second is None:
                missing[directory] = settings.a2a_port
            elif self._waiting.pop(directory, None) is not None:
                self._facts.troubled(directory, None)
        for directory, port in missing.items():
            waits = self._waiting.get(directory)
            if waits is not None and waits.port == port:
                self._facts.troubled(directory, waits.reason)
            else:
                await self._try(directory, listeners, port, self._first_pause)

    async def retry(self, listeners: Mapping[str, Listener]) -> int:
        """Try what is due, and return how many that were."""
        now = asyncio.get_running_loop().time()
        due = [(d, w) for d, w in self._waiting.items() if w.due <= now and d in listeners]
        for directory, waits in due:
            await self._try(directory, listeners, waits.port, min(waits.pause * 2, LAST_PAUSE))
        return len(due)

    def forget(self, directory: str, listener: Listener) -> None:
        """Take note that a listener is closed as a whole."""
        if self._waiting:
            self._waiting.pop(directory, None)
        if listener.second is not None:
            self._binder.give_back(listener.second.port, listener.second.sockets)

    def cut(self) -> None:
        """End the connections of ports that are wanted no longer now."""
        for server in self.leaving:
            server.cut()

    def _leave(self, listener: Listener, second: Second, budget: float) -> None:
        listener.second = None
        self._binder.give_back(second.port, second.sockets)
        second.server.stop_accepting()
        self.leaving.add(second.server)
        self._own(self._drain(second.server, budget), f"close the second port {second.port}")
        log.info("second_port_closed", capsule=second.server.name, port=second.port)

    async def _drain(self, server: HttpServer, budget: float) -> None:
        await server.drain(budget=budget)
        self.leaving.discard(server)

    async def _try(self, directory: str, listeners: Mapping[str, Listener], port: int, pause: float) -> None:
        listener = listeners[directory]
        capsule = listener.endpoint.capsule
        wanted = replace(listener.wanted, port=port, port_from=reasons.SECOND)
        try:
            for other in listeners.values():
                if port == other.port or (other.second is not None and port == other.second.port):
                    raise UnboundError(reasons.held(wanted, other.endpoint.capsule))  # noqa: TRY301 - as a bind says it
            sockets = self._binder.bind(wanted, frozenset())
        except UnboundError as error:
            reason = str(error)
            due = asyncio.get_running_loop().time() + pause
            before = self._waiting.get(directory)
            self._waiting[directory] = _Waiting(port, reason, pause, due)
            if before is None or before.reason != reason:
                log.warning("second_port_unbound", capsule=capsule.id, port=port, reason=reason)
            self._facts.troubled(directory, reason)
            return
        second = Second(listener, capsule, port, len(sockets), policy=self._policy)
        await second.server.start(sockets)
        listener.second = second
        if self._waiting.pop(directory, None) is not None:
            self._facts.troubled(directory, None)
        log.info("second_port_bound", capsule=capsule.id, port=port)
