"""Agent keys: made, rotated and revoked here, remembered by their hashes alone.

A key belongs to a directory and the name in its manifest, as the capsule does, but is never forgotten by itself: a
capsule that had a key stays closed to strangers, also when it comes back after a long time.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import secrets
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from sidecar.ops.uuid7 import new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self

    from sidecar.store import Store

PREFIX: Final = "sc_ak_"
LONGEST_OVERLAP: Final = 168
"""Hours for which a secret may stay valid behind its successor."""
USUAL_OVERLAP: Final = 24

_SHAPE: Final = re.compile(f"{PREFIX}[0-9a-f]{{64}}", re.ASCII)
_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class KeySecret:
    """One secret of a key, by its SHA-256; `until` (Unix seconds) is when its successor alone is left."""

    sha256: bytes
    created_at: float
    until: float | None = None

    def is_valid(self, now: float) -> bool:
        """Whether it may be used."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class AgentKey:
    """A key of the capsule with this manifest name in this directory. Times are Unix seconds; secrets oldest first.

    `end_users`: it may speak for end users. `operator`: it may use the murmur door and the files plane.
    """

    id: str
    directory: str
    name: str
    created_at: float
    secrets: tuple[KeySecret, ...]
    expires_at: float | None = None
    end_users: bool = False
    operator: bool = False
    revoked_at: float | None = None

    def is_valid(self, now: float) -> bool:
        """Whether it may be used."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def ends_at(self, digest: bytes | None) -> float | None:
        """Return when it ends for who has the secret with this hash, or any: Unix seconds, None for never."""
        times = [one.until for one in self.secrets if one.sha256 == digest]
        return min((at for at in (*times, self.expires_at) if at is not None), default=None)


@dataclass(frozen=True, slots=True)
class Issued:
    """A key and its newest secret, which is kept nowhere and cannot be shown again."""

    key: AgentKey
    secret: str


class KeyRing:
    """All agent keys. What changes is committed before anybody sees it. One event loop.

    `on_change` is called with the directory whose keys changed. `clock` is in Unix seconds.
    """

    def __init__(
        self, store: Store, keys: Iterable[AgentKey], clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._clock = clock
        self._changing = asyncio.Lock()
        self._by_id: dict[str, AgentKey] = {}
        self._of: dict[str, dict[str, AgentKey]] = {}
        self._by_digest: dict[bytes, tuple[str, KeySecret]] = {}
        self.on_change: Callable[[str], object] = lambda _: None
        for key in keys:
            self._keep(key)

    @classmethod
    def load(cls, store: Store, clock: Callable[[], float] = time.time) -> Self:
        """Read the keys of earlier runs. Raises StoreError."""
        return cls(store, store.read_now(_load), clock)

    def any_in(self, directory: str) -> bool:
        """Whether a directory's capsule has or had a key, under whatever name."""
        return directory in self._of

    def of(self, directory: str, name: str) -> Sequence[AgentKey]:
        """Return the keys of a capsule, the oldest first, those that are over included."""
        return [key for key in self._of.get(directory, {}).values() if key.name == name]

    def get(self, key_id: str) -> AgentKey | None:
        """Return a key."""
        return self._by_id.get(key_id)

    def find(self, directory: str, name: str, text: str) -> tuple[AgentKey, KeySecret] | None:
        """Return the valid key of a capsule, and which of its secrets, that a text is the secret of.

        Nothing but a hash is looked up, so that the time it takes says nothing about any secret.
        """
        found = self.holder(text)
        return None if found is None or (found[0].directory, found[0].name) != (directory, name) else found

    def holder(self, text: str) -> tuple[AgentKey, KeySecret] | None:
        """Return the same whichever capsule's it is."""
        if _SHAPE.fullmatch(text) is None:
            return None
        digest = sha256(text.encode()).digest()
        key_id, secret = self._by_digest.get(digest, ("", _NOBODY))
        same = hmac.compare_digest(digest, secret.sha256)
        key = self._by_id.get(key_id)
        now = self._clock()
        if key is None or not same:
            return None
        return (key, secret) if key.is_valid(now) and secret.is_valid(now) else None

    async def create(
        self,
        directory: str,
        name: str,
        *,
        lasts: float | None = None,
        end_users: bool = False,
        operator: bool = False,
    ) -> Issued:
        """Make a key that lasts so many seconds, None: until it is revoked. Raises StoreError."""
        async with self._changing:
            now = self._clock()
            text, secret = _new_secret(now)
            expires_at = None if lasts is None else now + lasts
            key = AgentKey(new_id("key_"), directory, name, now, (secret,), expires_at, end_users, operator)
            await self._save(key)
        return Issued(key, text)

    async def rotate(self, key_id: str, *, overlap: float = USUAL_OVERLAP) -> Issued | None:
        """Give a valid key another secret; the ones before it stay valid for `overlap` hours at most.

        Return None where there is no such key or it is over. Raises StoreError.
        """
        async with self._changing:
            now = self._clock()
            key = self._by_id.get(key_id)
            if key is None or not key.is_valid(now):
                return None
            end = now + overlap * _HOUR
            before = [
                replace(one, until=end if one.until is None else min(one.until, end))
                for one in key.secrets
                if one.is_valid(now)
            ]
            text, secret = _new_secret(now)
            key = replace(key, secrets=(*(one for one in before if one.is_valid(now)), secret))
            await self._save(key)
        return Issued(key, text)

    async def revoke(self, key_id: str) -> AgentKey | None:
        """End a key at once and for good; it stays listed. Return None where there is none. Raises StoreError."""
        async with self._changing:
            key = self._by_id.get(key_id)
            if key is None or key.revoked_at is not None:
                return key
            key = replace(key, revoked_at=self._clock())
            await self._save(key)
        return key

    async def forget(self, key_id: str) -> AgentKey | None:
        """End a key and every trace of it: without any key a capsule is open again. Raises StoreError."""
        async with self._changing:
            key = self._by_id.get(key_id)
            if key is None:
                return None
            await self._store.write(lambda connection: _delete(connection, key_id))
            self._drop(key)
            self.on_change(key.directory)
        return key

    async def _save(self, key: AgentKey) -> None:
        await self._store.write(lambda connection: _write(connection, key))
        before = self._by_id.get(key.id)
        for one in () if before is None else before.secrets:
            self._by_digest.pop(one.sha256, None)
        self._keep(key)
        self.on_change(key.directory)

    def _keep(self, key: AgentKey) -> None:
        self._by_id[key.id] = key
        self._of.setdefault(key.directory, {})[key.id] = key
        if key.revoked_at is None:
            self._by_digest.update({one.sha256: (key.id, one) for one in key.secrets})

    def _drop(self, key: AgentKey) -> None:
        del self._by_id[key.id]
        for one in key.secrets:
            self._by_digest.pop(one.sha256, None)
        keys = self._of[key.directory]
        del keys[key.id]
        if not keys:
            del self._of[key.directory]


