"""The configuration: `config.yaml`, environment and flags → `Config`. This is what other parts import."""

from sidecar.config.backends import CapsuleConfig, Command, Forward, Inbox, OwnCommand
from sidecar.config.blocks import Desk, Heartbeat, Limits, Listen, Log, Root, Tasks, Watch
from sidecar.config.credentials import Auth, MoiKeyEntry, PersonalTokenEntry, Provider
from sidecar.config.loading import Flags, build, ephemeral_ports, load, state_of
from sidecar.config.quantities import PortRange
from sidecar.config.schema import Config

__all__ = [
    "Auth",
    "CapsuleConfig",
    "Command",
    "Config",
    "Desk",
    "Flags",
    "Forward",
    "Heartbeat",
    "Inbox",
    "Limits",
    "Listen",
    "Log",
    "MoiKeyEntry",
    "OwnCommand",
    "PersonalTokenEntry",
    "PortRange",
    "Provider",
    "Root",
    "Tasks",
    "Watch",
    "build",
    "ephemeral_ports",
    "load",
    "state_of",
]
