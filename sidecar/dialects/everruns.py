"""The sessions of Everruns: what callers send, and what they are told (everruns-sdk 0.3, agent client). Pure."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.dialects import sse

if TYPE_CHECKING:
    from collections.abc import Iterable

SESSION: Final = "session_"
EVENT: Final = "event_"
MESSAGE: Final = "message_"
TURN: Final = "turn_"

INPUT: Final = "input.message"
STARTED: Final = "turn.started"
DELTA: Final = "output.message.delta"
OUTPUT: Final = "output.message.completed"
COMPLETED: Final = "turn.completed"
FAILED: Final = "turn.failed"
CANCELLED: Final = "turn.cancelled"
LAST_TURN: Final = {COMPLETED: "completed", FAILED: "failed", CANCELLED: "cancelled"}
"""What `last_turn_status` is after an event that ends a turn."""

MOST_TITLE: Final = 200
MOST_KEY: Final = 255
SESSIONS: Final = (50, 200)
"""How many sessions are listed: usually, and at most."""
EVENTS: Final = (100, 500)
"""How many events are listed: usually, and at most."""

_NUMBER: Final = re.compile("[0-9]{1,18}", re.ASCII)
_NOT_TEXT: Final = re.compile("[\ud800-\udfff]")
"""Bytes of a header that are no UTF-8, as they come: neither the database nor an answer could hold them."""
_ID: Final = re.compile("[0-9a-f]{32}", re.ASCII)
_SEQUENCE_BITS: Final = 32
_HASHED_BITS: Final = 42
_SHAPE: Final = 'The body must be {"message": {"role": "user", "content": [{"type": "text", "text": TEXT}]}}.'


class UnreadableError(Exception):
    """What came is none that is taken; the text says what would be, as a sentence."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One event of a session; `sequence` counts those from 1, `at` is Unix seconds."""

    sequence: int
    type: str
    at: float
    data: Any


def read_session(body: bytes) -> str | None:
    """Read what a session is made of: its title, None where it has none. Raises UnreadableError."""
    document = _parsed(body) if body.strip() else {}
    if type(document) is not dict:
        raise UnreadableError('The body must be a JSON object, such as {"title": "Order 42"}, or empty.')
    title = document.get("title")
    if title is not None and type(title) is not str:
        raise UnreadableError("title must be text.")
    if title is not None and len(title) > MOST_TITLE:
        raise UnreadableError(f"title must have at most {MOST_TITLE} characters; it has {len(title)}.")
    return title or None


def read_message(body: bytes) -> tuple[str, ...]:
    """Read the texts of a message, of which at least one says something. Raises UnreadableError."""
    document = _parsed(body)
    message = document.get("message") if type(document) is dict and document.keys() == {"message"} else None
    if type(message) is not dict or message.keys() != {"role", "content"} or message["role"] != "user":
        raise UnreadableError(_SHAPE)
    content = message["content"]
    if type(content) is not list or not content:
        raise UnreadableError(_SHAPE)
    texts = tuple(_text(part) for part in content)
    if not any(text.strip() for text in texts):
        raise UnreadableError("The message is blank: put some text into its content.")
    return texts


def _text(part: object) -> str:
    if type(part) is not dict or part.keys() != {"type", "text"} or part["type"] != "text":
        raise UnreadableError(_SHAPE)
    text = part["text"]
    if type(text) is not str:
        raise UnreadableError(_SHAPE)
    return text


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UnreadableError(f"The body is not JSON: {error}.") from None


def read_key(given: list[str]) -> str | None:
    """Read the values of `Idempotency-Key`: the one that there is, None without. Raises UnreadableError."""
    if not given:
        return None
    key = given[0].strip()
    if len(given) != 1 or not key or len(key) > MOST_KEY or _NOT_TEXT.search(key):
        raise UnreadableError(f"Idempotency-Key must be sent once, with 1 to {MOST_KEY} characters of UTF-8.")
    return key


def read_limit(given: str | None, bounds: tuple[int, int]) -> int:
    """Read `limit`, which has a usual and a highest value. Raises UnreadableError."""
    usual, most = bounds
    if given is None:
        return usual
    if _NUMBER.fullmatch(given) is None or not 1 <= int(given) <= most:
        raise UnreadableError(f"limit must be a number from 1 to {most}.")
    return int(given)


def read_sequence(given: str | None) -> int | None:
    """Read `after_sequence`, None without. Raises UnreadableError."""
    if given is None:
        return None
    if _NUMBER.fullmatch(given) is None:
        raise UnreadableError("after_sequence must be the sequence of an event, or 0.")
    return int(given)


