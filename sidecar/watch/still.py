"""When a manifest counts as changed: only once it has stood still, and only if its bytes are others."""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import structlog

from sidecar.watch.read import ABSENT, ChangedError, Key, describe, key_of, read_still
from sidecar.watch.values import Found, Identity

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

STALE: Final = (
    "the mount shows a file that was replaced outside, so changes do not arrive: "
    "mount the directory that holds the file instead of the file"
)


@dataclass(slots=True)
class Node(Generic[T]):
    """A directory in which a manifest is looked for, and what is known of that manifest.

    `room` counts the levels below it that are looked into. `ident` is the directory's device and inode, `entry`
    the inode that its parent lists (another one for links and mount points; -1 while unknown). `key` is the state of
    the manifest that `found` shows, an errno where it could not be read; `pending` is one seen since `since` that
    has yet to stand still. `digest` and `content` are the newest ones that were read.
    """

    path: str
    manifest: str
    room: int = 0
    ident: tuple[int, int] = (0, 0)
    entry: int = -1
    children: set[str] | None = None
    key: Key | int | None = None
    pending: Key | int | None = None
    since: float = 0.0
    found: Found[T] | None = None
    digest: str = ""
    content: T | None = None
    freed: float | None = None


@dataclass(slots=True)
class Stillness(Generic[T]):
    """Looks at manifests one by one and keeps what they show.

    `load` gets the bytes (at most `limit`, which is one more than a manifest may have) and the path, once per new
    content. `settle` is in seconds of `clock`. `found` is what all manifests show, `pending` the ones that have yet
    to stand still, `unknown` the directories that could not be looked into, with the reason. `changed` is set when
    `found` differs from before by more than the identity of a file; `altered` are the directories in which it differs
    at all. Who takes a copy of `found` clears both.
    """

    load: Callable[[bytes, str], T]
    limit: int
    settle: float
    clock: Callable[[], float]
    found: dict[str, Found[T]] = field(default_factory=dict)
    pending: dict[str, Node[T]] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    changed: bool = False
    altered: set[str] = field(default_factory=set)

    def same(self, node: Node[T]) -> bool:
        """Tell whether a manifest is as it was and as it is shown, so that there is nothing to do: the common case."""
        try:
            seen = os.stat(node.manifest)  # noqa: PTH116 - the hot path: pathlib would cost more than the call
        except OSError:
            return False
        return key_of(seen) == node.key and node.pending is None and node.path not in self.unknown

    def look(self, node: Node[T]) -> None:
        """Look at one manifest: take it if it changed and has stood still, note it if it changed just now."""
        try:
            seen = os.stat(node.manifest)  # noqa: PTH116 - the hot path: pathlib would cost more than the call
        except OSError as error:
            self._unseen(node, error.errno or errno.EIO)
            return
        key = key_of(seen)
        if key != node.key:
            self._differs(node, key)
        elif node.pending is not None:
            self._unchanged(node)

    def forget(self, node: Node[T]) -> None:
        """Drop all that is known of a directory that is gone."""
        self.pending.pop(node.path, None)
        self.unknown.pop(node.path, None)
        if self.found.pop(node.path, None) is not None:
            self.altered.add(node.path)
            self.changed = True

    def reread(self, node: Node[T]) -> None:
        """Take a manifest again even if it did not change, because what loads it did."""
        node.key, node.digest, node.content = None, "", None

    def due(self) -> float | None:
        """Return when the first of the pending files may have stood still, by the clock."""
        if not self.pending:
            return None
        return min(node.since for node in self.pending.values()) + self.settle

    def _unseen(self, node: Node[T], number: int) -> None:
        dangling = number in ABSENT and os.path.islink(node.manifest)  # noqa: PTH114 - like `stat` above
        if number in ABSENT and not dangling:
            self._unchanged(node)
            self._lost(node)
        elif dangling or node.found is not None or os.path.lexists(node.manifest):
            if number == node.key:
                self._unchanged(node)
            else:
                self._differs(node, number)
        else:
            self.unknown[node.path] = describe(number)

    def _unchanged(self, node: Node[T]) -> None:
        node.pending = None
        self.pending.pop(node.path, None)

    def _lost(self, node: Node[T]) -> None:
        node.key = None
        if node.found is not None:
            node.found, node.freed = None, self.clock()
            del self.found[node.path]
            self.altered.add(node.path)
            self.changed = True

    def _differs(self, node: Node[T], key: Key | int) -> None:
        now = self.clock()
        if node.pending != key:
            self._wait(node, key, now)
        if now - node.since >= self.settle:
            self._take(node, key)

    def _wait(self, node: Node[T], key: Key | int, now: float) -> None:
        node.pending, node.since = key, now
        self.pending[node.path] = node

    def _take(self, node: Node[T], key: Key | int) -> None:
        if isinstance(key, int):
            self._unchanged(node)
            self._show_error(node, key, describe(key))
            return
        try:
            data, links = read_still(node.manifest, key, self.limit)
        except ChangedError as changed:
            self._wait(node, changed.key, self.clock())
        except OSError as error:
            self._unchanged(node)
            self._unread(node, key, error)
        else:
            self._unchanged(node)
            self._show(node, key, data, links)

    def _unread(self, node: Node[T], key: Key, error: OSError) -> None:
        number = error.errno or errno.EIO
        if number in ABSENT:
            self._lost(node)
        elif number == errno.EINVAL:
            self._show_error(node, key, "is not a regular file; put a file or a link to one there")
        else:
            self._show_error(node, None, describe(number))

    def _show(self, node: Node[T], key: Key, data: bytes, links: int) -> None:
        if node.key is not None and not isinstance(node.key, int) and node.key[0] != key[0]:
            node.entry = -1  # something may have been mounted over the directory: have its identity looked up
        node.key = key
        digest = hashlib.sha256(data).hexdigest()
        error = None
        if digest != node.digest or node.content is None:
            try:
                node.content = self.load(data, node.manifest)
            except Exception as raised:  # noqa: BLE001 - the boundary to the loader: one file must not stop the watch
                structlog.get_logger().error("manifest_load_failed", path=node.manifest, exc_info=raised)
                node.content = None
                error = f"could not be loaded, by a fault of the sidecar: {raised!r}"
        node.digest = digest
        warning = STALE if links == 0 else None
        self._set(node, Found(node.path, node.manifest, Identity(*key), digest, node.content, error, warning))

    def _show_error(self, node: Node[T], key: Key | int | None, error: str) -> None:
        # Without a key the file is tried again at the next look: what keeps it unreadable need not show on it.
        node.key = key
        self._set(node, Found(node.path, node.manifest, None, "", None, error))

    def _set(self, node: Node[T], found: Found[T]) -> None:
        old = node.found
        node.found, node.freed = found, None
        self.found[node.path] = found
        self.altered.add(node.path)
        if (
            old is None
            or old.content is not found.content
            or (old.digest, old.error, old.warning) != (found.digest, found.error, found.warning)
        ):
            self.changed = True


class StillFile:
    """A further file that is watched, such as the configuration: its identity once that has stood still."""

    __slots__ = ("_pending", "_since", "identity", "path", "settled")

    def __init__(self, path: str) -> None:
        self.path = path
        self.identity: Identity | None = None
        self.settled = False
        self._pending: tuple[Identity | None] | None = None
        self._since = 0.0

    def look(self, now: float, settle: float) -> bool:
        """Look at the file at `now`; return whether its settled identity has changed. Gone counts as a change too."""
        try:
            seen: Identity | None = Identity(*key_of(os.stat(self.path)))  # noqa: PTH116 - like the manifests
        except OSError:
            seen = None
        if self.settled and seen == self.identity:
            self._pending = None
            return False
        if self._pending != (seen,):
            self._pending, self._since = (seen,), now
        if now - self._since < settle:
            return False
        self.identity, self.settled, self._pending = seen, True, None
        return True

    @property
    def since(self) -> float | None:
        """Since when a change has been waiting to stand still."""
        return None if self._pending is None else self._since
