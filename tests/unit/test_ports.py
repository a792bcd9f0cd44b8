"""Which port a capsule must have."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.config import PortRange
from sidecar.model import Manifest, Settings
from sidecar.registry.ports import Due, PortMemory, fixed, remembered

RANGE = PortRange(24000, 24009)
WITH_PORT = Manifest("n", "1", internal_port=52222)


def test_the_configured_port_wins_over_the_manifests() -> None:
    """`capsules.<id>.port` comes first."""
    assert fixed(Settings(port=25000, internal_port=True), WITH_PORT) == Due(25000, "configured")


def test_the_manifests_port_counts_only_where_it_is_asked_for() -> None:
    """`network.internal_port` belongs to the capsule's own runtime; 0 means any."""
    assert fixed(Settings(internal_port=True), WITH_PORT) == Due(52222, "manifest")
    assert fixed(Settings(), WITH_PORT) is None
    assert fixed(Settings(internal_port=True), Manifest("n", "1", internal_port=0)) is None
    assert fixed(Settings(internal_port=True), Manifest("n", "1")) is None


def test_a_remembered_port_is_used_where_it_still_may_be() -> None:
    """It must lie in the range and be nobody's by configuration; else the choice is free."""
    assert remembered(24001, RANGE, set()) == Due(24001, "remembered")
    assert remembered(24001, RANGE, {24001}) is None
    assert remembered(25000, RANGE, set()) is None
    assert remembered(None, RANGE, set()) is None


def test_a_port_belongs_to_one_directory() -> None:
    """The last bind decides, and only a change is news."""
    memory = PortMemory({"/a": 1, "/b": 2})
    assert memory.remember("/a", 1) == {}
    assert memory.remember("/a", 3) == {"/a": 3}
    assert memory.remember("/a", 1) == {"/a": 1}
    assert memory.remember("/b", 1) == {"/b": 1, "/a": None}
    assert (memory.port_of("/a"), memory.port_of("/b")) == (None, 1)
    assert set(memory.ports) == {1}
    memory.forget("/b")
    memory.forget("/nowhere")
    assert not memory.ports


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3))))
def test_the_port_memory_is_a_map_in_both_directions(binds: list[tuple[str, int]]) -> None:
    """Whatever is bound and forgotten, ports have one directory, and the changes say all; 0 forgets here."""
    memory = PortMemory({})
    told: dict[str, int | None] = {}
    for directory, port in binds:
        if port:
            told |= memory.remember(directory, port)
        else:
            memory.forget(directory)
            told[directory] = None
        held = {d: p for d in "abc" if (p := memory.port_of(d)) is not None}
        assert held == {d: p for d, p in told.items() if p is not None}
        assert sorted(held.values()) == sorted(memory.ports)
