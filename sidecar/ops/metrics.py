"""What is counted, and how it is shown to Prometheus.

Counting is adding to plain integers on the event loop. A scrape is two steps: `Metrics.snapshot` copies the
integers (on the loop), `exposition` writes them out (anywhere). Nothing a client sends becomes a label: labels come
from closed sets, and the number of capsules with series of their own is capped.
"""

from __future__ import annotations

import platform
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sidecar.errors import STATUS_OF
from sidecar.model import METHODS, CapsuleState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from sidecar.model import RegistryView

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
OWN_SERIES: Final = 200
"""How many capsules have series of their own; the others are summed."""
REST: Final = "_other"
OTHER: Final = "other"

REQUESTS: Final = frozenset({"card", *(m.name for m in METHODS)})
PLANES: Final = frozenset({"files", "peer_files"})
DESK_PATHS: Final = frozenset(
    {"/healthz", "/readyz", "/metrics", "/api/capsules", "/api/capsules/{id}", "/api/reload"}
)
RPC_CODES: Final = frozenset({"-32700", "-32600", "-32601", "-32602", "-32603", "-32001"})
OUTCOMES: Final = frozenset(
    {"ok", "not_modified", "rejected", "stream", "config_refused", *STATUS_OF, *RPC_CODES}
)
"""`ok`, what else an answer may be, the code of a refusal, or the code of a JSON-RPC error."""
TASK_STATES: Final = ("submitted", "working", "input-required", "completed", "failed", "rejected", "canceled")
RELOADS: Final = ("applied", "unchanged", "refused")

Counts = dict[tuple[str, str], int]


def _add(counts: Counts, known: frozenset[str], what: str, outcome: str) -> None:
    try:
        counts[what, outcome] += 1
    except KeyError:
        key = (what if what in known else OTHER, outcome if outcome in OUTCOMES else OTHER)
        counts[key] = counts.get(key, 0) + 1


class Counters:
    """The counts of one capsule, or of the desk: number of requests and of plane reads by their outcome."""

    __slots__ = ("planes", "requests")

    def __init__(self) -> None:
        self.requests: Counts = {}
        self.planes: Counts = {}

    def request(self, what: str, outcome: str) -> None:
        """Count a request: `card` or a JSON-RPC method (anything else is `other`), and how it ended (`OUTCOMES`)."""
        _add(self.requests, REQUESTS, what, outcome)

    def plane(self, plane: str, outcome: str) -> None:
        """Count a read or listing of a plane: `files` or `peer_files`, and how it ended (`OUTCOMES`)."""
        _add(self.planes, PLANES, plane, outcome)


