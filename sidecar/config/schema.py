"""The keys of the configuration file, with their defaults, and the configuration as the other parts see it.

Durations are seconds and sizes bytes here; every path is absolute once it was loaded.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from sidecar.config import quantities
from sidecar.config import values as v
from sidecar.errors import Problem
from sidecar.model import Containment, Settings

if TYPE_CHECKING:
    from pydantic_core import core_schema

DEFAULT_ROOT: Final = "./capsules"
_SAME: Final = object()


def _key(default: object, description: str, *, written: object = _SAME, alias: str | None = None) -> Any:
    """Make a key, like pydantic.Field; `written` is its default as it stands in a file, where that differs."""
    extra: dict[str, Any] = {"default": default if written is _SAME else written}
    return Field(default, description=description, alias=alias, json_schema_extra=extra)


def _duration(written: str, description: str) -> Any:
    return _key(quantities.parse_duration(written), description, written=written)


def _size(written: str, description: str) -> Any:
    return _key(quantities.parse_size(written), description, written=written)


class Block(BaseModel):
    """A block of keys: all optional, none unknown; left blank it is all defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    @model_validator(mode="before")
    @classmethod
    def _blank(cls, data: object) -> object:
        return {} if data is None else data


class Root(Block):
    """A directory in which capsules are looked for."""

    path: v.Path = Field(description="A directory that holds capsule directories, or is one.")
    workspace: v.Workspace = _key(
        ".", "The capsule's workspace, relative to its directory; {id} and {session_id} may be used."
    )
    depth: v.Depth = _key(1, "Levels below the root in which capsules are looked for.")


class Listen(Block):
    """The capsules' own ports."""

    hosts: v.Hosts = _key(
        ("127.0.0.1",), "Host or address to listen on, or a list of them.", written="127.0.0.1", alias="host"
    )
    ports: v.Ports = _key(
        quantities.PortRange(24000, 31999), "Ports to choose from, both ends included.", written="24000-31999"
    )
    advertise: v.AdvertisedHost = _key("localhost", "The host that cards name.")
    internal_port: v.Flag = _key(
        default=False,
        description="Take the manifest's network.internal_port, the capsule's own runtime permitting.",
    )
    allowed_hosts: tuple[v.AllowedHost, ...] = _key(
        (), "Further values of the Host header that are let in.", written=[]
    )
    allowed_origins: tuple[v.Origin, ...] = _key(
        (), "Further values of the Origin header that are let in.", written=[]
    )


class Desk(Block):
    """The one listener for the registry as a whole."""

    host: v.Host = _key("127.0.0.1", "Host or address to listen on.")
    port: v.PortOrAny = _key(7410, "Port to listen on; 0 takes a free one, and run.json says which.")
    auth: Literal["token", "none"] = _key(
        "token", "Who may use what is the operator's: token holders, or anyone."
    )
    metrics: Literal["open", "token"] = _key("open", "Who may read /metrics.")
    allowed_hosts: tuple[v.AllowedHost, ...] = _key(
        (), "Further values of the Host header that are let in.", written=[]
    )


class Watch(Block):
    """How changes on disk are found."""

    tick: v.SomeSeconds = _duration("2s", "Time between two looks at everything, whatever the hints say.")
    settle: v.Seconds = _duration("40ms", "A file is read once it has been still for so long.")
    grace: v.Seconds = _duration(
        "2s", "A manifest that is gone is served for so long; it may be coming back."
    )
    force_tick: v.Flag = _key(default=False, description="No inotify, the tick alone.")


class Tasks(Block):
    """How many tasks run, and what is kept of them."""

    concurrency: v.Count = _key(1, "Tasks that run at once, per capsule.")
    keep_events: v.Count = _key(100_000, "Events kept for replay, per session.")
    keep_tasks: v.Seconds = _duration("30d", "Ended tasks are kept for so long.")
    forget: v.Seconds = _duration(
        "24h", "Session, id, port and tasks of a capsule that is gone are kept for so long."
    )


class Log(Block):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = _key(
        "info", "The least important lines that are logged."
    )
    format: Literal["auto", "console", "json"] = _key(
        "auto", "For people or for machines; auto: console on a terminal, JSON elsewhere."
    )


class Limits(Block):
    """What a file or a client may cost. The last three are per capsule."""

    manifest: v.FileSize = _size("128KiB", "Largest manifest.")
    body: v.BodySize = _size("1MiB", "Largest request body.")
    idle: v.SomeSeconds = _duration("75s", "A connection without a request is closed after so long.")
    body_timeout: v.SomeSeconds = _duration("15s", "A request body must arrive within this time.")
    drain: v.Seconds = _duration("8s", "Stopping takes at most so long.")
    connections: v.Count = _key(2048, "Connections, per capsule.")
    streams: v.Count = _key(2048, "Open streams, per capsule.")
    tasks: v.Count = _key(1000, "Live tasks, waiting for input included, per capsule.")


class Heartbeat(Block):
    """How often an idle stream shows that it is alive."""

    murmur: v.SomeSeconds = _duration("15s", "On the murmur door's streams.")


