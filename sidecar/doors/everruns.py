"""The Everruns door: sessions of one capsule's callers, over the same engine as its other doors."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.dialects import everruns
from sidecar.dialects.problem import Action, ProblemDetails, ProblemError
from sidecar.doors.everruns_log import Receipt, message_reply
from sidecar.doors.everruns_rows import Session
from sidecar.doors.everruns_stream import SessionStream
from sidecar.events import TaskState
from sidecar.model import TaskAcceptance
from sidecar.ops.uuid7 import Uuid7
from sidecar.tasks.model import Input

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sidecar.doors.everruns_log import EverrunsLog
    from sidecar.events import Task
    from sidecar.model import Capsule
    from sidecar.tasks.engine import Engine

BUSY: Final = 2
"""Seconds after which a caller who found no room may try again."""
LISTED_BYTES: Final = 4 * 1024 * 1024
"""Bytes of events beyond which a list ends; whoever reads it asks again from its last number on."""
LONGEST_HEARTBEAT: Final = 30.0
"""Seconds between two comments on a stream at most: the published client takes 45 without any for a broken one."""

_AGAIN: Final = Action("retry-later", hint="Send the same request again after retry_after_seconds.")


@dataclass(frozen=True, slots=True)
class Made:
    """What a request made, as JSON; `replayed` where it was made by an earlier one with the same key."""

    body: bytes
    replayed: bool = False

    @property
    def id(self) -> str:
        """The id of what was made."""
        return str(orjson.loads(self.body)["id"])


class EverrunsDoor:
    """One capsule's door as it is served now: made anew at each reload, over an engine and a log that stay.

    Callers are known by their owner; what belongs to another one is not there for them. Everything raises StoreError.
    """

    def __init__(self, log: EverrunsLog, engine: Engine, capsule: Capsule) -> None:
        self._log = log
        self._engine = engine
        self._session_id = capsule.session_id
        self._accepts = capsule.manifest.lifecycle.task_acceptance is not TaskAcceptance.NONE
        self._heartbeat = min(capsule.settings.heartbeat, LONGEST_HEARTBEAT)
        self._most_streams = capsule.settings.streams
        self._ids = Uuid7()

    async def create(self, owner: str, title: str | None, key: str | None = None) -> Made:
        """Begin a session. Raises ProblemError for a key that cannot be used."""
        with self._keyed(owner, key, ["sessions", title]) as receipt:
            if receipt is not None and (known := await self._replayed(owner, receipt)) is not None:
                return known
            now = time.time()
            made = Session(everruns.SESSION + self._ids(), owner, title, now, now)
            body = orjson.dumps(session_document(made))
            await self._log.create(self._session_id, made, body, receipt)
            return Made(body)

    async def list(self, owner: str, most: int, after: tuple[float, str] | None) -> dict[str, Any]:
        """Return a page of the caller's sessions, the most recently active first."""
        found = await self._log.list(self._session_id, owner, most + 1, after)
        page: dict[str, Any] = {"data": [session_document(one) for one in found[:most]]}
        if len(found) > most:
            page["next_page_token"] = everruns.page_token(found[most - 1].active_at, found[most - 1].id)
        return page

    async def find(self, owner: str, everruns_id: str) -> Session:
        """Return a session of the caller's. Raises ProblemError (404): it is not there, or another's."""
        found = await self._log.find(self._session_id, everruns_id, owner)
        if found is None:
            raise ProblemError(ProblemDetails(404, "session_not_found", "There is no such session here."))
        return found

    async def send(
        self, owner: str, everruns_id: str, texts: Sequence[str], key: str | None = None, *, cancel: str
    ) -> Made:
        """Have a message start a turn, or answer the one that waits longest in the session.

        Raises ProblemError: 409 where there is no room, 400 where the agent takes no messages, and for a key that
        cannot be used. `cancel` is where the caller can cancel the turn that is in the way.
        """
        if not self._accepts:
            text = "This agent takes no messages (task_acceptance: none)."
            raise ProblemError(ProblemDetails(400, "input_not_accepted", text))
        with self._keyed(owner, key, ["messages", everruns_id, *texts]) as receipt:
            if receipt is not None and (known := await self._replayed(owner, receipt)) is not None:
                return known
            given = self._given(everruns_id, texts, receipt)
            task = await self._engine.deliver(given, context_id=everruns_id, owner=owner)
            if task is None:
                task = await self._engine.send(given, context_id=everruns_id, owner=owner)
            if task.state is TaskState.REJECTED:
                raise ProblemError(self._busy(await self._engine.live(everruns_id, owner), cancel))
            return Made(message_reply(given, task.id))

    async def events(self, everruns_id: str, after: int, most: int) -> dict[str, Any]:
        """Return events of a session that was found, the oldest first: fewer than `most` where they are big."""
        found = await self._log.events(everruns_id, after, most, LISTED_BYTES)
        return {"data": [everruns.envelope(everruns_id, event) for event in found]}

    async def cancel(self, owner: str, everruns_id: str) -> None:
        """Cancel the turn of a session that is running, else the one that waits for an answer, else for its start."""
        live = await self._engine.live(everruns_id, owner)
        for state in (TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.SUBMITTED):
            for task in live:
                if task.state is state:
                    await self._engine.cancel(task.id)
                    return

    def stream(self, everruns_id: str, after: int) -> SessionStream:
        """Open a stream of a session that was found, behind an event. Raises ProblemError (503) over the limit."""
        if self.open_streams + self._engine.open_streams >= self._most_streams:
            text = "Too many streams are open on this agent."
            raise ProblemError(ProblemDetails(503, "unavailable", text, retry_after=1, actions=(_AGAIN,)))
        return SessionStream(
            self._log, everruns_id, after, session_id=self._session_id, heartbeat=self._heartbeat
        )

    @property
    def open_streams(self) -> int:
        """Streams that are open now."""
        return len(self._log.streams.get(self._session_id, ()))

    def _given(self, everruns_id: str, texts: Sequence[str], receipt: Receipt | None) -> Input:
        message = {
            "messageId": everruns.MESSAGE + self._ids(),
            "contextId": everruns_id,
            "role": "user",
            "parts": [{"text": text} for text in texts],
        }
        return Input("\n".join(texts), orjson.dumps(message).decode(), receipt)

    @contextmanager
    def _keyed(self, owner: str, key: str | None, wish: object) -> Iterator[Receipt | None]:
        """Hold a key while its request is answered. Raises ProblemError where another request holds it."""
        if key is None:
            yield None
            return
        digest = sha256(orjson.dumps(wish)).digest()
        place = (self._session_id, owner, key)
        holder = self._log.in_progress.get(place)
        if holder is not None:
            if holder != digest:
                raise ProblemError(_REUSED)
            text = "The request with this Idempotency-Key is still being answered."
            code = "idempotency_key_in_progress"
            raise ProblemError(ProblemDetails(409, code, text, retry_after=1, actions=(_AGAIN,)))
        self._log.in_progress[place] = digest
        try:
            yield Receipt(owner, key, digest)
        finally:
            del self._log.in_progress[place]

    async def _replayed(self, owner: str, receipt: Receipt) -> Made | None:
        stored = await self._log.reply(self._session_id, owner, receipt.key)
        if stored is None:
            return None
        if stored.digest != receipt.digest:
            raise ProblemError(_REUSED)
        return Made(stored.body, replayed=True)

    @staticmethod
    def _busy(live: Sequence[Task], cancel: str) -> ProblemDetails:
        actions: tuple[Action, ...] = (_AGAIN,)
        if live:
            actions += (Action("cancel", "POST", cancel, hint="Cancel the running turn of this session."),)
        text = "The agent has no room for another turn now."
        return ProblemDetails(409, "agent_busy", text, retry_after=BUSY, actions=actions)


_REUSED: Final = ProblemDetails(
    422, "idempotency_key_reused", "This Idempotency-Key came with another request before; use a new one."
)


def session_document(session: Session, *, questions: bool = False) -> dict[str, Any]:
    """Return a session as JSON has it, with what it is waiting for where `questions` is set."""
    document: dict[str, Any] = {"id": session.id}
    if session.title is not None:
        document["title"] = session.title
    document["status"] = _status(session)
    if session.last_turn is not None:
        document["last_turn_status"] = session.last_turn
    document["created_at"] = everruns.timestamp(session.created_at)
    document["updated_at"] = everruns.timestamp(session.active_at)
    if questions:
        document["pending_questions"] = [
            {
                "turn_id": everruns.turn_id(turn.task_id),
                "question": turn.question,
                "asked_at": everruns.timestamp(turn.since),
            }
            for turn in session.turns
            if turn.since is not None
        ]
    return document


def _status(session: Session) -> str:
    """Return where a session stands, in the words of the published client's `SessionStatus`."""
    if any(turn.since is None for turn in session.turns):
        return "active"
    if session.turns:
        return "waitingfortoolresults"
    return "started" if session.sequence == 0 else "idle"
