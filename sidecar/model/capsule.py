"""A capsule as it is served, and what is wanted of its listener."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecar.model.manifest import Containment, Manifest
    from sidecar.model.settings import AuthKind, Settings


@dataclass(frozen=True, slots=True)
class Capsule:
    """One capsule as it is served: immutable; a reload makes another one and swaps it in.

    `directory` and `workspace` are absolute host paths (surrogate-escaped where not UTF-8).
    `port` is None until a listener is bound. `changed_at` is the time of the last change that shows on the card
    (Unix seconds), for `Last-Modified`. `credentials` are the kinds that callers may show; empty, none is asked for.
    """

    id: str
    directory: str
    session_id: str
    manifest: Manifest
    settings: Settings
    workspace: str
    changed_at: float
    port: int | None = None
    credentials: tuple[AuthKind, ...] = ()

    @property
    def containment(self) -> Containment:
        """The containment class in force on the planes."""
        return self.settings.containment or self.manifest.containment

    @property
    def url(self) -> str:
        """`host:port` of the listener that answers, as the reference card wants it."""
        host = self.settings.advertise
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def base(self) -> str:
        """The URL, without a slash at its end, below which clients reach the capsule's port."""
        return self.base_at(self.port)

    def base_at(self, port: int | None) -> str:
        """Return the same for another port of the capsule."""
        public = self.settings.public_url
        if public is not None:
            return public.replace("{id}", self.id).replace("{port}", str(port))
        host = self.settings.advertise
        scheme = "https" if self.settings.tls else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One listener that the registry wants: a capsule, and the one port it must have (None: any of the range).

    `port_from` says where the port comes from, for messages: `configured`, `manifest` or `remembered`.
    """

    capsule: Capsule
    port: int | None = None
    port_from: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer as a value; the content length is added when it is sent."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
