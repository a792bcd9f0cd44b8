"""What a request is called in the log and by who reports it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from sidecar.tracing import HEADER, read_trace, trace_id

if TYPE_CHECKING:
    from collections.abc import Mapping

REQUEST_ID: Final = "x-request-id"

_FORM: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}", re.ASCII)


def named_in(headers: Mapping[str, str]) -> str | None:
    """Return what a client or a proxy calls its request: by `X-Request-Id`, or by the trace that it belongs to."""
    given = headers.get(REQUEST_ID)
    if given is not None and _FORM.fullmatch(given):
        return given
    trace = read_trace(headers.get(HEADER))
    return None if trace is None else trace_id(trace)


def name_of(headers: Mapping[str, str]) -> str:
    """Return the same, or a new name."""
    return named_in(headers) or uuid4().hex
