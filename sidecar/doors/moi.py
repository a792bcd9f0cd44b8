"""The MOI door: A2A 0.3 for all agents of the desk, with streams that are numbered and can be taken up again (MOI, Messages)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, cast

import orjson

from sidecar.dialects import a2a
from sidecar.dialects.a2a import Call
from sidecar.dialects.a2a03_server import A2A_03
from sidecar.dialects.jsonrpc import RpcError
from sidecar.dialects.moi import MOI, read_after
from sidecar.doors.a2a import A2aDoor
from sidecar.doors.a2a_asked import METHODS, Request
from sidecar.doors.a2a_streams import TaskStream, last_status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecar.doors.a2a import Handler, Said
    from sidecar.events import Record
    from sidecar.tasks.follow import Follower

EVENT: Final = b"event: message\n"


class NumberedStream(TaskStream):
    """A stream of one task whose frames have numbers, dense and for good: the task itself is 1 (`Event.number`).

    One that is taken up behind a number begins with the task as it was then, under that number. One that begins with
    a task which is over, or waits, says so with the task's last status once more, as 0.3 has it: the task goes out
    under the number before.
    """

    taken_up = False

    def _shown(self, record: Record) -> bytes:
        task = [orjson.dumps(self._dialect.sent_task(record, self._history_length))]
        self._record = None
        if self.taken_up:
            self._over = record.task.state.terminal
        elif self._dialect.closes(record.task.state):
            self._over = True
            before = max(1, record.number - 1)
            last = self._dialect.event_results(last_status(record), begun=True)
            return self._framed(task, before) + self._framed([orjson.dumps(one) for one in last], before + 1)
        return self._framed(task, record.number)

    def _framed(self, results: Sequence[bytes], number: int | None = None) -> bytes:
        frames = super()._framed(results)
        # what was written before there were numbers has none
        return EVENT + (b"" if number is None else b"id: %d\n" % number) + frames


class MoiDoor(A2aDoor):
    """One capsule's door for callers of the MOI view. A send is answered once its task is taken."""

    __slots__ = ()
    methods: ClassVar = {
        name: (MOI if dialect is A2A_03 else dialect, call) for name, (dialect, call) in METHODS.items()
    }
    stream: ClassVar = NumberedStream
    frame_start: ClassVar = EVENT

    def _opened(
        self,
        request: Request,
        record: Record,
        follower: Follower | None,
        history_length: int | None,
        *,
        held: bool = False,  # noqa: ARG002 - the first frame is a task, whatever the worker is about to say
    ) -> TaskStream:
        return super()._opened(request, record, follower, history_length)

    async def _subscribe(self, request: Request) -> Said:
        after = read_after(request.params)
        if after is None:
            return await super()._subscribe(request)
        task_id = request.dialect.read_task_id(request.params)
        task = await self._own(request, task_id)
        self._check_streams()
        found = await self._engine.telling.follow_from(task, max(1, after))
        if found is None:  # of what came since something is gone, so that the task as a whole has to do
            return await self._stream_of(request, task_id, None)
        record, follower = found
        self._count(request.label, "stream")
        stream = cast("NumberedStream", self._opened(request, record, follower, None))
        stream.taken_up = True
        return stream

    async def _extended_card(self, _: Request) -> bytes:
        raise RpcError(a2a.NO_EXTENDED_CARD, "There is no extended card")

    _HANDLERS: ClassVar[Mapping[Call, Handler]] = {
        **A2aDoor._HANDLERS,  # noqa: SLF001 - its own, but for two
        Call.SUBSCRIBE: cast("Handler", _subscribe),
        Call.EXTENDED_CARD: cast("Handler", _extended_card),
    }
