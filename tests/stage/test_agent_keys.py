"""Agent keys: what is kept of them, how long their secrets are good, and whose they are."""

from __future__ import annotations

import asyncio
from contextlib import closing
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from sidecar.auth.keys import KeyRing
from sidecar.errors import StoreError
from sidecar.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOUR = 3600.0
A = ("/c/a", "a")


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return a clock."""
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Open a database."""
    with closing(Store.open(str(tmp_path / "sidecar.db"))) as opened:
        yield opened


@pytest.fixture
def ring(store: Store, clock: Clock) -> KeyRing:
    """Return the keys of the database."""
    return KeyRing.load(store, clock)


def kept_in(directory: Path) -> bytes:
    """Return all that the files of a directory hold."""
    return b"".join(file.read_bytes() for file in directory.iterdir())


async def test_a_key_has_its_form_and_only_its_hash_is_kept(
    ring: KeyRing, store: Store, tmp_path: Path
) -> None:
    """`sc_ak_` and 64 hex digits; no file of the database holds them."""
    issued = await ring.create(*A)
    prefix, rest = issued.secret[:6], issued.secret[6:]
    assert prefix == "sc_ak_"
    assert len(bytes.fromhex(rest)) == 32
    assert rest == rest.lower()
    store.close()
    kept = kept_in(tmp_path)
    assert sha256(issued.secret.encode()).digest() in kept
    for secret in (rest.encode(), bytes.fromhex(rest)):
        assert secret not in kept
    assert issued.secret not in repr(issued.key)


async def test_a_key_is_good_for_its_capsule_alone(ring: KeyRing) -> None:
    """Another directory, or another name in the same one, is another capsule."""
    secret = (await ring.create(*A)).secret
    assert ring.find(*A, secret) is not None
    assert ring.find("/c/b", "a", secret) is None
    assert ring.find("/c/a", "b", secret) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s[:-1],
        lambda s: s + "0",
        lambda s: s.upper(),
        lambda s: s.replace("sc_ak_", "sc_pat_"),
        lambda s: s.replace("sc_ak_", ""),
        lambda s: " " + s,
        lambda s: s + "\n",
        lambda s: s[:-1] + ("0" if s[-1] != "0" else "1"),
        lambda _: "",
        lambda s: s + "\ud800",
    ],
)
async def test_nothing_but_the_secret_itself_is_good(ring: KeyRing, change: object) -> None:
    """Cut short, made longer, spelled otherwise."""
    assert callable(change)
    assert ring.find(*A, change((await ring.create(*A)).secret)) is None


async def test_a_rotated_key_has_two_secrets_until_the_overlap_ends(ring: KeyRing, clock: Clock) -> None:
    """The key's id stays; a day is usual."""
    first = await ring.create(*A)
    second = await ring.rotate(first.key.id)
    assert second is not None
    assert second.key.id == first.key.id
    assert second.secret != first.secret
    clock.now += 24 * HOUR - 1
    assert ring.find(*A, first.secret) is not None
    assert ring.find(*A, second.secret) is not None
    clock.now += 1
    assert ring.find(*A, first.secret) is None
    assert ring.find(*A, second.secret) is not None


async def test_no_rotation_makes_an_old_secret_live_longer(ring: KeyRing, clock: Clock) -> None:
    """Each ends when it was said to at the latest; without an overlap all but the newest end at once."""
    first = await ring.create(*A)
    second = await ring.rotate(first.key.id, overlap=1)
    third = await ring.rotate(first.key.id, overlap=168)
    assert second is not None
    assert third is not None
    clock.now += HOUR
    assert ring.find(*A, first.secret) is None
    assert ring.find(*A, second.secret) is not None
    fourth = await ring.rotate(first.key.id, overlap=0)
    assert fourth is not None
    assert [ring.find(*A, one.secret) is not None for one in (second, third, fourth)] == [False, False, True]
    assert len(fourth.key.secrets) == 1


async def test_a_key_that_is_over_is_over_with_all_its_secrets(ring: KeyRing, clock: Clock) -> None:
    """Revoked, or at its end; neither can be rotated, and both stay listed."""
    revoked, expired = await ring.create(*A), await ring.create(*A, lasts=60)
    again = await ring.rotate(revoked.key.id)
    assert again is not None
    assert await ring.revoke(revoked.key.id) is not None
    clock.now += 59
    assert ring.find(*A, expired.secret) is not None
    clock.now += 1
    for secret in (revoked.secret, again.secret, expired.secret):
        assert ring.find(*A, secret) is None
    for key in (revoked.key, expired.key):
        assert await ring.rotate(key.id) is None
    assert [key.id for key in ring.of(*A)] == [revoked.key.id, expired.key.id]
    assert ring.any_in("/c/a")
    assert await ring.revoke("key_unknown") is None


async def test_a_forgotten_key_leaves_no_trace(ring: KeyRing, store: Store) -> None:
    """With the last one the capsule is open again."""
    issued = await ring.create(*A)
    assert await ring.forget(issued.key.id) == issued.key
    assert ring.find(*A, issued.secret) is None
    assert not ring.any_in("/c/a")
    assert await ring.forget(issued.key.id) is None
    counts = "SELECT (SELECT count(*) FROM agent_keys) + (SELECT count(*) FROM agent_key_secrets)"
    assert store.read_now(lambda c: c.execute(counts).fetchone()) == (0,)


async def test_keys_are_read_back_as_they_were(ring: KeyRing, store: Store, clock: Clock) -> None:
    """Of any directory, with every secret and flag."""
    await ring.create("/c/\udcff", "ü", lasts=60, end_users=True, operator=True)
    issued = await ring.create(*A)
    await ring.rotate(issued.key.id)
    await ring.revoke((await ring.create(*A)).key.id)
    again = KeyRing.load(store, clock)
    for capsule in (A, ("/c/\udcff", "ü")):
        assert again.of(*capsule) == ring.of(*capsule)
    assert again.find(*A, issued.secret) == ring.find(*A, issued.secret)


async def test_what_the_database_does_not_take_has_not_happened(ring: KeyRing, store: Store) -> None:
    """A key that could not be revoked is still good, and whoever asked is told."""
    issued = await ring.create(*A)
    told: list[str] = []
    ring.on_change = told.append
    store.close()
    for change in (ring.revoke(issued.key.id), ring.create(*A), ring.rotate(issued.key.id)):
        with pytest.raises(StoreError):
            await change
    assert ring.find(*A, issued.secret) is not None
    assert told == []


async def test_changes_at_the_same_time_come_one_after_the_other(ring: KeyRing) -> None:
    """Each rotation builds on the one before; each is told of once it holds."""
    issued = await ring.create(*A)
    told: list[str] = []
    ring.on_change = told.append
    rotated = await asyncio.gather(*(ring.rotate(issued.key.id) for _ in range(5)))
    secrets = [one.secret for one in rotated if one is not None]
    assert len(set(secrets)) == 5
    assert all(ring.find(*A, secret) is not None for secret in (issued.secret, *secrets))
    assert told == ["/c/a"] * 5
