"""The trace that a request belongs to, as its client says (W3C Trace Context): carried on, and told where that is wanted."""

from __future__ import annotations

import re
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HEADER: Final = "traceparent"
VARIABLE: Final = "TRACEPARENT"
"""How a command is told (OpenTelemetry, Environment Variables as Context Propagation Carriers)."""

_FORM: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})(?P<rest>-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(?P<more>-.*)?",
    re.ASCII,
)
_CURRENT: Final[ContextVar[str | None]] = ContextVar("trace", default=None)


def read_trace(text: object) -> str | None:
    """Return the trace that a header or member names, in the form of version 00; None for what is none.

    A later version may say more, which is left out (Trace Context section 3.2.4).
    """
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None or (found["more"] is not None and found["version"] == "00"):
        return None
    return "00" + found["rest"]


def current_trace() -> str | None:
    """Return the trace of what is being done now."""
    return _CURRENT.get()


@contextmanager
def within_trace(trace: str | None) -> Iterator[None]:
    """Do something as a part of a trace, or of none."""
    token = _CURRENT.set(trace)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def trace_id(trace: str) -> str:
    """Return the id of a trace, 32 hex digits."""
    return trace[3:35]


class Span(Protocol):
    """Something that is being done, as the trace has it; `trace` is what it hands on."""

    @property
    def trace(self) -> str:
        """The trace, with this as what comes next belongs to."""

    def note(self, name: str, value: str | int) -> None:
        """Keep a fact."""

    def end(self, fault: str | None = None) -> None:
        """Note that it is over, and what went wrong."""


class Tracer(Protocol):
    """Who is told what is being done, where that is wanted."""

    @property
    def on(self) -> bool:
        """Whether it is."""

    def begin(self, name: str, kind: str, parent: str | None, facts: Mapping[str, str | int]) -> Span:
        """Begin with something: a `server` that answers, a `client` that asks, or what is `internal`."""

    def begin_task(self, task_id: str, session_id: str, parent: str | None) -> str:
        """Take note of a task, and return the trace that its work belongs to."""

    def end_task(self, task_id: str, state: str) -> None:
        """Take note of the final state of a task."""


_TRACER: Final[ContextVar[Tracer | None]] = ContextVar("tracer", default=None)


def use_tracer(tracer: Tracer) -> None:
    """Have this one told by whatever begins from here on."""
    _TRACER.set(tracer)


def current_tracer() -> Tracer | None:
    """Return who is to be told, None where nobody is."""
    tracer = _TRACER.get()
    return tracer if tracer is not None and tracer.on else None
