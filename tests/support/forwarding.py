"""A capsule whose tasks are handed on: a real engine on a real database, and the backend at work."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from sidecar.doors.murmur import MurmurDoor
from sidecar.events import Event, EventKind
from sidecar.model import Capsule, FilesExport, ForwardSettings, Secret
from sidecar.store import Store
from sidecar.tasks.backends.forward import Forward
from sidecar.tasks.engines import Engines
from sidecar.tasks.forwarding.caller import Patience
from sidecar.tasks.model import Input, Rules
from tests.support import sessions
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from sidecar.events import Task
    from sidecar.tasks.engine import Engine

QUICK = Patience(
    connect=2.0, answer=2.0, silence=2.0, away=1.5, first=0.02, longest=0.1, poll=0.05, probe=0.2, quiet=0.1
)


@dataclass
class Forwarding:
    """What forwards, and where its log is."""

    store: Store
    engine: Engine
    backend: Forward
    capsule: Capsule

    async def send(self, text: str = "hello", *, context_id: str | None = None) -> str:
        """Hand a task in and return its id."""
        message = {"messageId": "m1", "role": "user", "parts": [{"text": text}]}
        given = Input(text, orjson.dumps(message).decode())
        return (await self.engine.send(given, context_id=context_id, owner="")).id

    async def give(self, text: str, task_id: str | None = None) -> None:
        """Deliver input to the task that waits."""
        message = {"messageId": "m2", "role": "user", "parts": [{"text": text}]}
        given = Input(text, orjson.dumps(message).decode())
        assert await self.engine.deliver(given, task_id=task_id) is not None

    async def task(self, task_id: str) -> Task:
        """Return a task as it stands."""
        found = await self.engine.get(task_id)
        assert found is not None
        return found

    async def over(self, task_id: str, within: float = 20.0) -> Task:
        """Wait until a task is over and return it."""

        async def ended() -> Task | None:
            task = await self.task(task_id)
            return task if task.state.terminal else None

        found = await until(ended, within=within, what="the task to end")
        assert found is not None
        return found

    async def reaches(self, task_id: str, state: str) -> Task:
        """Wait until a task is in a state."""

        async def there() -> Task | None:
            task = await self.task(task_id)
            return task if task.state == state else None

        found = await until(there, what=f"the task to be {state}")
        assert found is not None
        return found

    async def told(self, task_id: str) -> list[tuple[str, Any]]:
        """Return what the log says of a task, in short: kind, and what matters of it."""
        events = await all_events(self.store, task_id)
        return [short(event) for event in events if event.kind is not EventKind.INPUT]

    async def text(self, task_id: str) -> str:
        """Return the pieces of text that were streamed, put together."""
        events = await all_events(self.store, task_id)
        return "".join(e.data["text"] for e in events if e.kind is EventKind.TEXT and not e.data["final"])


def short(event: Event) -> tuple[str, Any]:
    """Return an event in short."""
    data = event.data
    match event.kind:
        case EventKind.STATUS:
            return (str(data["state"]), data["message"])
        case EventKind.TEXT:
            return ("final text" if data["final"] else "text", data["text"])
        case EventKind.THINKING:
            return ("thinking", data["text"])
        case EventKind.TOOL:
            return ("tool", data["name"])
        case EventKind.ARTIFACT:
            return ("artifact", data["name"])
        case _:
            return (str(event.kind), None)


async def all_events(store: Store, task_id: str) -> list[Event]:
    """Return every event of a task."""
    rows = await store.read(
        lambda db: db.execute(
            "SELECT seq, frame, task_id, context_id, kind, data, at FROM events WHERE task_id = ? ORDER BY seq",
            (task_id,),
        ).fetchall()
    )
    return [
        Event(seq, frame, task, context, EventKind(kind), orjson.loads(data), at)
        for seq, frame, task, context, kind, data, at in rows
    ]


def forwarded(
    url: str | None, *, token: str | None = None, planes: str = "workspace", **more: Any
) -> Capsule:
    """Return a capsule whose tasks go to a URL, None to discover it."""
    forward = ForwardSettings(
        url=url, discover=url is None, token=None if token is None else Secret(token), planes=planes
    )
    served = sessions.capsule(**more)
    manifest = replace(served.manifest, files=FilesExport("out/"))
    return replace(
        served, manifest=manifest, settings=replace(served.settings, backend="forward", forward=forward)
    )


@asynccontextmanager
async def forwarding(
    directory: Path,
    capsule: Capsule,
    *,
    patience: Patience = QUICK,
    home: Path | None = None,
    grace: float = 0.0,
) -> AsyncIterator[Forwarding]:
    """Forward the tasks of a capsule, on the state of an earlier time where there is one."""
    store = Store.open(str(directory / "sidecar.db"))
    engines = Engines(store, keep_events=100_000, keep_tasks=3600.0)
    backend = Forward(home=home or directory, patience=patience)
    try:
        engine = await engines.open(capsule.session_id, Rules.of(capsule, max_live=100))
        backend.start(engine, capsule)
        yield Forwarding(store, engine, backend, capsule)
    finally:
        await backend.aclose(grace)
        await engines.aclose()
        store.close()


def door_of(one: Forwarding) -> MurmurDoor:
    """Return the murmur door of what forwards."""
    return MurmurDoor(one.engine, one.capsule, heartbeat=60.0, streams=16, count=lambda *_: None)
