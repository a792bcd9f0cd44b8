"""The walk: from roots to the directories in which a manifest is looked for, whole or where a hint points."""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from sidecar.model import MANIFEST_NAME, LastError, RootStatus
from sidecar.watch.paths import Ident, depths_of, inside, parent_of
from sidecar.watch.places import Places
from sidecar.watch.read import ABSENT, describe
from sidecar.watch.still import Node, Stillness

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from sidecar.watch.values import Root

T = TypeVar("T")


class Tree(Generic[T]):
    """The directories below the roots.

    A directory that holds a manifest is a capsule and is not descended into; nor is one whose manifest has been gone
    for less than `grace` seconds. `at` is what is being looked at, for another thread to see. Links to directories are followed, but never back to a directory above. Entries
    whose name begins with `..` are passed over (the inside of a Kubernetes volume).
    """

    def __init__(self, still: Stillness[T], grace: float) -> None:
        self.grace = grace
        self.at: str | None = None
        self.status: dict[str, RootStatus] = {}
        self.places = Places()
        self._still = still
        self._roots: dict[str, int] = {}
        self._nodes: dict[str, Node[T]] = {}
        self._former: dict[str, Node[T]] = {}
        self._lingering: dict[str, Node[T]] = {}

    def configure(self, roots: Sequence[Root]) -> None:
        """Walk other roots from the next look at everything on; what is known of directories in both is kept."""
        depths = depths_of(roots)
        self._roots = depths
        self._former |= self._nodes
        self._nodes, self._lingering = {}, {}
        self.status = {path: self.status[path] for path in depths if path in self.status}
        self.places.configure(depths)

    def reread(self) -> None:
        """Have every manifest taken again, though none of them changed."""
        for node in (*self._nodes.values(), *self._former.values()):
            self._still.reread(node)

    def due(self) -> float | None:
        """Return when a directory that was a capsule may be descended into, by the clock."""
        times = (n.freed + self.grace for n in self._lingering.values() if n.freed is not None)
        return min(times, default=None)

    def wanted(self, files: Iterable[str]) -> Mapping[str, Ident] | None:
        """Return the directories to watch, those of further `files` too; None where they are the same as before."""
        if not self.places.moved:
            return None
        return self.places.wanted({path: node.ident for path, node in self._nodes.items()}, files)

    # Looking at everything

    def look(self) -> None:
        """Look at everything below the roots."""
        for path in self._roots:
            self._look_at_root(path)
        for node in self._former.values():
            self._still.forget(node)
        self._former.clear()

    def _look_at_root(self, path: str) -> None:
        trouble = None
        self.at = path
        try:
            found = os.stat(path)  # noqa: PTH116 - surrogate-escaped text paths throughout
        except OSError as error:
            number = error.errno or errno.EIO
            trouble = "does not exist (yet); it is taken up as soon as it does"
            if number in ABSENT:
                self._forget(path)
            else:
                trouble = self._still.unknown[path] = describe(number)
                self._keep(path)
        else:
            if stat.S_ISDIR(found.st_mode):
                node = self._node(path, self._roots[path])
                node.entry = -1  # where it lies below another root, that passes it over
                self._identify(node, (found.st_dev, found.st_ino))
                self._look_at(node)
                trouble = self._still.unknown.get(path)
            else:
                trouble = "is not a directory; name one that holds capsules, or is one"
                self._forget(path)
        self._report(path, trouble)
        self.places.anchor(path)

    def _report(self, path: str, trouble: str | None) -> None:
        old = self.status.get(path)
        said = old.last_error.message if old and old.last_error else None
        if old is None or said != trouble:
            error = None if trouble is None else LastError(time.time(), trouble)
            self.status[path] = RootStatus(path, error)

    def _look_at(self, node: Node[T]) -> None:
        self.at = node.path
        if self._still.unknown:
            self._still.unknown.pop(node.path, None)
        self._still.look(node)
        if node.room > 0 and self._opens(node):
            self._list(node)

    def _opens(self, node: Node[T]) -> bool:
        """Return whether a directory that was looked at is to be descended into."""
        if node.found is not None:
            self._forget_children(node.children or ())
            node.children = None
            self._lingering.pop(node.path, None)
            return False
        if node.freed is not None:
            if self._still.clock() - node.freed < self.grace:
                self._lingering[node.path] = node
                return False
            node.freed = None
            self._lingering.pop(node.path, None)
        return True

    def _list(self, node: Node[T]) -> None:
        room = node.room - 1
        here: set[str] = set()
        before = node.children or set()
        nodes, same = self._nodes, self._still.same
        try:
            with os.scandir(node.path) as entries:
                for entry in entries:
                    path = entry.path
                    known = nodes.get(path)
                    if known is not None and known.entry == entry.inode() and entry.is_dir():
                        here.add(path)
                        known.room = room
                        self.at = path
                        if not same(known):
                            self._look_at(known)
                    elif not entry.name.startswith("..") and path not in self._roots:
                        self._look_at_entry(node, entry, here)
        except OSError as error:
            if error.errno not in ABSENT:
                self._still.unknown[node.path] = describe(error.errno or errno.EIO)
                self._keep_children(node)
                node.children = before | here
                return
        node.children = here
        self._forget_children(before - here)

    def _look_at_entry(self, parent: Node[T], entry: os.DirEntry[str], here: set[str]) -> None:
        path = entry.path
        try:
            if not entry.is_dir():
                return
            found = entry.stat()
            ident = (found.st_dev, found.st_ino)
            if entry.is_symlink() and self._leads_back(parent, ident):
                return
            node = self._node(path, parent.room - 1)
            self._identify(node, ident)
            # Nothing tells that a link leads elsewhere now, so it is asked every time.
            node.entry = -1 if entry.is_symlink() else entry.inode()
        except OSError as error:
            if error.errno not in ABSENT and (path in self._nodes or path in self._former):
                self._still.unknown[path] = describe(error.errno or errno.EIO)
                self._keep(path)
                here.add(path)
            return
        here.add(path)
        self._look_at(node)

    # Nodes

    def _node(self, path: str, room: int) -> Node[T]:
        node = self._nodes.get(path)
        if node is None:
            node = self._former.pop(path, None)
            if node is None:
                node = Node(path, f"{inside(path)}{MANIFEST_NAME}")
            self._nodes[path] = node
            self.places.moved = True
        node.room = room
        return node

    def _identify(self, node: Node[T], ident: Ident) -> None:
        if node.ident != ident:
            node.ident = ident
            self.places.moved = True

    def _leads_back(self, node: Node[T], ident: Ident) -> bool:
        above: Node[T] | None = node
        while above is not None:
            if above.ident == ident:
                return True
            above = None if above.path in self._roots else self._nodes.get(parent_of(above.path))
        return False

    def _keep(self, path: str) -> None:
        """Take over what the configuration before knew of a directory that cannot be looked into."""
        node = self._nodes.get(path)
        if node is None and path in self._former:
            node = self._nodes[path] = self._former.pop(path)
        if node is not None:
            self._keep_children(node)

    def _keep_children(self, node: Node[T]) -> None:
        if self._former:
            for child in node.children or ():
                self._keep(child)

    def _forget(self, path: str) -> None:
        node = self._nodes.pop(path, None)
        if node is None:
            self._still.unknown.pop(path, None)
            return
        self.places = Places()
        self._still.forget(node)
        self._lingering.pop(path, None)
        self._forget_children(node.children or ())

    def _forget_children(self, paths: Iterable[str]) -> None:
        for path in paths:
            if path not in self._roots:
                self._forget(path)

    # Looking where hints point

    def targets(self, hints: Iterable[str]) -> set[str]:
        """Return the directories that events on these paths may concern.

        An event names an entry of a watched directory, by one of the paths that lead there; what kind of event it
        was, and on which of these paths, is not relied on.
        """
        found: set[str] = set()
        for hint in hints:
            above, _, name = hint.rpartition("/")
            if hint in self._nodes:
                found.update((hint, *self.places.twins(hint)))
            for place in (above or "/", *self.places.twins(above or "/")):
                self._aim(place, name, found)
        return found

    def _aim(self, place: str, name: str, found: set[str]) -> None:
        path = inside(place) + name
        found.update(root for root in self._roots if root == path or root.startswith(inside(path)))
        node = self._nodes.get(place)
        if node is None:
            return
        whole = node.room <= 0 or node.found is not None or name == MANIFEST_NAME or name.startswith("..")
        found.add(place if whole else path)

    def revisit(self, paths: Collection[str]) -> None:
        """Look at these directories again, at what has yet to stand still, and at what is no capsule any more."""
        for path in sorted(paths):
            self._revisit(path)
        for node in list(self._still.pending.values()):
            known = self._nodes.get(node.path) is node
            if known and node.path not in paths and node.path not in self._lingering:
                self._still.look(node)
                if node.room > 0:
                    self._opens(node)
        for node in list(self._lingering.values()):
            self._look_at(node)

    def _revisit(self, path: str) -> None:
        if path in self._roots:
            self._look_at_root(path)
            return
        parent = self._nodes.get(parent_of(path))
        if parent is None or parent.found is not None or parent.room <= 0 or parent.freed is not None:
            return
        try:
            found = os.stat(path)  # noqa: PTH116 - surrogate-escaped text paths throughout
        except OSError as error:
            if error.errno in ABSENT:
                self._drop(parent, path)
            elif path in self._nodes:
                self._still.unknown[path] = describe(error.errno or errno.EIO)
            return
        ident = (found.st_dev, found.st_ino)
        if not stat.S_ISDIR(found.st_mode) or self._leads_back(parent, ident):
            self._drop(parent, path)
            return
        node = self._node(path, parent.room - 1)
        if node.ident != ident:
            node.entry = -1
        self._identify(node, ident)
        if parent.children is None:
            parent.children = set()
        parent.children.add(path)
        self._look_at(node)
        self._look_at_roots_in(path)

    def _drop(self, parent: Node[T], path: str) -> None:
        if parent.children is not None:
            parent.children.discard(path)
        self._forget(path)
        self._look_at_roots_in(path)

    def _look_at_roots_in(self, path: str) -> None:
        for root in self._roots:
            if root.startswith(inside(path)):
                self._look_at_root(root)
