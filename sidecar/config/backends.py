"""The blocks that say who does the capsules' work, and the settings of one capsule, which may say it for itself."""

from __future__ import annotations

from typing import Literal

from sidecar.config import backend_values as b
from sidecar.config import values as v
from sidecar.config.blocks import Block, duration, size
from sidecar.model import Containment
from sidecar.shapes import key


class Inbox(Block):
    """How workers take tasks from the inbox."""

    lease: v.SomeSeconds = duration("30s", "A worker that says nothing for so long has lost its task.")
    attempts: v.Count = key(3, "So many workers may lose a task before it fails.")


class Command(Block):
    """The program that does the tasks: one process per task, in the workspace."""

    argv: b.Argv | None = key(
        None, "The program and its arguments, as they stand; {dir} is the capsule's directory."
    )
    protocol: Literal["text", "jsonl"] = key(
        "text", "text: the message on stdin, the reply on stdout; jsonl: one JSON object a line."
    )
    timeout: v.SomeSeconds | None = key(None, "A task may take so long; null: for ever.")
    output: v.BodySize = size("16MiB", "A task may say so much.")
    env: b.Variables = key((), "Variables of the sidecar's environment that are passed on.", written=[])


class OwnCommand(Block):
    """What differs from the general `command` for one capsule; null leaves what is said there."""

    argv: b.Argv | None = key(None, "The program and its arguments; null: as command.argv says.")
    protocol: Literal["text", "jsonl"] | None = key(None, "null: as command.protocol says.")
    timeout: v.SomeSeconds | None = key(None, "null: as command.timeout says.")
    output: v.BodySize | None = key(None, "null: as command.output says.")
    env: b.Variables | None = key(None, "null: as command.env says.")


class Forward(Block):
    """The live door elsewhere that does the tasks: a murmur runtime, or an agent that speaks A2A."""

    url: b.Url | None = key(None, "Where it is.")
    discover: v.Flag = key(
        default=False, description="Instead of a url: find it among the live capsules of this host."
    )
    token: b.MaybeSecret = key(None, "The Bearer token to send there: {env: NAME} or {file: PATH}.")
    planes: Literal["workspace", "forward"] = key(
        "workspace", "Where plane reads are answered from: the workspace here, or the door there."
    )


class CapsuleConfig(Block):
    """Settings of one capsule, by its id; null leaves the general one."""

    path: v.Path | None = key(
        None,
        "Ties these settings to one directory, as a command must be where several carry one name; "
        "null: whatever directory has the id.",
    )
    port: v.Port | None = key(
        None, "The port to listen on; null: the remembered one, or one of listen.ports."
    )
    a2a_port: v.Port | None = key(
        None, "A second port that serves A2A at its root, for clients that look nowhere else; null: none."
    )
    card: Literal["full", "reference"] | None = key(None, "What the card carries; null: as `card` says.")
    workspace: v.Workspace | None = key(None, "The workspace; null: as the root says.")
    concurrency: v.Count | None = key(None, "Tasks that run at once; null: as tasks.concurrency says.")
    backend: Literal["inbox", "command", "forward"] | None = key(
        None, "Who does the work; null: as `backend` says."
    )
    command: OwnCommand = key(OwnCommand(), "What differs from the general `command`.", written={})
    forward: Forward = key(Forward(), "Where the work is done under `backend: forward`.", written={})
    containment: Containment | None = key(None, "How strictly links are treated; null: as the manifest says.")
    cross_mounts: v.Flag = key(
        default=False, description="Whether planes may cross mount points below an export root."
    )
    input_modes: v.MediaTypes = key(
        ("text/plain",), "Media types of messages that the capsule understands.", written=["text/plain"]
    )
    channel_id: v.ChannelId | None = key(
        None, "The id by which Everruns clients know the capsule; null: its own id."
    )
    conversation_starters: v.Prompts = key(
        (), "Prompts that Everruns clients may offer to begin with.", written=[]
    )
    agent_code: v.AgentCode | None = key(
        None, "The code by which MOI clients may ask for the capsule; null: by its id alone."
    )
    moi_workspace: v.Name = key("system", "The MOI workspace that sees the capsule; system: all of them do.")
    door: Literal["auto", "open", "authenticated"] = key(
        "auto",
        "Who may use POST / and the files: anyone, or the admin token and the operator's keys; "
        "auto: anyone until the capsule has credentials.",
    )
    members: v.Flag = key(default=False, description="Whether it takes auth.personal_tokens.")
    disabled: v.Flag = key(default=False, description="List the capsule, but do not serve it.")
