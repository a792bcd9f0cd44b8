"""Which directories to watch, and by which other paths one of them is known."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from sidecar.watch.paths import Ident, ident_of, parent_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


class Places:
    """The directories below the roots, and those above, where a root may come and go.

    `moved` is set when there is something else to watch than `wanted` returned last.
    """

    def __init__(self) -> None:
        self.moved = True
        self._anchors: dict[str, tuple[str, Ident]] = {}
        self._twins: dict[str, list[str]] = {}

    def configure(self, roots: Collection[str]) -> None:
        """Watch above these roots only."""
        self._anchors = {path: anchor for path, anchor in self._anchors.items() if path in roots}
        self.moved = True

    def anchor(self, root: str) -> None:
        """Note the nearest directory above a root: changes there may bring the root, or take it away."""
        above = parent_of(root)
        while (ident := ident_of(above)) is None:
            if above == "/":
                return
            above = parent_of(above)
        if self._anchors.get(root) != (above, ident):
            self._anchors[root] = (above, ident)
            self.moved = True

    def twins(self, path: str) -> Sequence[str]:
        """Return the other paths that lead to the same directory: the kernel names it by one of them only."""
        return self._twins.get(path, ())

    def wanted(self, below: Mapping[str, Ident], files: Iterable[str]) -> dict[str, Ident]:
        """Return what to watch: the directories `below` the roots, those above, and those of further files."""
        found = dict(below)
        for above, ident in self._anchors.values():
            found.setdefault(above, ident)
        for above in {parent_of(path) for path in files} - found.keys():
            if (there := ident_of(above)) is not None:
                found[above] = there
        by_ident: defaultdict[Ident, list[str]] = defaultdict(list)
        for path, ident in found.items():
            by_ident[ident].append(path)
        same = [paths for paths in by_ident.values() if len(paths) > 1]
        self._twins = {path: [p for p in paths if p != path] for paths in same for path in paths}
        self.moved = False
        return found
