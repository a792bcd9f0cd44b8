"""What is counted, on the event loop, in plain integers; `exposition.py` shows it to Prometheus.

A scrape is two steps: `Metrics.snapshot` copies the numbers (on the loop), `exposition` sums them up and writes them
out (in a thread). Nothing a client sends becomes a label: labels come from closed sets, and the number of capsules
with series of their own is capped.
"""

from __future__ import annotations

import platform
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sidecar.errors import STATUS_OF
from sidecar.model import METHODS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecar.model import CapsuleStatus, ConfigStatus, RegistryView, RootStatus

OWN_SERIES: Final = 200
"""How many capsules have series of their own; the others are summed."""
REST: Final = "_other"
OTHER: Final = "other"

A2A_CALLS: Final = ("send", "stream", "get", "list", "cancel", "subscribe", "push", "extended-card")
A2A_REQUESTS: Final = frozenset(
    f"a2a-{version}/{call}"
    for version in ("0.3", "1.0")
    for call in A2A_CALLS
    if (version, call) != ("0.3", "list")
)
MOI_REQUESTS: Final = frozenset(f"moi/{call}" for call in A2A_CALLS if call != "list")
REQUESTS: Final = frozenset({"card", *(m.name for m in METHODS), *A2A_REQUESTS, *MOI_REQUESTS})
PLANES: Final = frozenset({"files", "peer_files"})
DESK_PATHS: Final = frozenset(
    {
        "/",
        "/page/{file}",
        "/page/sign-in",
        "/page/sign-out",
        "/healthz",
        "/readyz",
        "/metrics",
        "/api/events",
        "/api/link",
        "/api/sessions",
        "/api/capsules",
        "/api/capsules/{id}",
        "/api/capsules/{id}/cards",
        "/api/capsules/{id}/files",
        "/api/capsules/{id}/files/{path}",
        "/api/capsules/{id}/handles",
        "/api/capsules/{id}/handles/{handle_id}",
        "/api/capsules/{id}/messages",
        "/api/capsules/{id}/stream",
        "/api/capsules/{id}/tasks",
        "/api/capsules/{id}/tasks/{task}",
        "/api/capsules/{id}/tasks/{task}/cancel",
        "/api/reload",
        "/newmoi/agents/a2a",
        "/newmoi/agents/card",
        "/.well-known/ai-catalog.json",
        "/.well-known/api-catalog",
        "/v1/channels/{channel_id}",
        "/v1/channels/{channel_id}/runtime-auth",
        "/v1/channels/{channel_id}/sessions",
        "/v1/channels/{channel_id}/sessions/{id}",
        "/v1/channels/{channel_id}/sessions/{id}/cancel",
        "/v1/channels/{channel_id}/sessions/{id}/events",
        "/v1/channels/{channel_id}/sessions/{id}/messages",
        "/v1/channels/{channel_id}/sessions/{id}/sse",
        "/workers/{id}/next",
        "/workers/{id}/tasks/{task}/events",
        "/workers/{id}/tasks/{task}/heartbeat",
        "/workers/{id}/tasks/{task}/release",
    }
)
HANDLE_ACTIONS: Final = frozenset({"mint", "revoke"})
RPC_CODES: Final = frozenset(
    {
        *("-32700", "-32600", "-32601", "-32602", "-32603", "-32001", "-32002"),
        *("-32003", "-32004", "-32005", "-32007", "-32009"),
    }
)
OF_CHANNELS: Final = frozenset(
    {
        "agent_busy",
        "agent_not_available",
        "channel_not_found",
        "idempotency_key_in_progress",
        "idempotency_key_reused",
        "input_not_accepted",
        "session_not_found",
    }
)
"""Codes of refusals that the Everruns view alone has."""
OUTCOMES: Final = frozenset(
    {
        "ok",
        "not_modified",
        "rejected",
        "stream",
        "cut",
        "config_refused",
        *STATUS_OF,
        *RPC_CODES,
        *OF_CHANNELS,
    }
)
"""`ok`, what else an answer may be, the code of a refusal, or the code of a JSON-RPC error."""
TASK_STATES: Final = ("submitted", "working", "input-required")
ENDED_STATES: Final = ("completed", "failed", "rejected", "canceled")
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
    """Every number of one moment, copied but not yet summed up: what `exposition` writes.

    `requests` and `planes` hold the counts of each capsule with series of its own, and of all others under `REST`.
    """

    build: tuple[str, str]
    ready: bool
    capsules: Sequence[CapsuleStatus]
    roots: Sequence[RootStatus]
    config: ConfigStatus
    requests: Sequence[tuple[str, Counts]]
    planes: Sequence[tuple[str, Counts]]
    desk: Counts
    handles: Counts
    ended: Mapping[str, int]
    reloads: Mapping[str, int]
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
        self._handles: Counts = {}
        self._ended: Counter[str] = Counter(dict.fromkeys(ENDED_STATES, 0))
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

    def handle(self, action: str, outcome: str) -> None:
        """Count a call for a peer handle: `mint` or `revoke`, and how it ended (`OUTCOMES`)."""
        _add(self._handles, HANDLE_ACTIONS, action, outcome)

    def task_ended(self, state: str) -> None:
        """Count a task that has ended, by its final state (`ENDED_STATES`)."""
        self._ended[state if state in ENDED_STATES else OTHER] += 1

    def reload(self, outcome: str) -> None:
        """Count a reload of the configuration: `applied`, `unchanged` or `refused`."""
        self._reloads[outcome if outcome in RELOADS else OTHER] += 1

    def manifest(self, *, refused: bool) -> None:
        """Count a manifest that changed and was read. For the one thread that reads manifests, if not the loop."""
        self._manifests["refused" if refused else "taken"] += 1

    def snapshot(self, view: RegistryView, now: Gauges) -> Snapshot:
        """Copy every number, on the event loop: about a microsecond per capsule, beside what the view takes."""
        named = (
            *self._own.items(),
            (REST, self._gone),
            *((REST, counters) for counters in self._rest.values()),
        )
        return Snapshot(
            build=self._build,
            ready=view.ready(),
            capsules=tuple(view.capsules()),
            roots=view.roots(),
            config=view.config(),
            requests=[(name, counters.requests.copy()) for name, counters in named if counters.requests],
            planes=[(name, counters.planes.copy()) for name, counters in named if counters.planes],
            desk=self._desk.copy(),
            handles=self._handles.copy(),
            ended=dict(self._ended),
            reloads=dict(self._reloads),
            manifests=dict(self._manifests),
            now=now,
        )
