"""What the desk says, as JSON: pure functions of what the registry shows. Keys and their order are the design's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import orjson

from sidecar.model import Answer, CapsuleState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sidecar.errors import Problem
    from sidecar.model import CapsuleStatus, ConfigStatus, LastError, RootStatus

MOST_NAMED: Final = 20
"""How many capsules of a kind, or tools of a capsule, are named; counts are complete."""

JSON: Final = ("content-type", "application/json")
PRIVATE: Final = ("cache-control", "private, no-cache")
UNCACHED: Final = ("cache-control", "no-store")


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """What came of a reload: whether anything changed, or the problems for which it was refused.

    `loaded_at` is when the configuration in force was taken (Unix seconds).
    """

    changed: bool = False
    loaded_at: float | None = None
    problems: tuple[Problem, ...] = ()


def text(value: str | None) -> str | None:
    """Return a text as it may stand in JSON: the bytes of a name that is no UTF-8 are written as escapes."""
    return value if value is None or value.isascii() else value.encode(errors="backslashreplace").decode()


def last_error(error: LastError | None) -> dict[str, Any] | None:
    """Return `{"at", "message"}`, `at` in Unix seconds."""
    return None if error is None else {"at": round(error.at, 3), "message": text(error.message)}


def capsule_document(row: CapsuleStatus) -> dict[str, Any]:
    """Return one capsule of `GET /api/capsules`."""
    return {
        "id": row.id,
        "name": text(row.name),
        "version": text(row.version),
        "path": text(row.path),
        "state": row.state,
        "port": row.port,
        "url": text(row.url),
        "session_id": row.session_id,
        "methods": row.methods,
        "planes": row.planes,
        "backend": row.backend,
        "workers": row.workers,
        "tasks": dict(row.tasks),
        "warnings": [text(warning) for warning in row.warnings],
        "last_error": last_error(row.last_error or row.trouble),
    }


def root_document(root: RootStatus) -> dict[str, Any]:
    """Return one root of `GET /api/capsules`."""
    return {"path": text(root.path), "last_error": last_error(root.last_error)}


def config_document(config: ConfigStatus) -> dict[str, Any]:
    """Return the configuration of `GET /api/capsules`."""
    return {
        "path": text(config.path),
        "loaded_at": round(config.loaded_at, 3),
        "last_error": last_error(config.last_error),
    }


def watched_document(row: CapsuleStatus) -> dict[str, Any]:
    """Return one capsule of `GET /api/events`: as it is listed, and its first tools."""
    tools = [text(tool) for tool in row.tools[:MOST_NAMED]]
    return capsule_document(row) | {"tools": tools, "tool_count": len(row.tools)}


def session_document(row: CapsuleStatus) -> dict[str, Any]:
    """Return one session of `GET /api/sessions`."""
    return {
        "session_id": row.session_id,
        "capsule": row.id,
        "name": text(row.name),
        "state": row.state,
        "url": text(row.url),
        "workers": row.workers,
        "tasks": dict(row.tasks),
    }


def registry_document(
    capsules: Iterable[CapsuleStatus], config: ConfigStatus, roots: Iterable[RootStatus]
) -> dict[str, Any]:
    """Return the whole of `GET /api/capsules`, which `sidecar list --json` prints too."""
    return {
        "capsules": [capsule_document(row) for row in capsules],
        "config": config_document(config),
        "roots": [root_document(root) for root in roots],
    }


def ready_document(
    *,
    ready: bool,
    detail: Mapping[str, Any],
    capsules: Sequence[CapsuleStatus],
    config: ConfigStatus,
    roots: Iterable[RootStatus],
) -> dict[str, Any]:
    """Return the body of `/readyz`: `ready`, `starting` or `draining`, counts, and who needs a look."""
    unready = "draining" if detail.get("draining") else "starting"
    states = Counter(row.state for row in capsules)
    named = {
        str(state): [row.id for row in capsules if row.state is state][:MOST_NAMED]
        for state in (CapsuleState.UNBOUND, CapsuleState.REFUSED)
    }
    return {
        "status": "ready" if ready else unready,
        "capsules": {str(state): states[state] for state in CapsuleState},
        **named,
        "last_good": [row.id for row in capsules if row.state is CapsuleState.SERVING and row.last_error][
            :MOST_NAMED
        ],
        "config": {"last_error": last_error(config.last_error)},
        "roots": [root_document(root) for root in roots if root.last_error is not None][:MOST_NAMED],
        **detail,
    }


def reload_answer(result: ReloadResult) -> Answer:
    """Return 200 `{"changed", "loaded_at"}`, or 422 with every problem where the new configuration is refused."""
    if not result.problems:
        told: dict[str, Any] = {"changed": result.changed}
        if result.loaded_at is not None:
            told["loaded_at"] = round(result.loaded_at, 3)
        return Answer(200, (JSON, UNCACHED), orjson.dumps(told))
    body = {
        "error": "config_refused",
        "message": "The new configuration has errors; the old one stays in force.",
        "problems": [text(str(problem)) for problem in result.problems],
    }
    return Answer(422, (JSON, UNCACHED), orjson.dumps(body))


def tagged(document: object) -> tuple[str, Answer]:
    """Return a document's entity tag and the answer that carries it."""
    body = bytes(memoryview(orjson.dumps(document)))  # it is kept: without the room that it was written in
    etag = f'"{sha256(body).hexdigest()[:32]}"'
    return etag, Answer(200, (JSON, PRIVATE, ("etag", etag)), body)


def not_modified(etag: str) -> Answer:
    """Return the 304 of a document (RFC 9110 section 15.4.5)."""
    return Answer(304, (PRIVATE, ("etag", etag)))
