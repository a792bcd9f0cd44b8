"""`sidecar share`: handles that open one file for one reader."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sidecar.cli.client import running_of
from sidecar.cli.output import print_json, print_lines, table
from sidecar.cli.running import call
from sidecar.errors import InputError

if TYPE_CHECKING:
    import argparse


def share(arguments: argparse.Namespace) -> int:
    """Make a handle and print it, or list a capsule's handles, or revoke one."""
    running, at = running_of(arguments), f"/api/capsules/{quote(arguments.capsule, safe='~')}/handles"
    wanted = _wanted(arguments)
    if arguments.list:
        document = call(running, "GET", at).document()
        _print(document, _rows(document["handles"]), as_json=arguments.json)
    elif arguments.revoke is not None:
        document = call(running, "DELETE", f"{at}/{quote(arguments.revoke, safe='')}").document()
        _print(document, [f"revoked {document['handle_id']}"], as_json=arguments.json)
    else:
        document = call(running, "POST", at, body=wanted).document()
        _print(document, _minted(document), as_json=arguments.json)
    return 0


def _wanted(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the wish for a handle; raises InputError where the arguments do not go together."""
    others = [name for name in ("path", "audience", "ttl") if getattr(arguments, name) is not None]
    if arguments.list or arguments.revoke is not None:
        if others or (arguments.list and arguments.revoke is not None):
            raise InputError("--list and --revoke each stand alone: without PATH, --audience and --ttl")
        return {}
    if arguments.path is None or arguments.audience is None:
        raise InputError("say what is shared, and with whom: sidecar share ID PATH --audience NAME@HOST:PORT")
    wanted = {"path": arguments.path, "audience": arguments.audience}
    return wanted if arguments.ttl is None else {**wanted, "ttl": seconds(arguments.ttl)}


def seconds(text: str) -> int:
    """Return a time to live in whole seconds, from `90s` or `15m`; raises InputError."""
    from sidecar.config.quantities import parse_duration

    try:
        found = int(parse_duration(text))
    except ValueError as error:
        raise InputError(f"--ttl: {error}") from None
    if found < 1:
        raise InputError("--ttl: a handle lives for a second at least")
    return found


def _minted(document: dict[str, Any]) -> list[str]:
    return [
        f"handle    {document['handle']}",
        f"id        {document['handle_id']}",
        f"audience  {document['audience']}",
        f"expires   {_moment(document['expires_at_ms'])}",
    ]


def _rows(handles: list[dict[str, Any]]) -> list[str]:
    rows = [
        (h["handle_id"], _state(h), _moment(h["expires_at_ms"]), h["audience"], h["path"]) for h in handles
    ]
    return table(("HANDLE", "STATE", "EXPIRES", "AUDIENCE", "PATH"), rows)


def _state(handle: dict[str, Any]) -> str:
    if handle["revoked"]:
        return "revoked"
    return "valid" if handle["expires_at_ms"] > time.time() * 1000 else "expired"


def _moment(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"  # later than the calendar goes


def _print(document: dict[str, Any], lines: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        print_lines(lines)
