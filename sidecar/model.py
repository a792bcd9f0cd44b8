"""The nouns that every stage shares, and the method table. Frozen values, no I/O, standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

MANIFEST_NAME: Final = "murmur.yaml"
DEFAULT_MAX_BYTES: Final = 10 * 1024 * 1024
DEFAULT_MAX_TTL: Final = 3600


class TaskAcceptance(StrEnum):
    """`lifecycle.task_acceptance`: whether, and how many, tasks a capsule takes."""

    NONE = "none"
    SINGLE = "single"
    QUEUE = "queue"


class AfterTask(StrEnum):
    """`lifecycle.after_task`: what the capsule's own runtime does when a task ended."""

    EXIT = "exit"
    SLEEP = "sleep"


class Conversation(StrEnum):
    """`lifecycle.conversation`: whether tasks of one context share memory."""

    STATELESS = "stateless"
    THREADED = "threaded"


class Containment(StrEnum):
    """`capabilities.containment`: how strictly links are treated on the planes."""

    ADVISORY = "advisory"
    SCOPED = "scoped"
    SEALED = "sealed"


class ArtifactRuntime(StrEnum):
    """`artifacts[].runtime`, with the older `wasm` and `native` already taken as `tool`."""

    TOOL = "tool"
    SKILL = "skill"
    DRIVER = "driver"
    HOOK = "hook"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One entry of `artifacts[]`. `version` is None only where `source` is given instead."""

    name: str
    version: str | None
    runtime: ArtifactRuntime = ArtifactRuntime.TOOL
    source: str | None = None

    @property
    def model_visible(self) -> bool:
        """Whether the model can call it: tools and skills, not drivers and hooks."""
        return self.runtime in (ArtifactRuntime.TOOL, ArtifactRuntime.SKILL)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The `lifecycle:` block. Times are in seconds; `input_timeout_secs` None waits for ever."""

    task_acceptance: TaskAcceptance = TaskAcceptance.SINGLE
    after_task: AfterTask = AfterTask.EXIT
    queue_depth: int = 1
    input_timeout_secs: int | None = None
    conversation: Conversation = Conversation.STATELESS
    shell_grace_secs: int = 10


@dataclass(frozen=True, slots=True)
class FilesExport:
    """`exports.files`: the operator plane. `root` is verbatim, `max_bytes` in bytes."""

    root: str
    max_bytes: int = DEFAULT_MAX_BYTES


@dataclass(frozen=True, slots=True)
class PeerFilesExport:
    """`exports.peer_files`: the peer plane. `root` is verbatim, `max_ttl` in seconds, `max_bytes` in bytes."""

    root: str
    max_ttl: int = DEFAULT_MAX_TTL
    max_bytes: int = DEFAULT_MAX_BYTES


@dataclass(frozen=True, slots=True)
class Manifest:
    """A parsed, valid `murmur.yaml`: what the sidecar reads of it (`spec/murmur.md` section 1.2)."""

    name: str
    version: str
    description: str | None = None
    artifacts: tuple[Artifact, ...] = ()
    shell_allow: tuple[str, ...] | None = None
    network_allow: tuple[str, ...] = ()
    peer_fetch_allow: tuple[str, ...] | None = None
    containment: Containment = Containment.ADVISORY
    internal_port: int | None = None
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    files: FilesExport | None = None
    peer_files: PeerFilesExport | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the murmur door's method table (reference card, `serves.methods`)."""

    name: str
    starts_tasks: bool = False
    streams: bool = False


METHODS: Final = (
    Method("message/send", starts_tasks=True),
    Method("message/stream", starts_tasks=True, streams=True),
    Method("stream/watch", streams=True),
    Method("tasks/get"),
    Method("tasks/cancel"),
    Method("session/stop"),
)
"""The one table from which the card is derived and by which the door dispatches, in card order."""


def served_methods(acceptance: TaskAcceptance) -> tuple[Method, ...]:
    """Return the methods that `POST /` answers, in card order: under `none` nothing starts a task."""
    return tuple(m for m in METHODS if not m.starts_tasks or acceptance is not TaskAcceptance.NONE)


