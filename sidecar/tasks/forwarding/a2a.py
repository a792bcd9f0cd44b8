"""Handing a task on to an A2A agent of either version, by streaming or, where it does not stream, by asking."""

from __future__ import annotations

import time
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sidecar.dialects import jsonrpc
from sidecar.dialects.agent import (
    FINAL,
    NOT_CANCELABLE,
    NOT_FOUND,
    UNSUPPORTED,
    MessageSeen,
    Outgoing,
    PieceSeen,
    StatusSeen,
    TaskSeen,
    texts_of,
)
from sidecar.dialects.jsonrpc import RpcError
from sidecar.dialects.reading import UnreadableError
from sidecar.tasks.forwarding.a2a_telling import WAITING, Telling
from sidecar.tasks.forwarding.picture import overlap
from sidecar.tasks.forwarding.track import Batch
from sidecar.tasks.forwarding.trouble import AwayError, WrongError
from sidecar.tasks.forwarding.way import forgotten, refused, untold

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from sidecar.dialects.agent import A2a, Seen
    from sidecar.dialects.sse_reader import Frame
    from sidecar.tasks.forwarding.stream import Stream
    from sidecar.tasks.forwarding.track import Track
    from sidecar.tasks.forwarding.way import Errand
    from sidecar.tasks.forwarding.where import Door
    from sidecar.tasks.model import Input
    from sidecar.tasks.said import Said

LIST: Final = "ListTasks"
"""Only 1.0 has it (A2A 1.0 section 3.1.4)."""
STRAGGLERS: Final = 0.1
"""Seconds for which events are still on their way that a look at the task showed already."""


