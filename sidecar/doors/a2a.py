"""The A2A door: what the capsule's A2A paths answer, in both versions (A2A 0.3 section 7, A2A 1.0 sections 3 and 9)."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, ClassVar, Final

import orjson

from sidecar.cards.a2a import card_03, card_10
from sidecar.dialects import a2a, jsonrpc
from sidecar.dialects.a2a import Call
from sidecar.dialects.a2a03_server import A2A_03
from sidecar.dialects.a2a10_server import A2A_10
from sidecar.dialects.agent import NOT_CANCELABLE, NOT_FOUND
from sidecar.dialects.jsonrpc import RpcError
from sidecar.doors.a2a_asked import LABELS, METHODS, Asked, Request, check_version, takes
from sidecar.doors.a2a_streams import OneFrame, TaskStream, WaitingSend
from sidecar.errors import RefusedError, StoreError, refusal
from sidecar.events import Message, TaskState
from sidecar.model import TaskAcceptance
from sidecar.tasks.model import Input
from sidecar.tasks.records import NO_END, Wanted, record_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sidecar.dialects.a2a import Sending
    from sidecar.dialects.a2a_server import Dialect
    from sidecar.dialects.jsonrpc import Id
    from sidecar.events import Record, Task
    from sidecar.model import Capsule
    from sidecar.tasks.engine import Engine
    from sidecar.tasks.follow import Follower
    from sidecar.tasks.telling import Known

    Said = bytes | TaskStream | WaitingSend
    Handler = Callable[["A2aDoor", "Request"], Awaitable[Said]]
    Count = Callable[[str, str], None]

UNKNOWN: Final = "other"
"""What a request without a known method is counted as."""
REMEMBERED: Final = 8
"""Ways of writing one record that are remembered with it."""


class A2aDoor:
    """One capsule's A2A door as it is served now: cheap enough to be made for a request, over an engine that stays.

    `count` is called once per request with what was called and the outcome: `ok`, `stream`, `rejected`, `unavailable`
    or the code of the error. `methods` is what is called by which name, `stream` makes streams, which write their
    frames behind `frame_start`.
    """

    __slots__ = ("_capsule", "_count", "_engine")
    methods: ClassVar[Mapping[str, tuple[Dialect, Call]]] = METHODS
    stream: ClassVar[type[TaskStream]] = TaskStream
    frame_start: ClassVar = b""

    def __init__(self, engine: Engine, capsule: Capsule, count: Count) -> None:
        self._engine = engine
        self._capsule = capsule
        self._count = count

    async def call(self, body: bytes, asked: Asked) -> Said | OneFrame:
        """Answer the body of a request: with the bytes of a JSON answer, a stream, or a send that waits.

        The caller closes the latter two. All go out as HTTP 200. Raises RefusedError (503) before any byte when too
        many streams are open.
        """
        try:
            envelope = jsonrpc.parse(body, nameless=True)
        except jsonrpc.RequestError as error:
            return self.error(asked, error.code, error.message, error.id)
        if envelope.method not in self.methods:
            return self.error(asked, jsonrpc.METHOD_NOT_FOUND, "Method not found", envelope.id)
        dialect, call = self.methods[envelope.method]
        try:
            check_version(dialect, envelope.method, asked)
            request = Request(dialect, envelope.id, call, jsonrpc.params_of(envelope), asked.owner)
            return await self._HANDLERS[call](self, request)
        except RpcError as error:
            code, message = error.code, error.message
        except StoreError as error:
            code, message = jsonrpc.INTERNAL_ERROR, f"Internal error: {error}"
        except RefusedError:
            self._count(LABELS[dialect.name, call], "unavailable")
            raise
        self._count(LABELS[dialect.name, call], str(code))
        answer = dialect.error(envelope.id, code, message)
        # clients of 0.3 that are set on a stream cannot tell the code of an error that comes as anything else
        old = dialect.version == A2A_03.version
        framed = asked.streams and old and call in (Call.STREAM, Call.SUBSCRIBE)
        return OneFrame(answer, self.frame_start) if framed else answer

    def error(self, asked: Asked, code: int, message: str, request_id: Id = None) -> bytes:
        """Return the answer to what is no call that could be looked at."""
        self._count(UNKNOWN, str(code))
        return asked.answers.error(request_id, code, message)

    # Sends

    async def _send(self, request: Request) -> Said:
        sending = self._sending(request)
        if sending.task_id is not None:
            return await self._send_to(request, sending, sending.task_id)
        given = Input(sending.text, sending.json)
        if not sending.blocking:
            task = await self._engine.send(given, context_id=sending.context_id, owner=request.owner)
            return self._sent(request, sending, _new_record(task, sending))
        task, follower = await self._engine.send_and_follow(
            given, context_id=sending.context_id, owner=request.owner
        )
        if follower is None:
            return self._sent(request, sending, _new_record(task, sending))

        async def answer() -> bytes:
            return await self._answer_waiting(request, sending, _new_record(task, sending))

        return self._waiting(follower, answer)

    async def _send_to(self, request: Request, sending: Sending, task_id: str) -> Said:
        """Deliver input to a task."""
        task = await self._waiting_task(request, sending, task_id)
        given = Input(sending.text, sending.json)
        follower = self._engine.telling.begin(task_id) if sending.blocking else None
        try:
            self._delivered(await self._engine.deliver(given, task_id=task_id))
        except BaseException:
            if follower is not None:
                follower.close()
            raise

        async def answer() -> bytes:
            return await self._answer_waiting(request, sending, _new_record(task, sending))

        return await answer() if follower is None else self._waiting(follower, answer)

    def _waiting(self, follower: Follower, answer: Callable[[], Awaitable[bytes]]) -> WaitingSend:
        settings = self._capsule.settings
        return WaitingSend(follower, answer, heartbeat=settings.heartbeat_a2a, within=settings.blocking_send)

    async def _answer_waiting(self, request: Request, sending: Sending, otherwise: Record) -> bytes:
        """Answer with the task as it stands, or with the message that its worker wants instead."""
        try:
            known = await self._engine.telling.record(otherwise.task.id)
        except StoreError as error:
            self._count(request.label, str(jsonrpc.INTERNAL_ERROR))
            return request.dialect.error(request.id, jsonrpc.INTERNAL_ERROR, f"Internal error: {error}")
        record = otherwise if known is None or known.record is None else known.record
        if record.reply is not None and sending.task_id is None and sending.blocking:
            self._count(request.label, "ok")
            return request.result(request.dialect.sent_message(record, record.reply))
        return self._sent(request, sending, record)

    def _sent(self, request: Request, sending: Sending, record: Record) -> bytes:
        no_room = record.task.state is TaskState.REJECTED and record.task.turn == 0
        self._count(request.label, "rejected" if no_room else "ok")
        return request.result(request.dialect.sent_task(record, sending.history_length))

    async def _stream(self, request: Request) -> Said:
        sending = self._sending(request)
        self._check_streams()
        given = Input(sending.text, sending.json)
        if sending.task_id is not None:
            await self._waiting_task(request, sending, sending.task_id)
            self._delivered(await self._engine.deliver(given, task_id=sending.task_id))
            return await self._stream_of(request, sending.task_id, sending.history_length)
        task, follower = await self._engine.send_and_follow(
            given, context_id=sending.context_id, owner=request.owner, streaming=True
        )
        self._count(request.label, "rejected" if follower is None else "stream")
        return self._opened(request, _new_record(task, sending), follower, sending.history_length, held=True)

    async def _subscribe(self, request: Request) -> Said:
        task_id = request.dialect.read_task_id(request.params)
        task = await self._own(request, task_id)
        if task.state.terminal:
            raise RpcError(a2a.UNSUPPORTED_OPERATION, f"The task is over: it is {task.state}; get it instead")
        self._check_streams()
        return await self._stream_of(request, task_id, None)

    async def _stream_of(self, request: Request, task_id: str, history_length: int | None) -> TaskStream:
        """Open a stream of a task as it stands now; of one that has just ended it is short."""
        telling = self._engine.telling
        found = await telling.follow(task_id, streaming=True)
        record, follower = (_of(await telling.record(task_id)), None) if found is None else found
        self._count(request.label, "stream")
        return self._opened(request, record, follower, history_length)

    def _opened(
        self,
        request: Request,
        record: Record,
        follower: Follower | None,
        history_length: int | None,
        *,
        held: bool = False,
    ) -> TaskStream:
        return self.stream(
            record,
            follower,
            dialect=request.dialect,
            request_id=request.id,
            heartbeat=self._capsule.settings.heartbeat_a2a,
            history_length=history_length,
            held=held,
        )

    def _check_streams(self) -> None:
        if self._engine.open_streams >= self._capsule.settings.streams:
            text = "Too many streams are open on this capsule; try again later."
            raise RefusedError(refusal("unavailable", text, ("Retry-After", "1")))

    def _sending(self, request: Request) -> Sending:
        if self._capsule.manifest.lifecycle.task_acceptance is TaskAcceptance.NONE:
            raise RpcError(
                a2a.UNSUPPORTED_OPERATION, "The capsule takes no messages: task_acceptance is none"
            )
        sending = request.dialect.read_send(request.params)
        modes = self._capsule.settings.input_modes
        for index, part in enumerate(sending.parts):
            if not takes(modes, part):
                taken = ", ".join(modes)
                raise RpcError(
                    a2a.CONTENT_TYPE_NOT_SUPPORTED,
                    f"message.parts[{index}] is none of what is taken: {taken}",
                )
        return sending

    # Tasks that there are

    async def _own(self, request: Request, task_id: str) -> Task:
        """Return a task of the caller's; that of somebody else looks as if there were none."""
        task = await self._engine.get(task_id)
        if task is None or task.owner != request.owner:
            raise RpcError(NOT_FOUND, "Task not found")
        return task

    async def _waiting_task(self, request: Request, sending: Sending, task_id: str) -> Task:
        """Return a task that a message may go to."""
        task = await self._own(request, task_id)
        if sending.context_id not in (None, task.context_id):
            raise jsonrpc.RpcError(
                jsonrpc.INVALID_PARAMS, "Invalid params: message.contextId is not that of the task"
            )
        if task.state is not TaskState.INPUT_REQUIRED:
            raise _not_waiting(task)
        return task

    def _delivered(self, task: Task | None) -> None:
        if task is None:  # between the look at it and the delivery
            raise RpcError(a2a.UNSUPPORTED_OPERATION, "The task does not wait for input any more")

    async def _get(self, request: Request) -> bytes:
        query = request.dialect.read_get(request.params)
        known = await self._engine.telling.record(query.task_id)
        if known is None or _of(known).task.owner != request.owner:
            raise RpcError(NOT_FOUND, "Task not found")
        self._count(request.label, "ok")
        way = (request.dialect.name, query.history_length)
        result = known.written.get(way)
        if result is None:
            written = orjson.dumps(request.dialect.task(_of(known), query.history_length))
            result = bytes(memoryview(written))  # a copy: what the serializer returns keeps all of its room
            if len(known.written) < REMEMBERED:
                known.written[way] = result
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (orjson.dumps(request.id), result)

    async def _list(self, request: Request) -> bytes:
        query = request.dialect.read_list(request.params)
        wanted = Wanted(
            request.owner,
            query.context_id,
            query.status,
            query.status_after,
            _place(query.page_token),
            query.page_size,
            query.include_artifacts,
        )
        found = await self._engine.telling.listed(wanted)
        page = a2a.Page(found.records, query, _token(found.next), found.total)
        self._count(request.label, "ok")
        return request.result(request.dialect.listing(page))

    async def _cancel(self, request: Request) -> bytes:
        task_id = request.dialect.read_task_id(request.params)
        task = await self._own(request, task_id)
        if not task.state.terminal:
            task = await self._engine.cancel(task_id) or task
            if task.state is TaskState.CANCELED:
                self._count(request.label, "ok")
                return request.result(request.dialect.task(_of(await self._engine.telling.record(task_id))))
        raise RpcError(NOT_CANCELABLE, f"The task is over: it is {task.state}")

    async def _push(self, _: Request) -> bytes:
        raise RpcError(
            a2a.PUSH_NOT_SUPPORTED, "Push notifications are not supported: stream, or ask for the task"
        )

    async def _extended_card(self, request: Request) -> bytes:
        """Return the card for those who have shown a credential: it holds nothing that others may not see."""
        capsule = self._capsule
        if not capsule.credentials:
            raise RpcError(a2a.NO_EXTENDED_CARD, "There is no extended card")
        card = card_10(capsule) if request.dialect is A2A_10 else card_03(capsule)
        self._count(request.label, "ok")
        return request.result(card)

    _HANDLERS: ClassVar[Mapping[Call, Handler]] = {
        Call.SEND: _send,
        Call.STREAM: _stream,
        Call.GET: _get,
        Call.LIST: _list,
        Call.CANCEL: _cancel,
        Call.SUBSCRIBE: _subscribe,
        Call.PUSH: _push,
        Call.EXTENDED_CARD: _extended_card,
    }


def _not_waiting(task: Task) -> RpcError:
    over = "is over" if task.state.terminal else "does not wait for input"
    return RpcError(a2a.UNSUPPORTED_OPERATION, f"The task {over}: it is {task.state}")


def _new_record(task: Task, sending: Sending) -> Record:
    """Return the record of a task that was just taken, or found no room."""
    return record_of(task, (Message("user", sending.message_id, sending.parts, sending.metadata),))


def _of(known: Known | None) -> Record:
    if known is None or known.record is None:
        raise RpcError(NOT_FOUND, "Task not found")
    return known.record


def _token(place: tuple[float, int] | None) -> str:
    """Return the place that a page of a list ends at as text; nothing where it is the last page."""
    return "" if place is None else urlsafe_b64encode(orjson.dumps(place)).decode()


def _place(token: str) -> tuple[float, int] | None:
    """Return the place that a token names. Raises RpcError -32602."""
    if not token:
        return None
    try:
        match orjson.loads(urlsafe_b64decode(token.encode())):
            case [float(at), int(seq)] if 0 <= seq <= NO_END:
                return at, seq
    except ValueError:
        pass
    raise RpcError(jsonrpc.INVALID_PARAMS, "Invalid params: pageToken is none of an earlier answer")
