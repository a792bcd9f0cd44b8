"""What the A2A door hands out that takes time: streams of one task, and sends that wait for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import orjson

from sidecar.dialects import sse
from sidecar.dialects.a2a03_server import A2A_03
from sidecar.dialects.a2a_server import interrupted
from sidecar.errors import StoreError
from sidecar.events import Event, EventKind
from sidecar.tasks.follow import GapError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from sidecar.dialects.a2a_server import Dialect
    from sidecar.dialects.jsonrpc import Id
    from sidecar.events import Record
    from sidecar.tasks.follow import Follower, Told

HELD: Final = 1.0
"""Seconds for which a new task's stream waits for the first word of its worker, which may be a message instead."""
HEARTBEAT: Final = sse.comment("heartbeat")
_END: Final = b"}\n\n"


class OneFrame:
    """A stream that says one thing: for a client of 0.3 that wants a stream, and gets an error.

    `start` is what its frame begins with.
    """

    def __init__(self, answer: bytes, start: bytes = b"") -> None:
        self._frame: bytes | None = b"%bdata: %b\n\n" % (start, answer)

    async def next(self) -> bytes | None:
        """Return the frame, then None."""
        said, self._frame = self._frame, None
        return said

    def end(self) -> None:
        """Do nothing: it ends by itself."""

    def close(self) -> None:
        """Do nothing: it holds nothing."""


class TaskStream:
    """An open stream of one task, pulled by whoever writes it to the socket.

    It begins with the task, as `record` has it, and shows what its follower hears. `held` has it wait a while for the
    worker's first word: where that is a message, the message is all that the stream shows. Without a follower nothing
    comes behind the task. `heartbeat` is the seconds of silence after which a comment goes out.
    """

    def __init__(
        self,
        record: Record,
        follower: Follower | None,
        *,
        dialect: Dialect,
        request_id: Id,
        heartbeat: float,
        history_length: int | None = None,
        held: bool = False,
    ) -> None:
        self._record: Record | None = record
        self._follower = follower
        self._dialect = dialect
        self._start = b'data: {"jsonrpc":"2.0","id":%b,"result":' % orjson.dumps(request_id)
        self._heartbeat = heartbeat
        self._history_length = history_length
        self._open_at = asyncio.get_running_loop().time() + HELD if held else 0.0
        self._waiting: list[Told] = []
        self._over = False

    async def next(self) -> bytes | None:
        """Return the next whole frames, or a comment; None at the end."""
        while not self._over:
            try:
                chunk = await (self._more() if self._record is None else self._begin(self._record))
            except (StoreError, GapError):
                # who subscribes again gets the whole task
                self._over = True
                break
            if chunk:
                return chunk
        return None

    def end(self) -> None:
        """Have the stream end behind what already waits."""
        if self._follower is not None:
            self._follower.end()

    def close(self) -> None:
        """Let go of everything; to be called whatever happened, a second time too."""
        self._over = True
        if self._follower is not None:
            self._follower.close()

    async def _begin(self, record: Record) -> bytes:
        """Return what the stream begins with, once that is known."""
        if self._follower is None:
            chunk = self._shown(record)
            self._over = True
            return chunk
        left = self._open_at - asyncio.get_running_loop().time()
        if left > 0 and not self._follower.ended:
            told = await self._follower.next(min(left, self._heartbeat))
            self._waiting += told
            first = next((each for each in self._waiting if _is_heard(each.event)), None)
            if first is None:
                return b"" if told or self._heartbeat >= left else HEARTBEAT
            if first.event.kind is EventKind.REPLY and first.event.data.get("first"):
                self._over = True
                parts = first.event.data["parts"]
                return self._framed([orjson.dumps(self._dialect.sent_message(record, parts))])
        told, self._waiting = self._waiting, []
        return self._shown(record) + self._written(told)

    def _shown(self, record: Record) -> bytes:
        """Return the task, which may be all that the stream has to show."""
        self._record = None
        dialect = self._dialect
        results = [dialect.sent_task(record, self._history_length)]
        if dialect.closes(record.task.state):
            self._over = True
            if dialect.version == A2A_03.version:  # its clients wait for an event that is final
                results += dialect.event_results(last_status(record), begun=True)
        return self._framed([orjson.dumps(result) for result in results])

    async def _more(self) -> bytes:
        told = [] if self._follower is None else await self._follower.next(self._heartbeat)
        if told:
            return self._written(told)
        self._over = self._follower is None or self._follower.ended
        return b"" if self._over else HEARTBEAT

    def _written(self, told: Iterable[Told]) -> bytes:
        """Return events in the bytes of the dialect, which all streams of the task share; what follows the end is lost."""
        dialect = self._dialect
        chunks = []
        for each in told:
            if self._over:
                break
            results = each.written.get(dialect.name)
            if results is None:
                results = [orjson.dumps(r) for r in dialect.event_results(each.event, begun=each.begun)]
                each.written[dialect.name] = results
            if results:
                chunks.append(self._framed(results, each.event.number))
            event = each.event
            self._over = event.kind is EventKind.STATUS and dialect.closes(event.data["state"])
        return b"".join(chunks)

    def _framed(self, results: Sequence[bytes], number: int | None = None) -> bytes:  # noqa: ARG002 - for those that show it
        return b"".join(self._start + result + _END for result in results)


class WaitingSend:
    """A send that waits until its task is over, or asks for something, but no longer than so many seconds.

    `answer` makes the answer of the task as it stands then. `heartbeat` is the seconds of silence that its client bears.
    """

    def __init__(
        self,
        follower: Follower,
        answer: Callable[[], Awaitable[bytes]],
        *,
        heartbeat: float,
        within: float,
    ) -> None:
        self._follower = follower
        self._answer = answer
        self._heartbeat = heartbeat
        self._until = asyncio.get_running_loop().time() + within

    async def next(self) -> bytes | None:
        """Return the answer; None where it is time to show that it is still to come."""
        loop = asyncio.get_running_loop()
        beat = loop.time() + self._heartbeat
        while not self._follower.ended:
            left = min(beat, self._until) - loop.time()
            if left <= 0:
                if beat < self._until:
                    return None
                break
            try:
                told = await self._follower.next(left)
            except (StoreError, GapError):
                break
            if any(_rests(each.event) for each in told):
                break
        return await self._answer()

    def end(self) -> None:
        """Have it answer with the task as it stands."""
        self._follower.end()

    def close(self) -> None:
        """Let go of everything; may be called twice."""
        self._follower.close()


def _is_heard(event: Event) -> bool:
    """Whether an event is more than that the task begins."""
    return event.kind is not EventKind.INPUT and not (event.kind is EventKind.STATUS and "turn" in event.data)


def last_status(record: Record) -> Event:
    """Return the status that a task has as an event."""
    task = record.task
    data = {"state": task.state, "message": task.status, "response": task.output}
    return Event(task.began, None, task.id, task.context_id, EventKind.STATUS, data, record.status_at)


def _rests(event: Event) -> bool:
    return event.kind is EventKind.STATUS and interrupted(event.data["state"])
