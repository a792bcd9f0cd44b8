"""Anything that the A2A encoders may have to write, for hypothesis."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from sidecar.dialects.a2a import ListQuery, Page, response_id
from sidecar.events import (
    TERMINAL,
    ArtifactRecord,
    Event,
    EventKind,
    Message,
    Record,
    Task,
    TaskState,
)
from sidecar.model import Artifact, ArtifactRuntime, AuthKind, Capsule, Manifest, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT = st.text(max_size=12)
NAME = st.text(min_size=1, max_size=12).filter(lambda text: text.strip() != "")
EXACT = 2**53
"""Integers up to here survive where every number is a double."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-EXACT, EXACT) | st.floats(-1e6, 1e6) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=4,
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=2)
EXTRAS = st.fixed_dictionaries(
    {},
    optional={
        "filename": NAME,
        "mediaType": st.sampled_from(["text/plain", "image/png"]),
        "metadata": OBJECT,
    },
)
CONTENT = (
    st.fixed_dictionaries({"text": TEXT})
    | st.fixed_dictionaries({"raw": st.binary(max_size=9).map(lambda data: b64encode(data).decode())})
    | st.fixed_dictionaries({"url": st.just("https://files.example/a")})
    | st.fixed_dictionaries({"data": OBJECT})
)
PART = st.builds(lambda content, extras: content | extras, CONTENT, EXTRAS)
PARTS = st.lists(PART, max_size=3).map(tuple)
SOME_PARTS = st.lists(PART, min_size=1, max_size=3).map(tuple)
MOMENT = st.floats(0, 4e9)
STATE = st.sampled_from(TaskState)
STATUS = st.none() | TEXT | st.sampled_from(["inference turn 1", "resumed", "session ended"])
ID = st.uuids().map(lambda identity: f"tsk_{identity.hex}")
LENGTH = st.none() | st.integers(0, 4)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Return any task with all that was said and made in it."""
    task_id, state, at = draw(ID), draw(STATE), draw(MOMENT)
    task = Task(
        id=task_id,
        context_id=draw(NAME),
        owner="anybody",
        state=state,
        created_at=at,
        status=draw(STATUS),
        ended_at=at if state in TERMINAL else None,
    )
    history = draw(
        st.lists(st.builds(Message, st.sampled_from(["user", "agent"]), NAME, SOME_PARTS, OBJECT), max_size=4)
    )
    artifacts = draw(
        st.lists(
            st.builds(ArtifactRecord, NAME, st.none() | TEXT, PARTS), max_size=2, unique_by=lambda a: a.id
        )
    )
    reply = ArtifactRecord(response_id(task_id), "response", ({"text": draw(TEXT)},))
    return Record(task, at, tuple(history), (reply, *artifacts))


@st.composite
def events(draw: st.DrawFn) -> tuple[Event, bool]:
    """Return any event of a task, and whether a piece of text came before in its turn."""
    kind = draw(st.sampled_from(EventKind))
    frame = draw(st.integers(1, 9))
    event = Event(frame, frame, draw(ID), draw(NAME), kind, draw(_data(kind)), draw(MOMENT))
    return event, draw(st.booleans())


def _data(kind: EventKind) -> st.SearchStrategy[Mapping[str, Any]]:
    match kind:
        case EventKind.STATUS:
            return st.fixed_dictionaries(
                {"state": STATE, "message": STATUS}, optional={"turn": st.integers(1, 3), "response": TEXT}
            )
        case EventKind.TEXT:
            return st.fixed_dictionaries({"text": TEXT, "final": st.booleans()}, optional={"whole": TEXT})
        case EventKind.ARTIFACT:
            return st.fixed_dictionaries(
                {
                    "name": st.none() | TEXT,
                    "artifact_id": NAME,
                    "parts": PARTS,
                    "append": st.booleans(),
                    "last": st.booleans(),
                }
            )
        case EventKind.REPLY:
            return st.fixed_dictionaries({"parts": PARTS, "first": st.booleans()})
        case EventKind.INPUT:
            return st.just({})
        case _:
            return st.fixed_dictionaries({"text": TEXT, "name": TEXT, "content": TEXT})


PAGES = st.builds(
    Page,
    st.lists(records(), max_size=2).map(tuple),
    st.builds(
        ListQuery, page_size=st.integers(1, 100), history_length=LENGTH, include_artifacts=st.booleans()
    ),
    st.sampled_from(["", "token"]),
    st.integers(0, 1000),
)
CREDENTIALS = st.lists(
    st.sampled_from([AuthKind("agent_key"), AuthKind("oidc", "https://id.example"), AuthKind("o_auth2")]),
    max_size=3,
).map(tuple)
CAPSULES = st.builds(
    Capsule,
    id=st.sampled_from(["a", "a~b.c"]),
    directory=st.just("/c/a"),
    session_id=st.just("ses_019f01a940ce7761854e768ecbe3d399"),
    manifest=st.builds(
        Manifest,
        NAME,
        NAME,
        st.none() | TEXT,
        st.lists(
            st.builds(Artifact, NAME, st.none() | NAME, st.sampled_from(ArtifactRuntime)), max_size=3
        ).map(tuple),
    ),
    settings=st.builds(
        Settings,
        public_url=st.none() | st.just("https://a.example/{id}/{port}"),
        a2a_port=st.just(2),
        input_modes=st.sampled_from([("text/plain",), ("text/plain", "image/*")]),
    ),
    workspace=st.just("/c/a"),
    changed_at=st.just(0.0),
    port=st.just(1),
    credentials=CREDENTIALS,
)
