"""The scan against a plain model of it, through any sequence of changes on a real directory."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sidecar.watch.scan import Scanner
from tests.support.watching import Content, RootAt, shown

DEPTH = 2
NAMES = st.sampled_from(["a", "b", "..c", "é"])
PLACES = st.lists(NAMES, max_size=3)
TEXTS = st.sampled_from(["", "1", "22"])


def expected(
    path: Path, room: int = DEPTH, above: frozenset[tuple[int, int]] = frozenset()
) -> dict[str, str]:
    """Say in the plainest way what a root holds."""
    if not path.is_dir() or (path.stat().st_dev, path.stat().st_ino) in above:
        return {}
    if (path / "murmur.yaml").is_file():
        return {str(path): (path / "murmur.yaml").read_text()}
    found: dict[str, str] = {}
    inner = above | {(path.stat().st_dev, path.stat().st_ino)}
    for child in path.iterdir() if room else ():
        if not child.name.startswith(".."):
            found |= expected(child, room - 1, inner)
    return found


class Directories(RuleBasedStateMachine):
    """Changes below a root, with the hints that a watcher would give; links only where everything is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="watch-model-"))
        self.root = self.base / "root"
        self.now = 0.0
        self.hints: set[str] = set()
        self.linked = False
        self.scanner = Scanner(
            [RootAt(str(self.root), DEPTH)],
            load=Content,
            max_bytes=99,
            settle=1.0,
            grace=0.0,
            clock=lambda: self.now,
        )
        self.texts: dict[str, str | None] = {}
        self.look()

    def teardown(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.base)

    def look(self, hints: set[str] | None = None) -> None:
        """Look once and keep what there is to see."""
        snapshot = self.scanner.look(hints).snapshot
        if snapshot is not None:
            self.texts = shown(snapshot)

    def settle(self, hints: set[str] | None) -> None:
        """Look, let the window pass, and look at what was pending, until nothing is."""
        self.look(hints)
        for _ in range(DEPTH + 1):
            self.now += 2
            self.look(set())

    def changed(self, path: Path) -> None:
        """Note an event."""
        self.hints.add(str(path))

    def place(self, parts: list[str]) -> Path:
        """Return a directory below the root."""
        return self.root.joinpath(*parts)

    @rule(parts=PLACES, text=TEXTS, rename=st.booleans())
    def write(self, parts: list[str], text: str, rename: bool) -> None:  # noqa: FBT001 - a drawn value
        """Write a manifest, in place or by a rename, making the directories above it."""
        directory = self.place(parts)
        new = [path for path in (directory, *directory.parents) if not path.exists()]
        try:
            directory.mkdir(parents=True, exist_ok=True)
            target = directory / ("new" if rename else "murmur.yaml")
            target.write_text(text)
            target.rename(directory / "murmur.yaml")
        except OSError:
            return
        self.changed(new[-1] if new else directory / "murmur.yaml")

    @rule(parts=PLACES)
    def unlink(self, parts: list[str]) -> None:
        """Remove a manifest."""
        manifest = self.place(parts) / "murmur.yaml"
        if manifest.is_file():
            manifest.unlink()
            self.changed(manifest)

    @rule(parts=PLACES)
    def remove(self, parts: list[str]) -> None:
        """Remove a directory or a link to one."""
        path = self.place(parts)
        if path.is_symlink():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)
        self.changed(path)

    @precondition(lambda self: not self.linked)
    @rule(old=PLACES, new=PLACES)
    def move(self, old: list[str], new: list[str]) -> None:
        """Move a directory to where nothing is."""
        try:
            os.rename(self.place(old), self.place(new))  # noqa: PTH104 - links are moved themselves
        except OSError:
            return
        self.changed(self.place(old))
        self.changed(self.place(new))

    @rule(old=PLACES, new=PLACES)
    def link(self, old: list[str], new: list[str]) -> None:
        """Make a link to a directory, above it too, or to nothing. What leads to itself cannot be read: not here."""
        path = self.place(old)
        try:
            path.symlink_to(self.place(new))
        except OSError:
            return
        self.linked = True
        try:
            path.stat()
        except OSError as error:
            if error.errno == errno.ELOOP:
                path.unlink()

    @rule()
    def glance(self) -> None:
        """Look in between, before anything had the time to stand still."""
        self.look(None if self.linked else self.hints)
        self.hints = set()

    @rule()
    def look_at_everything(self) -> None:
        """After a look at everything the scan and the model agree."""
        self.settle(None)
        self.hints = set()
        assert self.texts == expected(self.root)

    @precondition(lambda self: not self.linked)
    @rule()
    def look_where_the_hints_point(self) -> None:
        """After a look at the hinted places alone they agree as well."""
        self.settle(self.hints)
        self.hints = set()
        assert self.texts == expected(self.root)

    @invariant()
    def what_is_shown_was_written(self) -> None:
        """Nothing but whole texts is ever shown."""
        assert set(self.texts.values()) <= {"", "1", "22"}


TestDirectories = Directories.TestCase
TestDirectories.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
