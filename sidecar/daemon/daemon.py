"""The daemon: owns every task between the stages, from the open state to the end of the drain."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import structlog

from sidecar.daemon.front_desk import FrontDesk
from sidecar.daemon.reload import Reloader
from sidecar.daemon.stages import Stages
from sidecar.daemon.status import status_line
from sidecar.errors import RefusedError, refusal
from sidecar.model import CapsuleState
from sidecar.ops.limits import claim_descriptors
from sidecar.ops.notify import Notifier, watchdog_interval
from sidecar.tracing import use_tracer

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.config import Config
    from sidecar.daemon.reload import Origin
    from sidecar.desk.api import ReloadResult
    from sidecar.manifest.load import Loaded
    from sidecar.state import State
    from sidecar.store import Store
    from sidecar.watch.values import Snapshot

FORCED: Final = 1
"""Exit status of a second signal."""
FOR_THE_END: Final = 0.25
"""The part of the drain, at most `END` seconds, that is kept for what ends after the capsules' listeners."""
END: Final = 2.0
STOPS: Final = (signal.SIGTERM, signal.SIGINT)
IDLE_TURN: Final = 5.0
"""Seconds after which the pipeline turns even where nothing happens."""

log = structlog.get_logger()


class Daemon:
    """One run of the sidecar, from the open state to the end of the drain.

    The stages are turned by the one task of `_turn_for_ever`; reloads take their turn in it, so that nothing changes
    under it.
    """

    def __init__(
        self,
        config: Config,
        *,
        origin: Origin,
        state: State,
        store: Store,
        version: str,
        on_ready: Callable[[str], None] | None = None,
    ) -> None:
        """Make it; `on_ready` is called once with a link that opens the desk's page."""
        self._on_ready = on_ready
        self._origin = origin
        self._state = state
        self._version = version
        self._deadline = float("inf")
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._snapshot: Snapshot[Loaded] | None = None
        self._asked: list[asyncio.Future[ReloadResult]] = []
        self._ready = False
        self._notifier = Notifier.from_environ(origin.environ)
        descriptors = claim_descriptors()
        log.info("descriptor_budget", **descriptors.fields())
        self._stages = Stages(
            config,
            state=state,
            store=store,
            environ=origin.environ,
            descriptors=descriptors,
            version=version,
        )
        self._changed: set[str] = set()
        self._stages.access.on_change = self._credentials_changed
        self._desk = FrontDesk(config, self._stages.parts(self.reload), token=state.admin_token)
        self._reloader = Reloader(
            config,
            origin=origin,
            stages=self._stages,
            desk=self._desk,
            state=state.directory,
            on_change=self._write_run,
        )

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain. Raises SidecarError when it cannot start."""
        loop = asyncio.get_running_loop()
        use_tracer(self._stages.traces)
        for number in STOPS:
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload_by_signal)
        async with AsyncExitStack() as stack:
            # What is entered first ends last: the database after everything that writes to it.
            stack.push_async_callback(self._close_traces)
            stack.push_async_callback(self._stages.engines.aclose)
            stack.push_async_callback(self._stages.makers.aclose)
            stack.push_async_callback(self._stages.backends.aclose, 0.0)
            stack.push_async_callback(self._close_planes)
            stack.push_async_callback(self._stages.registry.aclose)
            stack.push_async_callback(self._stages.access.aclose)
            stack.push_async_callback(self._close_desk)
            self._stages.makers.open(self._reloader.config.limits.stop_grace)
            await self._desk.open()
            stack.push_async_callback(self._drain)
            await self._serve()
        for number in (*STOPS, signal.SIGHUP):
            # Who asks for the end now has it: nothing is left that a signal could cut short.
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        self._notifier.status("stopped")
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
        self._asked.append(done)
        self._wake.set()
        return await done

    # Signals

    def _stop(self) -> None:
        if self._stopping.is_set():
            log.warning("stop_forced")
            # What was acknowledged is committed; nothing else is worth a wait that somebody does not want.
            os._exit(FORCED)
        log.info("stopping", drain_s=self._reloader.config.limits.drain)
        self._deadline = asyncio.get_running_loop().time() + self._reloader.config.limits.drain
        self._notifier.stopping("stopping: streams get their last frame")
        self._stages.registry.view.drain()
        self._stopping.set()

    def _reload_by_signal(self) -> None:
        self._asked.append(asyncio.get_running_loop().create_future())
        self._wake.set()

    def _credentials_changed(self, directory: str) -> None:
        """Have the cards of a directory's capsule say so, in the next turn; what they are good for holds already."""
        self._changed.add(directory)
        self._wake.set()

    # The pipeline

    async def _follow(self) -> None:
        async for snapshot in self._stages.source.snapshots():
            self._snapshot = snapshot.instead_of(self._snapshot)
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
            if self._changed:
                changed, self._changed = self._changed, set()
                await self._stages.pool.refresh(sorted(changed))
            if self._asked or self._snapshot is not None or (wake_at is not None and wake_at <= loop.time()):
                wake_at = await self._turn()
            if watchdog is not None:
                self._notifier.watchdog()

    async def _turn(self) -> float | None:
        """Take in what is new, make the listeners so, and return when to turn again without news."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None and self._reloader.file_changed(snapshot.files):
            await self._reload()
        elif self._reloader.again.is_due(asyncio.get_running_loop().time()):
            await self._reloader.try_again()
        while count := len(self._asked):
            result = await self._reload()
            waiting, self._asked = self._asked[:count], self._asked[count:]
            for done in waiting:
                if not done.done():
                    done.set_result(result)
        desired = await self._stages.registry.update(snapshot)
        if snapshot is not None or self._ready:
            await self._stages.pool.follow(desired.changes, self._stages.registry.reserved_ports())
            await self._stages.registry.save_ports()
            self._say_ready()
        return self._reloader.again.sooner(desired.wake_at)

    def _say_ready(self) -> None:
        if self._ready:
            if self._notifier.active:
                self._notifier.status(self._status())
            return
        self._ready = True
        gc.enable()  # the start did without
        self._write_run()
        log.info(
            "ready",
            version=self._version,
            **self._counts(),
            desk=self._desk.url,
            state=str(self._state.directory),
        )
        self._notifier.ready(self._status())
        if self._on_ready is not None:
            self._on_ready(self._desk.link())

    def _counts(self) -> dict[str, int]:
        counts = self._stages.registry.view.states()
        return {str(s): counts[s] for s in CapsuleState if counts[s] or s is CapsuleState.SERVING}

    def _status(self) -> str:
        return status_line(self._stages.registry.view, self._counts(), self._desk.url, self._reloader.refused)

    async def _reload(self) -> ReloadResult:
        if self._ready:
            self._notifier.reloading()
        try:
            return await self._reloader.reload()
        finally:
            if self._ready:
                self._notifier.ready(self._status())

    def _write_run(self) -> None:
        """Say where the desk is; before the start is over `_say_ready` will."""
        if self._ready:
            self._state.write_run(
                host=self._desk.host,
                port=self._desk.port,
                url=self._desk.url,
                version=self._version,
                fingerprint=self._desk.fingerprint,
            )

    # The end

    async def _drain(self) -> None:
        self._stages.registry.view.drain()
        self._desk.end_streams()
        limits = self._reloader.config.limits
        self._deadline = min(self._deadline, asyncio.get_running_loop().time() + limits.drain)
        budget = max(0.0, self._left() - min(END, limits.drain * FOR_THE_END))
        for asked in self._asked:
            if not asked.done():
                asked.set_exception(RefusedError(_ENDS))
                asked.exception()  # nobody waits for one that a signal asked for
        async with asyncio.TaskGroup() as group:
            group.create_task(self._stages.pool.aclose(budget), name="drain listeners")
            group.create_task(
                self._stages.backends.aclose(min(limits.stop_grace, budget)), name="end backends"
            )
            group.create_task(self._stages.source.aclose(), name="end the watch")

    def _left(self) -> float:
        """Return the seconds that the stop may still take."""
        return max(0.0, self._deadline - asyncio.get_running_loop().time())

    async def _close_desk(self) -> None:
        await self._desk.aclose(min(1.0, self._left() / 2))

    async def _close_traces(self) -> None:
        await self._stages.traces.aclose(min(1.0, self._left() / 2))

    async def _close_planes(self) -> None:
        await self._stages.planes.aclose(min(1.0, self._left() / 2))


_ENDS: Final = refusal("unavailable", "The sidecar stops.")
