"""Holding and failing the store's writer, from inside of its own queue."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

    from sidecar.store import Store


class Gate:
    """A change that holds the writer until it is opened, so that what comes behind it makes one group."""

    def __init__(self, store: Store) -> None:
        self._entered = threading.Event()
        self._open = threading.Event()
        self.passed = store.write(self._change)

    async def reached(self) -> None:
        """Wait until the writer stands at the gate."""
        await asyncio.to_thread(self._entered.wait)

    def open(self) -> None:
        """Let the writer go on."""
        self._open.set()

    def _change(self, _: sqlite3.Connection) -> None:
        self._entered.set()
        self._open.wait()


def poison(store: Store) -> asyncio.Future[None]:
    """Queue a change with which the database fails the whole group that it is in."""

    def change(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO nowhere VALUES (1)")

    return store.write(change)
