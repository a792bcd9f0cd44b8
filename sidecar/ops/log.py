"""Log lines: one vocabulary of events, as JSON or in colours, on standard error; where that is the journal, with fields.

Modules log with `structlog.get_logger()`, an event name of `docs/logging.md`, and plain values:
`log.warning("capsule_unbound", capsule=id, port=port, reason=text)`. What the standard library's logging brings
(asyncio, aiohttp) comes out of the same pipeline as `library_message`. Values are made safe here, whoever logs:
control characters visible, long ones cut, secrets hidden, an exception in one line.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, Final

import orjson
import structlog

from sidecar.errors import visible
from sidecar.ops import journal

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from types import TracebackType

    from structlog.typing import Processor

LONGEST: Final = 500
MOST_ITEMS: Final = 20
DEEPEST: Final = 3
FRAMES: Final = 8
WHOLE: Final = 2**53 - 1
"""Larger integers are written as text: readers of JSON would round them."""
HIDDEN: Final = "[hidden]"
SECRET_KEYS: Final = frozenset({"authorization", "cookie", "password", "secret", "token", "admin_token"})
SECRETS: Final = re.compile(r"(?i)(\bmh1\.|\bsc_(?:ak|pat|rt)_|\bbearer\s+)[\w.~+/=-]+")
COLOURS: Final = {"debug": "\x1b[2m", "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}
BOLD, FAINT, PLAIN = "\x1b[1m", "\x1b[36m", "\x1b[0m"

Line = dict[str, Any]
Json = str | int | float | bool | list[Any] | dict[str, Any] | None


def safe(value: object, depth: int = 0) -> Json:
    """Return a value as it may be logged: JSON types only, bounded in length, number and depth."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and abs(value) <= WHOLE:
        return int(value)
    if isinstance(value, dict) and depth < DEEPEST:
        items = list(value.items())[:MOST_ITEMS]
        return {safe_text(str(k)): HIDDEN if _secret(k) else safe(v, depth + 1) for k, v in items}
    if isinstance(value, list | tuple | set | frozenset) and depth < DEEPEST:
        return [safe(v, depth + 1) for v in list(value)[:MOST_ITEMS]]
    return safe_text(str(value))


def safe_text(text: str) -> str:
    """Return text cut, with secrets hidden and control characters visible."""
    cut = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    return visible(SECRETS.sub(lambda m: m[1] + HIDDEN, cut))


def _secret(key: object) -> bool:
    return isinstance(key, str) and key.lower() in SECRET_KEYS


def in_one_line(error: BaseException) -> dict[str, str]:
    """Return an exception as the two fields of a log line: what it is, and where it came from, innermost first."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    where = " < ".join(f"{f.filename.rpartition('/')[2]}:{f.lineno} {f.name}" for f in reversed(frames))
    return {"error": f"{type(error).__name__}: {error}", "where": where}


def _exception_of(info: object) -> BaseException | None:
    if isinstance(info, BaseException):
        return info
    if isinstance(info, tuple):
        return info[1] if isinstance(info[1], BaseException) else None
    return sys.exception() if info else None


def finish(_logger: object, level: str, event: MutableMapping[str, Any]) -> Line:
    """Put a line together: timestamp (ISO 8601, UTC), level, event, then the fields as they came, made safe."""
    stamp = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    line: Line = {"timestamp": stamp, "level": level, "event": safe_text(str(event.pop("event", "")))}
    event.pop("stack_info", None)
    if (error := _exception_of(event.pop("exc_info", None))) is not None:
        event.update(in_one_line(error))
    for key, value in event.items():
        line[safe_text(f"{key}_" if key in line else key)] = HIDDEN if _secret(key) else safe(value)
    return line


def as_json(_logger: object, _level: str, line: MutableMapping[str, Any]) -> bytes:
    """Render a finished line as one JSON object."""
    return orjson.dumps(line)


def as_text(line: Mapping[str, Any], *, colours: bool) -> bytes:
    """Render a finished line for people: time, level, event, `key=value`, quoted where that is needed."""
    level = line["level"]
    head = f"{line['timestamp'][11:23]} {level:<8}{line['event']}"
    fields = [(key, _quoted(value)) for key, value in list(line.items())[3:]]
    if not colours:
        return " ".join((head, *(f"{key}={value}" for key, value in fields))).encode()
    colour = COLOURS.get(level, COLOURS["error"])
    head = f"{FAINT}{line['timestamp'][11:23]}{PLAIN} {colour}{level:<8}{PLAIN}{BOLD}{line['event']}{PLAIN}"
    return " ".join((head, *(f"{FAINT}{key}{PLAIN}={value}" for key, value in fields))).encode()


def _quoted(value: object) -> str:
    if isinstance(value, str):
        return (
            value if value and not re.search(r"[\s\"'=]", value) else f'"{value.replace(chr(34), chr(39))}"'
        )
    return orjson.dumps(value).decode()


class Sink:
    """Where lines go. `msg` is what structlog calls; a line that cannot be written is nobody's problem."""

    __slots__ = ("_stream",)

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def msg(self, line: bytes) -> None:
        """Write one line, whole."""
        # The reader of our log may have gone away; serving goes on without one.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line + b"\n")
            self._stream.flush()

    debug = info = warning = error = critical = msg


