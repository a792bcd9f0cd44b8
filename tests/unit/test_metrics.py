"""Counting, and what a scrape shows."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from sidecar.model import CapsuleState, CapsuleStatus, ConfigStatus, LastError, RootStatus
from sidecar.ops import metrics
from sidecar.ops.exposition import FAMILIES, exposition
from sidecar.ops.metrics import Counters, Gauges, Metrics
from tests.support.view import Shown

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


def scrape(counts: Metrics, view: Shown | None = None, now: Gauges | None = None) -> dict[str, float]:
    """Return every sample of a scrape, as Prometheus' own parser reads it, keyed `name{label="value",…}`."""
    text = exposition(counts.snapshot(view or Shown(), now or Gauges())).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_requests_and_plane_reads_are_counted_by_what_and_outcome() -> None:
    """A capsule's counts come out under its id, method or plane, and outcome."""
    counts = Metrics("0.1")
    counters = counts.capsule("hello")
    counters.request("card", "ok")
    counters.request("card", "ok")
    counters.request("message/send", "-32602")
    counters.plane("files", "outside_root")
    found = scrape(counts)
    assert found['sidecar_requests_total{capsule="hello",method="card",outcome="ok"}'] == 2
    assert found['sidecar_requests_total{capsule="hello",method="message/send",outcome="-32602"}'] == 1
    assert found['sidecar_plane_reads_total{capsule="hello",outcome="outside_root",plane="files"}'] == 1


@given(st.lists(st.tuples(st.text(), st.text())))
def test_what_a_client_sends_never_becomes_a_series(calls: list[tuple[str, str]]) -> None:
    """Methods, planes, paths and outcomes outside of the closed sets are all counted as `other`."""
    counts = Metrics("0.1")
    counters = counts.capsule("a")
    for what, outcome in calls:
        counters.request(what, outcome)
        counters.plane(what, outcome)
        counts.desk_request(what, outcome)
    for seen in (counters.requests, counters.planes):
        assert sum(seen.values()) == len(calls)
        assert {what for what, _ in seen} <= {metrics.OTHER, *metrics.REQUESTS, *metrics.PLANES}
        assert {outcome for _, outcome in seen} <= {metrics.OTHER, *metrics.OUTCOMES}
    total = sum(v for k, v in scrape(counts).items() if k.startswith("sidecar_desk_requests_total"))
    assert total == len(calls)


def test_capsules_over_the_cap_are_summed_and_no_counter_falls() -> None:
    """The first ones keep their own series; the rest share `_other`, which keeps what a capsule that left did."""
    counts = Metrics("0.1", own_series=2)
    for name in ("a", "b", "c", "d"):
        counts.capsule(name).request("card", "ok")
    rest = 'sidecar_requests_total{capsule="_other",method="card",outcome="ok"}'
    assert scrape(counts)[rest] == 2
    counts.forget("c")
    counts.forget("a")
    counts.forget("never seen")
    assert scrape(counts)[rest] == 2
    assert not [k for k in scrape(counts) if 'capsule="a"' in k]
    counts.capsule("e").request("card", "ok")
    counts.capsule("d").request("card", "ok")
    found = scrape(counts)
    assert found['sidecar_requests_total{capsule="e",method="card",outcome="ok"}'] == 1
    assert found[rest] == 3


def test_a_capsule_has_the_same_counters_until_it_is_forgotten() -> None:
    """Asking again gives the same object, so that a reload loses no count."""
    counts = Metrics("0.1", own_series=1)
    first, second = counts.capsule("a"), counts.capsule("b")
    assert counts.capsule("a") is first
    assert counts.capsule("b") is second
    counts.forget("b")
    assert counts.capsule("b") is not second


def test_the_number_of_series_is_bounded_for_any_number_of_capsules() -> None:
    """1,000 capsules have as many series as the cap allows, and one more lot."""
    counts = Metrics("0.1")
    for i in range(1000):
        counts.capsule(f"c{i}").request("card", "ok")
    series = [k for k in scrape(counts) if k.startswith("sidecar_requests_total")]
    assert len(series) == metrics.OWN_SERIES + 1