class A2aWay:
    """Follows one task at an A2A agent (A2A 0.3 section 7, A2A 1.0 section 3.1)."""

    def __init__(self, errand: Errand) -> None:
        self._errand = errand
        self._telling = Telling(errand)
        self._state = ""

    async def follow(self, door: Door, track: Track, inputs: Sequence[Input]) -> AsyncGenerator[Batch]:
        """Go on from there; see `Way.follow`."""
        self._state = ""
        if track.begun and track.task is None:
            steps = self._seek(door, track)
        elif not track.begun or len(inputs) > track.inputs:
            steps = self._say(door, track, inputs[track.inputs])
        else:
            steps = self._again(door, track)
        async with aclosing(steps):
            async for batch in steps:
                yield batch

    async def cancel(self, door: Door, track: Track) -> str | None:
        """Cancel the task there; see `Way.cancel`."""
        a2a = _version(door)
        try:
            task = await self._task(door, a2a.CANCEL, {"id": track.task})
        except RpcError as error:
            if error.code == NOT_FOUND:
                return None
            if error.code == NOT_CANCELABLE and await self._is_over(door, track):
                return None
            return str(refused(door, a2a.CANCEL, error))
        return None if task.state in FINAL else f"{door.where} did not cancel the task: it is {task.state}"

    # saying something: the first message, or input

    async def _say(self, door: Door, track: Track, given: Input) -> AsyncGenerator[Batch]:
        if track.giving:  # it may have arrived
            if (await self._get(door, track)).state not in WAITING:
                yield Batch((), replace(track, inputs=track.inputs + 1, giving=False, whole=False))
                return
        else:
            yield Batch((), replace(track, kind=door.kind, begun=True, giving=track.begun), early=True)
        message = Outgoing.of(
            given.json,
            self._errand.message_id(track.inputs + 1),
            context_id=self._errand.task.context_id,
            task_id=track.task,
        )
        said_it = replace(track, kind=door.kind, begun=True, giving=False, inputs=track.inputs + 1)
        steps = self._stream(door, said_it, message) if door.streaming else self._ask(door, said_it, message)
        try:
            async with aclosing(steps):
                async for batch in steps:
                    yield batch
        except AwayError as error:
            if not error.sent:
                yield Batch((), replace(track, kind=door.kind), early=True)
            raise
        except RpcError as error:
            if error.code in UNSUPPORTED and track.task is not None and await self._is_over(door, track):
                yield Batch((), said_it)  # it ended before the input came; the next look tells how
                return
            method = _version(door).STREAM if door.streaming else _version(door).SEND
            raise (forgotten(door) if error.code == NOT_FOUND else refused(door, method, error)) from None

    async def _stream(self, door: Door, track: Track, message: Outgoing) -> AsyncGenerator[Batch]:
        a2a = _version(door)
        async with self._open(door, a2a.STREAM, a2a.stream_params(message)) as stream:
            yield Batch((), track)
            steps = self._read(door, stream, track)
            async with aclosing(steps):
                async for batch in steps:
                    yield batch

    async def _ask(self, door: Door, track: Track, message: Outgoing) -> AsyncGenerator[Batch]:
        a2a = _version(door)
        result = await door.caller.call(door.url, a2a.SEND, a2a.send_params(message), a2a.HEADERS)
        batch = await self._take(door, track, [self._seen(door, result)])
        yield batch
        if not batch.over:
            steps = self._poll(door, batch.track)
            async with aclosing(steps):
                async for batch in steps:
                    yield batch

    # taking it up again

    async def _seek(self, door: Door, track: Track) -> AsyncGenerator[Batch]:
        """Find a task of which it is not known whether the agent has it, by its context, where there is a list."""
        if not self._errand.alone or _version(door).VERSION != "1.0":
            raise untold(door)
        params = {"contextId": self._errand.task.context_id, "pageSize": 2}
        try:
            result = await door.caller.call(door.url, LIST, params, _version(door).HEADERS)
        except RpcError:
            raise untold(door) from None
        tasks = result.get("tasks") if type(result) is dict else None
        if type(tasks) is not list or len(tasks) > 1:
            raise untold(door)
        if not tasks:
            yield Batch((), replace(track, begun=False), early=True)
            raise AwayError(f"{door.where} did not take the task", sent=False)
        task = self._read_task(door, tasks[0])
        yield Batch((), replace(track, task=task.id, inputs=1, whole=False))

    async def _again(self, door: Door, track: Track) -> AsyncGenerator[Batch]:
        track = replace(track, whole=False)
        batch = await self._take(door, track, [await self._get(door, track)])
        yield batch
        if batch.over:
            return
        method = _version(door).SUBSCRIBE if door.streaming else None
        track = batch.track
        steps = self._poll(door, track) if method is None else self._subscribe(door, track, method)
        async with aclosing(steps):
            async for batch in steps:
                yield batch

    async def _subscribe(self, door: Door, track: Track, method: str) -> AsyncGenerator[Batch]:
        patience = self._errand.patience
        try:
            async with self._open(door, method, {"id": track.task}) as stream:
                task = await self._get(door, track)
                frames = [*stream.at_once(), *(await stream.next(STRAGGLERS) or ())]
                early = [self._of_frame(door, frame) for frame in frames]
                batch = await self._take(door, track, [task, *overlap(task, early)])
                yield batch
                if batch.over:
                    return
                steps = self._read(door, stream, batch.track)
                async with aclosing(steps):
                    async for batch in steps:
                        yield batch
                return
        except RpcError as error:
            # It may have ended just now. An agent that has the task, but not its stream, may work on it, or may have
            # been restarted.
            lost = error.code == NOT_FOUND and self._state not in WAITING
            limit = patience.away if lost else None
        steps = self._poll(door, track, limit)
        async with aclosing(steps):
            async for batch in steps:
                yield batch

    async def _poll(self, door: Door, track: Track, limit: float | None = None) -> AsyncGenerator[Batch]:
        """Look at the task now and again; `limit` is the seconds for which nothing at all may happen."""
        since, before = time.monotonic(), None
        while True:
            task = await self._get(door, track)
            batch = await self._take(door, replace(track, whole=False), [task])
            yield batch
            if batch.over:
                return
            track = batch.track
            if task != before:
                since, before = time.monotonic(), task
            elif limit is not None and time.monotonic() - since > limit:
                raise WrongError(f"{door.where} has the task, but has not worked on it for {limit:g} s")
            await self._errand.wake.sleep(self._errand.patience.poll)

    # streams

    @asynccontextmanager
    async def _open(self, door: Door, method: str, params: object) -> AsyncIterator[Stream]:
        async with door.caller.stream(door.url, method, params, _version(door).HEADERS) as stream:
            with self._errand.wake.on(stream):
                yield stream

    async def _read(self, door: Door, stream: Stream, track: Track) -> AsyncGenerator[Batch]:
        while (frames := await stream.next()) is not None:
            batch = await self._take(door, track, [self._of_frame(door, frame) for frame in frames])
            yield batch
            if batch.over:
                return
            track = batch.track
        if self._state not in WAITING or track.task is None:
            raise AwayError(f"{door.where} ended the stream before the task was over")
        steps = self._poll(door, track)  # the stream of a task that waits may end
        async with aclosing(steps):
            async for batch in steps:
                yield batch
                if self._state not in WAITING:
                    return

    def _of_frame(self, door: Door, frame: Frame) -> Seen:
        try:
            result = jsonrpc.result_in(frame.data, "a frame of its stream")
        except UnreadableError as error:
            raise WrongError(f"{door.where} is not understood: {error}") from None
        return self._seen(door, result)

    def _seen(self, door: Door, result: object) -> Seen:
        try:
            return _version(door).read_event(result)
        except UnreadableError as error:
            raise WrongError(f"{door.where} is not understood: {error}") from None

    # what is seen, in the vocabulary of workers

    async def _take(self, door: Door, track: Track, seen: Sequence[Seen]) -> Batch:
        spoken: list[Said] = []
        for each in seen:
            if isinstance(each, MessageSeen):
                spoken.append(self._telling.reply(door, each.parts))
                break
            if isinstance(each, PieceSeen):
                track, more = self._pictured(door, track, each)
            else:
                track, more = await self._stands(door, track, each)
            spoken += more
            if spoken and spoken[-1].final:
                break
        return Batch(spoken, track)

    async def _stands(
        self, door: Door, track: Track, seen: TaskSeen | StatusSeen
    ) -> tuple[Track, list[Said]]:
        """Take in a state; where something may have been missed, the last one is compared with the whole task."""
        task_id = seen.id if isinstance(seen, TaskSeen) else seen.task_id
        if track.task is None:
            track = replace(track, task=task_id)
        if isinstance(seen, StatusSeen) and seen.state in FINAL and not track.whole:
            seen = replace(await self._get(door, track), state=seen.state, message=seen.message)
        spoken: list[Said] = []
        if isinstance(seen, TaskSeen):
            track, spoken = self._pictured(door, track, seen)
        self._state = seen.state
        if seen.state in FINAL:
            return track, [*spoken, *self._telling.last(door, track, seen)]
        return track, [*spoken, *self._telling.at_work(door, seen.state, texts_of(seen.message))]

    def _pictured(self, door: Door, track: Track, seen: TaskSeen | PieceSeen) -> tuple[Track, list[Said]]:
        if track.task is None:
            track = replace(track, task=seen.id if isinstance(seen, TaskSeen) else seen.task_id)
        try:
            picture, spoken = (
                track.picture.piece(seen) if isinstance(seen, PieceSeen) else track.picture.whole(seen)
            )
        except UnreadableError as error:
            raise WrongError(f"{door.where} is not understood: {error}") from None
        return replace(track, picture=picture), spoken

    # calls

    async def _get(self, door: Door, track: Track) -> TaskSeen:
        a2a = _version(door)
        try:
            return await self._task(door, a2a.GET, {"id": track.task, "historyLength": 0})
        except RpcError as error:
            raise (forgotten(door) if error.code == NOT_FOUND else refused(door, a2a.GET, error)) from None

    async def _is_over(self, door: Door, track: Track) -> bool:
        return (await self._get(door, track)).state in FINAL

    async def _task(self, door: Door, method: str, params: dict[str, Any]) -> TaskSeen:
        return self._read_task(door, await door.caller.call(door.url, method, params, _version(door).HEADERS))

    def _read_task(self, door: Door, result: object) -> TaskSeen:
        try:
            return _version(door).read_task(result)
        except UnreadableError as error:
            raise WrongError(f"{door.where} is not understood: {error}") from None


def _version(door: Door) -> A2a:
    assert door.a2a is not None  # noqa: S101 - this way is chosen by it
    return door.a2a
