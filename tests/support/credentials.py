"""What decides who is let in, put together for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sidecar.auth.access import Access
from sidecar.auth.keys import KeyRing
from sidecar.auth.providers import Providers

if TYPE_CHECKING:
    from sidecar.store import Store

ADMIN = "the-admin-token"


def access_of(store: Store | None = None) -> Access:
    """Make what lets everybody in; keys can be made where there is a store."""
    ring = KeyRing(cast("Store", store), ()) if store is None else KeyRing.load(store)
    return Access(ring, Providers(), admin_token=ADMIN)
