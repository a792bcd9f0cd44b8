"""What both versions of A2A have in common where they are served: calls, what they ask for, and how they fail.

States are spelled as in `sidecar.events`, parts have the form of the workers' protocol (docs/workers.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from sidecar.dialects import jsonrpc
from sidecar.dialects.agent import NOT_CANCELABLE, NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.events import Record, TaskState

PUSH_NOT_SUPPORTED: Final = -32003
UNSUPPORTED_OPERATION: Final = -32004
CONTENT_TYPE_NOT_SUPPORTED: Final = -32005
NO_EXTENDED_CARD: Final = -32007
VERSION_NOT_SUPPORTED: Final = -32009
"""Codes of errors (A2A 0.3 section 8.2, A2A 1.0 section 5.4)."""

REASONS: Final[Mapping[int, str]] = {
    jsonrpc.PARSE_ERROR: "PARSE_ERROR",
    jsonrpc.INVALID_REQUEST: "INVALID_REQUEST",
    jsonrpc.METHOD_NOT_FOUND: "METHOD_NOT_FOUND",
    jsonrpc.INVALID_PARAMS: "INVALID_PARAMS",
    jsonrpc.INTERNAL_ERROR: "INTERNAL_ERROR",
    NOT_FOUND: "TASK_NOT_FOUND",
    NOT_CANCELABLE: "TASK_NOT_CANCELABLE",
    PUSH_NOT_SUPPORTED: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    UNSUPPORTED_OPERATION: "UNSUPPORTED_OPERATION",
    CONTENT_TYPE_NOT_SUPPORTED: "CONTENT_TYPE_NOT_SUPPORTED",
    NO_EXTENDED_CARD: "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    VERSION_NOT_SUPPORTED: "VERSION_NOT_SUPPORTED",
}
"""What an error's details call it (A2A 1.0 section 9.5): the name of the error, without `Error`."""

RESPONSE: Final = "response"
"""The name of the artifact that the reply's text makes."""
MOST_LISTED: Final = 100
LISTED: Final = 50
"""Tasks of one page, at most and where a caller does not say (A2A 1.0 section 3.1.4)."""

_OURS: Final = re.compile(r"inference turn \d+|resumed|session ended")
"""Texts of statuses that the sidecar writes itself, for murmur's streams: no worker said them."""


class Call(StrEnum):
    """What a method asks for, whichever version names it."""

    SEND = "send"
    STREAM = "stream"
    GET = "get"
    LIST = "list"
    CANCEL = "cancel"
    SUBSCRIBE = "subscribe"
    PUSH = "push"
    EXTENDED_CARD = "extended card"


@dataclass(frozen=True, slots=True)
class Sending:
    """A message that came, and how its sender wants the answer.

    `json` is the message as the log keeps it, whichever version wrote it: `messageId`, `role`, `parts`, and where
    they were given `contextId`, `taskId`, `metadata`, `extensions`, `referenceTaskIds`. `blocking` waits for the end,
    or for a question. `history_length` None wants all messages.
    """

    message_id: str
    task_id: str | None
    context_id: str | None
    text: str
    parts: tuple[Mapping[str, Any], ...]
    metadata: Mapping[str, Any]
    json: str
    blocking: bool
    history_length: int | None


@dataclass(frozen=True, slots=True)
class Query:
    """One task that is asked for, with at most so many of its newest messages; None wants all of them."""

    task_id: str
    history_length: int | None


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which tasks are to be listed: those of a context, in a state, whose status is at least as new (Unix seconds).

    `status` may also be a state that no task of ours is ever in. `page_token` is empty for the first page.
    """

    context_id: str | None = None
    status: str | None = None
    page_size: int = LISTED
    page_token: str = ""
    history_length: int | None = None
    status_after: float | None = None
    include_artifacts: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """One page of what a query found; `total` counts all pages' tasks, the last one's `next_token` is empty."""

    records: tuple[Record, ...]
    query: ListQuery
    next_token: str
    total: int


def status_id(task_id: str, state: TaskState, at: float, text: str) -> str:
    """Return the id of the message that a status says this with (A2A 1.0 section 4.1.4: each has its own).

    It is the same wherever the status is told: by a stream, with the task, and among the messages of its history.
    `at` is the status's time.
    """
    digest = blake2b(f"{at!r} {state} {text}".encode(), digest_size=8)
    return f"msg_{task_id}_{digest.hexdigest()}"


def response_id(task_id: str) -> str:
    """Return the id of the artifact that the reply's text makes; no worker's artifact has it by chance."""
    return f"art_{task_id}_response"


def told(status: str | None) -> str | None:
    """Return the text of a status if a worker, or whoever ended the task, has something to tell with it."""
    return None if not status or _OURS.fullmatch(status) else status