def capsules_with_keys(path: str) -> frozenset[tuple[str, str]]:
    """Return the directories and names that a database has keys for, without touching it; none where it has none."""
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT DISTINCT directory, name FROM agent_keys").fetchall()
    except sqlite3.Error:
        return frozenset()
    return frozenset((os.fsdecode(directory), name) for directory, name in rows)


_NOBODY: Final = KeySecret(bytes(32), 0.0, 0.0)


def _new_secret(now: float) -> tuple[str, KeySecret]:
    text = PREFIX + secrets.token_hex(32)
    return text, KeySecret(sha256(text.encode()).digest(), now)


def _load(connection: sqlite3.Connection) -> list[AgentKey]:
    secrets_of: dict[str, list[KeySecret]] = {}
    for key_id, *fields in connection.execute(
        "SELECT key_id, sha256, created_at, until FROM agent_key_secrets ORDER BY created_at, until IS NULL"
    ):
        secrets_of.setdefault(key_id, []).append(KeySecret(*fields))
    return [
        AgentKey(
            key_id,
            os.fsdecode(directory),
            name,
            created_at,
            tuple(secrets_of.get(key_id, ())),
            expires_at,
            bool(end_users),
            bool(operator),
            revoked_at,
        )
        for key_id, directory, name, created_at, expires_at, end_users, operator, revoked_at in connection.execute(
            "SELECT id, directory, name, created_at, expires_at, end_users, operator, revoked_at"
            " FROM agent_keys ORDER BY created_at, id"
        )
    ]


def _write(connection: sqlite3.Connection, key: AgentKey) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO agent_keys"
        " (id, directory, name, created_at, expires_at, end_users, operator, revoked_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            key.id,
            os.fsencode(key.directory),
            key.name,
            key.created_at,
            key.expires_at,
            key.end_users,
            key.operator,
            key.revoked_at,
        ),
    )
    connection.execute("DELETE FROM agent_key_secrets WHERE key_id = ?", (key.id,))
    connection.executemany(
        "INSERT INTO agent_key_secrets (sha256, key_id, created_at, until) VALUES (?, ?, ?, ?)",
        [(one.sha256, key.id, one.created_at, one.until) for one in key.secrets],
    )


def _delete(connection: sqlite3.Connection, key_id: str) -> None:
    connection.execute("DELETE FROM agent_keys WHERE id = ?", (key_id,))
    connection.execute("DELETE FROM agent_key_secrets WHERE key_id = ?", (key_id,))
