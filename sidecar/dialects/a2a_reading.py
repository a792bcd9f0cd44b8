"""Parameters of A2A calls as values; everything raises RpcError -32602 for what the protocol does not have there.

Members that are not known are ignored, null is as good as nothing (A2A 1.0 section 5.7), and so is an empty id, which
is how some clients write that they have none.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.dialects.a2a import LISTED, MOST_LISTED, PUSH_NOT_SUPPORTED, ListQuery, Query, Sending
from sidecar.dialects.agent import plain_parts, texts_of
from sidecar.dialects.jsonrpc import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sidecar.dialects.agent import Part

    Params = Mapping[str, Any]

_PUSH: Final = ("pushNotificationConfig", "taskPushNotificationConfig")
_NESTED: Final = ("message", "configuration")
_RENAMED: Final = frozenset(
    {
        *("message_id", "context_id", "task_id", "reference_task_ids", "media_type", "history_length"),
        *("accepted_output_modes", "return_immediately", "task_push_notification_config"),
        *(
            "push_notification_config",
            "page_size",
            "page_token",
            "status_timestamp_after",
            "include_artifacts",
        ),
    }
)
"""What has two words in its name of all that is read here."""
_AFTER_LINE: Final = re.compile(r"_([a-z0-9])", re.ASCII)
_RFC3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


def read_send(params: Params, roles: Collection[str], *, blocking: bool) -> Sending:
    """Read what a send asks for; `roles` are the names that a sender may have.

    Whether it blocks is read by `configuration`, since the versions differ there. Raises RpcError, -32003 where the
    sender wants to be called back.
    """
    message = _object(params, "message")
    if message is None:
        raise invalid("message is missing")
    message_id = _text(message, "messageId", "message.")
    if not message_id:
        raise invalid("message.messageId is missing")
    role = _text(message, "role", "message.")
    if role not in roles:
        raise invalid(
            f"message.role must be {' or '.join(sorted(roles))}" if role else "message.role is missing"
        )
    parts = _parts(message)
    settings = configuration(params)
    if any(settings.get(key) is not None for key in _PUSH):
        raise RpcError(
            PUSH_NOT_SUPPORTED, "Push notifications are not supported: stream, or ask for the task"
        )
    task_id = _text(message, "taskId", "message.")
    context_id = _text(message, "contextId", "message.")
    metadata = _object(message, "metadata", "message.") or {}
    made: dict[str, Any] = {"messageId": message_id, "role": "user", "parts": parts}
    more = (("contextId", context_id), ("taskId", task_id), ("metadata", metadata))
    made |= {key: value for key, value in more if value}
    for key in ("extensions", "referenceTaskIds"):
        if message.get(key) is not None and (texts := _texts(message, key, "message.")):
            made[key] = texts
    return Sending(
        message_id=message_id,
        task_id=task_id or None,
        context_id=context_id or None,
        text=texts_of(parts),
        parts=parts,
        metadata=metadata,
        json=_written(made),
        blocking=blocking,
        history_length=_history_length(settings, "configuration."),
    )


def json_names(params: Params) -> Params:
    """Return parameters with the members that have the names of the protocol buffers, `task_id`, called as in JSON.

    Whoever reads the JSON of protocol buffers takes both (ProtoJSON, "Field names"), and some clients of 1.0 count on
    that. Free-form members, `metadata` and `data`, stay as they are.
    """
    made = _renamed(params)
    for key in _NESTED:
        value = made.get(key)
        if type(value) is dict and (renamed := _renamed(value)) is not value:
            made = {**made, key: renamed}
    message = made.get("message")
    if type(message) is dict and type(message.get("parts")) is list:
        parts = message["parts"]
        for part in parts:
            if type(part) is dict and not _RENAMED.isdisjoint(part):
                renamed_parts = [_renamed(each) if type(each) is dict else each for each in parts]
                return {**made, "message": {**message, "parts": renamed_parts}}
    return made


def configuration(params: Params) -> Params:
    """Return the settings of a send, {} where there are none."""
    return _object(params, "configuration") or {}


def flag(holder: Params, key: str, where: str = "") -> bool | None:
    """Return a member that is true or false, None where it is left out."""
    value = holder.get(key)
    if value is not None and type(value) is not bool:
        raise invalid(f"{where}{key} must be true or false")
    return value


def read_task_id(params: Params) -> str:
    """Return the id of the task that is meant."""
    task_id = _text(params, "id")
    if not task_id:
        raise invalid("id is missing")
    return task_id


def read_get(params: Params) -> Query:
    """Read which task is asked for, and how many of its messages."""
    return Query(read_task_id(params), _history_length(params))


def read_list(params: Params, states: Mapping[str, str | None]) -> ListQuery:
    """Read which tasks are to be listed; `states` gives the spelling of `ListQuery` for that of the protocol."""
    state = _text(params, "status")
    if state and state not in states:
        raise invalid(f"status must be one of {', '.join(states)}")
    size = _number(params, "pageSize")
    if size is not None and not 1 <= size <= MOST_LISTED:
        raise invalid(f"pageSize must be from 1 to {MOST_LISTED}")
    after = _text(params, "statusTimestampAfter")
    return ListQuery(
        context_id=_text(params, "contextId") or None,
        status=states[state] if state else None,
        page_size=LISTED if size is None else size,
        page_token=_text(params, "pageToken") or "",
        history_length=_history_length(params),
        status_after=_moment(after) if after else None,
        include_artifacts=flag(params, "includeArtifacts") or False,
    )


def invalid(what: str) -> RpcError:
    """Return the error of parameters that are wrong in this way."""
    return RpcError(INVALID_PARAMS, f"Invalid params: {what}")


def _renamed(holder: Params) -> Params:
    """Return a copy with other names; where all names are right, which is as good as always, the very same."""
    if _RENAMED.isdisjoint(holder):
        return holder
    made = dict(holder)
    for key in holder:
        if "_" in key:
            made.setdefault(_AFTER_LINE.sub(lambda found: found[1].upper(), key), made.pop(key))
    return made


def _parts(message: Params) -> tuple[Part, ...]:
    value = message.get("parts")
    if type(value) is not list or not value:
        raise invalid("message.parts must be a list of at least one part")
    return tuple(_part(part, f"message.parts[{index}]") for index, part in enumerate(value))


def _part(part: object, name: str) -> Part:
    if type(part) is dict and len(part) == 1 and type(part.get("text")) is str:
        return part  # as almost all are
    if type(part) is not dict or not (plain := plain_parts([part])):
        raise invalid(f"{name} is no part: it must hold text, a file or data")
    (found,) = plain
    kind = part.get("kind")
    if kind is not None and kind != _kind_of(found):
        raise invalid(f"{name}.kind does not name what it holds")
    if "raw" in found:
        try:
            b64decode(found["raw"], validate=True)
        except (binascii.Error, ValueError):
            raise invalid(f"{name} must hold base64") from None
    return found


def _kind_of(part: Part) -> str:
    return "text" if "text" in part else "data" if "data" in part else "file"


def _written(message: dict[str, Any]) -> str:
    try:
        # as deep as anything puts it that shows it again: a page of tasks, and 0.3 with data that is no object
        return orjson.dumps([[[[[[message]]]]]])[6:-6].decode()
    except orjson.JSONEncodeError:
        raise invalid("the message is nested too deeply") from None


def _object(holder: Params, key: str, where: str = "") -> dict[str, Any] | None:
    value = holder.get(key)
    if value is not None and type(value) is not dict:
        raise invalid(f"{where}{key} must be an object")
    return value


def _text(holder: Params, key: str, where: str = "") -> str | None:
    value = holder.get(key)
    if value is not None and type(value) is not str:
        raise invalid(f"{where}{key} must be a string")
    return value


def _texts(holder: Params, key: str, where: str) -> list[str]:
    value = holder.get(key)
    if value is None:
        return []
    if type(value) is not list or not all(type(each) is str for each in value):
        raise invalid(f"{where}{key} must be a list of strings")
    return value


def _number(holder: Params, key: str, where: str = "") -> int | None:
    value = holder.get(key)
    if value is not None and type(value) is not int:
        raise invalid(f"{where}{key} must be an integer")
    return value


def _history_length(holder: Params, where: str = "") -> int | None:
    length = _number(holder, "historyLength", where)
    if length is not None and length < 0:
        raise invalid(f"{where}historyLength must not be negative")
    return length


def _moment(text: str) -> float:
    """Return the Unix seconds of a time as protocol buffers write it in JSON (RFC 3339)."""
    found = _RFC3339.fullmatch(text)
    try:
        if found is not None:
            day, time, fraction, zone = found.groups()
            whole = datetime.fromisoformat(f"{day}T{time}{'+00:00' if zone in 'Zz' else zone}")
            return whole.timestamp() + float(f"0.{fraction or 0}")
    except (ValueError, OverflowError):
        pass
    raise invalid("statusTimestampAfter must be a time like 2026-01-31T12:00:00.000Z")
