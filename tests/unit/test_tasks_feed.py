"""The fan-out: one encoding for all, a bounded queue for each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.events import Event, EventKind
from sidecar.tasks.feed import QUEUED, Feed, Subscription
from sidecar.tasks.log import Page


def event(number: int, task_id: str = "tsk_1") -> Event:
    """Return an event."""
    return Event(number, number, task_id, "ctx", EventKind.THINKING, {"text": "hm"}, 0.0)


class Dialect:
    """Writes events as their numbers, and counts how often."""

    def __init__(self) -> None:
        self.written = 0

    def encode(self, event: Event) -> bytes:
        """Write one."""
        self.written += 1
        return b"%d" % (event.frame or 0)


async def nothing(_after: int, _head: int) -> Page:
    """Keep no events."""
    return Page()


def opened(feed: Feed, dialect: Dialect, after: int | None = None) -> Subscription:
    """Return a live subscription."""
    stream = feed.subscribe(dialect.encode, after)
    stream.go_live()
    return stream


def taken(stream: Subscription) -> tuple[int, list[int]]:
    """Return what a stream missed and which numbers it got."""
    missed, frames = stream.take()
    return missed, [frame.number for frame in frames]


def test_an_event_is_written_once_for_all_streams_of_a_dialect() -> None:
    """They share the very bytes; another dialect has its own."""
    feed = Feed(nothing)
    one, other = Dialect(), Dialect()
    encode = one.encode
    streams = [feed.subscribe(encode) for _ in range(10)]
    for stream in streams:
        stream.go_live()
    apart = opened(feed, other)
    feed.publish([event(1), event(2)])
    assert (one.written, other.written) == (2, 2)
    first, *rest = [stream.take()[1] for stream in streams]
    assert all(frames[0] is first[0] for frames in rest)
    assert taken(apart) == (0, [1, 2])


def test_an_event_without_a_number_is_on_no_stream() -> None:
    """It is a fact for others, and moves nothing."""
    feed, dialect = Feed(nothing), Dialect()
    stream = opened(feed, dialect)
    feed.publish([event(1), Event(2, None, "tsk_1", "ctx", EventKind.INPUT, {}, 0.0)])
    assert (taken(stream), dialect.written, feed.head) == ((0, [1]), 1, 1)


def test_nothing_is_written_where_nobody_listens() -> None:
    """A stream that left costs nothing."""
    feed, dialect = Feed(nothing), Dialect()
    stream = opened(feed, dialect)
    stream.close()
    stream.close()
    feed.publish([event(1)])
    assert (dialect.written, len(feed), feed.head) == (0, 0, 1)


def test_a_frame_that_was_seen_already_is_dropped() -> None:
    """Whatever way it came the first time."""
    feed, dialect = Feed(nothing), Dialect()
    feed.head = 5
    stream = opened(feed, dialect)
    feed.publish([event(4), event(5), event(6)])
    assert taken(stream) == (0, [6])
    feed.publish([event(6), event(7)])
    assert taken(stream) == (0, [7])


@given(st.lists(st.integers(0, 2 * QUEUED), max_size=6))
def test_what_is_missed_and_what_is_kept_add_up(bursts: list[int]) -> None:
    """Between two reads a stream gets the newest of what came, and the right count of the rest."""
    feed, dialect = Feed(nothing), Dialect()
    stream = opened(feed, dialect)
    for burst in bursts:
        start = feed.head
        feed.publish(event(start + n) for n in range(1, burst + 1))
        missed, numbers = taken(stream)
        assert missed == max(0, burst - QUEUED)
        assert numbers == list(range(start + missed + 1, start + burst + 1))


def test_a_stream_that_follows_a_task_keeps_nothing_of_the_others() -> None:
    """Of those frames that came since it was opened."""
    feed, dialect = Feed(nothing), Dialect()
    stream = opened(feed, dialect)
    feed.publish([event(1, "other"), event(2, "mine")])
    stream.follow("mine")
    feed.publish([event(3, "other"), event(4, "mine")])
    assert taken(stream) == (0, [2, 4])


def test_a_number_beyond_the_newest_is_behind_everything_kept() -> None:
    """With nothing ever numbered it is behind nothing."""
    feed = Feed(nothing)
    assert not feed.subscribe(Dialect().encode, 9).behind
    feed.head = 3
    assert feed.subscribe(Dialect().encode, 9).behind
    assert feed.subscribe(Dialect().encode, 2).behind
    assert not feed.subscribe(Dialect().encode, 3).behind


async def test_waiting_ends_at_once_where_something_waits() -> None:
    """A frame, or the end."""
    feed, dialect = Feed(nothing), Dialect()
    stream = opened(feed, dialect)
    feed.publish([event(1)])
    await stream.wait()
    stream.take()
    feed.end()
    await stream.wait()
    assert stream.ending
    assert feed.subscribe(dialect.encode).ending
