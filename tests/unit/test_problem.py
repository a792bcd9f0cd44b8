"""Problem details: what is always there, what is there only with something to say."""

from __future__ import annotations

import json
from typing import Any

from sidecar.dialects.problem import Action, ProblemDetails, of_refusal
from sidecar.errors import refusal


def told(problem: ProblemDetails) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the body of the answer and its headers."""
    answer = problem.answer()
    assert answer.status == problem.status
    return json.loads(answer.body), dict(answer.headers)


def test_title_and_status_are_always_there_and_nothing_is_null() -> None:
    """Members without anything to say are left out; the published client finds its own."""
    body, headers = told(ProblemDetails(404, "session_not_found"))
    assert body == {
        "title": "Session not found",
        "status": 404,
        "code": "session_not_found",
        "error": {"code": "session_not_found", "message": "Session not found"},
    }
    assert headers["content-type"] == "application/problem+json"


def test_everything_that_there_is_to_say_is_said() -> None:
    """Detail, path, time to wait, and what can be done."""
    problem = ProblemDetails(
        409, "agent_busy", "No room.", 2, "/x", (Action("cancel", "POST", "/x/cancel", hint="Do it."),)
    )
    body, headers = told(problem)
    assert body == {
        "title": "Agent busy",
        "status": 409,
        "detail": "No room.",
        "code": "agent_busy",
        "instance": "/x",
        "retry_after_seconds": 2,
        "allowed_actions": [{"rel": "cancel", "method": "POST", "href": "/x/cancel", "hint": "Do it."}],
        "error": {"code": "agent_busy", "message": "No room."},
    }
    assert "retry-after" not in headers


def test_headers_come_with_their_status() -> None:
    """401 has a challenge, 429 and 503 say when to come back."""
    assert told(ProblemDetails(401, "unauthorized"))[1]["www-authenticate"] == "Bearer"
    assert told(ProblemDetails(503, "unavailable"))[1]["retry-after"] == "1"
    assert told(ProblemDetails(429, "rate_limited", retry_after=7))[1]["retry-after"] == "7"


def test_refusals_of_other_doors_are_told_as_problems() -> None:
    """Code, text and headers stay; text that is no UTF-8 is written as escapes."""
    body, headers = told(of_refusal(refusal("rate_limited", "Slow\udcff", ("retry-after", "9"))))
    assert (body["status"], body["code"], body["retry_after_seconds"]) == (429, "rate_limited", 9)
    assert body["detail"] == "Slow\\udcff"
    assert headers["retry-after"] == "9"
    body, headers = told(of_refusal(refusal("unauthorized", "No.", ("www-authenticate", "Bearer x"))))
    assert headers["www-authenticate"] == "Bearer x"
    assert "retry_after_seconds" not in body
