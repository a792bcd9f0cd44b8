"""Changes of tasks as rows of `sidecar.db`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from sidecar.events import Task
    from sidecar.tasks.model import Change
    from sidecar.tasks.showing import Showing

MOST_STATES: Final = 64 * 1024
"""Characters of a task's states after which no more of them are kept."""

_KEEP_SESSION: Final = (
    "INSERT INTO sessions (id, generation) VALUES (?, ?)"
    " ON CONFLICT (id) DO UPDATE SET generation = excluded.generation"
)
_KEEP_TASK: Final = "tasks (id, session_id, context_id, owner, state, request, created_at, behind)"
_CHANGE_TASK: Final = (
    "UPDATE tasks SET state = :state, status = :status, output = :output, ended_at = :ended_at,"
    " waiting_since = :waiting_since, turn = :turn, attempt = :attempt, began = :began, note = :note,"
    " status_at = :status_at, shown = coalesce(:shown, shown),"
    " states = states || iif(length(states) < :most_states, :states, ''),"
    " spoken = CASE WHEN began = :began AND :ended_at IS NULL THEN spoken END WHERE id = :id"
)
_KEEP_INPUT: Final = "INSERT INTO inputs (task_id, seq, message, prompt) VALUES (?, ?, ?, ?)"
_KEEP_EVENT: Final = "events (session_id, seq, frame, task_id, context_id, kind, data, at, number)"
_AT_ONCE: Final = (32, 8, 1)
"""Rows that one statement keeps: each of its steps hands the interpreter over to the loop, which takes time."""


def write(
    batch: Sequence[tuple[str, Change, object]], showings: Sequence[Showing], connection: sqlite3.Connection
) -> None:
    """Write the changes of a batch, each with its session, one kind of row after the other, and then what views show of them.

    The order between the kinds is safe: a task is made once and changed only after that.
    """
    sessions, made, inputs, events = [], [], [], []
    changed: list[dict[str, Any]] = []
    for session_id, change, _ in batch:
        if change.generation is not None:
            sessions.append((session_id, change.generation))
        if (new := change.submission) is not None:
            task = new.task
            made.append(
                (
                    task.id,
                    session_id,
                    task.context_id,
                    task.owner,
                    task.state.value,
                    new.given.json,
                    task.created_at,
                    new.behind,
                )
            )
        changed += _changed(change)
        if (delivery := change.delivery) is not None:
            inputs.append((delivery.task_id, delivery.seq, delivery.given.json, delivery.prompt))
        events += [
            (
                session_id,
                e.seq,
                e.frame,
                e.task_id,
                e.context_id,
                e.kind.value,
                orjson.dumps(e.data).decode(),
                e.at,
                e.number,
            )
            for e in change.events
        ]
    if sessions:
        connection.executemany(_KEEP_SESSION, sessions)
    _keep(connection, _KEEP_TASK, made)
    if changed:
        connection.executemany(_CHANGE_TASK, changed)
    if inputs:
        connection.executemany(_KEEP_INPUT, inputs)
    _keep(connection, _KEEP_EVENT, events)
    for showing in showings:
        for session_id, change, _ in batch:
            showing.write(connection, session_id, change)


def _keep(connection: sqlite3.Connection, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
    place = 0
    for count in _AT_ONCE:
        while len(rows) - place >= count:
            values = [value for row in rows[place : place + count] for value in row]
            connection.execute(_insert(columns, len(rows[0]), count), values)
            place += count


@cache
def _insert(columns: str, width: int, count: int) -> str:
    row = f"({', '.join('?' * width)})"
    return f"INSERT INTO {columns} VALUES {', '.join([row] * count)}"  # noqa: S608 - of our own words alone


def _changed(change: Change) -> Iterable[dict[str, Any]]:
    if not change.updates:
        return
    shown = {event.task_id: event.number for event in change.events if event.number is not None}
    states: dict[str, list[str]] = {}
    for move in change.moves:
        states.setdefault(move.task_id, []).append(f"{move.seq} {move.state} ")
    for task in change.updates:
        lines = [f"{line}{task.status_at!r}\n" for line in states.get(task.id, ())]
        yield _row(task) | {"shown": shown.get(task.id), "states": "".join(lines), "most_states": MOST_STATES}


def _row(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "state": task.state.value,
        "status": task.status,
        "output": task.output,
        "ended_at": task.ended_at,
        "waiting_since": task.waiting_since,
        "turn": task.turn,
        "attempt": task.attempt,
        "began": task.began,
        "note": task.note,
        "status_at": task.status_at,
    }
