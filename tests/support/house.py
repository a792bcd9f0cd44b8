"""A directory of capsules, a real scan of it, a real database and a registry: a sidecar without its sockets."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

from sidecar.config import Config, Root
from sidecar.manifest.load import Loaded, load
from sidecar.registry.registry import Desired, Registry
from sidecar.store import Store
from sidecar.watch.scan import Scanner

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.model import Capsule, CapsuleStatus, Wanted
    from sidecar.watch.values import Snapshot

GRACE = 2.0
HOUR = 3600.0
FORGET = 24 * HOUR
MANIFEST = 'name: "{name}"\nversion: "{version}"\n{more}'


class House:
    """Keeps its own time: `wall` in Unix seconds and `mono`, which only `wait` moves."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.root = base / "capsules"
        self.root.mkdir(parents=True)
        (base / "state").mkdir()
        self.wall = 1_700_000_000.0
        self.mono = 1000.0
        self.judged: list[bool] = []
        self.tasks: dict[str, dict[str, int]] = {}
        self.desired = Desired({}, None)
        self._wishes: dict[str, Wanted] = {}

    # The disk

    def write(self, directory: str, name: str = "hello", *, version: str = "1.0", more: str = "") -> Path:
        """Write a good manifest."""
        return self.write_text(directory, MANIFEST.format(name=name, version=version, more=more))

    def write_text(self, directory: str, text: str) -> Path:
        """Write any `murmur.yaml`, by a rename so that each one is another file."""
        place = self.root / directory
        place.mkdir(parents=True, exist_ok=True)
        (place / "new").write_text(text)
        return (place / "new").replace(place / "murmur.yaml")

    def remove(self, directory: str) -> None:
        """Remove a capsule's directory."""
        shutil.rmtree(self.root / directory)

    def path(self, directory: str) -> str:
        """Return the absolute path of a capsule's directory."""
        return str(self.root / directory)

    # The sidecar

    def config(self, **keys: Any) -> Config:
        """Make a configuration with this root, a grace of two seconds, and these keys."""
        return Config(**{"roots": (Root(path=str(self.root), depth=2),), **keys})

    async def start(self, config: Config | None = None, **keys: Any) -> Desired:
        """Start on the state of earlier starts, and take the first look."""
        config = config or self.config(**keys)
        self.store = Store.open(str(self.base / "state" / "sidecar.db"))
        self.registry = Registry(
            self.store,
            config,
            guarded=(str(self.base / "state"),),
            tasks=lambda session: self.tasks.get(session, {}),
            on_manifest=self.judged.append,
            clock=lambda: self.wall,
            monotonic=lambda: self.mono,
        )
        self.scanner: Scanner[Loaded] = Scanner(
            config.roots,
            load=lambda data, path: load(data, file=path, max_bytes=config.limits.manifest),
            max_bytes=config.limits.manifest,
            settle=0.04,
            grace=config.watch.grace,
            clock=lambda: self._scan_time,
        )
        self._scan_time = 0.0
        self._wishes = {}
        return await self.look()

    async def stop(self) -> None:
        """Stop as a daemon does: nothing is told to the registry."""
        await self.registry.aclose()
        self.store.close()

    async def restart(self, config: Config | None = None, **keys: Any) -> Desired:
        """Stop and start."""
        await self.stop()
        return await self.start(config, **keys)

    def scan(self) -> Snapshot[Loaded] | None:
        """Look at the disk until everything stands still; return the newest snapshot, None where nothing changed."""
        newest = None
        for _ in range(5):
            if (snapshot := self.scanner.look().snapshot) is not None:
                newest = snapshot.instead_of(newest)
            self._scan_time += 1.0
        return newest

    async def look(self) -> Desired:
        """Look at the disk and update the registry."""
        return self._take(await self.registry.update(self.scan()))

    async def wait(self, seconds: float) -> Desired:
        """Let time pass, and update the registry without a look."""
        self.wall += seconds
        self.mono += seconds
        return self._take(await self.registry.update())

    def _take(self, desired: Desired) -> Desired:
        """Take in what has changed, which comes to the same as looking at everything."""
        self.desired = desired
        self._wishes.update((d, wish) for d, wish in desired.changes.items() if wish is not None)
        for directory in [d for d, wish in desired.changes.items() if wish is None]:
            self._wishes.pop(directory, None)
        everything = self.registry.wanted()
        assert len(everything) == len(self._wishes)
        assert all(self._wishes[one.capsule.directory] is one for one in everything)
        rows = self.registry.view.capsules()
        assert self.registry.view.states() == Counter(row.state for row in rows)
        assert all(self.registry.view.capsule(row.id) is row for row in rows if not row.tasks)
        return desired

    # What is seen

    @property
    def wanted(self) -> dict[str, Wanted]:
        """What is wanted, by the directory's path below the root."""
        return {w.capsule.directory.removeprefix(f"{self.root}/"): w for w in self.registry.wanted()}

    def capsule(self, directory: str) -> Capsule:
        """Return the capsule that is wanted for a directory."""
        return self.wanted[directory].capsule

    @property
    def rows(self) -> dict[str, CapsuleStatus]:
        """The registry's rows, by id."""
        rows = self.registry.view.capsules()
        assert [row.id for row in rows] == sorted({row.id for row in rows})
        return {row.id: row for row in rows}

    def bind(self, *ports: tuple[str, int]) -> None:
        """Tell the registry of successful binds."""
        for directory, port in ports:
            self.registry.bound(self.path(directory), port)
