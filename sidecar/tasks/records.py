"""Tasks with all that was said and made in them, read from the log (A2A 1.0 section 3.7 tells the two apart).

The conversation is what the caller sent, each prompt that it answered, and a worker's `message`; everything else that
a worker said is a status, or has become an artifact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.dialects.a2a import RESPONSE, response_id, status_id
from sidecar.dialects.agent import plain_parts
from sidecar.events import ArtifactRecord, EventKind, Message, Record, TaskState
from sidecar.tasks.log import EVENT, PAGE, TASK, event_of, task_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from sidecar.events import Event, Task
    from sidecar.store import Store

LISTED_BYTES: Final = 4 * 1024 * 1024
"""Bytes of messages and artifacts after which a page of a list is full, whatever its size was to be."""
PAST_BYTES: Final = 64 * 1024
"""Bytes of past events after which no more of them are read at once; one event may be more."""
NO_END: Final = 2**63 - 1

_SAID: Final = (
    "SELECT seq, prompt, message FROM (SELECT 0 AS seq, NULL AS prompt, request AS message FROM tasks WHERE id = :id"
    " UNION ALL SELECT seq, prompt, message FROM inputs WHERE task_id = :id AND seq <= :last) ORDER BY seq"
)
_MADE: Final = (
    "SELECT seq, kind, data FROM events WHERE task_id = :id AND seq <= :last AND kind IN ('artifact', 'reply')"
    " UNION ALL SELECT seq, kind, data FROM made WHERE task_id = :id AND seq <= :last ORDER BY seq"
)
_FROM_EVENTS: Final = "FROM events"
_WANTED: Final = (
    "FROM tasks {} WHERE session_id = :session AND owner = :owner AND ended_at IS {} NULL"
    " AND (:context IS NULL OR context_id = :context) AND (:state IS NULL OR state = :state) AND {} >= :since"
)
# what is asked for is in this index, so that rows of others, or in other states, are not even looked at
_ENDED: Final = _WANTED.format("INDEXED BY tasks_of_owner", "NOT", "ended_at")
_LIVE_AT: Final = "coalesce(status_at, created_at)"
_LIVE: Final = _WANTED.format("INDEXED BY tasks_by_end", "", _LIVE_AT)
_COUNT: Final = f"SELECT (SELECT count(*) {_ENDED}) + (SELECT count(*) {_LIVE})"
_BEFORE: Final = "AND {0} <= :at AND ({0}, seq) < (:at, :seq) ORDER BY {0} DESC, seq DESC LIMIT :most"
_EITHER: Final = "SELECT * FROM ({}) UNION ALL SELECT * FROM ({}) ORDER BY at DESC, seq DESC LIMIT :most"  # the best of both
_LISTED: Final = _EITHER.format(
    f"SELECT {TASK}, seq, ended_at AS at {_ENDED} {_BEFORE.format('ended_at')}",
    f"SELECT {TASK}, seq, {_LIVE_AT} AS at {_LIVE} {_BEFORE.format(_LIVE_AT)}",
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tasks are listed: those of an owner and, where given, of a context, in a state, with a status since then.

    `before` is the place that an earlier page ended at, None for the first page. `size` is the most that a page has.
    """

    owner: str
    context_id: str | None = None
    state: str | None = None
    since: float | None = None
    before: tuple[float, int] | None = None
    size: int = 50
    artifacts: bool = True


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of tasks, the newest status first. `next` is the place that it ends at, None for the last page.

    `total` counts the tasks of all pages.
    """

    records: tuple[Record, ...]
    next: tuple[float, int] | None
    total: int


@dataclass(frozen=True, slots=True)
class Story:
    """What was said and made in a task; `size` is its bytes in the log.

    `shown` is the `Event.number` that it had come to with its last status, `states` where it stood.
    """

    history: tuple[Message, ...]
    artifacts: tuple[ArtifactRecord, ...]
    reply: tuple[Mapping[str, Any], ...] | None
    size: int
    shown: int = 1
    states: tuple[tuple[TaskState, float], ...] = ()

    def record(self, task: Task, text: str = "", number: int | None = None) -> Record:
        """Return it with its task, and the text of the reply so far; a task that is over brings its own.

        `number` is the newest `Event.number` in it, that of a task which is over where it is left out.
        """
        if task.state.terminal:
            text = task.output or text
        found = record_of(task, self.history, self.artifacts, text, self.reply)
        states = self.states
        if not states or states[-1][0] is not task.state:
            states = (*states, (task.state, found.status_at))  # what is left out where there are very many
        return replace(found, number=self.shown if number is None else number, states=states)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task stood with one of its events: `seq` of the session, and what `record` had come to.

    `begun` is as in `Told`.
    """

    seq: int
    begun: bool
    record: Record