class CapsuleConfig(Block):
    """Settings of one capsule, by its id; null leaves the general one."""

    path: v.Path | None = _key(
        None, "Ties these settings to one directory; null: whatever directory has the id."
    )
    port: v.Port | None = _key(
        None, "The port to listen on; null: the remembered one, or one of listen.ports."
    )
    card: Literal["full", "reference"] | None = _key(None, "What the card carries; null: as `card` says.")
    workspace: v.Workspace | None = _key(None, "The workspace; null: as the root says.")
    concurrency: v.Count | None = _key(None, "Tasks that run at once; null: as tasks.concurrency says.")
    containment: Containment | None = _key(
        None, "How strictly links are treated; null: as the manifest says."
    )
    cross_mounts: v.Flag = _key(
        default=False, description="Whether planes may cross mount points below an export root."
    )
    input_modes: v.MediaTypes = _key(
        ("text/plain",), "Media types of messages that the capsule understands.", written=["text/plain"]
    )
    disabled: v.Flag = _key(default=False, description="List the capsule, but do not serve it.")


NO_SETTINGS: Final = CapsuleConfig()


def _frozen(capsules: Mapping[str, CapsuleConfig]) -> Mapping[str, CapsuleConfig]:
    return MappingProxyType(dict(capsules))


def _filled(roots: tuple[Root, ...]) -> tuple[Root, ...]:
    if not roots:
        raise v.not_allowed("is empty; name at least one root, such as `- path: ./capsules`")
    return roots


class Keys(Block):
    """Everything that the file may say."""

    roots: Annotated[tuple[Root, ...], AfterValidator(_filled)] = Field(
        (Root(path=DEFAULT_ROOT),),
        description="Where capsules are looked for.",
        json_schema_extra={"default": [{"path": DEFAULT_ROOT}], "minItems": 1},
    )
    listen: Listen = _key(Listen(), "The capsules' own ports.", written={})
    desk: Desk = _key(Desk(), "The one listener for the registry as a whole.", written={})
    state: v.Path | None = _key(
        None,
        "The state directory; null: $STATE_DIRECTORY, else $XDG_STATE_HOME/sidecar, else ~/.local/state/sidecar.",
    )
    watch: Watch = _key(Watch(), "How changes on disk are found.", written={})
    card: Literal["full", "reference"] = _key(
        "full", "full: the reference's keys and the A2A ones; reference: the reference's alone."
    )
    tasks: Tasks = _key(Tasks(), "How many tasks run, and what is kept of them.", written={})
    log: Log = _key(Log(), "What is logged, and how.", written={})
    limits: Limits = _key(Limits(), "What a file or a client may cost.", written={})
    heartbeat: Heartbeat = _key(Heartbeat(), "How often an idle stream shows that it is alive.", written={})
    capsules: Annotated[
        Mapping[v.CapsuleId, CapsuleConfig],
        BeforeValidator(lambda value: {} if value is None else value),
        AfterValidator(_frozen),
    ] = Field(
        default_factory=lambda: MappingProxyType({}),
        description="Settings by capsule id.",
        json_schema_extra={"default": {}},
    )


class Config(Keys):
    """The configuration in force.

    `source` is the absolute path of its file, None where there is none. `warnings` do not stand in its way.
    """

    source: str | None = None
    warnings: tuple[Problem, ...] = ()

    @cached_property
    def _root_of(self) -> Mapping[str, Root]:
        return {root.path: root for root in reversed(self.roots)}

    def settings_for(self, capsule_id: str, directory: str) -> Settings:
        """Return what holds for the capsule of this id in this directory (absolute path).

        The capsule's own keys win over the general ones. They are left aside where `capsules.<id>.path` names
        another directory. The workspace is that of the innermost root that the directory lies in, or is.
        """
        own = self.capsules.get(capsule_id)
        if own is None or (own.path is not None and not _same(own.path, directory)):
            own = NO_SETTINGS
        return Settings(
            workspace=own.workspace if own.workspace is not None else self._workspace_at(directory),
            hosts=self.listen.hosts,
            advertise=self.listen.advertise,
            port=own.port,
            internal_port=self.listen.internal_port,
            card=own.card or self.card,
            concurrency=own.concurrency if own.concurrency is not None else self.tasks.concurrency,
            input_modes=own.input_modes,
            containment=own.containment,
            cross_mounts=own.cross_mounts,
            disabled=own.disabled,
            tasks=self.limits.tasks,
            streams=self.limits.streams,
            heartbeat=self.heartbeat.murmur,
        )

    def _workspace_at(self, directory: str) -> str:
        at = os.path.normpath(directory)
        while (root := self._root_of.get(at)) is None:
            above = os.path.dirname(at)  # noqa: PTH120 - text, kept as such
            if above == at:
                return "."
            at = above
        return root.workspace


def _same(configured: str, directory: str) -> bool:
    """Whether both name one directory, also where one of them leads through links."""
    if configured == os.path.normpath(directory):
        return True
    return os.path.realpath(configured) == os.path.realpath(directory)


class _Generator(GenerateJsonSchema):
    """Leaves defaults to the keys, which give them as a file writes them."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the configuration file, for editors."""
    schema = Keys.model_json_schema(by_alias=True, schema_generator=_Generator)
    head = {"$schema": _Generator.schema_dialect, "title": "Configuration of sidecar"}
    return head | {name: value for name, value in schema.items() if name not in head}
