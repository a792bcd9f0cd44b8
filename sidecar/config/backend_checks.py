"""What the keys about backends say about each other: a program or a door that is missing, or that nobody asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from sidecar.config.checks import CONTRADICTION, Finding
from sidecar.config.effective import NOTHING_OWN, NOWHERE, backend_of
from sidecar.config.hosts import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.config.backends import CapsuleConfig, Forward
    from sidecar.config.schema import Keys

UNUSED: Final = "W-CFG-010"
OVERHEARD: Final = "W-CFG-011"


def backend_findings(keys: Keys) -> Iterator[Finding]:
    """Yield everything that is odd about who does the work."""
    command = keys.command.argv is not None
    if keys.backend == "forward":
        message = (
            "forward is for single capsules, each with its own door elsewhere: "
            "set backend and forward below capsules.<id>"
        )
        yield Finding(("backend",), CONTRADICTION, message)
    if keys.backend == "command" and not command:
        message = (
            "command needs a program: set command.argv, such as [python3, agent.py]; "
            "where only some capsules have one, set backend below capsules.<id> instead"
        )
        yield Finding(("backend",), CONTRADICTION, message)
    backends = {keys.backend, *(own.backend for own in keys.capsules.values())}
    if command and "command" not in backends:
        yield Finding(("command", "argv"), UNUSED, "is not used: set `backend: command`")
    for capsule_id, own in keys.capsules.items():
        yield from _of_capsule(keys, capsule_id, own)


def replaced_by_flag(keys: Keys) -> Iterator[Finding]:
    """Yield what the command line's `--command` takes the place of."""
    for capsule_id, own in keys.capsules.items():
        if own.backend is not None:
            yield Finding(("capsules", capsule_id, "backend"), UNUSED, "is not used: --command is for all")


def _of_capsule(keys: Keys, capsule_id: str, own: CapsuleConfig) -> Iterator[Finding]:
    backend, key = backend_of(keys.backend, own), f"capsules.{capsule_id}"
    place = ("capsules", capsule_id)
    if own.backend == "command" and own.command.argv is None and keys.command.argv is None:
        message = f"command needs a program: set {key}.command.argv, such as [python3, agent.py]"
        yield Finding((*place, "backend"), CONTRADICTION, message)
    if backend != "command" and own.command != NOTHING_OWN:
        message = f"is not used: the backend is {backend}; set {key}.backend to command"
        yield Finding((*place, "command"), UNUSED, message)
    if own.backend == "forward":
        yield from _forward(key, (*place, "forward"), own.forward)
    elif own.forward != NOWHERE:
        message = f"is not used: the backend is {backend}; set {key}.backend to forward"
        yield Finding((*place, "forward"), UNUSED, message)


def _forward(key: str, place: tuple[str, ...], there: Forward) -> Iterator[Finding]:
    if there.url is None and not there.discover:
        message = f"forward needs to know where: set {key}.forward.url, or {key}.forward.discover to true"
        yield Finding((*place[:-1], "backend"), CONTRADICTION, message)
    if there.url is None:
        return
    if there.discover:
        yield Finding(
            (*place, "discover"), CONTRADICTION, "says to look for it beside a url: keep one of the two"
        )
    parts = urlsplit(there.url)
    if there.token is not None and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        message = f"whoever is on the way to {parts.netloc} can read the token; write https://"
        yield Finding((*place, "url"), OVERHEARD, message)
