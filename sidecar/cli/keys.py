"""`sidecar keys`: agent keys, which clients of a capsule show."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sidecar.cli.client import running_of
from sidecar.cli.output import complain, print_json, print_lines, table
from sidecar.cli.running import call
from sidecar.errors import InputError

if TYPE_CHECKING:
    import argparse


def create(arguments: argparse.Namespace) -> int:
    """Make a key and print its secret, this once."""
    wanted: dict[str, Any] = {"end_users": arguments.end_users, "operator": arguments.operator}
    if arguments.expires is not None:
        wanted["expires"] = _seconds(arguments.expires)
    document = call(running_of(arguments), "POST", _keys(arguments), body=wanted).document()
    _print_secret(document, as_json=arguments.json)
    return 0


def list_(arguments: argparse.Namespace) -> int:
    """Show a capsule's keys, the oldest first."""
    document = call(running_of(arguments), "GET", _keys(arguments)).document()
    if arguments.json:
        print_json(document)
    else:
        rows = [_row(key) for key in document["keys"]]
        print_lines(table(("KEY", "STATE", "FOR", "CREATED", "EXPIRES", "OLD SECRET UNTIL"), rows))
    return 0


def rotate(arguments: argparse.Namespace) -> int:
    """Give a key another secret and print that, this once."""
    overlap = arguments.overlap
    wanted = {} if overlap is None else {"overlap": _hours(overlap)}
    document = call(running_of(arguments), "POST", f"{_key(arguments)}/rotate", body=wanted).document()
    _print_secret(document, as_json=arguments.json)
    return 0


def revoke(arguments: argparse.Namespace) -> int:
    """End a key now."""
    path = f"{_key(arguments)}?forget=true" if arguments.forget else _key(arguments)
    document = call(running_of(arguments), "DELETE", path).document()
    if arguments.json:
        print_json(document)
    else:
        print_lines([f"{'forgot' if arguments.forget else 'revoked'} {document['key_id']}"])
    return 0


def _keys(arguments: argparse.Namespace) -> str:
    return f"/api/capsules/{quote(arguments.capsule, safe='~')}/keys"


def _key(arguments: argparse.Namespace) -> str:
    if not arguments.key:
        raise InputError("name the key: sidecar keys list ID shows them")
    return f"{_keys(arguments)}/{quote(arguments.key, safe='')}"


def _seconds(text: str) -> int:
    from sidecar.config.quantities import parse_duration

    try:
        found = int(parse_duration(text, "d"))
    except ValueError as error:
        raise InputError(f"--expires: {error}") from None
    if found < 1:
        raise InputError("--expires: a key lives for a second at least")
    return found


def _hours(text: str) -> float:
    from sidecar.auth.keys import LONGEST_OVERLAP

    try:
        found = int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise InputError(f"--overlap: {text!r} is no number of hours") from None
    if not 0 <= found <= LONGEST_OVERLAP:
        raise InputError(f"--overlap: {text} hours are not within 0 to {LONGEST_OVERLAP}")
    return found


def _print_secret(document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
        return
    lines = [f"key      {document['key']}", f"id       {document['key_id']}"]
    if document["expires_at"] is not None:
        lines.append(f"expires  {_moment(document['expires_at'])}")
    if document["rotated_until"] is not None:
        lines.append(f"the secret before it is good until {_moment(document['rotated_until'])}")
    print_lines(lines)
    complain("keep the key now: it is not shown again, only its hash is stored")


def _row(key: dict[str, Any]) -> tuple[str, ...]:
    uses = [name for name in ("operator", "end_users") if key[name]]
    times = (_moment(key[name]) for name in ("created_at", "expires_at", "rotated_until"))
    return key["key_id"], key["state"], ", ".join(uses).replace("_", "-") or "-", *times


def _moment(at: float | None) -> str:
    return "-" if at is None else datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
