"""The configuration: `config.yaml`, environment and flags → `Config`. This is what other parts import."""

from sidecar.config.loading import Flags, build, ephemeral_ports, load
from sidecar.config.quantities import PortRange
from sidecar.config.schema import (
    CapsuleConfig,
    Config,
    Desk,
    Heartbeat,
    Limits,
    Listen,
    Log,
    Root,
    Tasks,
    Watch,
    json_schema,
)

__all__ = [
    "CapsuleConfig",
    "Config",
    "Desk",
    "Flags",
    "Heartbeat",
    "Limits",
    "Listen",
    "Log",
    "PortRange",
    "Root",
    "Tasks",
    "Watch",
    "build",
    "ephemeral_ports",
    "json_schema",
    "load",
]