@dataclass(frozen=True, slots=True)
class Past:
    """Some events of one task, and whether they are all that were asked for; `gap` that some are kept no longer."""

    events: tuple[Event, ...]
    whole: bool
    gap: bool = False


class Records:
    """The way to one session's records. Everything raises StoreError."""

    __slots__ = ("_session_id", "_store")

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._session_id = session_id

    async def story(self, task_id: str, last: int = NO_END) -> Story:
        """Return what was said and made in a task up to this event."""
        return await self._store.read(partial(_story, task_id, last))

    async def listed(self, wanted: Wanted, texts: Mapping[str, str]) -> Listed:
        """Return a page of tasks; `texts` has the replies so far of those that live."""
        return await self._store.read(partial(_listed, self._session_id, wanted, texts))

    async def place(self, task: Task, number: int) -> Place | None:
        """Return where a task stood with the event of this `Event.number`; None where that is not kept."""
        return await self._store.read(partial(_place, self._session_id, task, number))

    async def past(self, task_id: str, after: int, last: int) -> Past:
        """Return the next events of a task behind one number and up to another."""
        return await self._store.read(partial(_past, self._session_id, task_id, after, last))


def record_of(
    task: Task,
    history: tuple[Message, ...],
    artifacts: tuple[ArtifactRecord, ...] = (),
    text: str = "",
    reply: tuple[Mapping[str, Any], ...] | None = None,
) -> Record:
    """Return the record of a task whose reply has come to this text."""
    if text:
        artifacts = (ArtifactRecord(response_id(task.id), RESPONSE, ({"text": text},)), *artifacts)
    at = task.created_at if task.status_at is None else task.status_at
    return Record(task, at, history, artifacts, reply, states=((task.state, at),))


def said_by_caller(message: Mapping[str, Any], otherwise: str) -> Message:
    """Return a caller's message as the log keeps it; `otherwise` is its id where it has none."""
    message_id, metadata = message.get("messageId"), message.get("metadata")
    return Message(
        "user",
        message_id if type(message_id) is str else otherwise,
        plain_parts(message.get("parts")),
        metadata if type(metadata) is dict else {},
    )


def _story(task_id: str, last: int, connection: sqlite3.Connection) -> Story:
    which = {"id": task_id, "last": last}
    size = 0
    history: list[Message] = []
    shown, stood = _stood(task_id, last, connection)
    waits = [(moved, at) for moved, state, at in reversed(stood) if state is TaskState.INPUT_REQUIRED]
    for seq, prompt, message in connection.execute(_SAID, which):
        if prompt is not None:
            at = seq  # where it is not kept when the task came to wait, the answer's number tells prompts apart
            while waits and waits[-1][0] < seq:
                at = waits.pop()[1]
            message_id = status_id(task_id, TaskState.INPUT_REQUIRED, at, prompt)
            history.append(Message("agent", message_id, ({"text": prompt},), {}))
        history.append(said_by_caller(orjson.loads(message), f"msg_{task_id}_{seq}"))
        size += len(message)
    made: dict[str, tuple[str | None, list[Mapping[str, Any]]]] = {}
    reply = None
    for seq, kind, text in connection.execute(_MADE, which):
        data = orjson.loads(text)
        size += len(text)
        if kind == "reply":
            history.append(Message("agent", f"msg_{task_id}_reply", tuple(data["parts"]), {}))
            reply = tuple(data["parts"]) if data.get("first") else None
            continue
        identity = data["artifact_id"] or f"art_{task_id}_{seq}"
        if not data["append"] or identity not in made:
            made[identity] = data["name"], []
        made[identity][1].extend(data["parts"])
    artifacts = (ArtifactRecord(identity, name, tuple(parts)) for identity, (name, parts) in made.items())
    states = tuple((state, at) for _, state, at in stood)
    return Story(tuple(history), tuple(artifacts), reply, size, shown, states)