def served_planes(manifest: Manifest) -> tuple[str, ...]:
    """Return the declared planes in card order."""
    planes = (("files", manifest.files), ("peer_files", manifest.peer_files))
    return tuple(name for name, export in planes if export is not None)


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
class AuthSettings:
    """Whom a capsule lets in, of what the configuration says; agent keys come on top.

    `door` is `auto`, `open` or `authenticated` and is about the murmur door and the files plane. `personal_tokens` is
    empty unless the capsule takes those of members. `rate` is per caller, None for any.
    """

    door: str = "auto"
    providers: tuple[ProviderSettings, ...] = ()
    personal_tokens: tuple[PersonalToken, ...] = ()
    rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class AuthKind:
    """One kind of credential that a capsule accepts.

    `type` is `agent_key`, `runtime_token`, `personal_access_token`, `oidc` (which alone has an `issuer`) or `o_auth2`.
    """

    type: str
    issuer: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The effective configuration of one capsule: its own keys over the global ones.

    `workspace` is a template relative to the capsule's directory (`{id}`, `{session_id}`).
    `hosts` are the addresses to listen on, `advertise` the host that cards name.
    `port` is the configured one or None; `a2a_port`, where there is one, serves A2A at its root beside it.
    `public_url` is the base of the URLs on cards, with `{id}` and `{port}` in it, where a proxy stands in front.
    `containment` None leaves the manifest's.
    `concurrency` counts running tasks, `tasks` is the most that may live, `streams` the most that may be open.
    `heartbeat` is the seconds between two comments on a stream.
    `backend` is `inbox`, `command` or `forward`; `command` and `forward` are set where it is theirs.
    `on_restart` is `fail` or `rerun`, for tasks that ran when the sidecar ended. `stop_grace` is the seconds that a
    worker has to end in when the sidecar stops. `auth` says whom it lets in.
    """

    workspace: str = "."
    hosts: tuple[str, ...] = ("127.0.0.1",)
    advertise: str = "localhost"
    public_url: str | None = None
    port: int | None = None
    a2a_port: int | None = None
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
    backend: str = "inbox"
    inbox: InboxSettings = field(default_factory=InboxSettings)
    command: CommandSettings | None = None
    forward: ForwardSettings | None = None
    on_restart: str = "fail"
    stop_grace: float = 3.0
    auth: AuthSettings = field(default_factory=AuthSettings)


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
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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


class CapsuleState(StrEnum):
    """What `/api/capsules` says a capsule is doing (design, Desk)."""

    SERVING = "serving"
    UNBOUND = "unbound"
    REFUSED = "refused"
    DISABLED = "disabled"
    ARTIFACT = "artifact"


@dataclass(frozen=True, slots=True)
class LastError:
    """The newest error of a thing: `at` in Unix seconds."""

    at: float
    message: str


@dataclass(frozen=True, slots=True)
class CapsuleStatus:
    """One row of the registry as the desk shows it (design, `GET /api/capsules`)."""

    id: str
    path: str
    state: CapsuleState
    name: str | None = None
    version: str | None = None
    port: int | None = None
    url: str | None = None
    session_id: str | None = None
    methods: tuple[str, ...] = ()
    planes: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    backend: str | None = None
    workers: int = 0
    tasks: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    last_error: LastError | None = None


@dataclass(frozen=True, slots=True)
class RootStatus:
    """One configured root: its path and why it cannot be read, if so."""

    path: str
    last_error: LastError | None = None


@dataclass(frozen=True, slots=True)
class ConfigStatus:
    """The configuration in force: `path` None when there is no file; `last_error` of the newest refused reload."""

    path: str | None
    loaded_at: float
    last_error: LastError | None = None


class RegistryView(Protocol):
    """What the desk may see of the registry: committed state, never a way to change it."""

    def capsules(self) -> Sequence[CapsuleStatus]:
        """All rows, sorted by id."""

    def roots(self) -> Sequence[RootStatus]:
        """The configured roots, in configured order."""

    def config(self) -> ConfigStatus:
        """The configuration in force."""

    def ready(self) -> bool:
        """Whether every capsule was tried once and the sidecar is not draining."""

    def detail(self) -> Mapping[str, Any]:
        """Counts for `/readyz`: JSON-ready."""
