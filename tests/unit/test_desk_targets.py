"""Paths of the desk: what is an instance of what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.desk.targets import parts_of, template_of


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/", "/"),
        ("/page/app.js", "/page/{file}"),
        ("/page/sign-in", "/page/sign-in"),
        ("/page/sign-out", "/page/sign-out"),
        ("/page/a/b", "/page/a/b"),
        ("/api/capsules/a", "/api/capsules/{id}"),
        ("/api/capsules/a/files", "/api/capsules/{id}/files"),
        ("/api/capsules/a/files/b/c%2Fd", "/api/capsules/{id}/files/{path}"),
        ("/api/capsules/a/files/tasks/x", "/api/capsules/{id}/files/{path}"),
        ("/api/capsules/files/tasks/x/cancel", "/api/capsules/{id}/tasks/{task}/cancel"),
        ("/api/capsules/a/handles/h", "/api/capsules/{id}/handles/{handle_id}"),
        ("/workers/a/tasks/t/events", "/workers/{id}/tasks/{task}/events"),
    ],
)
def test_what_varies_stands_in_braces(path: str, template: str) -> None:
    """Ids, files of the page, and the path of a file in one piece, however many parts it has."""
    assert template_of(path) == template


@given(st.text(alphabet="/apicsulefth.%2F{}", max_size=40))
def test_any_path_has_one_template_that_is_its_own(path: str) -> None:
    """Whatever is asked for; and a template is an instance of itself."""
    assert template_of(template_of(path)) == template_of(path)


def test_parts_are_decoded_once() -> None:
    """From the capsule's id on."""
    assert parts_of("/api/capsules/a%7Eb/tasks/t%252F") == ["a~b", "tasks", "t%2F"]
