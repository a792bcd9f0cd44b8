"""Who does a capsule's work, of what is said for all and what is said for it. Pure."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sidecar.config.backends import Forward, OwnCommand
from sidecar.model import CommandSettings, ForwardSettings

if TYPE_CHECKING:
    from sidecar.config.backends import CapsuleConfig, Command
    from sidecar.config.schema import Keys

NOTHING_OWN: Final = OwnCommand()
NOWHERE: Final = Forward()


def backend_of(general: str, own: CapsuleConfig) -> str:
    """Return the backend of a capsule: `inbox`, `command` or `forward`."""
    return own.backend or general


def names_command(general: str, own: CapsuleConfig) -> bool:
    """Whether a capsule's own settings, and not only the general ones, decide that or which command it gets."""
    return backend_of(general, own) == "command" and (own.backend is not None or own.command != NOTHING_OWN)


def command_of(backend: str, general: Command, own: OwnCommand = NOTHING_OWN) -> CommandSettings | None:
    """Return the program that does a capsule's tasks, None under another backend.

    Each key that is its own wins over the general one.
    """

    def value(name: str) -> Any:
        found = getattr(own, name)
        return getattr(general, name) if found is None else found

    argv = value("argv")
    if backend != "command" or argv is None:
        return None
    return CommandSettings(argv, value("protocol"), value("timeout"), value("output"), value("env"))


def forward_of(own: CapsuleConfig) -> ForwardSettings:
    """Return the live door that does a capsule's tasks."""
    there = own.forward
    return ForwardSettings(there.url, there.discover, there.token, there.planes)


def under_flag(keys: Keys) -> Keys:
    """Return the keys without what single capsules say of backends: the command line's `--command` is for all."""
    capsules = {
        capsule_id: replace(own, backend=None, command=NOTHING_OWN, forward=NOWHERE)
        for capsule_id, own in keys.capsules.items()
    }
    return replace(keys, capsules=MappingProxyType(capsules))
