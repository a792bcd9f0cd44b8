"""Traces that are carried on, and what a request is called."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.events import Task, TaskState
from sidecar.tasks.model import Input, input_line
from sidecar.tracing import current_trace, read_trace, trace_id, within_trace
from sidecar.web.identity import name_of, named_in
from sidecar.web.spans import route_of

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TASK = Task("tsk_1", "ctx_1", "", TaskState.SUBMITTED, 0.0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TRACE, TRACE),
        ("cc" + TRACE[2:], TRACE),
        ("cc" + TRACE[2:] + "-what-comes-later", TRACE),
        (TRACE + "-more", None),
        (TRACE + "x", None),
        ("ff" + TRACE[2:], None),
        (TRACE.upper(), None),
        (TRACE.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), None),
        (TRACE.replace("b7ad6b7169203331", "0" * 16), None),
        (f" {TRACE}", None),
        (f"{TRACE}\n", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_a_trace_has_its_form_or_is_none(text: object, found: str | None) -> None:
    """Trace Context, sections 3.2.2 and 3.2.4: of a later version what is known is taken."""
    assert read_trace(text) == found


@given(st.text())
def test_no_text_is_anything_but_a_trace_or_none(text: str) -> None:
    """So that nothing else gets into a header or a variable."""
    found = read_trace(text)
    assert found is None or (len(found) == 55 and found.isascii() and found.isprintable())


def test_within_a_trace_there_is_one_and_afterwards_the_one_before() -> None:
    """Also where none is wanted inside."""
    assert current_trace() is None
    with within_trace(TRACE):
        assert current_trace() == TRACE
        with within_trace(None):
            assert current_trace() is None
        assert current_trace() == TRACE
    assert current_trace() is None


@given(
    st.dictionaries(
        st.text(), st.one_of(st.text(), st.integers(-9, 9), st.lists(st.text(), max_size=2)), max_size=4
    )
)
def test_a_trace_is_kept_with_any_message(message: dict[str, object]) -> None:
    """And nothing of the message is lost by it, also where its JSON is spaced out."""
    for text in (orjson.dumps(message), orjson.dumps(message, option=orjson.OPT_INDENT_2) + b"\n"):
        kept = Input("", text.decode()).within(TRACE)
        assert orjson.loads(kept.json) == {**message, "traceparent": TRACE}
        assert kept.trace == TRACE
    assert Input("", "{}").within(None) == Input("", "{}")


def test_workers_read_it_among_the_metadata() -> None:
    """Unless the client has put one there itself; what is no trace is left out."""
    given_ = Input("hi", '{"parts":[]}')
    assert input_line(TASK, given_)["metadata"] == {}
    assert input_line(TASK, given_.within(TRACE))["metadata"] == {"traceparent": TRACE}
    own = Input("hi", '{"metadata":{"traceparent":"mine","a":1}}').within(TRACE)
    assert input_line(TASK, own)["metadata"] == {"traceparent": "mine", "a": 1}
    assert input_line(TASK, Input("hi", '{"traceparent":"x"}'))["metadata"] == {}


def test_a_request_is_called_as_it_says_or_by_its_trace() -> None:
    """Else by a name of its own; what could break a line or a header is no name."""
    assert named_in({"x-request-id": "abc-1", "traceparent": TRACE}) == "abc-1"
    assert named_in({"x-request-id": "a b", "traceparent": TRACE}) == trace_id(TRACE)
    for odd in ("", "a\n", "é", "x" * 129):
        assert named_in({"x-request-id": odd}) is None
    assert len({name_of({}) for _ in range(9)}) == 9


@pytest.mark.parametrize(
    ("target", "route"),
    [
        ("/", "/"),
        ("/?a=1", "/"),
        ("/a2a/v1", "/a2a/v1"),
        ("/.well-known/agent-card.json?x", "/.well-known/agent-card.json"),
        ("/a2a/v0.3/.well-known/agent-card.json", "/a2a/v0.3/.well-known/agent-card.json"),
        ("/.well-known/api-catalog", "/.well-known/api-catalog"),
        ("/a2a/secret", "/…"),
        ("/resources/peer/mh1.secret/x", "/resources/…"),
        ("/api/capsules/hello/tasks/tsk_1", "/api/…"),
        ("/v1/channels/hello", "/v1/…"),
        ("/whatever", "/…"),
        ("*", "/…"),
    ],
)
def test_a_route_holds_nothing_that_differs_by_request(target: str, route: str) -> None:
    """Neither ids nor handles, which are secrets; what is no path of ours is all one."""
    assert route_of(target) == route
