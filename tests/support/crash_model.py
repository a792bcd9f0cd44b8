"""What must be true of a sidecar that is killed again and again: what was acknowledged and seen, held against it."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from sidecar.events import TERMINAL
from sidecar.tasks.backends.command import INTERRUPTED

if TYPE_CHECKING:
    from pathlib import Path

FINAL = {state.value for state in TERMINAL}
COMMAND, INBOX = "command", "inbox"
"""The capsules, named after their backends."""


@dataclass
class Known:
    """What the outside knows of one capsule: answers that came, frames that were seen. Texts are all different."""

    id: str
    session_id: str = ""
    port: int = 0
    submitted: dict[str, str] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)
    canceled: set[str] = field(default_factory=set)
    frames: dict[int, str] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    settled: dict[str, Any] = field(default_factory=dict)
    base: int = 0

    @property
    def newest(self) -> int:
        """The highest number that was seen."""
        return max(self.frames, default=0)

    def see(self, number: int, frame: bytes) -> None:
        """Take in a numbered frame that came whole: whenever it is seen again it has the same bytes."""
        digest = sha256(frame).hexdigest()
        if number in self.frames:
            assert self.frames[number] == digest, (self.id, number, frame)
            return
        self.frames[number] = digest
        data = json.loads(frame.split(b"\ndata: ", 1)[1])
        status = data.get("status")
        if status is None:
            return
        if data["final"]:
            self.ended[data["id"]] = data
        else:
            self.started.add(data["id"])

    def unsettled(self) -> list[str]:
        """Return the tasks that are to be asked for: those that were not over when they were asked for last."""
        known = {*self.submitted, *self.answered.values(), *self.canceled, *self.started, *self.ended}
        return sorted(known - self.settled.keys())

    def hold(self, task_id: str, result: dict[str, Any]) -> None:
        """Hold the answer to tasks/get against what is known of the task."""
        state = result["status"]["state"]
        if task_id in self.ended:
            assert state == self.ended[task_id]["status"]["state"], (result, self.ended[task_id])
        if task_id in self.canceled:
            assert state == "canceled", result
        if state in FINAL:
            self.settled[task_id] = result


class Place:
    """One numbered stream on one connection: no hole but what `lagged` owns up to, and nothing twice."""

    def __init__(self, known: Known, after: int) -> None:
        self.known = known
        self.cursor = after
        self.missed = 0

    def take(self, frame: bytes) -> None:
        """Take in a frame of any kind."""
        if frame.startswith(b"event: lagged\n"):
            self.missed += int(json.loads(frame.split(b"\ndata: ", 1)[1])["missed"])
        numbered = re.match(rb"id: ([0-9]+)\n", frame)
        if numbered is None:
            assert not frame.startswith((b"event: gap", b"event: error")), frame
            return
        number = int(numbered[1])
        assert number == self.cursor + 1 + self.missed, (self.known.id, self.cursor, self.missed, frame)
        self.cursor, self.missed = number, 0
        self.known.see(number, frame)


@dataclass(frozen=True, slots=True)
class Row:
    """A task as it is in the file."""

    state: str
    status: str
    reply: str
    text: str
    inputs: tuple[str, ...]
    turn: int


def text_of(message: str) -> str:
    """Return the text of a message that the load sent."""
    text: str = json.loads(message)["parts"][0]["text"]
    return text


def check_file(path: Path, known: Known) -> Counter[str]:
    """Hold the file of a sidecar that has stopped, every task over, against what is known; return how tasks ended."""
    with closing(sqlite3.connect(path)) as file:
        of_session = (known.session_id,)
        inputs: dict[str, list[str]] = {}
        for task_id, message in file.execute("SELECT task_id, message FROM inputs ORDER BY task_id, seq"):
            inputs.setdefault(task_id, []).append(text_of(message))
        rows = {
            task_id: Row(state, status, reply or "", text_of(request), tuple(inputs.get(task_id, ())), turn)
            for task_id, state, status, reply, request, turn in file.execute(
                "SELECT id, state, status, output, request, turn FROM tasks WHERE session_id = ?", of_session
            )
        }
        events = file.execute(
            "SELECT seq, frame, task_id, kind, data FROM events WHERE session_id = ? ORDER BY seq", of_session
        ).fetchall()
    check_rows(rows, known)
    check_events(events, rows, known)
    ended = Counter(row.status if row.status == INTERRUPTED else row.state for row in rows.values())
    ended["again"] = sum(row.turn > 1 for row in rows.values())
    return ended


def newest_frame(path: Path, known: Known) -> int:
    """Return the highest number in the file."""
    with closing(sqlite3.connect(path)) as file:
        query = "SELECT max(frame) FROM events WHERE session_id = ?"
        return int(file.execute(query, (known.session_id,)).fetchone()[0] or 0)


def live_tasks(path: Path, known: Known) -> dict[str, str]:
    """Return the text of every live task by id, also of those whose answer never came."""
    with closing(sqlite3.connect(path)) as file:
        query = "SELECT id, request FROM tasks WHERE session_id = ? AND ended_at IS NULL"
        return {task_id: text_of(request) for task_id, request in file.execute(query, (known.session_id,))}


def check_rows(rows: dict[str, Row], known: Known) -> None:
    """Nothing acknowledged is lost, nothing is there twice, and each task has the one end that it may have."""
    texts = Counter(row.text for row in rows.values())
    texts.update(text for row in rows.values() for text in row.inputs)
    assert not [text for text, count in texts.items() if count > 1]
    assert known.submitted == {task_id: rows[task_id].text for task_id in known.submitted}
    for text, task_id in known.answered.items():
        assert text in rows[task_id].inputs, (task_id, text)
    for task_id, row in rows.items():
        if row.state == "canceled":
            continue
        assert task_id not in known.canceled
        if known.id == COMMAND and row.state == "failed":
            assert row.status == INTERRUPTED
            continue
        assert row.state == "completed", (task_id, row)
        if known.id == INBOX:
            assert len(row.inputs) == ("ask" in row.text)
            assert row.reply == " ".join((row.text, *row.inputs))
        else:
            assert row.reply == f"done: {row.text}\n", row


def check_events(
    events: list[tuple[int, int | None, str, str, str]], rows: dict[str, Row], known: Known
) -> None:
    """Numbers are dense in both counts, nothing follows an end, every task has one."""
    assert [seq for seq, *_ in events] == list(range(1, len(events) + 1))
    numbered = [frame for _, frame, *_ in events if frame is not None]
    assert numbered == list(range(1, len(numbered) + 1))
    assert sorted(known.frames) == numbered
    over: dict[str, str] = {}
    for _, _, task_id, kind, text in events:
        assert task_id not in over, task_id
        data = json.loads(text)
        if kind == "status" and data["state"] in FINAL:
            over[task_id] = data["state"]
    assert over == {task_id: row.state for task_id, row in rows.items()}