def page_token(active_at: float, session_id: str) -> str:
    """Return what a caller brings to have the sessions listed behind this one."""
    return base64.urlsafe_b64encode(f"{active_at!r} {session_id}".encode()).decode().rstrip("=")


def read_page_token(given: str | None) -> tuple[float, str] | None:
    """Read where a page begins: behind a session that was active at this time. Raises UnreadableError."""
    if given is None:
        return None
    try:
        at, _, session_id = base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)).decode().partition(" ")
        token = float(at), session_id
    except (ValueError, binascii.Error):
        token = 0.0, ""
    if page_token(*token) != given or not is_session_id(token[1]):
        raise UnreadableError("page_token must be the next_page_token of an earlier page.")
    return token


def is_session_id(text: str) -> bool:
    """Whether a text could be the id of a session."""
    return text.startswith(SESSION) and _ID.fullmatch(text, len(SESSION)) is not None


def event_id(session_id: str, sequence: int, at: float) -> str:
    """Return the id of an event: a UUID version 7 (RFC 9562 section 5.7) that holds its number, the same each time.

    The 74 bits that are the maker's own are the number, so that ids of one millisecond ascend, and a hash.
    """
    own = sequence % (1 << _SEQUENCE_BITS) << _HASHED_BITS | _hashed(session_id, sequence)
    return EVENT + _uuid7(int(at * 1000), own)


def sequence_of(session_id: str, event: str) -> int | None:
    """Return the number of an event by its id; None for ids that were never given out in this session."""
    text = event.removeprefix(EVENT)
    if len(event) == len(text) or _ID.fullmatch(text) is None:
        return None
    value = int(text, 16)
    own = (value >> 64 & 0xFFF) << 62 | value & (1 << 62) - 1
    sequence = own >> _HASHED_BITS
    same = own & (1 << _HASHED_BITS) - 1 == _hashed(session_id, sequence)
    return sequence if same and _uuid7(value >> 80, own) == text else None


def _hashed(session_id: str, sequence: int) -> int:
    digest = sha256(f"{session_id} {sequence}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 64 - _HASHED_BITS


def _uuid7(milliseconds: int, own: int) -> str:
    """Return a UUID version 7 with these 74 bits beside its time."""
    value = (
        milliseconds % (1 << 48) << 80 | 0x7 << 76 | (own >> 62 & 0xFFF) << 64 | 0b10 << 62 | own % (1 << 62)
    )
    return f"{value:032x}"


def turn_id(task_id: str) -> str:
    """Return the id of the turn that a task is."""
    return TURN + task_id.rpartition("_")[2]


def message_id(task_id: str, what: str) -> str:
    """Return the id of a message of the agent: a UUID version 7 of its task's time, the same each time."""
    of_task = task_id.rpartition("_")[2]
    at = int(of_task[:12], 16) if _ID.fullmatch(of_task) else 0
    digest = sha256(f"{task_id} {what}".encode()).digest()
    return MESSAGE + _uuid7(at, int.from_bytes(digest[:10], "big") % (1 << 74))


def message(identity: str, role: str, texts: Iterable[str]) -> dict[str, Any]:
    """Return a message; `role` is `user` or `agent`."""
    return {"id": identity, "role": role, "content": [{"type": "text", "text": text} for text in texts]}


def timestamp(at: float) -> str:
    """Return Unix seconds as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def envelope(session_id: str, event: Envelope) -> dict[str, Any]:
    """Return an event as lists and streams show it."""
    return {
        "id": event_id(session_id, event.sequence, event.at),
        "type": event.type,
        "ts": timestamp(event.at),
        "session_id": session_id,
        "sequence": event.sequence,
        "data": event.data,
    }


def event_frame(session_id: str, event: Envelope) -> bytes:
    """Return an event as streams show it, with its id."""
    shown = envelope(session_id, event)
    return b"id: %b\n" % shown["id"].encode() + sse.frame(event.type, orjson.dumps(shown))


def connected_frame(session_id: str, after: int) -> bytes:
    """Return the first frame of a stream: what comes is behind the event with this number."""
    return sse.frame("connected", orjson.dumps({"session_id": session_id, "after_sequence": after}))


def disconnecting_frame(reason: str, retry_ms: int) -> bytes:
    """Return the last frame of a stream that the server ends; the client comes back after so many milliseconds."""
    return sse.frame("disconnecting", orjson.dumps({"reason": reason, "retry_ms": retry_ms}))


HEARTBEAT: Final = sse.comment(" heartbeat")
