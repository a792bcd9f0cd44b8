"""The daemon: builds the stages and owns every task between them."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from sidecar import state as states
from sidecar.daemon.again import Again
from sidecar.daemon.backends import Backends, Makers
from sidecar.daemon.front_desk import DeskPlaceError, FrontDesk, limits_of
from sidecar.daemon.fronts import Fronts
from sidecar.desk.api import ReloadResult
from sidecar.desk.endpoint import Parts
from sidecar.desk.handles import Handles
from sidecar.desk.tasks import Tasks
from sidecar.desk.workers import Workers
from sidecar.doors.murmur import OPERATOR
from sidecar.errors import InputError, Problem, RefusedError, SidecarError, refusal
from sidecar.listeners.pool import Pool
from sidecar.manifest.load import load as load_manifest
from sidecar.model import CapsuleState
from sidecar.ops import log as logs
from sidecar.ops.limits import claim_descriptors
from sidecar.ops.metrics import Gauges, Metrics
from sidecar.ops.notify import Notifier, watchdog_interval
from sidecar.planes.routes import Planes
from sidecar.registry.registry import Registry
from sidecar.tasks.engines import Engines
from sidecar.tasks.forwarding.planes import PlaneSwitch
from sidecar.watch.source import Source
from sidecar.web.guards import Guards, Rules
from sidecar.web.server import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sidecar.config import Config
    from sidecar.manifest.load import Loaded
    from sidecar.model import Capsule
    from sidecar.state import State
    from sidecar.store import Store
    from sidecar.watch.values import Identity, Snapshot

FORCED: Final = 1
"""Exit status of a second signal."""
CONNECTIONS_SHARE: Final = 0.75
"""The part of the descriptors kept back from listeners that connections to capsules may take."""
FOR_THE_END: Final = 0.25
"""The part of the drain, at most `END` seconds, that is kept for what ends after the capsules' listeners."""
END: Final = 2.0
STOPS: Final = (signal.SIGTERM, signal.SIGINT)
IDLE_TURN: Final = 5.0
"""Seconds after which the pipeline turns even where nothing happens."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the configuration comes from: `load` reads it anew and raises InputError.

    `locate` makes the problem of a key that is good and cannot be had now, without a message. `file` is its identity
    before it was read the first time, None where there is no file. `state_flag` is `--state`.
    """

    load: Callable[[], Config]
    locate: Callable[[tuple[str | int, ...]], Problem]
    file: Identity | None
    state_flag: str | None
    environ: Mapping[str, str]


