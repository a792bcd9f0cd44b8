"""What a capsule goes through, from its directory to its sockets: the stages, made of one configuration."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sidecar.auth.access import Access
from sidecar.auth.caller import OPERATOR
from sidecar.auth.fixed import MoiKeys
from sidecar.auth.keys import KeyRing
from sidecar.auth.providers import Providers
from sidecar.config.hosts import public_host, public_origin
from sidecar.daemon.agent_directory import AgentDirectory
from sidecar.daemon.backends import Backends, Makers
from sidecar.daemon.channel_directory import ChannelDirectory
from sidecar.daemon.front_desk import limits_of
from sidecar.daemon.fronts import Fronts
from sidecar.desk.endpoint import Parts
from sidecar.desk.handles import Handles
from sidecar.desk.keys import Keys
from sidecar.desk.looks import Looks
from sidecar.desk.tasks import Tasks
from sidecar.desk.workers import Workers
from sidecar.doors.everruns_log import EverrunsLog
from sidecar.listeners.pool import Pool
from sidecar.manifest.load import load as load_manifest
from sidecar.ops.metrics import Gauges, Metrics
from sidecar.ops.traces import Traces
from sidecar.planes.routes import Planes
from sidecar.planes.switch import PlaneSwitch
from sidecar.registry.registry import Registry
from sidecar.tasks.engines import Engines
from sidecar.watch.source import Source
from sidecar.web.forwarded import Proxies
from sidecar.web.guards import Guards, Rules
from sidecar.web.server import Policy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sidecar.config import Config
    from sidecar.desk.api import ReloadResult
    from sidecar.manifest.load import Loaded
    from sidecar.model import Capsule
    from sidecar.ops.limits import Budget
    from sidecar.state import State
    from sidecar.store import Store


class Stages:
    """directories → `source` → `registry` → `pool` → sockets, and what a capsule's port shows. One event loop.

    It only makes them, and hands them another configuration: the daemon opens, turns and closes them.
    """

    def __init__(
        self,
        config: Config,
        *,
        state: State,
        store: Store,
        environ: Mapping[str, str],
        descriptors: Budget,
        version: str,
    ) -> None:
        self.metrics = Metrics(version)
        self.traces = Traces(version)
        self.traces.reconfigure(config.traces.endpoint, config.traces.percent)
        self._everruns = EverrunsLog(store)
        self.engines = Engines(
            store,
            keep_events=config.tasks.keep_events,
            keep_tasks=config.tasks.keep_tasks,
            on_end=self.metrics.task_ended,
            showings=(self._everruns,),
        )
        self.planes = Planes()
        self.makers = Makers(state.directory / "processes", environ)
        self.backends = Backends(self.makers.make)
        self._ring = KeyRing.load(store)
        self._providers = Providers()
        self.access = Access(self._ring, self._providers, admin_token=state.admin_token)
        self.access.reconfigure(_moi_keys(config))
        self._fronts = Fronts(
            engines=self.engines,
            metrics=self.metrics,
            planes=self.planes,
            backends=self.backends,
            access=self.access,
            everruns=self._everruns,
        )
        self.registry = Registry(
            store,
            config,
            guarded=(str(state.directory),),
            tasks=self._fronts.counts,
            work=self._fronts.work,
            on_manifest=lambda refused: self.metrics.manifest(refused=refused),
        )
        self.channels = ChannelDirectory(self._fronts, self.registry.view, config)
        self.agents = AgentDirectory(self._fronts, self.registry.view, config)
        self.source: Source[Loaded] = Source(
            config.roots,
            load=_loader(config),
            watch=config.watch,
            max_bytes=config.limits.manifest,
            files=_watched(config),
        )
        self._all_planes = PlaneSwitch(self.planes, self.backends.passed_planes)
        self.pool = Pool(
            doors=self._fronts,
            planes=self._all_planes,
            facts=self.registry,
            policy=Policy(
                guards=_guards(config),
                limits=limits_of(config),
                proxies=Proxies(config.listen.trusted_proxies),
                context=config.pairs.context(config.listen.tls),
                most=descriptors.connections,
            ),
            ports=(config.listen.ports.first, config.listen.ports.last),
            most=descriptors.listeners,
            budget=config.limits.drain,
        )

    def parts(self, reload: Callable[[], Awaitable[ReloadResult]]) -> Parts:
        """Return what the desk is handed of them."""
        return Parts(
            view=self.registry.view,
            channels=self.channels,
            agents=self.agents,
            access=self.access,
            metrics=self.metrics,
            gauges=self._gauges,
            reload=reload,
            keys=Keys(self._ring, self.registry.capsule_of),
            handles=Handles(self.planes.sharing, self._served, self.metrics),
            looks=Looks(self._fronts.of, self._all_planes),
            tasks=Tasks(self._fronts.of, OPERATOR),
            workers=Workers(self._fronts.backend),
        )

    def reconfigure(self, config: Config) -> None:
        """Put another configuration in force; it shows with the next turn of the pipeline."""
        self.traces.reconfigure(config.traces.endpoint, config.traces.percent)
        self.engines.reconfigure(keep_events=config.tasks.keep_events, keep_tasks=config.tasks.keep_tasks)
        self.registry.reconfigure(config)
        self.channels.reconfigure(config)
        self.agents.reconfigure(config)
        self.source.reconfigure(
            config.roots,
            watch=config.watch,
            files=_watched(config),
            load=_loader(config),
            max_bytes=config.limits.manifest,
        )
        self.pool.policy.guards = _guards(config)
        self.pool.policy.limits = limits_of(config)
        self.pool.policy.proxies = Proxies(config.listen.trusted_proxies)
        self.pool.policy.context = config.pairs.context(config.listen.tls)
        self.pool.ports = (config.listen.ports.first, config.listen.ports.last)
        self.pool.budget = config.limits.drain
        self.access.reconfigure(_moi_keys(config))
        self._providers.keep([provider.settings for provider in config.auth.providers])

    def _served(self, capsule_id: str) -> Capsule | None:
        front = self._fronts.of(capsule_id)
        return None if front is None else front.capsule

    def _gauges(self) -> Gauges:
        return Gauges(
            open_streams=self.pool.open_streams,
            watching=self.source.watching,
            listener_retries=self.pool.retries,
        )


def _moi_keys(config: Config) -> MoiKeys:
    return MoiKeys((one.key, one.workspace) for one in config.auth.moi_keys if one.key is not None)


def _watched(config: Config) -> tuple[str, ...]:
    return (*((config.source,) if config.source is not None else ()), *config.pairs.files)


def _loader(config: Config) -> Callable[[bytes, str], Loaded]:
    return partial(_load_manifest, max_bytes=config.limits.manifest)


def _load_manifest(data: bytes, path: str, *, max_bytes: int) -> Loaded:
    return load_manifest(data, file=path, max_bytes=max_bytes)


def _guards(config: Config) -> Guards:
    listen = config.listen
    host = origin = None
    if listen.public_url is not None:
        host, origin = public_host(listen.public_url), public_origin(listen.public_url)
    return Guards(
        Rules(
            "listen",
            hosts=listen.allowed_hosts,
            origins=(*listen.allowed_origins, *((origin,) if origin is not None else ())),
            advertised=(listen.advertise, *((host,) if host is not None else ())),
        )
    )
