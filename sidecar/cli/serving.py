"""`sidecar run`: from the command line to the daemon."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from types import FrameType

    from sidecar.store import Store
    from sidecar.watch.values import Identity

_GARBAGE = (5_000, 20, 10)
"""How rarely garbage is looked for: a task is many small objects that live on, and next to nothing of it is in cycles."""


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM; return 0 after a clean stop."""
    # As PID 1 a process has no default action for signals: until the loop has its own handlers, this one ends it.
    signal.signal(signal.SIGTERM, _end)

    import gc

    # Modules and capsules come to stay: until the daemon is ready there is next to no garbage to look for.
    gc.disable()

    import asyncio
    from functools import partial

    from sidecar.ops.server_half import leave_client_out

    leave_client_out()

    import structlog

    from sidecar import __version__, state
    from sidecar.config.loading import Flags, ephemeral_ports, load, locate
    from sidecar.daemon.daemon import Daemon
    from sidecar.daemon.reload import Origin, say_warnings
    from sidecar.ops import log

    environ = dict(os.environ)
    flags = Flags(roots=tuple(arguments.root), state=arguments.state, command=arguments.backend_command)
    read = partial(load, arguments.config, flags, environ, ephemeral=ephemeral_ports())
    seen = _identity(arguments.config or environ.get("SIDECAR_CONFIG"))
    config = read()
    log.configure(level=config.log.level, form=config.log.format, environ=environ)
    say_warnings(config)
    gc.set_threshold(*_GARBAGE)
    gc.freeze()  # what was imported is looked at no more; capsules may go again, and what they leave is collected
    directory = state.default_state_dir(environ, arguments.state, config.state)
    with state.State.open(directory) as opened:
        if opened.renewed:
            structlog.get_logger().warning("admin_token_renewed", path=str(directory / state.ADMIN_TOKEN))
        store = _open_store(opened.database, new=arguments.new_state)
        try:
            origin = Origin(
                read, partial(locate, arguments.config, flags, environ), seen, arguments.state, environ
            )

            async def serve() -> None:
                daemon = Daemon(
                    config,
                    origin=origin,
                    state=opened,
                    store=store,
                    version=__version__,
                    # a link opens the desk: it is for eyes, not for a pipe, a file or a journal
                    on_ready=_show_link if sys.stdout.isatty() else None,
                )
                await daemon.run()

            asyncio.run(serve())
        finally:
            store.close()
    return 0


def _show_link(url: str) -> None:
    print(f"The page, for a minute: {url}", flush=True)


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def _open_store(path: Path, *, new: bool) -> Store:
    import time

    from sidecar.cli.output import complain
    from sidecar.errors import StoreCorruptError
    from sidecar.store import Store

    try:
        return Store.open(str(path))
    except StoreCorruptError:
        if not new:
            raise
    aside = f"corrupt-{time.strftime('%Y%m%dT%H%M%S')}"
    for part in ("", "-wal", "-shm"):
        old = path.with_name(path.name + part)
        if old.exists():
            old.rename(path.with_name(f"{path.name}.{aside}{part}"))
    complain(f"set the corrupt database aside as {path}.{aside}, and start anew")
    return Store.open(str(path))


def _identity(path: str | None) -> Identity | None:
    from sidecar.watch.values import Identity

    if not path:
        return None
    try:
        facts = Path(path).stat()
    except OSError:
        return None
    return Identity(facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
