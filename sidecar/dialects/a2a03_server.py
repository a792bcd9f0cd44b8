"""A2A 0.3 over JSON-RPC, as a server writes and reads it (A2A specification 0.3.0, sections 6 and 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from sidecar.dialects import a2a_reading as reading
from sidecar.dialects import jsonrpc
from sidecar.dialects.a2a import Call
from sidecar.dialects.a2a03 import write_part
from sidecar.dialects.a2a_server import Dialect, interrupted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecar.dialects.a2a import Sending
    from sidecar.dialects.a2a_server import Object, Part
    from sidecar.dialects.jsonrpc import Id
    from sidecar.events import Event, Record, TaskState

_ROLES: Final = frozenset({"user", "agent"})


class _A2A03(Dialect):
    version: ClassVar = "0.3"
    name: ClassVar = "a2a-0.3"
    methods: ClassVar[Mapping[str, Call]] = {
        "message/send": Call.SEND,
        "message/stream": Call.STREAM,
        "tasks/get": Call.GET,
        "tasks/cancel": Call.CANCEL,
        "tasks/resubscribe": Call.SUBSCRIBE,
        "tasks/pushNotificationConfig/set": Call.PUSH,
        "tasks/pushNotificationConfig/get": Call.PUSH,
        "tasks/pushNotificationConfig/list": Call.PUSH,
        "tasks/pushNotificationConfig/delete": Call.PUSH,
        "agent/getAuthenticatedExtendedCard": Call.EXTENDED_CARD,
    }

    def read_send(self, params: Mapping[str, Any]) -> Sending:
        # who does not say waits: the official servers of this version have it so
        waits = reading.flag(reading.configuration(params), "blocking", "configuration.")
        sending = reading.read_send(params, _ROLES, blocking=waits is not False)
        kind = params["message"].get("kind")
        if kind not in (None, "message"):
            raise reading.invalid("message.kind must be message")
        return sending

    def task(self, record: Record, history_length: int | None = None, *, artifacts: bool = True) -> Object:
        return {"kind": "task"} | self._task(record, history_length, artifacts=artifacts)

    def sent_task(self, record: Record, history_length: int | None = None) -> Object:
        return self.task(record, history_length)

    def sent_message(self, record: Record, parts: Iterable[Part]) -> Object:
        made = self._message("agent", f"msg_{record.task.id}_reply", parts)
        return made | {"contextId": record.task.context_id}

    def error(self, request_id: Id, code: int, message: str, reason: str | None = None) -> bytes:  # noqa: ARG002 - this version has no such detail
        return jsonrpc.error(request_id, code, message)

    def closes(self, state: TaskState) -> bool:
        return interrupted(state)

    def _status_update(self, event: Event) -> Object:
        return {
            "kind": "status-update",
            "taskId": event.task_id,
            "contextId": event.context_id,
            "status": self._status_of(event),
            "final": self.closes(event.data["state"]),
        }

    def _artifact_update(self, event: Event, artifact: Object, *, append: bool, last: bool) -> Object:
        return {
            "kind": "artifact-update",
            "taskId": event.task_id,
            "contextId": event.context_id,
            "artifact": artifact,
            "append": append,
            "lastChunk": last,
        }

    def _state(self, state: TaskState) -> str:
        return state.value

    def _part(self, part: Part) -> Object:
        return write_part({key: value for key, value in part.items() if value is not None or key == "data"})

    def _message(self, role: str, message_id: str, parts: Iterable[Part]) -> Object:
        return {
            "kind": "message",
            "messageId": message_id,
            "role": role,
            "parts": [self._part(part) for part in parts],
        }


A2A_03: Final[Dialect] = _A2A03()
A2A03 = _A2A03
"""For views that say the same with more to it."""
