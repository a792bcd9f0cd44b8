"""The configuration in force: read anew on request, taken over whole or refused whole."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from sidecar import state as states
from sidecar.daemon.again import Again
from sidecar.daemon.front_desk import DeskPlaceError
from sidecar.desk.api import ReloadResult
from sidecar.errors import InputError, Problem, SidecarError
from sidecar.ops import log as logs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from sidecar.config import Config
    from sidecar.daemon.front_desk import FrontDesk
    from sidecar.daemon.stages import Stages
    from sidecar.watch.values import Identity

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


class Reloader:
    """Holds the configuration in force, and replaces it in the stages and the desk. Called by the pipeline alone.

    `config` is what is in force; `refused` the first problem of the newest one, None where that is in force.
    `state` is the state directory in use; `on_change` is called when another configuration has just taken over.
    """

    def __init__(
        self,
        config: Config,
        *,
        origin: Origin,
        stages: Stages,
        desk: FrontDesk,
        state: Path,
        on_change: Callable[[], None],
    ) -> None:
        self.config = config
        self.refused: str | None = None
        self.again = Again()
        self._origin = origin
        self._seen = self._known(config) | ({config.source: origin.file} if config.source else {})
        self._stages = stages
        self._desk = desk
        self._state = state
        self._on_change = on_change

    def file_changed(self, files: Mapping[str, Identity | None]) -> bool:
        """Tell whether a file of the configuration is another than the last time, by what a scan saw of them.

        One that is gone is none.
        """
        found = {path: identity for path, identity in files.items() if identity is not None}
        known = self._known(self.config) | self._seen
        self._seen |= found
        return any(identity != known.get(path) for path, identity in found.items())

    @staticmethod
    def _known(config: Config) -> dict[str, tuple[int, ...] | None]:
        """Return what the files of certificates were when they were read."""
        return dict(config.pairs.files)

    async def reload(self) -> ReloadResult:
        """Read the configuration again and put it in force; all stays as it is where that cannot be.

        All but the certificates of the one in force, where those alone are good.
        """
        result = await self._reloaded(quietly=False)
        self._count(result)
        if result.problems:
            await self._renew()
        return result

    async def try_again(self) -> None:
        """Try once more what could not be had; nobody asked for it, so that another failure is no news."""
        result = await self._reloaded(quietly=True)
        if not result.problems:
            self._count(result)

    async def _renew(self) -> None:
        """Have listeners show what is in the files of their certificates by now, although the rest was refused."""
        pairs = self.config.pairs.read_again()
        if pairs != self.config.pairs:
            config = replace(self.config, pairs=pairs)
            await self._desk.reconfigure(config)
            self._put_in_force(config)
            self._stages.registry.configuration_refused(self.refused or "")

    def _count(self, result: ReloadResult) -> None:
        outcome = "refused" if result.problems else "applied" if result.changed else "unchanged"
        self._stages.metrics.reload(outcome)

    async def _reloaded(self, *, quietly: bool) -> ReloadResult:
        try:
            config = self._origin.load()
            self._check_state(config)
            if config != self.config:
                await self._desk.reconfigure(config)
        except DeskPlaceError as error:
            self.again.failed(asyncio.get_running_loop().time())
            return self._refuse((self._not_now(("desk", "port"), str(error)),), quietly=quietly)
        except SidecarError as error:
            self.again.over()
            problems = error.problems if isinstance(error, InputError) else ()
            return self._refuse(problems or (_problem(self.config, str(error)),), quietly=False)
        self.again.over()
        changed = config != self.config
        if changed:
            self._apply(config)
        self._mended(config)
        log.info("config_reloaded" if changed else "config_unchanged", config=config.source)
        return ReloadResult(changed=changed, loaded_at=self._stages.registry.view.config().loaded_at)

    def _check_state(self, config: Config) -> None:
        wanted = states.default_state_dir(self._origin.environ, self._origin.state_flag, config.state)
        if wanted != self._state:
            text = f"{wanted} would take effect after a restart only; the state in use stays"
            raise InputError(text, (self._not_now(("state",), text),))

    def _not_now(self, key: tuple[str | int, ...], message: str) -> Problem:
        return replace(self._origin.locate(key), message=message)

    def _apply(self, config: Config) -> None:
        logs.configure(level=config.log.level, form=config.log.format, environ=self._origin.environ)
        self._put_in_force(config)
        say_warnings(config)

    def _put_in_force(self, config: Config) -> None:
        renewed = config.pairs.renewed_since(self.config.pairs)
        self.config = config
        self._stages.reconfigure(config)
        self._on_change()
        if renewed:
            log.info("certificates_renewed", files=renewed)

    def _refuse(self, problems: Sequence[Problem], *, quietly: bool) -> ReloadResult:
        first = str(problems[0]) + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "")
        if quietly and first == self.refused:
            return ReloadResult(problems=tuple(problems))
        if first != self.refused:
            self.refused = first
            log.error(
                "config_refused", problems=[str(problem) for problem in problems], kept=self.config.source
            )
        self._stages.registry.configuration_refused(first)
        return ReloadResult(problems=tuple(problems))

    def _mended(self, config: Config) -> None:
        if self.refused is not None:
            self.refused = None
            log.info("config_mended", config=config.source)
            self._stages.registry.reconfigure(config)


def say_warnings(config: Config) -> None:
    """Log each warning of a configuration."""
    for warning in config.warnings:
        log.warning("config_warning", problem=str(warning))


def _problem(config: Config, message: str) -> Problem:
    return Problem(config.source or "configuration", 0, 0, "E-CFG-000", "", message)