def test_states_are_shown_with_their_zeros() -> None:
    """Capsules and tasks by state, roots in error, the configuration and the gauges, zeros included."""
    rows = [
        CapsuleStatus("a", "/c/a", CapsuleState.SERVING, tasks={"working": 2, "input-required": 1}),
        CapsuleStatus("b", "/c/b", CapsuleState.REFUSED, tasks={"working": 1, "odd": 1}),
    ]
    counts = Metrics("0.1")
    counts.manifest(refused=True)
    counts.reload("refused")
    counts.reload("odd")
    bad = LastError(1.0, "no")
    view = Shown(rows, [RootStatus("/c"), RootStatus("/d", bad)], ConfigStatus("/f", 5.0, bad))
    found = scrape(counts, view, Gauges(open_streams=4, watching=True, listener_retries=3))
    assert found['sidecar_capsules{state="serving"}'] == 1
    assert found['sidecar_capsules{state="unbound"}'] == 0
    assert found['sidecar_tasks{state="working"}'] == 3
    assert found['sidecar_tasks{state="submitted"}'] == 0
    assert found['sidecar_tasks{state="input-required"}'] == 1
    assert 'sidecar_tasks{state="failed"}' not in found
    assert found['sidecar_tasks{state="other"}'] == 1
    assert found["sidecar_roots_in_error"] == 1
    assert found["sidecar_config_last_reload_successful"] == 0
    assert found["sidecar_config_last_success_timestamp_seconds"] == 5
    assert found['sidecar_config_reloads_total{outcome="refused"}'] == 1
    assert found['sidecar_config_reloads_total{outcome="other"}'] == 1
    assert found['sidecar_manifest_reads_total{outcome="refused"}'] == 1
    assert found["sidecar_open_streams"] == 4
    assert found["sidecar_watcher_up"] == 1
    assert found["sidecar_listener_retries_total"] == 3
    assert found["sidecar_ready"] == 1


def test_tasks_that_ended_are_counted_by_their_final_state() -> None:
    """All four from zero on, since live ones alone say nothing of failures."""
    counts = Metrics("0.1")
    for state in ("failed", "completed", "failed", "odd"):
        counts.task_ended(state)
    ended = {k: v for k, v in scrape(counts).items() if k.startswith("sidecar_tasks_ended_total")}
    shown = {"completed": 1, "failed": 2, "rejected": 0, "canceled": 0, "other": 1}
    assert ended == {f'sidecar_tasks_ended_total{{state="{state}"}}': n for state, n in shown.items()}


def test_a_scrape_tells_the_version_and_the_process_figures() -> None:
    """Build information, and the usual `process_…` metrics, are part of every scrape."""
    found = scrape(Metrics("1.2.3"))
    assert [k for k in found if k.startswith("sidecar_build_info") and 'version="1.2.3"' in k]
    assert found["process_resident_memory_bytes"] > 0
    assert found["process_open_fds"] > 0


def test_a_snapshot_stays_as_it_was_while_counting_goes_on() -> None:
    """What `exposition` writes in another thread shares nothing with the counters."""
    counts = Metrics("0.1")
    counts.capsule("a").request("card", "ok")
    counts.desk_request("/metrics", "ok")
    snapshot = counts.snapshot(Shown(), Gauges())
    before = exposition(snapshot)
    counts.capsule("a").request("card", "ok")
    counts.desk_request("/metrics", "ok")
    counts.capsule("b").plane("files", "ok")
    ours = [line for line in exposition(snapshot).splitlines() if b"process_" not in line]
    assert ours == [line for line in before.splitlines() if b"process_" not in line]


def test_the_names_follow_the_conventions() -> None:
    """Ours begin with `sidecar_`, and exactly the counters end in `_total`."""
    names = [family.name for family in FAMILIES]
    assert all(re.fullmatch(r"sidecar_[a-z_]+", name) for name in names)
    assert len(set(names)) == len(names)


def test_the_documentation_lists_every_metric_as_it_is() -> None:
    """The table of docs/metrics.md has one row per metric, in order, with its kind, labels and meaning."""
    rows = re.findall(
        r"^\| `(sidecar_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", DOCUMENT.read_text(), re.MULTILINE
    )
    expected = [
        (
            family.name,
            "counter" if family.name.endswith("_total") else "gauge",
            ", ".join(f"`{label}`" for label in family.labels),
            family.text,
        )
        for family in FAMILIES
    ]
    assert rows == expected


def test_the_documentation_lists_every_value_that_a_label_may_have() -> None:
    """Methods, planes, outcomes, states and paths are all named in docs/metrics.md."""
    text = DOCUMENT.read_text()
    values = {
        *metrics.REQUESTS,
        *metrics.PLANES,
        *metrics.OUTCOMES,
        *metrics.TASK_STATES,
        *metrics.ENDED_STATES,
        *metrics.RELOADS,
    }
    values |= {
        *metrics.DESK_PATHS,
        *metrics.HANDLE_ACTIONS,
        *CapsuleState,
        metrics.REST,
        metrics.OTHER,
        "taken",
    }
    assert sorted(value for value in values if f"`{value}`" not in text) == []


def test_counters_weigh_little_before_they_are_used() -> None:
    """A capsule that nobody calls has two empty dictionaries and nothing else."""
    counters = Counters()
    assert (counters.requests, counters.planes) == ({}, {})
    assert not hasattr(counters, "__dict__")