class Daemon:
    """One run of the sidecar, from the open state to the end of the drain.

    directories → `Source` → `Registry` → `Pool` → sockets, turned by the one task of `_turn_for_ever`; reloads take
    their turn in it, so that nothing changes under it.
    """

    def __init__(self, config: Config, *, origin: Origin, state: State, store: Store, version: str) -> None:
        self._config = config
        self._origin = origin
        self._state = state
        self._store = store
        self._version = version
        self._file = origin.file
        self._refused: str | None = None
        self._again = Again()
        self._deadline = float("inf")
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._snapshot: Snapshot[Loaded] | None = None
        self._reloads: list[asyncio.Future[ReloadResult]] = []
        self._ready = False
        self._notifier = Notifier.from_environ(origin.environ)
        budget = claim_descriptors()
        log.info("descriptor_budget", **budget.fields())
        self._metrics = Metrics(version)
        self._engines = Engines(
            store,
            keep_events=config.tasks.keep_events,
            keep_tasks=config.tasks.keep_tasks,
            on_end=self._metrics.task_ended,
        )
        self._planes = Planes()
        self._makers = Makers(state.directory / "processes", origin.environ)
        self._backends = Backends(self._makers.make)
        self._fronts = Fronts(
            engines=self._engines, metrics=self._metrics, planes=self._planes, backends=self._backends
        )
        self._registry = Registry(
            store,
            config,
            guarded=(str(state.directory), *((config.source,) if config.source else ())),
            tasks=self._fronts.counts,
            workers=self._fronts.workers,
            on_manifest=lambda refused: self._metrics.manifest(refused=refused),
        )
        self._source: Source[Loaded] = Source(
            config.roots,
            load=_loader(config),
            watch=config.watch,
            max_bytes=config.limits.manifest,
            files=_files(config),
        )
        self._pool = Pool(
            doors=self._fronts,
            planes=PlaneSwitch(self._planes, self._backends.passed_planes),
            facts=self._registry,
            policy=Policy(
                guards=_guards(config), limits=limits_of(config), most=int(budget.reserve * CONNECTIONS_SHARE)
            ),
            ports=(config.listen.ports.first, config.listen.ports.last),
            most=budget.listeners,
            budget=config.limits.drain,
        )
        parts = Parts(
            view=self._registry.view,
            metrics=self._metrics,
            gauges=self._gauges,
            reload=self.reload,
            handles=Handles(self._planes.sharing, self._served, self._metrics),
            tasks=Tasks(self._fronts.of, OPERATOR),
            workers=Workers(self._fronts.backend),
        )
        self._desk = FrontDesk(config, parts, token=state.admin_token)

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain. Raises SidecarError when it cannot start."""
        loop = asyncio.get_running_loop()
        for number in STOPS:
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload_by_signal)
        async with AsyncExitStack() as stack:
            # What is entered first ends last: the database after everything that writes to it.
            stack.push_async_callback(self._engines.aclose)
            stack.push_async_callback(self._makers.aclose)
            stack.push_async_callback(self._backends.aclose, 0.0)
            stack.push_async_callback(self._close_planes)
            stack.push_async_callback(self._registry.aclose)
            stack.push_async_callback(self._close_desk)
            self._makers.open(self._config.limits.stop_grace)
            await self._desk.open()
            stack.push_async_callback(self._drain)
            await self._serve()
        for number in (*STOPS, signal.SIGHUP):
            # Who asks for the end now has it: nothing is left that a signal could cut short.
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        log.info("stopped")

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._follow(), name="follow the watch"),
                group.create_task(self._turn_for_ever(), name="pipeline"),
            ]
            await self._stopping.wait()
            for task in tasks:
                task.cancel()

    async def reload(self) -> ReloadResult:
        """Read the configuration again and put it in force; the pipeline does so in its next turn."""
        if self._stopping.is_set():
            raise RefusedError(_ENDS)
        done: asyncio.Future[ReloadResult] = asyncio.get_running_loop().create_future()
        self._reloads.append(done)
        self._wake.set()
        return await done

    # Signals

    def _stop(self) -> None:
        if self._stopping.is_set():
            log.warning("stop_forced")
            # What was acknowledged is committed; nothing else is worth a wait that somebody does not want.
            os._exit(FORCED)
        log.info("stopping", drain_s=self._config.limits.drain)
        self._deadline = asyncio.get_running_loop().time() + self._config.limits.drain
        self._notifier.stopping("stopping: streams get their last frame")
        self._registry.view.drain()
        self._stopping.set()

    def _reload_by_signal(self) -> None:
        self._reloads.append(asyncio.get_running_loop().create_future())
        self._wake.set()

    # The pipeline

    async def _follow(self) -> None:
        async for snapshot in self._source.snapshots():
            self._snapshot = snapshot
            self._wake.set()

    async def _turn_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        watchdog = watchdog_interval(self._origin.environ, os.getpid())
        longest = min(IDLE_TURN, watchdog or IDLE_TURN)
        wake_at: float | None = None
        while True:
            at = loop.time() + longest
            try:
                async with asyncio.timeout_at(at if wake_at is None else min(at, wake_at)):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            if (
                self._reloads
                or self._snapshot is not None
                or (wake_at is not None and wake_at <= loop.time())
            ):
                wake_at = await self._turn()
            if watchdog is not None:
                self._notifier.watchdog()

    async def _turn(self) -> float | None:
        """Take in what is new, make the listeners so, and return when to turn again without news."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None and self._file_changed(snapshot):
            await self._reload()
        elif self._again.is_due(asyncio.get_running_loop().time()):
            await self._reload_again()
        while count := len(self._reloads):
            result = await self._reload()
            waiting, self._reloads = self._reloads[:count], self._reloads[count:]
            for done in waiting:
                if not done.done():
                    done.set_result(result)
        desired = await self._registry.update(snapshot)
        if snapshot is not None or self._ready:
            await self._pool.reconcile(desired.wanted, self._registry.reserved_ports())
            await self._registry.save_ports()
            self._say_ready()
        return self._again.sooner(desired.wake_at)

    def _say_ready(self) -> None:
        if self._ready:
            self._notifier.status(self._status())
            return
        self._ready = True
        self._state.write_run(
            host=self._desk.host, port=self._desk.port, url=self._desk.url, version=self._version
        )
        log.info(
            "ready",
            version=self._version,
            **self._counts(),
            desk=self._desk.url,
            state=str(self._state.directory),
        )
        self._notifier.ready(self._status())

    def _counts(self) -> dict[str, int]:
        rows = self._registry.view.capsules()
        counts = {state: sum(row.state is state for row in rows) for state in CapsuleState}
        return {
            str(state): count for state, count in counts.items() if count or state is CapsuleState.SERVING
        }

    def _status(self) -> str:
        told = ", ".join(f"{count} {state}" for state, count in self._counts().items())
        refused = f"; configuration refused: {self._refused}" if self._refused is not None else ""
        return f"{told}; desk at {self._desk.url}{refused}"

    def _served(self, capsule_id: str) -> Capsule | None:
        return next((one for one in self._pool.capsules() if one.id == capsule_id), None)

    def _gauges(self) -> Gauges:
        return Gauges(
            open_streams=self._pool.open_streams,
            watching=self._source.watching,
            listener_retries=self._pool.retries,
        )

    # Reload

    def _file_changed(self, snapshot: Snapshot[Loaded]) -> bool:
        source = self._config.source
        identity = snapshot.files.get(source) if source else None
        changed = identity is not None and identity != self._file
        if identity is not None:
            self._file = identity
        return changed

    async def _reload(self) -> ReloadResult:
        if self._ready:
            self._notifier.reloading()
        try:
            result = await self._reloaded()
        finally:
            if self._ready:
                self._notifier.ready(self._status())
        self._count_reload(result)
        return result

    async def _reload_again(self) -> None:
        """Try once more what could not be had; nobody asked for it, so that another failure is no news."""
        result = await self._reloaded(quietly=True)
        if not result.problems:
            self._count_reload(result)

    def _count_reload(self, result: ReloadResult) -> None:
        self._metrics.reload("refused" if result.problems else "applied" if result.changed else "unchanged")

    async def _reloaded(self, *, quietly: bool = False) -> ReloadResult:
        try:
            config = self._origin.load()
            self._check_state(config)
            if config != self._config:
                await self._desk.reconfigure(config)
        except DeskPlaceError as error:
            self._again.failed(asyncio.get_running_loop().time())
            return self._refuse((self._not_now(("desk", "port"), str(error)),), quietly=quietly)
        except SidecarError as error:
            self._again.over()
            problems = error.problems if isinstance(error, InputError) else ()
            return self._refuse(problems or (_problem(self._config, str(error)),))
        self._again.over()
        if config == self._config:
            self._mended(config)
            log.info("config_unchanged", config=config.source)
            return ReloadResult(loaded_at=self._registry.view.config().loaded_at)
        self._apply(config)
        if self._ready:
            self._state.write_run(
                host=self._desk.host, port=self._desk.port, url=self._desk.url, version=self._version
            )
        self._mended(config)
        log.info("config_reloaded", config=config.source)
        return ReloadResult(changed=True, loaded_at=self._registry.view.config().loaded_at)

    def _check_state(self, config: Config) -> None:
        wanted = states.default_state_dir(self._origin.environ, self._origin.state_flag, config.state)
        if wanted != self._state.directory:
            text = f"{wanted} would take effect after a restart only; the state in use stays"
            raise InputError(text, (self._not_now(("state",), text),))

    def _not_now(self, key: tuple[str | int, ...], message: str) -> Problem:
        return replace(self._origin.locate(key), message=message)

    def _apply(self, config: Config) -> None:
        self._config = config
        logs.configure(level=config.log.level, form=config.log.format, environ=self._origin.environ)
        self._engines.reconfigure(keep_events=config.tasks.keep_events, keep_tasks=config.tasks.keep_tasks)
        self._registry.reconfigure(config)
        self._source.reconfigure(
            config.roots,
            watch=config.watch,
            files=_files(config),
            load=_loader(config),
            max_bytes=config.limits.manifest,
        )
        self._pool.policy.guards = _guards(config)
        self._pool.policy.limits = limits_of(config)
        self._pool.ports = (config.listen.ports.first, config.listen.ports.last)
        self._pool.budget = config.limits.drain
        say_warnings(config)

    def _refuse(self, problems: Sequence[Problem], *, quietly: bool = False) -> ReloadResult:
        first = str(problems[0]) + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "")
        if quietly and first == self._refused:
            return ReloadResult(problems=tuple(problems))
        if first != self._refused:
            self._refused = first
            log.error(
                "config_refused", problems=[str(problem) for problem in problems], kept=self._config.source
            )
        self._registry.configuration_refused(first)
        return ReloadResult(problems=tuple(problems))

    def _mended(self, config: Config) -> None:
        if self._refused is not None:
            self._refused = None
            log.info("config_mended", config=config.source)
            self._registry.reconfigure(config)

    # The end

    async def _drain(self) -> None:
        self._registry.view.drain()
        self._desk.end_streams()
        limits = self._config.limits
        self._deadline = min(self._deadline, asyncio.get_running_loop().time() + limits.drain)
        budget = max(0.0, self._left() - min(END, limits.drain * FOR_THE_END))
        for asked in self._reloads:
            if not asked.done():
                asked.set_exception(RefusedError(_ENDS))
                asked.exception()  # nobody waits for one that a signal asked for
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pool.aclose(budget), name="drain listeners")
            group.create_task(self._backends.aclose(min(limits.stop_grace, budget)), name="end backends")
            group.create_task(self._source.aclose(), name="end the watch")

    def _left(self) -> float:
        """Return the seconds that the stop may still take."""
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    async def _close_desk(self) -> None:
        await self._desk.aclose(min(1.0, self._left() / 2))

    async def _close_planes(self) -> None:
        await self._planes.aclose(min(1.0, self._left() / 2))


_ENDS: Final = refusal("unavailable", "The sidecar stops.")


def say_warnings(config: Config) -> None:
    """Log each warning of a configuration."""
    for warning in config.warnings:
        log.warning("config_warning", problem=str(warning))


def _files(config: Config) -> tuple[str, ...]:
    return (config.source,) if config.source is not None else ()


def _loader(config: Config) -> Callable[[bytes, str], Loaded]:
    return partial(_load_manifest, max_bytes=config.limits.manifest)


def _load_manifest(data: bytes, path: str, *, max_bytes: int) -> Loaded:
    return load_manifest(data, file=path, max_bytes=max_bytes)


def _guards(config: Config) -> Guards:
    listen = config.listen
    return Guards(
        Rules(
            "listen",
            hosts=listen.allowed_hosts,
            origins=listen.allowed_origins,
            advertised=(listen.advertise,),
        )
    )


def _problem(config: Config, message: str) -> Problem:
    return Problem(config.source or "configuration", 0, 0, "E-CFG-000", "", message)
