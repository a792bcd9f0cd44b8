"""Whose planes answer for a capsule: those of its workspace here, or those of the door that its tasks go to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from sidecar.errors import RefusedError
from sidecar.planes.files import files_export
from sidecar.planes.handles import handle_id
from sidecar.planes.routes import asked
from sidecar.planes.sharing import peer_files
from sidecar.web.answers import Streamed

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.model import Answer, Capsule
    from sidecar.planes.audit import Audit
    from sidecar.planes.routes import Planes
    from sidecar.web.answers import Body

_OUTCOMES: Final = {200: "ok", 304: "not_modified"}


class Passed(Protocol):
    """Planes that are read from elsewhere."""

    async def read(
        self, plane: str, raw_target: str, header: Callable[[str], str | None]
    ) -> Answer | Streamed:
        """Answer a GET of a plane; raises RefusedError."""


class PlaneSwitch:
    """Answers each capsule from its door elsewhere where that is configured, else from its workspace here.

    `passed` returns the passed planes of a session, None for one whose planes are here. The manifest here says which
    planes there are, and the record of reads is one.
    """

    def __init__(self, workspace: Planes, passed: Callable[[str], Passed | None]) -> None:
        self._workspace = workspace
        self._passed = passed

    async def answer(
        self,
        capsule: Capsule,
        method: str,
        raw_target: str,
        header: Callable[[str], str | None],
        generation: int,
    ) -> Answer | Streamed:
        """Return the answer; raises RefusedError."""
        passed = self._passed(capsule.session_id)
        if passed is None:
            return await self._workspace.answer(capsule, method, raw_target, header, generation)
        plane, rest = asked(method, raw_target)
        note = _Note(self._workspace.audit, capsule.id, plane, rest)
        try:
            files_export(capsule) if plane == "files" else peer_files(capsule)
            answer = await passed.read(plane, raw_target, header)
        except RefusedError as error:
            note(error.refusal.code)
            raise
        except asyncio.CancelledError:
            note("cut")
            raise
        etag = next((value for name, value in answer.headers if name == "etag"), None)
        if isinstance(answer, Streamed):
            return Streamed(answer.status, answer.headers, _NotedBody(answer.body, note, etag))
        note(_OUTCOMES.get(answer.status, "other"), len(answer.body), etag)
        return answer


class _Note:
    """Puts one read on record."""

    def __init__(self, audit: Audit, capsule: str, plane: str, rest: str) -> None:
        self._audit = audit
        self._capsule = capsule
        self._plane = plane
        self._rest = rest

    def __call__(self, outcome: str, size: int = 0, etag: str | None = None) -> None:
        if self._plane == "files":
            self._audit.files(self._capsule, self._rest or None, outcome, size, etag)
        else:
            presented = handle_id(self._rest) if self._rest else None
            self._audit.redeemed(self._capsule, presented, outcome, size, etag)


class _NotedBody:
    """A body that is put on record when it is closed, with what was sent of it."""

    def __init__(self, body: Body, note: _Note, etag: str | None) -> None:
        self._body = body
        self._note: _Note | None = note
        self._etag = etag
        self._sent = 0

    @property
    def length(self) -> int:
        """How many bytes there are in all."""
        return self._body.length

    async def next(self) -> bytes:
        """Return what comes next, empty at the end. Raises ConnectionError where the rest does not come."""
        piece = await self._body.next()
        self._sent += len(piece)
        return piece

    def close(self) -> None:
        """Let go of it."""
        self._body.close()
        if self._note is not None:
            self._note("ok" if self._sent == self.length else "cut", self._sent, self._etag)
            self._note = None
