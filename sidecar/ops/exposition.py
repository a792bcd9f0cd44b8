"""A snapshot of the metrics in the Prometheus text format. Pure, and slow enough to belong in a thread."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sidecar.model import CapsuleState
from sidecar.ops.metrics import OTHER, TASK_STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from sidecar.ops.metrics import Counts, Snapshot

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

Values = dict[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: a row of `docs/metrics.md`. `values` gives the value of each combination of its labels."""

    name: str
    labels: tuple[str, ...]
    text: str
    values: Callable[[Snapshot], Values]

    def metric(self, snapshot: Snapshot) -> Metric:
        """Return it with its samples, sorted by labels; a name that ends in `_total` is a counter."""
        kind = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        family = kind(self.name, self.text, labels=self.labels)
        for key, value in sorted(self.values(snapshot).items()):
            family.add_metric(key, value)
        return family


def _one(value: float) -> Values:
    return {(): value}


def _by_name(values: Mapping[str, int]) -> Values:
    return {(name,): value for name, value in values.items()}


def _of(counts: Counts) -> Values:
    return {(what, outcome): count for (what, outcome), count in counts.items()}


def _per_capsule(counts: Iterable[tuple[str, Counts]]) -> Values:
    summed: Values = {}
    for name, its in counts:
        for (what, outcome), count in its.items():
            key = (name, what, outcome)
            summed[key] = summed.get(key, 0) + count
    return summed


def _states(snapshot: Snapshot) -> Values:
    states = Counter(row.state for row in snapshot.capsules)
    return {(str(state),): states[state] for state in CapsuleState}


def _tasks(snapshot: Snapshot) -> Values:
    tasks = dict.fromkeys(TASK_STATES, 0)
    for row in snapshot.capsules:
        for state, count in row.tasks.items():
            name = state if state in TASK_STATES else OTHER
            tasks[name] = tasks.get(name, 0) + count
    return _by_name(tasks)


FAMILIES: Final = (
    Family("sidecar_build_info", ("version", "python"), "What runs; always 1.", lambda s: {s.build: 1}),
    Family("sidecar_ready", (), "1 while /readyz answers 200, else 0.", lambda s: _one(s.ready)),
    Family("sidecar_capsules", ("state",), "Capsules by what they are doing.", _states),
    Family(
        "sidecar_roots_in_error",
        (),
        "Roots that cannot be read.",
        lambda s: _one(sum(root.last_error is not None for root in s.roots)),
    ),
    Family(
        "sidecar_requests_total",
        ("capsule", "method", "outcome"),
        "Requests for cards, and JSON-RPC calls by method.",
        lambda s: _per_capsule(s.requests),
    ),
    Family(
        "sidecar_plane_reads_total",
        ("capsule", "plane", "outcome"),
        "Reads and listings of the planes.",
        lambda s: _per_capsule(s.planes),
    ),
    Family("sidecar_open_streams", (), "Event streams open now.", lambda s: _one(s.now.open_streams)),
    Family("sidecar_tasks", ("state",), "Live tasks, by state.", _tasks),
    Family(
        "sidecar_tasks_ended_total",
        ("state",),
        "Tasks that ended since the start, by final state.",
        lambda s: _by_name(s.ended),
    ),
    Family(
        "sidecar_desk_requests_total", ("path", "outcome"), "Requests to the desk.", lambda s: _of(s.desk)
    ),
    Family(
        "sidecar_handle_calls_total",
        ("action", "outcome"),
        "Peer handles made and revoked on the desk.",
        lambda s: _of(s.handles),
    ),
    Family(
        "sidecar_config_reloads_total",
        ("outcome",),
        "Reloads of the configuration.",
        lambda s: _by_name(s.reloads),
    ),
    Family(
        "sidecar_config_last_reload_successful",
        (),
        "0 while the newest configuration is refused and an older one is in force, else 1.",
        lambda s: _one(s.config.last_error is None),
    ),
    Family(
        "sidecar_config_last_success_timestamp_seconds",
        (),
        "When the configuration in force was loaded, in Unix time.",
        lambda s: _one(s.config.loaded_at),
    ),
    Family(
        "sidecar_manifest_reads_total",
        ("outcome",),
        "Manifests that changed and were read.",
        lambda s: _by_name(s.manifests),
    ),
    Family(
        "sidecar_watcher_up",
        (),
        "1 while the kernel reports changes, 0 while they are found by the tick alone.",
        lambda s: _one(s.now.watching),
    ),
    Family(
        "sidecar_listener_retries_total",
        (),
        "Attempts to bind a port that was busy before.",
        lambda s: _one(s.now.listener_retries),
    ),
)
"""Every metric of ours, in the order of a scrape; those of the process (`process_…`) come after them."""


class _Collector(Collector):
    """Hands a snapshot to the client library, without its children per label."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Return every family with its samples."""
        return (family.metric(self._snapshot) for family in FAMILIES)

    def describe(self) -> list[Metric]:
        """Return nothing: a registry made for one scrape has no clash to look for."""
        return []


def exposition(snapshot: Snapshot) -> bytes:
    """Write a snapshot, and the figures of the process, in the Prometheus text format (`CONTENT_TYPE`).

    Takes tens of milliseconds for a thousand capsules and touches nothing shared: run it off the event loop.
    """
    registry = CollectorRegistry()
    registry.register(_Collector(snapshot))
    registry.register(ProcessCollector(registry=None))
    return generate_latest(registry)
