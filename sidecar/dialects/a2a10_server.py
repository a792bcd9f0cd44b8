"""A2A 1.0 over JSON-RPC, as a server writes and reads it (A2A specification 1.0, sections 3, 4 and 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

from sidecar.dialects import a2a_reading as reading
from sidecar.dialects.a2a import REASONS, Call
from sidecar.dialects.a2a_server import Dialect
from sidecar.events import TERMINAL, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecar.dialects.a2a import ListQuery, Page, Query, Sending
    from sidecar.dialects.a2a_server import Object, Part
    from sidecar.dialects.jsonrpc import Id
    from sidecar.events import Event, Record

DETAIL: Final = "type.googleapis.com/google.rpc.ErrorInfo"
DOMAIN: Final = "a2a-protocol.org"

_ROLES: Final = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}
_SENDERS: Final = frozenset(_ROLES.values())
_STATES: Final = {state: f"TASK_STATE_{state.value.upper().replace('-', '_')}" for state in TaskState}
_ASKED_FOR: Final[Mapping[str, str | None]] = {
    "TASK_STATE_UNSPECIFIED": None,
    **{theirs: state.value for state, theirs in _STATES.items()},
    "TASK_STATE_AUTH_REQUIRED": "auth-required",
}
_PART: Final = ("text", "raw", "url", "filename", "mediaType", "metadata")


class _A2A10(Dialect):
    version: ClassVar = "1.0"
    name: ClassVar = "a2a-1.0"
    methods: ClassVar[Mapping[str, Call]] = {
        "SendMessage": Call.SEND,
        "SendStreamingMessage": Call.STREAM,
        "GetTask": Call.GET,
        "ListTasks": Call.LIST,
        "CancelTask": Call.CANCEL,
        "SubscribeToTask": Call.SUBSCRIBE,
        "CreateTaskPushNotificationConfig": Call.PUSH,
        "GetTaskPushNotificationConfig": Call.PUSH,
        "ListTaskPushNotificationConfigs": Call.PUSH,
        "DeleteTaskPushNotificationConfig": Call.PUSH,
        "GetExtendedAgentCard": Call.EXTENDED_CARD,
    }

    def read_send(self, params: Mapping[str, Any]) -> Sending:
        params = reading.json_names(params)
        at_once = reading.flag(reading.configuration(params), "returnImmediately", "configuration.")
        return reading.read_send(params, _SENDERS, blocking=not at_once)

    def read_get(self, params: Mapping[str, Any]) -> Query:
        return super().read_get(reading.json_names(params))

    def read_list(self, params: Mapping[str, Any]) -> ListQuery:
        return reading.read_list(reading.json_names(params), _ASKED_FOR)

    def task(self, record: Record, history_length: int | None = None, *, artifacts: bool = True) -> Object:
        return self._task(record, history_length, artifacts=artifacts)

    def sent_task(self, record: Record, history_length: int | None = None) -> Object:
        return {"task": self.task(record, history_length)}

    def sent_message(self, record: Record, parts: Iterable[Part]) -> Object:
        made = self._message("agent", f"msg_{record.task.id}_reply", parts)
        return {"message": made | {"contextId": record.task.context_id}}

    def listing(self, page: Page) -> Object:
        query = page.query
        return {
            "tasks": [
                self._task(record, query.history_length, artifacts=query.include_artifacts)
                for record in page.records
            ],
            "nextPageToken": page.next_token,
            "pageSize": query.page_size,
            "totalSize": page.total,
        }

    def error(self, request_id: Id, code: int, message: str, reason: str | None = None) -> bytes:
        detail = {"@type": DETAIL, "reason": reason or REASONS[code], "domain": DOMAIN}
        failure = {"code": code, "message": message, "data": [detail]}
        return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": failure})

    def closes(self, state: TaskState) -> bool:
        return state in TERMINAL

    def _status_update(self, event: Event) -> Object:
        return {
            "statusUpdate": {
                "taskId": event.task_id,
                "contextId": event.context_id,
                "status": self._status_of(event),
            }
        }

    def _artifact_update(self, event: Event, artifact: Object, *, append: bool, last: bool) -> Object:
        return {
            "artifactUpdate": {
                "taskId": event.task_id,
                "contextId": event.context_id,
                "artifact": artifact,
                "append": append,
                "lastChunk": last,
            }
        }

    def _state(self, state: TaskState) -> str:
        return _STATES[state]

    def _part(self, part: Part) -> Object:
        if len(part) == 1 and "text" in part:
            return dict(part)
        made = {key: part[key] for key in _PART if part.get(key) is not None}
        if "data" in part and not made.keys() & {"text", "raw", "url"}:
            made["data"] = part["data"]
        return made

    def _message(self, role: str, message_id: str, parts: Iterable[Part]) -> Object:
        return {
            "messageId": message_id,
            "role": _ROLES[role],
            "parts": [self._part(part) for part in parts],
        }


A2A_10: Final[Dialect] = _A2A10()
