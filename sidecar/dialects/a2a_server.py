"""A2A over JSON-RPC as a server speaks it: what both versions do alike. `a2a03_server`, `a2a10_server` are the versions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from sidecar.dialects import a2a_reading as reading
from sidecar.dialects.a2a import RESPONSE, response_id, status_id, told
from sidecar.events import TERMINAL, EventKind, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecar.dialects.a2a import Call, ListQuery, Page, Query, Sending
    from sidecar.dialects.jsonrpc import Id
    from sidecar.events import Event, Message, Record

    Object = dict[str, Any]
    Part = Mapping[str, Any]


class Dialect(ABC):
    """One version of A2A. It holds nothing: one object serves everybody. `name` tells it from others of its version.

    Readers raise RpcError. What the others return is the `result` of an answer or, in a list, of the frames that a
    stream shows. A record has the text of the reply, as far as it came, among its artifacts, under `a2a.response_id`.
    """

    version: ClassVar[str]
    name: ClassVar[str]
    methods: ClassVar[Mapping[str, Call]]

    # What a caller asks for

    @abstractmethod
    def read_send(self, params: Mapping[str, Any]) -> Sending:
        """Read the parameters of a send, or of one that streams."""

    def read_get(self, params: Mapping[str, Any]) -> Query:
        """Read which task is asked for, and how many of its messages."""
        return reading.read_get(params)

    def read_task_id(self, params: Mapping[str, Any]) -> str:
        """Return the id of the task to cancel, or to stream."""
        return reading.read_task_id(params)

    def read_list(self, params: Mapping[str, Any]) -> ListQuery:
        """Read which tasks are to be listed, in a version that has `Call.LIST`."""
        raise NotImplementedError

    # What it gets

    @abstractmethod
    def task(self, record: Record, history_length: int | None = None, *, artifacts: bool = True) -> Object:
        """Return a task: what getting and canceling it come to. Without `artifacts` there is no such member."""

    @abstractmethod
    def sent_task(self, record: Record, history_length: int | None = None) -> Object:
        """Return what a send that made a task comes to, which is also what the task's stream begins with."""

    @abstractmethod
    def sent_message(self, record: Record, parts: Iterable[Part]) -> Object:
        """Return what a send comes to, or a stream shows, whose worker answered with these parts and no task.

        The message names the context, not the task: that one is over, and nobody can go on with it.
        """

    def listing(self, page: Page) -> Object:
        """Return one page of tasks, in a version that has `Call.LIST`."""
        raise NotImplementedError

    @abstractmethod
    def error(self, request_id: Id, code: int, message: str, reason: str | None = None) -> bytes:
        """Return the whole answer that says what was wrong; `reason` is the code's own where it is left out."""

    # What streams show

    def event_results(self, event: Event, *, begun: bool) -> list[Object]:
        """Return what the streams of a task show of one of its events, in order; often nothing.

        `begun` says whether a piece of text came before in the same turn: the first one of a turn begins the artifact
        anew, so that the reply is the text of the last turn. Where the reply turns out to be another text than what
        was streamed, the last event of text says which under `whole`.
        """
        match event.kind:
            case EventKind.STATUS:
                # a later turn changes nothing that a client of A2A knows of
                return [] if event.data.get("turn", 0) > 1 else [self._status_update(event)]
            case EventKind.TEXT:
                return self._text_update(event, begun=begun)
            case EventKind.ARTIFACT:
                data = event.data
                made = self._artifact(data["artifact_id"], data["name"], data["parts"])
                return [self._artifact_update(event, made, append=data["append"], last=data["last"])]
        return []

    @abstractmethod
    def closes(self, state: TaskState) -> bool:
        """Whether streams end once a task is in this state."""

    def _text_update(self, event: Event, *, begun: bool) -> list[Object]:
        whole: str | None = event.data.get("whole")
        text = event.data["text"] if whole is None else whole
        if not text and not begun:
            return []
        made = self._artifact(response_id(event.task_id), RESPONSE, ({"text": text},))
        last = event.data["final"]
        return [self._artifact_update(event, made, append=begun and whole is None, last=last)]

    @abstractmethod
    def _status_update(self, event: Event) -> Object: ...

    @abstractmethod
    def _artifact_update(self, event: Event, artifact: Object, *, append: bool, last: bool) -> Object: ...

    # What all of these are made of

    def _task(self, record: Record, history_length: int | None, *, artifacts: bool) -> Object:
        task = record.task
        status = self._status(task.state, task.status, record.status_at, task.id, task.context_id)
        made: Object = {"id": task.id, "contextId": task.context_id, "status": status}
        if artifacts and record.artifacts:
            made["artifacts"] = [self._artifact(each.id, each.name, each.parts) for each in record.artifacts]
        if history_length is None:
            shown = record.history
        else:
            shown = record.history[-history_length:] if history_length else ()
        # asked for by number it is there, however short; otherwise an empty one says nothing
        if shown or history_length:
            made["history"] = [self._said(each, task.id, task.context_id) for each in shown]
        return made

    def _status(
        self, state: TaskState, status: str | None, at: float, task_id: str, context_id: str
    ) -> Object:
        made: Object = {"state": self._state(state)}
        if text := told(status):
            message_id = status_id(task_id, state, at, text)
            said = self._message("agent", message_id, ({"text": text},))
            made["message"] = said | {"taskId": task_id, "contextId": context_id}
        made["timestamp"] = timestamp(at)
        return made

    def _said(self, message: Message, task_id: str, context_id: str) -> Object:
        made = self._message(message.role, message.id, message.parts)
        made |= {"taskId": task_id, "contextId": context_id}
        if message.metadata:
            made["metadata"] = message.metadata
        return made

    def _status_of(self, event: Event) -> Object:
        data = event.data
        return self._status(data["state"], data["message"], event.at, event.task_id, event.context_id)

    def _artifact(self, identity: str, name: str | None, parts: Iterable[Part]) -> Object:
        made: Object = {"artifactId": identity}
        if name:
            made["name"] = name
        # one part at least (A2A 1.0 section 4.1.7)
        made["parts"] = [self._part(part) for part in parts] or [self._part({"text": ""})]
        return made

    @abstractmethod
    def _state(self, state: TaskState) -> str: ...

    @abstractmethod
    def _part(self, part: Part) -> Object: ...

    @abstractmethod
    def _message(self, role: str, message_id: str, parts: Iterable[Part]) -> Object: ...


def timestamp(at: float) -> str:
    """Return Unix seconds as both versions write a time: UTC, in milliseconds (A2A 1.0 section 5.6.1)."""
    second, fraction = divmod(int(at * 1000), 1000)
    return f"{_second(second)}.{fraction:03d}Z"


@lru_cache(maxsize=64)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def interrupted(state: TaskState) -> bool:
    """Whether a send that blocks waits no longer: the task is over, or waits itself (A2A 1.0 section 3.2.2)."""
    return state in TERMINAL or state is TaskState.INPUT_REQUIRED
