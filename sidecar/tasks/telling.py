"""What doors are told that show a task whole: its record, and its events from there on, without a gap or a repeat."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from sidecar.tasks.follow import Followers
from sidecar.tasks.records import Records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from sidecar.events import Event, Record, Task
    from sidecar.store import Store
    from sidecar.tasks.follow import Follower
    from sidecar.tasks.ledger import Ledger
    from sidecar.tasks.records import Listed, Story, Wanted

REMEMBERED: Final = 32
"""Records of a session that are answered without asking the database."""
REMEMBERED_BYTES: Final = 64 * 1024
"""Bytes beyond which a record is not remembered."""


class Known:
    """A record that is remembered for as long as nothing comes after it.

    `written` is for dialects, which keep in it what they make of the record.
    """

    __slots__ = ("record", "written")

    def __init__(self, record: Record | None = None) -> None:
        self.record = record
        self.written: dict[tuple[str, int | None], bytes] = {}


class Telling:
    """Tells of the tasks of one session; it is made when somebody first asks. Everything raises StoreError.

    `get` returns a committed task, if it is kept.
    """

    __slots__ = ("_get", "_known", "_ledger", "_records", "followers")

    def __init__(
        self, store: Store, session_id: str, ledger: Ledger, get: Callable[[str], Awaitable[Task | None]]
    ) -> None:
        self._records = Records(store, session_id)
        self._ledger = ledger
        self._get = get
        self._known: OrderedDict[str, Known] = OrderedDict()
        self.followers = Followers(self._records, lambda: ledger.published)

    def publish(self, events: Iterable[Event]) -> None:
        """Take note of committed events."""
        if self._known:
            for event in events:
                self._known.pop(event.task_id, None)
        self.followers.publish(events)

    def look_again(self) -> None:
        """Take note that the log may hold more than what was published."""
        self._known.clear()
        self.followers.look_again()

    async def record(self, task_id: str) -> Known | None:
        """Return a task's record as it is committed."""
        known = self._known.get(task_id)
        if known is not None and known.record is not None:
            self._known.move_to_end(task_id)
            return known
        known = self._known[task_id] = Known()  # what is published meanwhile takes it out
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        size = 0
        try:
            found = await self._read(task_id)
            if found is not None:
                known.record, size = found
        finally:
            if (known.record is None or size > REMEMBERED_BYTES) and self._known.get(task_id) is known:
                del self._known[task_id]
        return None if known.record is None else known

    async def follow(self, task_id: str, *, streaming: bool = False) -> tuple[Record, Follower] | None:
        """Return the record of a task that lives, and who follows it from there on; None if it does not live."""
        found = await self._alive(task_id)
        if found is None:
            return None
        task, text, number, last = found
        follower = self.followers.follow(task_id, last, begun=bool(text), streaming=streaming)
        try:
            story = await self._story(task_id, last)
        except BaseException:
            follower.close()
            raise
        return story.record(task, text, number), follower

    async def follow_from(self, task: Task, number: int) -> tuple[Record, Follower] | None:
        """Return the record of a task as it was with one of its events, and who follows it from there on.

        It may be over by now. None where what came since is not kept, or nothing has that number. The follower
        counts among the open streams.
        """
        place = await self._records.place(task, number)
        if place is None:
            return None
        follower = self.followers.follow(task.id, place.seq, begun=place.begun, streaming=True)
        follower.fall_behind()
        return place.record, follower

    def begin(self, task_id: str, *, streaming: bool = False) -> Follower:
        """Follow a task behind everything that was decided so far."""
        return self.followers.follow(task_id, self._ledger.state.seq, streaming=streaming)

    async def listed(self, wanted: Wanted) -> Listed:
        """Return a page of tasks; without `artifacts` only what the tasks themselves bring."""
        await self._ledger.load()
        turns = self._ledger.state.turns if wanted.artifacts else {}
        texts = {task_id: turn.text for task_id, turn in turns.items() if turn.size}
        await self._ledger.landed()
        return await self._records.listed(wanted, texts)

    async def _read(self, task_id: str) -> tuple[Record, int] | None:
        found = await self._alive(task_id)
        if found is not None:
            task, text, number, last = found
            story = await self._story(task_id, last)
            return story.record(task, text, number), story.size + len(text)
        over = await self._get(task_id)
        if over is None:
            return None
        story = await self._records.story(task_id)
        return story.record(over), story.size + len(over.output or "")

    async def _alive(self, task_id: str) -> tuple[Task, str, int, int] | None:
        """Return a live task, its reply and number so far, and the number of the last event that any rests on."""
        await self._ledger.load()
        state = self._ledger.state
        task = state.live.get(task_id)
        if task is None:
            return None
        turn = state.turns.get(task_id)
        text, number = ("", 1) if turn is None else (turn.text, turn.shown)
        return task, text, number, state.seq

    async def _story(self, task_id: str, last: int) -> Story:
        await self._ledger.landed()  # what is not committed yet is not to be seen, and what is must be
        return await self._records.story(task_id, last)