class JournalSink(Sink):
    """Hands lines to the journal with their fields; one that it does not take goes the way of all others."""

    __slots__ = ("_path",)

    def __init__(self, stream: IO[bytes], path: str) -> None:
        super().__init__(stream)
        self._path = path

    def msg(self, line: bytes, entry: bytes = b"") -> None:
        """Write one line, whole; `entry` is the same as the journal has it."""
        if not journal.write(entry, self._path):
            super().msg(line)

    debug = info = warning = error = critical = msg


class Bridge(logging.Handler):
    """Brings the records of the standard library's logging into the pipeline, as `library_message`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record with its logger's name; its traceback becomes two fields."""
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            text = str(record.msg)
        level = "error" if record.levelno >= logging.ERROR else record.levelname.lower()
        log = getattr(structlog.get_logger(), level, None) or structlog.get_logger().warning
        log("library_message", logger=record.name, message=text, exc_info=_info(record.exc_info))


def _info(
    info: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None] | None,
) -> BaseException | None:
    return info[1] if info else None


def configure(
    *,
    level: str,
    form: str,
    stream: IO[bytes] | None = None,
    environ: Mapping[str, str] | None = None,
    journal_at: str = journal.SOCKET,
) -> None:
    """Set logging up, for the whole process; a reload may call it again.

    `level` is debug, info, warning or error; `form` is json, console, or auto: console on a terminal, JSON
    elsewhere. Colours only on a terminal, and not where `NO_COLOR` is set. `stream` is standard error by default;
    where it leads to the journal (`JOURNAL_STREAM`), a line is an entry there with its priority and its fields.
    """
    out = sys.stderr.buffer if stream is None else stream
    terminal = out.isatty()
    colours = terminal and not (environ or {}).get("NO_COLOR")

    def text(_logger: object, _level: str, line: MutableMapping[str, Any]) -> bytes:
        return as_text(line, colours=colours)

    def in_journal(
        logger: object, level: str, line: MutableMapping[str, Any]
    ) -> tuple[tuple[bytes, bytes], dict[str, Any]]:
        message = write(logger, level, line)
        return (message, journal.entry(line, message)), {}

    console = form == "console" or (form == "auto" and terminal)
    write = text if console else as_json
    in_the_journal = journal.leads_there(out, environ or {})
    render: Processor = in_journal if in_the_journal else write
    sink = JournalSink(out, journal_at) if in_the_journal else Sink(out)
    structlog.configure(
        processors=[finish, render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: sink,
        cache_logger_on_first_use=False,
    )
    logging.captureWarnings(True)
    logging.root.handlers[:] = [Bridge()]
    logging.root.setLevel(logging.WARNING)