@dataclass(frozen=True, slots=True)
class Gauges:
    """What other parts know at the moment of a scrape: streams open, whether the kernel reports changes, bind retries."""

    open_streams: int = 0
    watching: bool = False
    listener_retries: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Every number of one moment, for `exposition`. `requests` and `planes` are keyed (capsule, what, outcome)."""

    build: tuple[str, str]
    ready: bool
    capsules: Mapping[str, int]
    tasks: Mapping[str, int]
    roots_in_error: int
    requests: Mapping[tuple[str, ...], int]
    planes: Mapping[tuple[str, ...], int]
    desk: Mapping[tuple[str, ...], int]
    reloads: Mapping[str, int]
    reload_ok: bool
    loaded_at: float
    manifests: Mapping[str, int]
    now: Gauges


class Metrics:
    """The counts of the whole sidecar, which the daemon owns; used on the event loop only.

    Counters never fall: a capsule that goes keeps its share of the sum, or takes its own series away with it.
    """

    def __init__(self, version: str, *, own_series: int = OWN_SERIES) -> None:
        self._build = (version, platform.python_version())
        self._own_series = own_series
        self._own: dict[str, Counters] = {}
        self._rest: dict[str, Counters] = {}
        self._gone = Counters()
        self._desk: Counts = {}
        self._reloads: Counter[str] = Counter(dict.fromkeys(RELOADS, 0))
        self._manifests = {"taken": 0, "refused": 0}

    def capsule(self, capsule_id: str) -> Counters:
        """Return the counters of a capsule, the same ones until `forget`.

        The first ones to come have series of their own for as long as they live; the rest share one.
        """
        found = self._own.get(capsule_id) or self._rest.get(capsule_id)
        if found is None:
            found = Counters()
            place = self._own if len(self._own) < self._own_series else self._rest
            place[capsule_id] = found
        return found

    def forget(self, capsule_id: str) -> None:
        """Let go of a capsule that is gone."""
        self._own.pop(capsule_id, None)
        if (counters := self._rest.pop(capsule_id, None)) is not None:
            for mine, its in ((self._gone.requests, counters.requests), (self._gone.planes, counters.planes)):
                for key, count in its.items():
                    mine[key] = mine.get(key, 0) + count

    def desk_request(self, path: str, outcome: str) -> None:
        """Count a request to the desk by its path template (`DESK_PATHS`, anything else is `other`)."""
        _add(self._desk, DESK_PATHS, path, outcome)

    def reload(self, outcome: str) -> None:
        """Count a reload of the configuration: `applied`, `unchanged` or `refused`."""
        self._reloads[outcome if outcome in RELOADS else OTHER] += 1

    def manifest(self, *, refused: bool) -> None:
        """Count a manifest that changed and was read. For the one thread that reads manifests, if not the loop."""
        self._manifests["refused" if refused else "taken"] += 1

    def snapshot(self, view: RegistryView, now: Gauges) -> Snapshot:
        """Copy every number. Costs microseconds per capsule; call it on the event loop."""
        states = Counter(dict.fromkeys(CapsuleState, 0))
        tasks: Counter[str] = Counter(dict.fromkeys(TASK_STATES, 0))
        for row in view.capsules():
            states[row.state] += 1
            tasks.update({s if s in TASK_STATES else OTHER: n for s, n in row.tasks.items()})
        config = view.config()
        rest = (self._gone, *self._rest.values())
        return Snapshot(
            build=self._build,
            ready=view.ready(),
            capsules={str(state): count for state, count in states.items()},
            tasks=tasks,
            roots_in_error=sum(root.last_error is not None for root in view.roots()),
            requests=_spread({c: n.requests for c, n in self._own.items()}, (c.requests for c in rest)),
            planes=_spread({c: n.planes for c, n in self._own.items()}, (c.planes for c in rest)),
            desk={(path, outcome): count for (path, outcome), count in self._desk.items()},
            reloads=dict(self._reloads),
            reload_ok=config.last_error is None,
            loaded_at=config.loaded_at,
            manifests=dict(self._manifests),
            now=now,
        )


def _spread(own: Mapping[str, Counts], rest: Iterable[Counts]) -> dict[tuple[str, ...], int]:
    spread: dict[tuple[str, ...], int] = {
        (c, *key): count for c, counts in own.items() for key, count in counts.items()
    }
    for counts in rest:
        for key, count in counts.items():
            spread[REST, *key] = spread.get((REST, *key), 0) + count
    return spread


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: a row of `docs/metrics.md`. `values` gives the value of each combination of its labels."""

    name: str
    labels: tuple[str, ...]
    text: str
    values: Callable[[Snapshot], Mapping[tuple[str, ...], float]]

    def metric(self, snapshot: Snapshot) -> Metric:
        """Return it with its samples, sorted by labels; a name that ends in `_total` is a counter."""
        kind = CounterMetricFamily if self.name.endswith("_total") else GaugeMetricFamily
        family = kind(self.name, self.text, labels=self.labels)
        for key, value in sorted(self.values(snapshot).items()):
            family.add_metric(key, value)
        return family


def _one(value: float) -> dict[tuple[str, ...], float]:
    return {(): value}


def _by_name(values: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(name,): value for name, value in values.items()}


FAMILIES: Final = (
    Family("sidecar_build_info", ("version", "python"), "What runs; always 1.", lambda s: {s.build: 1}),
    Family("sidecar_ready", (), "1 while /readyz answers 200, else 0.", lambda s: _one(s.ready)),
    Family(
        "sidecar_capsules", ("state",), "Capsules by what they are doing.", lambda s: _by_name(s.capsules)
    ),
    Family("sidecar_roots_in_error", (), "Roots that cannot be read.", lambda s: _one(s.roots_in_error)),
    Family(
        "sidecar_requests_total",
        ("capsule", "method", "outcome"),
        "Requests for cards, and JSON-RPC calls by method.",
        lambda s: s.requests,
    ),
    Family(
        "sidecar_plane_reads_total",
        ("capsule", "plane", "outcome"),
        "Reads and listings of the planes.",
        lambda s: s.planes,
    ),
    Family("sidecar_open_streams", (), "Event streams open now.", lambda s: _one(s.now.open_streams)),
    Family("sidecar_tasks", ("state",), "Tasks that are kept, by state.", lambda s: _by_name(s.tasks)),
    Family("sidecar_desk_requests_total", ("path", "outcome"), "Requests to the desk.", lambda s: s.desk),
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
        lambda s: _one(s.reload_ok),
    ),
    Family(
        "sidecar_config_last_success_timestamp_seconds",
        (),
        "When the configuration in force was loaded, in Unix time.",
        lambda s: _one(s.loaded_at),
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
