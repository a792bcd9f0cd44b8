"""Who looked at which file: one log line each, few enough that nobody can fill a disk with them."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

BURST: Final = 200
PER_SECOND: Final = 2.0
"""Lines of one kind that may come at once, and in the long run: 2 a second of 300 bytes are 50 MB a day."""

TOKEN: Final = re.compile(r"[\w-]{24,}(?:[./]|%2e)[\w-]{40,}", re.ASCII | re.IGNORECASE)
"""What the two long segments of a handle look like, whatever stands before them."""

log = structlog.get_logger()


class Allowance:
    """How many lines of one kind may be logged now. `clock` is in seconds and never goes back."""

    __slots__ = ("_at", "_clock", "_left", "_out")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(BURST)
        self._at = clock()
        self._out = 0

    def take(self) -> dict[str, int] | None:
        """Take one line. Returns what it must say besides: how many were left out before; None: leave it out."""
        now = self._clock()
        self._left = min(BURST, self._left + (now - self._at) * PER_SECOND)
        self._at = now
        if self._left < 1:
            self._out += 1
            return None
        self._left -= 1
        return self.settle()

    def settle(self) -> dict[str, int]:
        """Return how many lines were left out since it was last asked, and count anew."""
        out, self._out = self._out, 0
        return {"not_logged": out} if out else {}


class Audit:
    """The record of the planes. Each kind of event has an allowance of its own, so that a flood of one hides no other.

    What the operator does (minting, revoking) is always logged. A token is never given to it, only the handle's id.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._reads = Allowance(clock)
        self._refused_reads = Allowance(clock)
        self._redeems = Allowance(clock)
        self._refused_redeems = Allowance(clock)

    def files(
        self, capsule: str, path: str | None, outcome: str, size: int = 0, etag: str | None = None
    ) -> None:
        """Note a read of the operator's plane, or a listing (`path` None). `size` is in bytes."""
        allowance = self._reads if outcome in _FINE else self._refused_reads
        if (left_out := allowance.take()) is None:
            return
        fields = {"capsule": capsule, "outcome": outcome, "bytes": size, "etag": etag}
        if path is None:
            log.info("files_listed", **fields, **left_out)
        else:
            log.info("file_read", path=_shown(path), **fields, **left_out)

    def redeemed(
        self, capsule: str, handle_id: str | None, outcome: str, size: int = 0, etag: str | None = None
    ) -> None:
        """Note that a handle was presented, and how it went; `handle_id` None where there was none."""
        fine = outcome in _FINE
        left_out = (self._redeems if fine else self._refused_redeems).take()
        if left_out is None:
            return
        fields = {"capsule": capsule, "handle_id": handle_id, "outcome": outcome}
        if fine:
            log.info("handle_redeemed", **fields, bytes=size, etag=etag, **left_out)
        else:
            log.warning("handle_refused", **fields, **left_out)

    def minted(self, capsule: str, handle_id: str, path: str, audience: str, expires_at_ms: int) -> None:
        """Note a new handle."""
        log.info(
            "handle_minted",
            capsule=capsule,
            handle_id=handle_id,
            path=path,
            audience=audience,
            expires_at_ms=expires_at_ms,
        )

    def not_minted(self, capsule: str, path: str, audience: str, outcome: str) -> None:
        """Note that no handle was made, and why."""
        log.warning("handle_not_minted", capsule=capsule, path=path, audience=audience, outcome=outcome)

    def revoked(self, capsule: str, handle_id: str) -> None:
        """Note the end of a handle before its time."""
        log.info("handle_revoked", capsule=capsule, handle_id=handle_id)

    def close(self) -> None:
        """Say what was left out and not yet told."""
        kinds = {
            "reads": self._reads,
            "refused_reads": self._refused_reads,
            "redeems": self._redeems,
            "refused_redeems": self._refused_redeems,
        }
        left_out = {kind: its["not_logged"] for kind, a in kinds.items() if (its := a.settle())}
        if left_out:
            log.info("audit_left_out", **left_out)


_FINE: Final = frozenset({"ok", "not_modified", "cut"})


def _shown(path: str) -> str:
    """Return a path of a request as it may be logged: a token that was sent to the wrong plane is not.

    Looked for in the decoded text, so that no spelling of it gets by.
    """
    return TOKEN.sub("[hidden]", unquote(path))
