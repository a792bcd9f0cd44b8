"""The one vocabulary of workers: what they say of a task, as values, and how it is read from their JSON.

One object a line, told apart by its `type`; docs/workers.md shows all of them. Members that are not known are
ignored, and null is as good as nothing.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PART_KINDS: Final = ("text", "raw", "url", "data")
"""A part has exactly one of these: text, base64, a URL, or any JSON."""


class NotSaidError(Exception):
    """A line that is none of the vocabulary; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the reply."""

    text: str
    final: ClassVar = False


@dataclass(frozen=True, slots=True)
class Thinking:
    """A piece of the reasoning."""

    text: str
    final: ClassVar = False


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool was called. `name` is None for a hook's; `duration_ms` is in milliseconds."""

    name: str | None
    content: str
    call_id: str | None = None
    is_error: bool = False
    duration_ms: int | None = None
    exit_code: int | None = None
    truncated: bool = False
    final: ClassVar = False


@dataclass(frozen=True, slots=True)
class Artifact:
    """Something was made: parts to begin an artifact with or, with `append`, to add to it. `last` closes it."""

    name: str | None
    artifact_id: str | None
    parts: tuple[Mapping[str, Any], ...]
    append: bool = False
    last: bool = False
    final: ClassVar = False


@dataclass(frozen=True, slots=True)
class Turn:
    """The next turn begins. The first one begins by itself: before any other line this changes nothing."""

    final: ClassVar = False


@dataclass(frozen=True, slots=True)
class Status:
    """What the worker is at."""

    message: str
    final: ClassVar = False


@dataclass(frozen=True, slots=True)
class InputRequired:
    """The worker needs an answer before it goes on."""

    prompt: str
    final: ClassVar = False


@dataclass(frozen=True, slots=True)
class Reply:
    """The line `message`: the task's call is answered with a message instead of a task (A2A); it is over then."""

    parts: tuple[Mapping[str, Any], ...]
    final: ClassVar = True


@dataclass(frozen=True, slots=True)
class Completed:
    """The task is done. Without `response` its reply is the text of the last turn."""

    response: str | None = None
    final: ClassVar = True


@dataclass(frozen=True, slots=True)
class Failed:
    """The task could not be done."""

    message: str
    final: ClassVar = True


@dataclass(frozen=True, slots=True)
class Rejected:
    """The worker does not take the task."""

    message: str
    final: ClassVar = True


Said = (
    Text | Thinking | Tool | Artifact | Turn | Status | InputRequired | Reply | Completed | Failed | Rejected
)
"""Anything a worker can say; `final` says whether nothing may follow."""


def read_line(line: bytes) -> Said:
    """Read one line of JSON. Raises NotSaidError."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise NotSaidError(f"not JSON: {error}") from None
    return read(value)


def read(value: object) -> Said:
    """Read one parsed object. Raises NotSaidError."""
    if type(value) is not dict:
        raise NotSaidError("not a JSON object")
    kind = value.get("type")
    reader = _READERS.get(kind) if type(kind) is str else None
    if reader is None:
        raise NotSaidError(
            f"type must be one of {', '.join(_READERS)}" if "type" in value else "type is missing"
        )
    return reader(value)


def texts(parts: tuple[Mapping[str, Any], ...]) -> str:
    """Return the texts of some parts, joined by a newline; parts of other kinds are left out."""
    return "\n".join(part["text"] for part in parts if type(part.get("text")) is str)


def clean(text: str) -> str:
    """Return a text that UTF-8 can hold: what it cannot is replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def checked(data: dict[str, Any]) -> dict[str, Any]:
    """Return what is to be kept in the log. Raises NotSaidError where no JSON can hold it."""
    try:
        orjson.dumps([data])  # as deep as any dialect puts it
    except orjson.JSONEncodeError as error:
        raise NotSaidError(f"it cannot be written: {error}") from None
    return data


def _text(value: Mapping[str, Any], key: str, default: str | None = None) -> str:
    found = _optional_text(value, key)
    if found is None:
        if default is None:
            raise NotSaidError(f"{key} is missing")
        return default
    return found


def _optional_text(value: Mapping[str, Any], key: str) -> str | None:
    found = value.get(key)
    if found is not None and type(found) is not str:
        raise NotSaidError(f"{key} must be a string")
    return found


def _flag(value: Mapping[str, Any], key: str) -> bool:
    found = value.get(key)
    if found is not None and type(found) is not bool:
        raise NotSaidError(f"{key} must be true or false")
    return found or False


def _number(value: Mapping[str, Any], key: str) -> int | None:
    found = value.get(key)
    if found is not None and type(found) is not int:
        raise NotSaidError(f"{key} must be an integer")
    return found


def _parts(value: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    found = value.get("parts")
    if type(found) is not list:
        raise NotSaidError("parts must be a list" if "parts" in value else "parts is missing")
    for index, part in enumerate(found):
        _check_part(part, f"parts[{index}]")
    checked({"parts": [found]})
    return tuple(found)


def _check_part(part: object, name: str) -> None:
    if type(part) is not dict:
        raise NotSaidError(f"{name} must be an object")
    kinds = [kind for kind in PART_KINDS if part.get(kind) is not None]
    if len(kinds) != 1 and not (not kinds and "data" in part):
        raise NotSaidError(f"{name} must have one of {', '.join(PART_KINDS)}")
    for key in ("text", "raw", "url", "filename", "mediaType"):
        if part.get(key) is not None and type(part[key]) is not str:
            raise NotSaidError(f"{name}.{key} must be a string")
    if part.get("metadata") is not None and type(part["metadata"]) is not dict:
        raise NotSaidError(f"{name}.metadata must be an object")
    if kinds == ["raw"]:
        try:
            b64decode(part["raw"], validate=True)
        except (binascii.Error, ValueError):
            raise NotSaidError(f"{name}.raw must be base64") from None


def _tool(value: Mapping[str, Any]) -> Tool:
    return Tool(
        _optional_text(value, "name"),
        _text(value, "content", ""),
        _optional_text(value, "call_id"),
        _flag(value, "is_error"),
        _number(value, "duration_ms"),
        _number(value, "exit_code"),
        _flag(value, "truncated"),
    )


def _artifact(value: Mapping[str, Any]) -> Artifact:
    return Artifact(
        _optional_text(value, "name"),
        _optional_text(value, "artifact_id"),
        _parts(value),
        _flag(value, "append"),
        _flag(value, "last"),
    )


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Said]]] = {
    "text": lambda value: Text(_text(value, "text")),
    "thinking": lambda value: Thinking(_text(value, "text")),
    "tool": _tool,
    "artifact": _artifact,
    "turn": lambda _: Turn(),
    "status": lambda value: Status(_text(value, "message")),
    "input-required": lambda value: InputRequired(_text(value, "prompt", "")),
    "message": lambda value: Reply(_parts(value)),
    "completed": lambda value: Completed(_optional_text(value, "response")),
    "failed": lambda value: Failed(_text(value, "message", "failed")),
    "rejected": lambda value: Rejected(_text(value, "message", "rejected")),
}
"""The last lines want no member: a task whose worker says that it failed has failed, whatever is missing."""
