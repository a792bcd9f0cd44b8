"""Handing a task on to a murmur door: `message/stream` starts it, `stream/watch` takes it up again from the last id."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sidecar.dialects import murmur_client as murmur
from sidecar.dialects.agent import NOT_FOUND
from sidecar.dialects.jsonrpc import RpcError
from sidecar.dialects.murmur_client import ErrorFrame, GapFrame, LaggedFrame, StatusFrame
from sidecar.dialects.reading import UnreadableError
from sidecar.events import TaskState
from sidecar.tasks import said
from sidecar.tasks.forwarding.heard import Heard
from sidecar.tasks.forwarding.track import Batch
from sidecar.tasks.forwarding.trouble import AwayError, BusyError, WrongError, shown
from sidecar.tasks.forwarding.way import forgotten, refused, untold

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from sidecar.dialects.murmur_client import FromDoor, OfTask, TaskObject
    from sidecar.dialects.sse_reader import Frame
    from sidecar.tasks.forwarding.company import Company
    from sidecar.tasks.forwarding.stream import Stream
    from sidecar.tasks.forwarding.track import Track
    from sidecar.tasks.forwarding.way import Errand
    from sidecar.tasks.forwarding.where import Door
    from sidecar.tasks.model import Input
    from sidecar.tasks.said import Said

RESTS: Final = 2
"""How often a door must be seen at rest before it counts as not having a task."""


class MurmurWay:
    """Follows one task at a murmur door (murmur reference, The door, Streams)."""

    def __init__(self, errand: Errand, company: Company) -> None:
        self._errand = errand
        self._company = company
        self._heard = Heard(errand)
        self._behind = False
        self._quiet = False
        self._why = ""

    async def follow(self, door: Door, track: Track, inputs: Sequence[Input]) -> AsyncGenerator[Batch]:
        """Go on from there; see `Way.follow`."""
        self._heard.forget()
        self._behind = False
        if track.session not in (None, door.session):
            raise forgotten(door)
        if track.task is not None:
            self._company.take(track.task)
            steps = self._again(door, track, inputs)
        elif track.begun:
            steps = self._seek(door, track)
        else:
            steps = self._start(door, track, inputs[0])
        async with aclosing(steps):
            async for batch in steps:
                yield batch

    async def cancel(self, door: Door, track: Track) -> str | None:
        """Cancel the task there; see `Way.cancel`."""
        if track.session != door.session:
            return None
        try:
            task = await self._call(door, murmur.CANCEL, {"id": track.task})
        except RpcError as error:
            return None if error.code == NOT_FOUND else str(refused(door, murmur.CANCEL, error))
        if residue := task.outputs.get("residue"):
            return f"{door.where}: {shown(residue)}"
        return None if task.state.terminal else f"{door.where} did not cancel the task: it is {task.state}"

    # starting

    async def _start(self, door: Door, track: Track, first: Input) -> AsyncGenerator[Batch]:
        errand = self._errand
        params = murmur.write_message(first.json, errand.message_id(1), errand.task.context_id)
        async with self._company.starting(errand.task.context_id) as start:
            begun = replace(track, kind=door.kind, begun=True, session=door.session, inputs=1)
            yield (batch := Batch((), begun, early=True))
            try:
                async with self._streaming(door, murmur.STREAM, params) as stream:
                    while not batch.over:
                        batch = await self._next(door, stream, batch.track)
                        if batch.track.task is not None:
                            start.over()
                        yield batch
            except AwayError as error:
                self._why = str(error)
                if not error.sent:
                    yield Batch((), replace(track, kind=door.kind), early=True)
                raise

    async def _seek(self, door: Door, track: Track) -> AsyncGenerator[Batch]:
        """Find a task of which it is not known whether the door has it, by its context.

        Where the door has come to rest on something else, and tells of no task in that context, it does not have it.
        """
        if not self._errand.alone:
            raise untold(door)
        async with self._streaming(door, murmur.WATCH, {}, track.cursor) as stream:
            rests = 0
            while rests < RESTS:
                batch = await self._next(door, stream, track, within=self._errand.patience.quiet)
                yield batch
                track = batch.track
                if batch.over:
                    return
                if track.task is None and self._quiet:
                    found = await self._current(door)
                    elsewhere = found is None or found.context_id != self._errand.task.context_id
                    rests += elsewhere and (found is None or found.state.terminal)
        yield Batch((), replace(track, begun=False, inputs=0), early=True)
        raise AwayError(self._why or f"{door.where} did not take the task", sent=False)

    async def _current(self, door: Door) -> TaskObject | None:
        try:
            return await self._call(door, murmur.GET, {})
        except RpcError as error:
            if error.code == NOT_FOUND:
                return None
            raise refused(door, murmur.GET, error) from None

    # going on

    async def _again(self, door: Door, track: Track, inputs: Sequence[Input]) -> AsyncGenerator[Batch]:
        if len(inputs) > track.inputs:
            steps = self._give(door, track, inputs[track.inputs])
            async with aclosing(steps):
                async for batch in steps:
                    track = batch.track
                    yield batch
        async with self._streaming(door, murmur.WATCH, {}, track.cursor) as stream:
            task = await self._get(door, track)
            ended = task if task.state.terminal else None
            quiet = self._errand.patience.quiet
            while True:
                batch = await self._next(door, stream, track, within=quiet if ended else None, known=task)
                yield batch
                track = batch.track
                if batch.over:
                    return
                if ended is not None and self._quiet:  # its last frame is kept no longer
                    response = ended.outputs.get("response")
                    yield Batch((self._heard.last(door, ended.state, ended.message, response),), track)
                    return

    async def _give(self, door: Door, track: Track, given: Input) -> AsyncGenerator[Batch]:
        """Hand on input. The door gives it to whichever of its tasks has waited longest, and that should be ours."""
        handed_on = replace(track, inputs=track.inputs + 1, giving=False)
        if track.giving:  # it may have arrived
            if (await self._get(door, track)).state is not TaskState.INPUT_REQUIRED:
                yield Batch((), handed_on)
                return
        else:
            yield Batch((), replace(track, giving=True), early=True)
        errand = self._errand
        params = murmur.write_message(given.json, errand.message_id(track.inputs + 1), errand.task.context_id)
        try:
            answer = await self._call(door, murmur.SEND, params)
        except RpcError as error:
            raise refused(door, murmur.SEND, error) from None
        except AwayError as error:
            if not error.sent:
                yield Batch((), replace(track, giving=False), early=True)
            raise
        if answer.id == track.task:
            yield Batch((), handed_on)
            return
        if answer.state is TaskState.SUBMITTED:  # nobody waited: a task was made of it that nobody wants
            await self._call(door, murmur.CANCEL, {"id": answer.id})
        ours = await self._get(door, track)
        waits = ours.state is TaskState.INPUT_REQUIRED
        asked: tuple[Said, ...] = (said.InputRequired(ours.outputs.get("prompt", "")),) if waits else ()
        yield Batch(asked, handed_on)

    async def _get(self, door: Door, track: Track) -> TaskObject:
        try:
            return await self._call(door, murmur.GET, {"id": track.task})
        except RpcError as error:
            raise (forgotten(door) if error.code == NOT_FOUND else refused(door, murmur.GET, error)) from None

    async def _call(self, door: Door, method: str, params: object) -> TaskObject:
        result = await door.caller.call(door.url, method, params, {})
        try:
            return murmur.read_task(result)
        except UnreadableError as error:
            raise WrongError(f"{door.where} is not understood: {error}") from None

    # streams

    @asynccontextmanager
    async def _streaming(
        self, door: Door, method: str, params: object, cursor: int | None = None
    ) -> AsyncIterator[Stream]:
        headers = {} if cursor is None else {"Last-Event-ID": str(cursor)}
        try:
            async with door.caller.stream(door.url, method, params, headers) as stream:
                with self._errand.wake.on(stream):
                    yield stream
        except RpcError as error:
            raise refused(door, method, error) from None

    async def _next(
        self,
        door: Door,
        stream: Stream,
        track: Track,
        *,
        within: float | None = None,
        known: TaskObject | None = None,
    ) -> Batch:
        """Return what the next frames say; `known` is the task as it was after the stream was opened."""
        if self._behind:
            raise AwayError(f"{door.where} left out frames")
        frames = await stream.next(within)
        if frames is None:
            raise AwayError(f"{door.where} ended the stream before the task was over")
        self._quiet = not frames and not self._errand.wake.rung
        spoken: list[Said] = []
        for frame in frames:
            told = self._told(door, frame)
            if isinstance(told, LaggedFrame):
                self._behind = True  # what was left out is still kept there
                break
            if isinstance(told, ErrorFrame):
                raise WrongError(f"{door.where} does not take the message: {shown(told.error)}")
            if isinstance(told, GapFrame):
                track = _after_gap(track, told)
                spoken += self._heard.missed(known)
            elif told is not None:
                track, more = self._taken(door, track, told)
                spoken += more
        return Batch(spoken, track)

    def _told(self, door: Door, frame: Frame) -> FromDoor | None:
        try:
            return murmur.read_frame(frame)
        except UnreadableError as error:
            raise WrongError(f"{door.where} is not understood: {error}") from None

    def _taken(self, door: Door, track: Track, told: OfTask) -> tuple[Track, list[Said]]:
        number = told.number
        if number is not None:
            if track.cursor is not None and number <= track.cursor:
                return track, []
            track = replace(track, cursor=number)
        if track.task is None:
            if not self._is_ours(told):
                return track, []
            if number is None:
                raise BusyError(f"{door.where} has no room for the task")
            self._company.take(told.task_id)
            track = replace(track, task=told.task_id)
        return track, self._heard.said(door, told) if told.task_id == track.task else []

    def _is_ours(self, told: OfTask) -> bool:
        return (
            isinstance(told, StatusFrame)
            and told.context_id == self._errand.task.context_id
            and told.task_id not in self._company
        )


def _after_gap(track: Track, gap: GapFrame) -> Track:
    """Return the track where the numbers go back: the door has begun to count anew."""
    if track.cursor is not None and gap.first <= track.cursor:
        return replace(track, cursor=gap.first - 1 if gap.first else None)
    return track
