"""The log of tasks and events in `sidecar.db`: what is written per change, what is read back, what is trimmed."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson
import structlog

from sidecar.errors import StoreError
from sidecar.events import Event, EventKind, Task, TaskState
from sidecar.ops.uuid7 import Uuid7
from sidecar.store import Chain
from sidecar.tasks.model import Input, State
from sidecar.tasks.writing import write

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from sidecar.store import Store
    from sidecar.tasks.model import Change
    from sidecar.tasks.showing import Showing

    Done = Callable[[StoreError | None], None]
    Entry = tuple[str, Change, Done]

PAGE: Final = 128
"""Events that are read at once."""

_TASK: Final = "id, context_id, owner, state, created_at, status, {}, ended_at, waiting_since, turn, attempt, began, note, status_at"
TASK: Final = _TASK.format("output")
"""The columns of a task, as `task_of` wants them."""
EVENT: Final = "seq, frame, task_id, context_id, kind, data, at, number"
"""The columns of an event, as `event_of` wants them."""
_OF_TASKS: Final = "FROM tasks WHERE"
_READ_TASKS: Final = f"SELECT {TASK} {_OF_TASKS} session_id = ?"
_NEWEST: Final = "(SELECT seq FROM tasks WHERE session_id = ? ORDER BY seq DESC LIMIT ?) ORDER BY seq DESC"
_NEWEST_TASKS: Final = f"SELECT {_TASK.format('NULL')} {_OF_TASKS} seq IN {_NEWEST}"
_NOTED_TASKS: Final = _READ_TASKS + " AND ended_at IS NOT NULL AND note IS NOT NULL ORDER BY ended_at, seq"
_FORGET_NOTE: Final = "UPDATE tasks SET note = NULL WHERE id = ? AND ended_at IS NOT NULL"
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Page:
    """Some events of the log; `gap` is the oldest kept frame where those asked for are not kept any more."""

    gap: int | None = None
    events: tuple[Event, ...] = ()


class Log:
    """The way into the log for all engines of one daemon.

    Changes of one turn of the loop go to the writer as one, so its statements serve many. They are chained: when one
    fails, so does everything behind it, and every engine concerned starts again from what is committed.
    `ids` makes the ids of new tasks, each greater than the one before.
    """

    def __init__(self, store: Store, showings: Sequence[Showing] = ()) -> None:
        self.store = store
        self.ids = Uuid7()
        self._showings = showings
        self._chain = Chain()
        self._failing = False
        self._pending: list[Entry] = []
        self._flying: deque[list[Entry]] = deque()

    def append(self, session_id: str, change: Change, done: Done) -> None:
        """Queue a change; `done` is called on the loop, in order, with None once it is committed, or with the error.

        Raises StoreError at once, and takes nothing, while an earlier failure is still being cleared up.
        """
        if self._chain.error is not None:
            raise self._chain.error
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._flush)
        self._pending.append((session_id, change, done))

    def _flush(self) -> None:
        batch, self._pending = self._pending, []
        self._flying.append(batch)
        self.store.write(partial(write, batch, self._showings), self._chain).add_done_callback(self._land)

    def _land(self, written: asyncio.Future[None]) -> None:
        failure = written.exception()
        error = failure if failure is None or isinstance(failure, StoreError) else StoreError(str(failure))
        if error is not None and not self._failing:
            _log.warning("tasks_not_saved", problem=str(error))
        elif error is None and self._failing:
            _log.info("tasks_saved")
        self._failing = error is not None
        for _, change, done in self._flying.popleft():
            done(error)
            if error is None:
                for showing in self._showings:
                    showing.landed(change)
        if not self._flying and not self._pending:
            self._chain.error = None

    async def load(self, session_id: str) -> State:
        """Return the state of a session as it is committed. Raises StoreError."""
        return await self.store.read(partial(_load, session_id))

    async def find(self, session_id: str, task_id: str) -> Task | None:
        """Return a committed task of the session, if it is kept. Raises StoreError."""
        return await self.store.read(partial(_find, session_id, task_id))

    async def newest(self, session_id: str, most: int) -> tuple[Task, ...]:
        """Return the committed tasks of the session, the newest first, without output. Raises StoreError."""
        return await self.store.read(partial(_newest, session_id, most))

    async def noted(self, session_id: str) -> tuple[Task, ...]:
        """Return the ended tasks of the session that still have a note, the oldest end first. Raises StoreError."""
        return await self.store.read(partial(_noted, session_id))

    async def forget_note(self, task_id: str) -> None:
        """Let go of the note of an ended task. Raises StoreError."""
        await self.store.write(partial(_forget_note, task_id))

    async def inputs(self, task_id: str) -> tuple[tuple[int, Input], ...]:
        """Return every message of a task, in order, with its number (0 for the first). Raises StoreError."""
        return await self.store.read(partial(_inputs, task_id))

    async def page(self, session_id: str, after: int, head: int) -> Page:
        """Return the next kept events whose frame is above `after` and at most `head`. Raises StoreError."""
        return await self.store.read(partial(_page, session_id, after, head))


def sessions(connection: sqlite3.Connection) -> set[str]:
    """Return the ids of the sessions that have anything in the log."""
    return {row[0] for row in connection.execute("SELECT id FROM sessions")}


def _load(session_id: str, connection: sqlite3.Connection) -> State:
    row = connection.execute("SELECT generation FROM sessions WHERE id = ?", (session_id,)).fetchone()
    if row is None:
        return State()
    seq, frame = connection.execute(
        "SELECT (SELECT max(seq) FROM events WHERE session_id = :id),"
        " (SELECT max(frame) FROM events WHERE session_id = :id AND frame IS NOT NULL)",
        {"id": session_id},
    ).fetchone()
    last = connection.execute(
        "SELECT id FROM tasks WHERE session_id = ? AND ended_at IS NOT NULL ORDER BY ended_at DESC, seq DESC LIMIT 1",
        (session_id,),
    ).fetchone()
    state = State(seq or 0, frame or 0, row[0], stored=True, last_ended=last and last[0])
    live = connection.execute(_READ_TASKS + " AND ended_at IS NULL ORDER BY seq", (session_id,))
    state.admit(task_of(row) for row in live)
    if state.turns:
        _load_turns(session_id, state, connection)
    return state


def _load_turns(session_id: str, state: State, connection: sqlite3.Connection) -> None:
    """Find what was said in the turns of the tasks that had started."""
    spoken = connection.execute(
        "SELECT id, spoken, shown FROM tasks WHERE session_id = ? AND ended_at IS NULL AND turn > 0",
        (session_id,),
    )
    for task_id, text, shown in spoken:
        state.turns[task_id].shown = shown
        if text is not None:
            state.turns[task_id].add(text)
    made = connection.execute(
        "SELECT task_id, events.seq, data FROM tasks JOIN events ON task_id = id AND kind IN ('artifact', 'reply')"
        " WHERE tasks.session_id = :id AND ended_at IS NULL UNION ALL"
        " SELECT task_id, made.seq, data FROM tasks JOIN made ON task_id = id"
        " WHERE tasks.session_id = :id AND ended_at IS NULL ORDER BY 1, 2",
        {"id": session_id},
    )
    for task_id, _, data in made:
        said = orjson.loads(data)
        if said.get("artifact_id"):
            state.turns[task_id].make(said["artifact_id"], said["name"])
    said = connection.execute(
        "SELECT task_id, seq, kind, CASE kind WHEN 'text' THEN data END, number FROM events"
        " WHERE session_id = ? AND seq > ? AND kind <> 'input' ORDER BY seq",
        (session_id, min(turn.began for turn in state.turns.values())),
    )
    for task_id, seq, kind, data, number in said:
        turn = state.turns.get(task_id)
        if turn is not None and seq > turn.began:
            turn.hear(EventKind(kind), orjson.loads(data or "{}"))
            turn.shown = max(turn.shown, number or 0)


def _find(session_id: str, task_id: str, connection: sqlite3.Connection) -> Task | None:
    row = connection.execute(_READ_TASKS + " AND id = ?", (session_id, task_id)).fetchone()
    return row and task_of(row)


def _newest(session_id: str, most: int, connection: sqlite3.Connection) -> tuple[Task, ...]:
    rows = connection.execute(_NEWEST_TASKS, (session_id, most))
    return tuple(task_of(row) for row in rows)


def _noted(session_id: str, connection: sqlite3.Connection) -> tuple[Task, ...]:
    return tuple(task_of(row) for row in connection.execute(_NOTED_TASKS, (session_id,)))


def _forget_note(task_id: str, connection: sqlite3.Connection) -> None:
    connection.execute(_FORGET_NOTE, (task_id,))


def _inputs(task_id: str, connection: sqlite3.Connection) -> tuple[tuple[int, Input], ...]:
    rows = connection.execute(
        "SELECT seq, request FROM (SELECT 0 AS seq, request FROM tasks WHERE id = :id"
        " UNION ALL SELECT seq, message FROM inputs WHERE task_id = :id) ORDER BY seq",
        {"id": task_id},
    )
    return tuple((seq, Input.of(json)) for seq, json in rows)


def _page(session_id: str, after: int, head: int, connection: sqlite3.Connection) -> Page:
    of_session = "FROM events WHERE session_id = ? AND frame"
    (oldest,) = connection.execute(f"SELECT min(frame) {of_session} IS NOT NULL", (session_id,)).fetchone()
    if oldest is None:
        return Page()
    gap = after < oldest - 1
    rows = connection.execute(
        f"SELECT {EVENT} {of_session} > ? AND frame <= ? ORDER BY frame LIMIT ?",
        (session_id, oldest - 1 if gap else after, head, PAGE),
    )
    return Page(oldest if gap else None, tuple(event_of(row) for row in rows))


def task_of(row: Sequence[Any]) -> Task:
    """Return a task of a row with the columns of `TASK`."""
    task_id, context_id, owner, state, *rest = row
    return Task(task_id, context_id, owner, TaskState(state), *rest)


def event_of(row: Sequence[Any]) -> Event:
    """Return an event of a row with the columns of `EVENT`."""
    seq, frame, task_id, context_id, kind, text, at, number = row
    data = orjson.loads(text)
    if "state" in data:
        data["state"] = TaskState(data["state"])
    return Event(seq, frame, task_id, context_id, EventKind(kind), data, at, number)
