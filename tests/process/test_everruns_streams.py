"""Streams of the Everruns view over HTTP, and what is left of a session when the sidecar stops or is killed."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.process.test_everruns_card import problem_of
from tests.process.test_everruns_sessions import WHOLE, ended
from tests.support.everruns import Channel, House, house
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def channel(here: House) -> Channel:
    """A caller of the open agent."""
    return here.channel("plain")


def test_a_stream_begins_with_connected_and_replays_from_the_start(channel: Channel) -> None:
    """Each event has its type, its id and the envelope that lists show."""
    session = channel.session()
    channel.say(session, "count 2")
    with channel.stream(session) as stream:
        frames = stream.until("turn.completed")
    assert frames[0].event == "connected"
    assert frames[0].id is None
    events = channel.events(session)
    assert [frame.data for frame in frames[1:]] == events
    assert [frame.event for frame in frames[1:]] == [event["type"] for event in events]
    assert [frame.id for frame in frames[1:]] == [event["id"] for event in events]


def test_a_stream_goes_on_from_a_place(channel: Channel) -> None:
    """Behind a number, behind an id, behind what the client saw last, which counts most; else behind the newest."""
    session = channel.session()
    channel.say(session, "count 4")
    events = ended(channel, session)
    ids = [event["id"] for event in events]
    for query, headers, behind in (
        ("after_sequence=3", {}, 3),
        (f"since_id={ids[4]}", {}, 5),
        (f"since_id={ids[0]}&after_sequence=4", {}, 1),
        (f"since_id={ids[0]}", {"Last_Event_ID": ids[2]}, 3),
        ("after_sequence=2", {"Last_Event_ID": "of another stream"}, 2),
    ):
        with channel.stream(session, query, **headers) as stream:
            frames = stream.until("turn.completed")[1:]
        assert [frame.id for frame in frames] == ids[behind:]
    with channel.stream(session, "") as stream:
        assert stream.next() is not None
        channel.say(session, "hello")
        frames = stream.until("turn.completed")
    assert [frame.event for frame in frames] == WHOLE
    for query in ("after_sequence=x", "since_id=event_" + "0" * 32):
        answer = channel.get(f"/sessions/{session}/sse?{query}")
        assert problem_of(answer) == (400, "bad_request")


def test_two_streams_show_the_same_as_it_happens(here: House, channel: Channel) -> None:
    """One from the start, one that joins in the middle of a turn: no gap, and nothing twice."""
    session = channel.session()
    with channel.stream(session) as first:
        channel.say(session, f"hold {here.gates / 'two'}")
        seen = first.until("output.message.delta")[1:]
        with channel.stream(session) as second:
            joined = second.until("output.message.delta")[1:]
            (here.gates / "two").touch()
            seen += first.until("turn.completed")
            joined += second.until("turn.completed")
    assert seen == joined
    assert [frame.data["sequence"] for frame in seen] == list(range(1, len(seen) + 1))


def test_a_stream_of_other_sessions_shows_nothing(channel: Channel) -> None:
    """Each session has its own events, numbered from 1."""
    session, other = channel.session(), channel.session()
    with channel.stream(session) as stream:
        channel.say(other, "hello")
        ended(channel, other)
        channel.say(session, "count 0")
        frames = stream.until("turn.completed")[1:]
    assert {frame.data["session_id"] for frame in frames} == {session}
    assert frames[0].data["sequence"] == 1


def test_a_cancelled_turn_is_told_and_then_the_stream_ends(here: House, channel: Channel) -> None:
    """`turn.cancelled`, `disconnecting` with reason and time, the end; a replay of it does so only at the end."""
    session = channel.session()
    with channel.stream(session) as stream:
        channel.say(session, f"hold {here.gates / 'never'}")
        stream.until("output.message.delta")
        channel.post(f"/sessions/{session}/cancel")
        frames = stream.rest()
    assert [frame.event for frame in frames] == ["turn.cancelled", "disconnecting"]
    assert frames[1].data == {"reason": "turn_cancelled", "retry_ms": 1000}
    channel.say(session, "hello")
    ended(channel, session, 2)
    with channel.stream(session) as stream:
        kinds = [frame.event for frame in stream.until("turn.completed")]
    assert kinds[4:] == ["turn.cancelled", *WHOLE]


def test_a_big_reply_arrives_whole_and_in_order(channel: Channel) -> None:
    """More than fits into any buffer, read by one who began late."""
    session = channel.session()
    channel.say(session, "big 3000")
    with channel.stream(session) as stream:
        frames = stream.until("turn.completed")[1:]
    assert [frame.data["sequence"] for frame in frames] == list(range(1, 3005))
    deltas = [frame.data["data"]["delta"] for frame in frames if frame.event == "output.message.delta"]
    assert "".join(deltas) == "x" * 3_000_000


def test_a_disabled_agents_streams_end(here: House) -> None:
    """They are told to come back, and then that it is not available."""
    channel = here.channel("described")
    session = channel.session()
    config = here.sidecar.state.parent / "config.yaml"
    before = config.read_text()
    with channel.stream(session) as stream:
        assert stream.next() is not None
        config.write_text(f"{before}  described: {{disabled: true}}\n")
        here.sidecar.api("/api/reload", method="POST")
        (frame,) = stream.rest()
    assert (frame.event, frame.data["reason"]) == ("disconnecting", "unavailable")
    assert problem_of(channel.get(f"/sessions/{session}")) == (403, "agent_not_available")
    config.write_text(before)
    here.sidecar.api("/api/reload", method="POST")
    until_sync(lambda: channel.get(f"/sessions/{session}").status == 200, what="served again")


def test_a_stop_and_a_kill_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Sessions, titles, numbers, ids and keys are there again, and streams go on behind the last id."""
    with house(tmp_path) as here:
        channel = here.channel("plain")
        session = channel.session("kept")
        channel.say(session, "count 2", Idempotency_Key="k")
        events = ended(channel, session)
        with channel.stream(session) as stream:
            stream.until("turn.completed")
            here.sidecar.signal(signal.SIGTERM)
            (frame,) = stream.rest()
        assert frame.event == "disconnecting"
        assert frame.data["reason"] == "server_shutdown"
        assert type(frame.data["retry_ms"]) is int
    with house(tmp_path) as here:
        channel = here.channel("plain")
        assert channel.get(f"/sessions/{session}").json["title"] == "kept"
        assert channel.events(session) == events
        again = channel.say(session, "count 2", Idempotency_Key="k")
        assert again.headers["idempotent-replayed"] == "true"
        gate = here.gates / "never"
        made = channel.post("/sessions", {"title": "new"}, Idempotency_Key="s").json["id"]
        sent = channel.say(session, f"hold {gate}", Idempotency_Key="m")
        with channel.stream(session, f"since_id={events[-1]['id']}") as stream:
            events += [frame.data for frame in stream.until("output.message.delta")[1:]]
        here.sidecar.signal(signal.SIGKILL)
        here.sidecar.wait()
    with house(tmp_path) as here:
        channel = here.channel("plain")
        again = channel.post("/sessions", {"title": "new"}, Idempotency_Key="s")
        assert (again.json["id"], again.headers["idempotent-replayed"]) == (made, "true")
        assert channel.say(session, f"hold {gate}", Idempotency_Key="m").raw == sent.raw
        found = ended(channel, session, 2)
        assert found[: len(events)] == events
        assert [event["sequence"] for event in found] == list(range(1, len(found) + 1))
        assert found[-1]["type"] == "turn.failed"
        assert channel.get(f"/sessions/{session}").json["last_turn_status"] == "failed"
