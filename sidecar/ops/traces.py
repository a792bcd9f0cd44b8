"""Traces by OpenTelemetry: spans of requests, tasks and calls to others, sent to a collector. Imported where wanted."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import structlog

from sidecar.tracing import read_trace

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME: Final = "sidecar"
FAILED: Final = frozenset({"failed"})
"""Final states of tasks that are faults to a trace."""
LIBRARY: Final = "opentelemetry"

log = structlog.get_logger()


class OpenSpan:
    """One span of the library."""

    __slots__ = ("_api", "_span", "trace")

    def __init__(self, api: Any, span: Any) -> None:
        context = span.get_span_context()
        self._api = api
        self._span = span
        self.trace = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 1:02x}"

    def note(self, name: str, value: str | int) -> None:
        """Keep a fact."""
        self._span.set_attribute(name, value)

    def end(self, fault: str | None = None) -> None:
        """Note that it is over, and what went wrong."""
        if fault is not None:
            self._span.set_status(self._api.Status(self._api.StatusCode.ERROR, fault))
        self._span.end()


class Traces:
    """Makes spans while there is an endpoint to send them to, from a thread of its own. One event loop.

    The spans of tasks that live are held in memory; those that a restart comes upon have none.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._wanted: tuple[str | None, int] = (None, 100)
        self._provider: Any = None
        self._tracer: Any = None
        self._api: Any = None
        self._tasks: dict[str, OpenSpan] = {}

    @property
    def on(self) -> bool:
        """Whether spans are wanted."""
        return self._tracer is not None

    def reconfigure(self, endpoint: str | None, percent: int) -> None:
        """Send spans to a URL (OTLP over HTTP), of so many traces in a hundred that begin here; None: send none.

        Whether a trace that began elsewhere is recorded was decided there.
        """
        if (endpoint, percent) == self._wanted:
            return
        self._wanted = (endpoint, percent)
        self._stop()
        if endpoint is not None:
            self._start(endpoint, percent)

    def begin(self, name: str, kind: str, parent: str | None, facts: Mapping[str, str | int]) -> OpenSpan:
        """Begin a span."""
        api = self._api
        context = api.Context()
        if (given := read_trace(parent)) is not None:
            found = api.SpanContext(
                trace_id=int(given[3:35], 16),
                span_id=int(given[36:52], 16),
                is_remote=True,
                trace_flags=api.TraceFlags(int(given[53:], 16)),
            )
            context = api.set_span_in_context(api.NonRecordingSpan(found), context)
        kinds = api.SpanKind
        made = self._tracer.start_span(
            name, context=context, kind=getattr(kinds, kind.upper()), attributes=dict(facts)
        )
        return OpenSpan(api, made)

    def begin_task(self, task_id: str, session_id: str, parent: str | None) -> str:
        """Begin the span of a task, and return the trace that its work belongs to."""
        facts = {"sidecar.task": task_id, "sidecar.session": session_id}
        span = self._tasks[task_id] = self.begin("task", "internal", parent, facts)
        return span.trace

    def end_task(self, task_id: str, state: str) -> None:
        """End the span of a task."""
        if (span := self._tasks.pop(task_id, None)) is not None:
            span.note("sidecar.state", state)
            span.end(state if state in FAILED else None)

    async def aclose(self, budget: float) -> None:
        """Send what is there, within so many seconds, and stop."""
        gone = self._stop()
        if gone is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(budget):
                    await gone.wait()

    def _start(self, endpoint: str, percent: int) -> None:
        from opentelemetry import trace as api  # noqa: PLC0415 - heavy, and only where it is configured
        from opentelemetry.context import Context  # noqa: PLC0415 - likewise
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415

        logging.getLogger(LIBRARY).setLevel(
            logging.CRITICAL
        )  # it says the same for each batch, with a traceback
        self._api = _Api(api, Context)
        resource = Resource.create({"service.version": self._version, "service.name": NAME})
        provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(percent / 100)), resource=resource, shutdown_on_exit=False
        )
        provider.add_span_processor(BatchSpanProcessor(_Told(OTLPSpanExporter(endpoint=endpoint), endpoint)))
        self._provider, self._tracer = provider, provider.get_tracer(NAME, self._version)

    def _stop(self) -> asyncio.Event | None:
        """Leave the last sending to a thread that nobody has to wait for; return what is set once it is done."""
        provider, self._provider, self._tracer = self._provider, None, None
        if provider is None:
            return None
        for span in self._tasks.values():
            span.end()
        self._tasks.clear()
        loop, gone = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            provider.shutdown()
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(gone.set)

        threading.Thread(target=end, name="last traces", daemon=True).start()
        return gone


class _Api:
    """What is used of the library, once it is imported."""

    def __init__(self, api: Any, context: Any) -> None:
        self.Context = context
        self.NonRecordingSpan = api.NonRecordingSpan
        self.SpanContext = api.SpanContext
        self.SpanKind = api.SpanKind
        self.Status = api.Status
        self.StatusCode = api.StatusCode
        self.TraceFlags = api.TraceFlags
        self.set_span_in_context = api.set_span_in_context


class _Told:
    """An exporter, with a line in the log when the collector goes away, and one when it is back."""

    def __init__(self, exporter: Any, endpoint: str) -> None:
        self._exporter = exporter
        self._endpoint = endpoint
        self._away = False

    def export(self, spans: Any) -> Any:
        """Send spans; called by the library's thread."""
        result = self._exporter.export(spans)
        away = result.name != "SUCCESS"
        if away != self._away:
            self._away = away
            if away:
                log.warning("traces_not_sent", endpoint=self._endpoint)
            else:
                log.info("traces_sent", endpoint=self._endpoint)
        return result

    def shutdown(self) -> None:
        """End it."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Send what is there."""
        return bool(self._exporter.force_flush(timeout_millis))
