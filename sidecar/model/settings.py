"""The effective configuration of one capsule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from typing import Self

    from sidecar.model.manifest import Containment


class Secret:
    """A text that is shown to nobody: no form of printing, and no serializer, gets at it; `reveal` does.

    No dataclass, since serializers open those. Equal where the texts are, so that a reload notices another one.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, for the one place that needs it."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not serialized")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self


@dataclass(frozen=True, slots=True)
class InboxSettings:
    """How workers take tasks from the inbox: `lease` in seconds, so many `attempts` before a task fails."""

    lease: float = 30.0
    attempts: int = 3


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """The program that does a capsule's tasks, one process per task (design, Tasks).

    `argv` is never empty; `{dir}` in it stands for the capsule's directory, everything else is as it stands.
    `protocol` is `text` or `jsonl`. `timeout` is the seconds that a task may take, None for ever; `output` the most
    bytes that it may say. `env` names the variables of the sidecar's own environment that are passed on.
    """

    argv: tuple[str, ...]
    protocol: str = "text"
    timeout: float | None = None
    output: int = 16 * 1024 * 1024
    env: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ForwardSettings:
    """The live door elsewhere that does a capsule's tasks: either its `url` or, found on this host, `discover`.

    `token` is the Bearer token to send there. `planes` is `workspace`, or `forward` to pass plane reads through.
    """

    url: str | None = None
    discover: bool = False
    token: Secret | None = None
    planes: str = "workspace"


PERSONAL: Final = "personal_access_token"
OIDC: Final = "oidc"
INTROSPECTED: Final = "o_auth2"
"""Kinds of credentials that the configuration makes good, as Everruns cards name them."""


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """A service that vouches for callers; `kind` is `oidc` or `introspection`.

    `url` is the issuer (OpenID Connect) or the endpoint (RFC 7662). Of `audiences` and `subjects` a token must name
    one, of `scopes` all; empty: any will do. `allow_private` lets it be at an address that is not public.
    """

    kind: str
    url: str
    audiences: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    allow_private: bool = False
    client_id: str | None = None
    client_secret: Secret | None = None


@dataclass(frozen=True, slots=True)
class PersonalToken:
    """A member's personal access token: its SHA-256 (32 bytes), and whose it is."""

    sha256: bytes
    member: str


@dataclass(frozen=True, slots=True)
class Rate:
    """So many `requests` in `period` seconds."""

    requests: int
    period: float


@dataclass(frozen=True, slots=True)
class AuthKind:
    """One kind of credential that a capsule accepts.

    `type` is `agent_key`, `runtime_token`, `personal_access_token`, `oidc` (which alone has an `issuer`) or `o_auth2`.
    """

    type: str
    issuer: str | None = None


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Whom a capsule lets in, of what the configuration says; agent keys come on top.

    `door` is `auto`, `open` or `authenticated` and is about the murmur door and the files plane. `personal_tokens`
    is None unless the capsule takes those of members: where it does and there are none, it is closed all the same.
    `rate` is per caller, None for any.
    """

    door: str = "auto"
    providers: tuple[ProviderSettings, ...] = ()
    personal_tokens: tuple[PersonalToken, ...] | None = None
    rate: Rate | None = None

    @property
    def kinds(self) -> tuple[AuthKind, ...]:
        """The kinds of credentials that the configuration makes good, in the order of Everruns cards."""
        found = [] if self.personal_tokens is None else [AuthKind(PERSONAL)]
        found += [
            AuthKind(OIDC, one.url) if one.kind == OIDC else AuthKind(INTROSPECTED) for one in self.providers
        ]
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Settings:
    """The effective configuration of one capsule: its own keys over the global ones.

    `workspace` is a template relative to the capsule's directory (`{id}`, `{session_id}`).
    `hosts` are the addresses to listen on, `advertise` the host that cards name.
    `port` is the configured one or None; `a2a_port`, where there is one, serves A2A at its root beside it.
    `channel_id` is what Everruns clients call it instead of its id, `conversation_starters` what their card offers.
    `agent_code` is what MOI clients may call it, who see it from `moi_workspace`, or from everywhere if that is system.
    `public_url` is the base of the URLs on cards, with `{id}` and `{port}` in it, where a proxy stands in front.
    `tls` says whether the listeners speak TLS.
    `containment` None leaves the manifest's.
    `concurrency` counts running tasks, `tasks` is the most that may live, `streams` the most that may be open.
    `heartbeat` is the seconds between two comments on a stream, `heartbeat_a2a` those of silence before one on an
    A2A stream. `blocking_send` is the seconds after which an A2A send is answered whose task goes on.
    `backend` is `inbox`, `command` or `forward`; `command` and `forward` are set where it is theirs.
    `on_restart` is `fail` or `rerun`, for tasks that ran when the sidecar ended. `stop_grace` is the seconds that a
    worker has to end in when the sidecar stops. `auth` says whom it lets in.
    """

    workspace: str = "."
    hosts: tuple[str, ...] = ("127.0.0.1",)
    advertise: str = "localhost"
    public_url: str | None = None
    tls: bool = False
    port: int | None = None
    a2a_port: int | None = None
    channel_id: str | None = None
    conversation_starters: tuple[str, ...] = ()
    agent_code: str | None = None
    moi_workspace: str = "system"
    internal_port: bool = False
    card: str = "full"
    concurrency: int = 1
    input_modes: tuple[str, ...] = ("text/plain",)
    containment: Containment | None = None
    cross_mounts: bool = False
    disabled: bool = False
    tasks: int = 1000
    streams: int = 2048
    heartbeat: float = 15.0
    heartbeat_a2a: float = 2.5
    blocking_send: float = 300.0
    backend: str = "inbox"
    inbox: InboxSettings = field(default_factory=InboxSettings)
    command: CommandSettings | None = None
    forward: ForwardSettings | None = None
    on_restart: str = "fail"
    stop_grace: float = 3.0
    auth: AuthSettings = field(default_factory=AuthSettings)
