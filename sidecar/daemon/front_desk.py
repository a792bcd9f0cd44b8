"""The desk's listener: opened once, and again where a reload moves it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sidecar.config.hosts import public_host, public_origin
from sidecar.desk.access import Access
from sidecar.desk.endpoint import Desk
from sidecar.errors import SidecarError
from sidecar.web.forwarded import Proxies
from sidecar.web.guards import Guards, Rules
from sidecar.web.server import HttpLimits, HttpServer, Policy
from sidecar.web.sockets import BindError, listen

if TYPE_CHECKING:
    from sidecar.config import Config
    from sidecar.desk.endpoint import Parts

WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound


class DeskPlaceError(SidecarError):
    """The desk cannot listen where the configuration says."""


class FrontDesk:
    """Owns the desk and its listener. `host`, `port` and `url` are where it is now."""

    def __init__(self, config: Config, parts: Parts, *, token: str) -> None:
        self._config = config
        self._token = token
        self._policy = Policy(
            guards=_guards(config),
            limits=limits_of(config),
            proxies=Proxies(config.listen.trusted_proxies),
            context=config.pairs.context(config.desk.tls),
        )
        self._desk = Desk(
            parts,
            access=self._access(config),
            worker_access=self._worker_access(config),
            open_metrics=config.desk.metrics == "open",
            url=lambda: self._config.desk.public_url or self.url,
        )
        self._server: HttpServer | None = None
        self._leaving: dict[HttpServer, asyncio.Task[None]] = {}
        self.host = config.desk.host
        self.port = 0

    @property
    def url(self) -> str:
        """The base URL at which this machine reaches the desk."""
        host = WILDCARDS.get(self.host, self.host)
        scheme = "http" if self._config.desk.tls is None else "https"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    @property
    def fingerprint(self) -> str | None:
        """The SHA-256 of the certificate that it shows, in hex; None where it speaks plain HTTP."""
        pair = self._config.pairs.of(self._config.desk.tls)
        return None if pair is None else pair.fingerprint

    def link(self) -> str:
        """Return a fresh link that opens the page: once, for a minute."""
        return self._desk.link()

    async def open(self) -> None:
        """Listen. Raises DeskPlaceError with reason and remedy."""
        await self._listen(self._config)

    async def reconfigure(self, config: Config) -> None:
        """Take over another configuration; move where it says so.

        Raises DeskPlaceError, with everything as it was, when the new place cannot be listened on.
        """
        before = self._config
        if (config.desk.host, config.desk.port) != (before.desk.host, before.desk.port):
            await self._move(config)
        self._config = config
        self._policy.guards = _guards(config)
        self._policy.limits = limits_of(config)
        self._policy.proxies = Proxies(config.listen.trusted_proxies)
        self._policy.context = config.pairs.context(config.desk.tls)
        self._desk.reconfigure(
            access=self._access(config),
            worker_access=self._worker_access(config),
            open_metrics=config.desk.metrics == "open",
        )

    def end_streams(self) -> None:
        """Have every stream of the desk end with its closing frame."""
        self._desk.end_streams()

    async def aclose(self, budget: float) -> None:
        """End the listener and its connections within so many seconds, then the desk."""
        self.end_streams()
        left = tuple(self._leaving)
        for task in tuple(self._leaving.values()):
            task.cancel()
            await asyncio.wait((task,))
        async with asyncio.TaskGroup() as group:
            for server in (*left, *((self._server,) if self._server is not None else ())):
                group.create_task(server.drain(budget=budget), name="drain the desk")
        self._desk.close()

    async def _move(self, config: Config) -> None:
        old, host, port = self._server, self.host, self.port
        try:
            await self._listen(config)
        except DeskPlaceError:
            if old is None or config.desk.port != port:
                raise
            old.stop_accepting()  # the new address may hold the old one, as 0.0.0.0 does
            try:
                await self._listen(config)
            except DeskPlaceError:
                with suppress(BindError):
                    await old.start(listen([host], port))
                raise
        if old is not None:
            self._leave(old, config.limits.drain)

    def _leave(self, old: HttpServer, budget: float) -> None:
        """Let the old place's connections end on their own: one of them may have asked for the move."""
        old.finish()
        work = old.drain(budget=budget)
        task = asyncio.get_running_loop().create_task(work, name="leave the old place of the desk")
        self._leaving[old] = task
        task.add_done_callback(lambda _: self._leaving.pop(old))

    async def _listen(self, config: Config) -> None:
        host = config.desk.host
        try:
            sockets = listen([host], config.desk.port)
        except BindError as error:
            raise DeskPlaceError(
                f"the desk cannot listen on {host} port {config.desk.port}: {error.strerror}; "
                "set desk.host and desk.port to an address of this machine and a free port"
            ) from None
        server = HttpServer(self._desk.handle, name="desk", policy=self._policy)
        await server.start(sockets)
        self._server, self.host, self.port = server, host, sockets[0].getsockname()[1]

    def _access(self, config: Config) -> Access:
        return Access(self._token if config.desk.auth == "token" else None)

    def _worker_access(self, config: Config) -> Access:
        secret = config.auth.worker_token
        worker = secret.reveal() if secret is not None else None
        return Access(self._token if config.desk.auth == "token" else None, worker=worker)


def _guards(config: Config) -> Guards:
    desk = config.desk
    public = public_host(desk.public_url) if desk.public_url is not None else None
    origin = public_origin(desk.public_url) if desk.public_url is not None else None
    return Guards(
        Rules(
            "desk",
            hosts=desk.allowed_hosts,
            origins=(*config.listen.allowed_origins, *((origin,) if origin is not None else ())),
            advertised=(public,) if public is not None else (),
        )
    )


def limits_of(config: Config) -> HttpLimits:
    """Return the limits that all listeners share."""
    limits = config.limits
    return HttpLimits(
        idle=limits.idle, body=limits.body, body_timeout=limits.body_timeout, connections=limits.connections
    )
