"""What decides who is let in, put together for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sidecar.auth.access import Access
from sidecar.auth.keys import KeyRing
from sidecar.auth.providers import Providers
from sidecar.desk.keys import Keys

if TYPE_CHECKING:
    from sidecar.store import Store

ADMIN = "the-admin-token"


def ring_of(store: Store | None = None) -> KeyRing:
    """Read a store's keys; without a store there is none, and none can be made."""
    return KeyRing(cast("Store", store), ()) if store is None else KeyRing.load(store)


def access_of(ring: KeyRing | None = None) -> Access:
    """Make what lets everybody in until there is a key."""
    return Access(ring or ring_of(), Providers(), admin_token=ADMIN)


def no_keys() -> Keys:
    """Make a desk's calls for the keys of no capsule at all."""
    return Keys(ring_of(), lambda _: None)
