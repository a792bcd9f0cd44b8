"""What an agent shows of its artifacts, and what of it is said: nothing twice, nothing lost."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.dialects.agent import ArtifactSeen, PieceSeen, StatusSeen, TaskSeen
from sidecar.dialects.reading import UnreadableError
from sidecar.tasks.forwarding.picture import MOST_ARTIFACTS, Picture, overlap
from sidecar.tasks.forwarding.track import Track
from sidecar.tasks.said import Artifact, Said, Text, Turn

WORDS = st.lists(st.text(min_size=1, max_size=3), max_size=12)


def piece(text: str, *, key: str = "r", name: str | None = None, append: bool = True) -> PieceSeen:
    """Make a piece of text."""
    return PieceSeen("t", ArtifactSeen(key, name, ({"text": text},)), append=append)


def task(*artifacts: ArtifactSeen) -> TaskSeen:
    """Make a task that shows these."""
    return TaskSeen("t", "c", "working", (), artifacts)


def spoken(said: list[Said]) -> str:
    """Return the text that is said."""
    return "".join(each.text for each in said if isinstance(each, Text))


@given(WORDS, st.integers(0, 12), st.integers(0, 1))
def test_a_whole_task_tells_what_is_new(words: list[str], seen: int, merged: int) -> None:
    """However many pieces came before, and also where the agent has made one part of them."""
    picture, told = Picture(), ""
    for word in words[:seen]:
        picture, said = picture.piece(piece(word))
        told += spoken(said)
    parts = ({"text": "".join(words)},) if merged else tuple({"text": word} for word in words)
    picture, said = picture.whole(task(ArtifactSeen("r", None, parts)) if words else task())
    assert told + spoken(said) == "".join(words)
    picture, said = picture.whole(task(ArtifactSeen("r", None, parts)))
    assert spoken(said) == ""


@given(WORDS, st.integers(0, 12), st.integers(0, 12))
def test_pieces_that_a_task_shows_already_are_left_out(words: list[str], known: int, early: int) -> None:
    """Events that came before a look at the task are in it; those that follow are not."""
    shown = words[: max(known, early)]
    at = task(ArtifactSeen("r", None, tuple({"text": word} for word in shown)))
    came = [piece(word) for word in words[early:]]
    if len(set(words)) == len(words) and not any(a.endswith(b) for a in words for b in words if a != b):
        left = overlap(at, [*came, StatusSeen("t", "working")])
        assert [p.artifact.parts[0]["text"] for p in left if isinstance(p, PieceSeen)] == words[len(shown) :]
        assert isinstance(left[-1], StatusSeen)


def test_the_reply_is_what_is_called_so_or_the_first_text() -> None:
    """Every other artifact stays one."""
    picture, said = Picture().piece(piece("a", key="x", name="notes", append=False))
    assert said == [Text("a")]
    picture, said = picture.piece(piece("b", key="y", name="other", append=False))
    assert said == [Artifact("other", "y", ({"text": "b"},))]
    picture, said = picture.piece(piece("c", key="z", name="response", append=False))
    assert said == [Turn(), Text("c")]
    assert picture.reply == "z"
    assert picture.text_in(task(ArtifactSeen("z", None, ({"text": "c"}, {"text": "d"})))) == "cd"


def test_an_artifact_that_begins_anew_is_another_turn() -> None:
    """A reply is never two of them run together."""
    picture, _ = Picture().piece(piece("a", append=False))
    picture, said = picture.piece(piece("b", append=False))
    assert said == [Turn(), Text("b")]
    assert picture.known == {"r": (1, 1)}


def test_what_is_no_text_in_a_reply_stands_beside_it() -> None:
    """Nothing of it is lost."""
    picture, _ = Picture().piece(piece("a"))
    both = PieceSeen("t", ArtifactSeen("r", "n", ({"text": "b"}, {"data": 1})), append=True)
    _, said = picture.piece(both)
    assert said == [Text("b"), Artifact("n", "r-2", ({"data": 1},), last=True)]


def test_artifacts_are_limited_in_number() -> None:
    """What must be remembered of a task is bounded."""
    picture = Picture({str(n): (1, 0) for n in range(MOST_ARTIFACTS)})
    with pytest.raises(UnreadableError, match="more than"):
        picture.piece(piece("a", key="new"))


def test_a_part_that_is_not_what_it_says_is_refused() -> None:
    """Base64 that is none would break whoever reads it later."""
    with pytest.raises(UnreadableError, match="base64"):
        Picture().piece(PieceSeen("t", ArtifactSeen("a", None, ({"raw": "%"},))))


def test_a_track_is_kept_as_a_note() -> None:
    """All of it comes back; a note of somebody else's is none."""
    picture, _ = Picture().piece(piece("a"))
    track = Track("A2A 1.0", True, "t", "ses_1", 7, 2, True, picture, False)
    assert Track.of(track.note()) == track
    for other in (None, "", "x", "[]", "{}", '{"picture":{}}', orjson.dumps({"pid": 1}).decode()):
        assert Track.of(other) is None
