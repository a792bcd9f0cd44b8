"""The keys of the configuration file, with their defaults, and the configuration as the other parts see it.

Durations are seconds and sizes bytes here; every path is absolute once it was loaded.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Final, Literal

from sidecar.config import values as v
from sidecar.config.backends import CapsuleConfig, Command, Inbox
from sidecar.config.blocks import Block, Desk, Heartbeat, Limits, Listen, Log, Root, Tasks, Traces, Watch
from sidecar.config.credentials import Auth, general_auth, members_of
from sidecar.config.effective import backend_of, command_of, forward_of, names_command
from sidecar.config.pairs import Pairs
from sidecar.errors import Problem, Severity
from sidecar.model import AuthSettings, InboxSettings, Settings
from sidecar.shapes import After, Before, Schema, key
from sidecar.yamlfile import dotted

DEFAULT_ROOT: Final = "./capsules"
NOWHERE: Final = "."
"""The workspace of a capsule that lies below no root."""
NO_SETTINGS: Final = CapsuleConfig()


def _frozen(capsules: Mapping[str, CapsuleConfig]) -> Mapping[str, CapsuleConfig]:
    return MappingProxyType(dict(capsules))


def _filled(roots: tuple[Root, ...]) -> tuple[Root, ...]:
    if not roots:
        raise v.not_allowed("is empty; name at least one root, such as `- path: ./capsules`")
    return roots


class Keys(Block):
    """Everything that the file may say."""

    roots: Annotated[tuple[Root, ...], After(_filled), Schema({"minItems": 1})] = key(
        (Root(path=DEFAULT_ROOT),), "Where capsules are looked for.", written=[{"path": DEFAULT_ROOT}]
    )
    listen: Listen = key(Listen(), "The capsules' own ports.", written={})
    desk: Desk = key(Desk(), "The one listener for the registry as a whole.", written={})
    state: v.Path | None = key(
        None,
        "The state directory; null: $STATE_DIRECTORY, else $XDG_STATE_HOME/sidecar, else ~/.local/state/sidecar.",
    )
    watch: Watch = key(Watch(), "How changes on disk are found.", written={})
    card: Literal["full", "reference"] = key(
        "full", "full: the reference's keys and the A2A ones; reference: the reference's alone."
    )
    backend: Literal["inbox", "command", "forward"] = key(
        "inbox", "Who does the work of capsules that do not say so themselves."
    )
    inbox: Inbox = key(Inbox(), "How workers take tasks from the inbox.", written={})
    command: Command = key(Command(), "The program that does the tasks under `backend: command`.", written={})
    tasks: Tasks = key(Tasks(), "How many tasks run, and what is kept of them.", written={})
    auth: Auth = key(
        Auth(), "Credentials. A secret is never a literal: {env: NAME} or {file: PATH}.", written={}
    )
    log: Log = key(Log(), "What is logged, and how.", written={})
    traces: Traces = key(Traces(), "Whether what is done is told to a collector.", written={})
    limits: Limits = key(Limits(), "What a file or a client may cost.", written={})
    heartbeat: Heartbeat = key(Heartbeat(), "How often an idle stream shows that it is alive.", written={})
    capsules: Annotated[
        Mapping[v.CapsuleId, CapsuleConfig],
        Before(lambda value: {} if value is None else value),
        After(_frozen),
    ] = key(MappingProxyType({}), "Settings by capsule id.", written={})


class Places:
    """Where roots and settings of capsules were written. All are equal: a line that moved is no other configuration."""

    __slots__ = ("_at",)

    def __init__(self, at: Mapping[tuple[str | int, ...], Problem] = MappingProxyType({})) -> None:
        self._at = at

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Places()"

    def problem(self, path: tuple[str | int, ...], code: str, message: str) -> Problem | None:
        """Return a problem or, by its code, a warning at a place; None where it was written nowhere."""
        at = self._at.get(path)
        severity = Severity.WARNING if code.startswith("W") else Severity.ERROR
        return None if at is None else replace(at, code=code, message=message, severity=severity)


class Config(Keys):
    """The configuration in force.

    `source` is the absolute path of its file, None where there is none. `warnings` do not stand in its way.
    `places` is where what it says of roots and capsules stands, `pairs` the certificates that it names.
    """

    source: str | None = None
    warnings: tuple[Problem, ...] = ()
    places: Places = Places()
    pairs: Pairs = Pairs()

    def problem_at(self, path: tuple[str | int, ...], code: str, message: str) -> Problem:
        """Return a problem or, by its code, a warning at `("roots", n, "path")` or `("capsules", id)`."""
        found = self.places.problem(path, code, message)
        if found is None:
            severity = Severity.WARNING if code.startswith("W") else Severity.ERROR
            found = Problem(self.source or "configuration", 0, 0, code, dotted(path), message, severity)
        return found

    @property
    def guarded(self) -> tuple[str, ...]:
        """The files that no export may reach: its own, and the keys of certificates."""
        return (*((self.source,) if self.source is not None else ()), *self.pairs.keys)

    @cached_property
    def channels(self) -> Mapping[str, str]:
        """The ids of the capsules that are given channel ids, by those."""
        return {own.channel_id: name for name, own in self.capsules.items() if own.channel_id is not None}

    @cached_property
    def agent_codes(self) -> Mapping[tuple[str, str], str]:
        """The ids of the capsules that are given codes, by workspace and code."""
        return {
            (own.moi_workspace, own.agent_code): name
            for name, own in self.capsules.items()
            if own.agent_code is not None
        }

    @cached_property
    def moi_workspaces(self) -> frozenset[str]:
        """The workspaces that capsules are in."""
        return frozenset({NO_SETTINGS.moi_workspace, *(own.moi_workspace for own in self.capsules.values())})

    @cached_property
    def all_auth(self) -> AuthSettings:
        """The providers of all capsules, and the tokens that some of them take."""
        return replace(general_auth(self.auth, None), personal_tokens=members_of(self.auth))

    @cached_property
    def a2a_ports(self) -> frozenset[int]:
        """The second ports that capsules are given: nothing else is to be listened for there."""
        return frozenset(own.a2a_port for own in self.capsules.values() if own.a2a_port is not None)

    @cached_property
    def untied_commands(self) -> frozenset[str]:
        """The ids whose command `capsules.<id>` names without saying for which directory."""
        return frozenset(
            capsule_id
            for capsule_id, own in self.capsules.items()
            if own.path is None and not own.disabled and names_command(self.backend, own)
        )

    @cached_property
    def _root_of(self) -> Mapping[str, Root]:
        return {root.path: root for root in reversed(self.roots)}

    @cached_property
    def _general(self) -> Mapping[str, Settings]:
        """What holds for the capsules without settings of their own, by workspace: one object for all of them."""
        workspaces = {NOWHERE, *(root.workspace for root in self.roots)}
        inbox = InboxSettings(self.inbox.lease, self.inbox.attempts)
        auth = general_auth(self.auth, self.limits.rate)
        return {
            workspace: Settings(
                workspace=workspace,
                hosts=self.listen.hosts,
                advertise=self.listen.advertise,
                public_url=self.listen.public_url,
                tls=self.listen.tls is not None,
                internal_port=self.listen.internal_port,
                card=self.card,
                concurrency=self.tasks.concurrency,
                input_modes=NO_SETTINGS.input_modes,
                tasks=self.limits.tasks,
                streams=self.limits.streams,
                heartbeat=self.heartbeat.murmur,
                heartbeat_a2a=self.heartbeat.a2a,
                blocking_send=self.limits.blocking_send,
                backend=self.backend,
                inbox=inbox,
                command=command_of(self.backend, self.command),
                on_restart=self.tasks.on_restart,
                stop_grace=self.limits.stop_grace,
                auth=auth,
            )
            for workspace in workspaces
        }

    def settings_for(self, capsule_id: str, directory: str) -> Settings:
        """Return what holds for the capsule of this id in this directory (absolute path).

        The capsule's own keys win over the general ones. They are left aside where `capsules.<id>.path` names
        another directory. The workspace is that of the innermost root that the directory lies in, or is. Capsules
        without keys of their own share one object.
        """
        general = self._general[self._workspace_at(directory)]
        own = self.capsules.get(capsule_id)
        if own is None or (own.path is not None and not _same(own.path, directory)):
            return general
        backend = backend_of(self.backend, own)
        return replace(
            general,
            workspace=own.workspace if own.workspace is not None else general.workspace,
            port=own.port,
            a2a_port=own.a2a_port,
            channel_id=own.channel_id,
            conversation_starters=own.conversation_starters,
            agent_code=own.agent_code,
            moi_workspace=own.moi_workspace,
            card=own.card or general.card,
            concurrency=own.concurrency if own.concurrency is not None else general.concurrency,
            input_modes=own.input_modes,
            containment=own.containment,
            cross_mounts=own.cross_mounts,
            disabled=own.disabled,
            backend=backend,
            command=command_of(backend, self.command, own.command),
            forward=forward_of(own) if backend == "forward" else None,
            auth=replace(
                general.auth,
                door=own.door,
                personal_tokens=members_of(self.auth) if own.members else None,
            ),
        )

    def _workspace_at(self, directory: str) -> str:
        at = os.path.normpath(directory)
        while (root := self._root_of.get(at)) is None:
            above = os.path.dirname(at)  # noqa: PTH120 - text, kept as such
            if above == at:
                return NOWHERE
            at = above
        return root.workspace


def _same(configured: str, directory: str) -> bool:
    """Whether both name one directory, also where one of them leads through links."""
    if configured == os.path.normpath(directory):
        return True
    return os.path.realpath(configured) == os.path.realpath(directory)