def _stood(
    task_id: str, last: int, connection: sqlite3.Connection
) -> tuple[int, list[tuple[int, TaskState, float]]]:
    """Return what number a task has come to, and where it stood up to an event: since which event, and when."""
    row = connection.execute(
        "SELECT created_at, shown, states FROM tasks WHERE id = ?", (task_id,)
    ).fetchone()
    if row is None:
        return 1, []
    created_at, shown, text = row
    states = [(0, TaskState.SUBMITTED, created_at)]
    for line in text.splitlines():
        seq, state, at = line.split(" ")
        if int(seq) <= last:
            states.append((int(seq), TaskState(state), float(at)))
    return shown, states


def _place(session_id: str, task: Task, number: int, connection: sqlite3.Connection) -> Place | None:
    """Find it by going through what is kept of the task, from its beginning on."""
    (behind,) = connection.execute("SELECT behind FROM tasks WHERE id = ?", (task.id,)).fetchone() or (0,)
    (oldest,) = connection.execute(
        "SELECT min(seq) FROM events WHERE session_id = ?", (session_id,)
    ).fetchone()
    if oldest is not None and behind < oldest - 1:
        return None
    at, begun, text = behind, False, ""
    stood = replace(
        task, state=TaskState.SUBMITTED, status=None, output=None, ended_at=None, status_at=None, turn=0
    )
    rows = () if number == 1 else _events_of(session_id, task.id, behind, connection)
    for event in rows:
        data = event.data
        if event.kind is EventKind.STATUS:
            output = data.get("response") if data["state"] is TaskState.COMPLETED else None
            stood = replace(
                stood, state=data["state"], status=data["message"], output=output, status_at=event.at
            )
            if "turn" in data:
                begun, text = False, ""
        elif event.kind is EventKind.TEXT:
            text = data["whole"] if "whole" in data else text + data["text"]
            begun = True
        at = event.seq
        if event.number == number:
            break
    else:
        if number != 1:
            return None
    record = replace(_story(task.id, at, connection).record(stood, text, number), reply=None)
    return Place(at, begun, record)


def _events_of(session_id: str, task_id: str, after: int, connection: sqlite3.Connection) -> Iterable[Event]:
    rows = connection.execute(
        f"SELECT {EVENT} {_FROM_EVENTS} WHERE session_id = ? AND seq > ? AND task_id = ? ORDER BY seq",
        (session_id, after, task_id),
    )
    return map(event_of, rows)


def _listed(
    session_id: str, wanted: Wanted, texts: Mapping[str, str], connection: sqlite3.Connection
) -> Listed:
    at, seq = wanted.before or (float("inf"), NO_END)
    values = {
        "session": session_id,
        "owner": wanted.owner,
        "context": wanted.context_id,
        "state": wanted.state,
        "since": float("-inf") if wanted.since is None else wanted.since,
    }
    (total,) = connection.execute(_COUNT, values).fetchone()
    rows = connection.execute(_LISTED, values | {"at": at, "seq": seq, "most": wanted.size + 1}).fetchall()
    records = tuple(_told(rows[: wanted.size], texts, connection))
    end = rows[len(records) - 1][-1:-3:-1] if len(records) < len(rows) else None
    return Listed(records, end and (end[0], end[1]), total)


def _told(
    rows: Iterable[Sequence[Any]], texts: Mapping[str, str], connection: sqlite3.Connection
) -> Iterable[Record]:
    size = 0
    for row in rows:
        task = task_of(row[:-2])
        story = _story(task.id, NO_END, connection)
        size += story.size + len(task.output or "")
        if size > LISTED_BYTES and size > story.size + len(task.output or ""):
            return
        yield story.record(task, texts.get(task.id, ""))


def _past(session_id: str, task_id: str, after: int, last: int, connection: sqlite3.Connection) -> Past:
    of_session = "FROM events WHERE session_id = :session"
    which = {"session": session_id, "task": task_id, "after": after, "last": last, "most": PAGE}
    (oldest,) = connection.execute(f"SELECT min(seq) {of_session}", which).fetchone()
    rows = connection.execute(
        f"SELECT {EVENT} {of_session} AND seq > :after AND seq <= :last"
        " AND task_id = :task ORDER BY seq LIMIT :most",
        which,
    )
    events: list[Event] = []
    size = 0
    for row in rows:
        events.append(event_of(row))
        size += len(row[5])
        if size >= PAST_BYTES:
            break
    gap = oldest is not None and after < oldest - 1
    return Past(tuple(events), whole=size < PAST_BYTES and len(events) < PAGE, gap=gap)
