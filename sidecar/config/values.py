"""The types of the configuration's values: how each is checked, and how the JSON Schema describes it.

Values from a file are checked by their YAML type. `Given` text, from the environment or the command line, is still
to be typed: `7410` is a number and `true` a flag there. Code that builds a configuration itself passes plain Python
values (seconds, bytes, absolute paths), which are not read at all.
"""

from __future__ import annotations

import os.path
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from sidecar.config import hosts, quantities
from sidecar.config.quantities import LAST_PORT, PortRange, quoted
from sidecar.model import Rate
from sidecar.shapes import After, Before, Plain, Schema, UnfitError
from sidecar.words import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WRONG_TYPE: Final = "wrong_type"
WITHOUT_UNIT: Final = "a duration with its unit"
NOT_ALLOWED: Final = "not_allowed"
MOST: Final = 1_000_000_000
"""The largest count: it fits wherever numbers are kept."""
DEEPEST: Final = 64
FLAGS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NAMED: Final = "a host name or address"
PLACEHOLDERS: Final = ("id", "session_id")

_DIGITS: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})", re.ASCII)
_ID: Final = re.compile(r"[a-z0-9._~-]{1,129}", re.ASCII)
_CHANNEL: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._~-]{1,129}", re.ASCII)
_NAME: Final = re.compile("[A-Za-z0-9._@-]{1,128}", re.ASCII)
_MEDIA_TYPE: Final = re.compile(r"\*/\*|[\w!#$&^.+-]{1,127}/[\w!#$&^.+*-]{1,127}", re.ASCII)
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


class Given(str):
    """Text from the environment or the command line: not typed yet; its relative paths start at the cwd."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Bases:
    """Where relative paths start: those of the file, those of flags and environment; and what `~` means.

    `environ` is where secrets are looked up; `files` keeps what those in files are, or why they cannot be read.
    """

    file: str
    outside: str
    home: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    files: dict[str, bytes | str] = field(default_factory=dict)


def wrong_type(expected: str, *, text: bool = False) -> UnfitError:
    """Return the error of a value of another type than the key has; `text` where quoting may mend it."""
    return UnfitError(WRONG_TYPE, expected=expected, text=text)


def not_allowed(text: str) -> UnfitError:
    """Return the error of a value of the right type that cannot be used."""
    return UnfitError(NOT_ALLOWED, text=text)


def _text(value: object, expected: str, *, quotable: bool = True) -> str:
    if not isinstance(value, str):
        raise wrong_type(expected, text=quotable)
    if "\0" in value:
        raise not_allowed("holds a NUL character")
    return str(value)


def text(parse: Callable[[str], Any], expected: str, *, quotable: bool = True) -> Callable[[object], Any]:
    """Make the reader of a text from a parser that raises ValueError; `quotable` where quotes may mend a wrong type."""

    def read(value: object) -> Any:
        try:
            return parse(_text(value, expected, quotable=quotable))
        except UnfitError:
            raise
        except ValueError as error:
            raise not_allowed(str(error)) from None

    return read


def duration(least: float = 0.0, unit: str = "s") -> Callable[[Any], float]:
    """Make the reader of a duration of at least so many seconds; a number without a unit is told to have this one."""
    parse = text(
        lambda written: quantities.parse_duration(written, unit),
        f"a duration, such as 2{unit}",
        quotable=False,
    )

    def read(value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise wrong_type(f"{WITHOUT_UNIT}; write {value}{unit}")
        seconds = float(parse(value))
        if seconds < least:
            raise not_allowed(f"must be at least {quantities.written_duration(least)}")
        return seconds

    return read


def size(most: str) -> Callable[[object], int]:
    """Make the reader of a size from one byte to so much; a plain number is bytes."""
    parse = text(quantities.parse_size, "a size, such as 1MiB", quotable=False)

    def read(value: object) -> int:
        number = value if isinstance(value, int) and not isinstance(value, bool) else parse(value)
        if not 1 <= number <= quantities.parse_size(most):
            raise not_allowed(f"must be from one byte to {most}")
        return int(number)

    return read


def whole(least: int, most: int) -> Callable[[object], int]:
    """Make the reader of a whole number within bounds."""

    def read(value: object) -> int:
        if isinstance(value, Given) and _DIGITS.fullmatch(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong_type("a whole number")
        if not least <= value <= most:
            raise not_allowed(f"must be from {least} to {most}")
        return value

    return read


def flag(value: object) -> bool:
    """Read `true` or `false`."""
    if isinstance(value, Given):
        value = FLAGS.get(value.lower(), value)
    if not isinstance(value, bool):
        raise wrong_type("true or false")
    return value


def port_range(value: object) -> PortRange:
    """Read `24000-31999`, or one port."""
    written = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    found: PortRange = text(quantities.parse_ports, "a range of ports, such as 24000-31999")(written)
    return found


def rate(value: object) -> Rate:
    """Read a rate, such as `10/s`."""
    found: Rate = text(quantities.parse_rate, "a rate, such as 10/s or 600/m", quotable=False)(value)
    return found


def path(value: object, bases: Bases) -> str:
    """Read a path: `~` expanded, and made absolute."""
    written = _text(value, "a path")
    if not written.strip():
        raise not_allowed("is blank")
    base = bases.outside if isinstance(value, Given) else bases.file
    return os.path.normpath(os.path.join(base, _expanded(written, bases.home)))  # noqa: PTH118 - text, kept as such


def _expanded(written: str, home: str | None) -> str:
    if not written.startswith("~"):
        return written
    head, slash, rest = written.partition("/")
    found = home if head == "~" and home else os.path.expanduser(head)  # noqa: PTH111 - says nothing where it fails
    if found == head:
        raise not_allowed(f"no home directory is known for {head}; write ./{written} for a file of that name")
    return found + slash + rest


def workspace(value: object, bases: Bases) -> str:
    """Read a workspace: a path relative to the capsule's directory, in which `{id}` and `{session_id}` may stand."""
    written = _text(value, "a path relative to the capsule's directory")
    if not written.strip():
        raise not_allowed("is blank; write . for the capsule's own directory")
    for word in _PLACEHOLDER.findall(written):
        if word not in PLACEHOLDERS:
            near = nearest(word, PLACEHOLDERS)
            hint = f"did you mean {{{near}}}?" if near else "there are {id} and {session_id}"
            raise not_allowed(f"{{{word}}} is unknown; {hint}")
    if set("{}") & set(_PLACEHOLDER.sub("", written)):
        raise not_allowed(f"{quoted(written)} holds an unpaired brace")
    return _expanded(written, bases.home)


def _capsule_id(written: str) -> str:
    if _ID.fullmatch(written):
        return written
    slug = re.sub(r"[^a-z0-9._~-]+", "-", written.lower()).strip("-")[:129]
    hint = f"; did you mean {slug}?" if slug else ""
    raise ValueError(
        f"no capsule has the id {quoted(written)}: 1 to 129 of a-z, 0-9, `.`, `_`, `-`, `~`{hint}"
    )


def _channel_id(written: str) -> str:
    if _CHANNEL.fullmatch(written):
        return written
    raise ValueError(
        f"{quoted(written)} cannot stand in a URL: 1 to 129 of A-Z, a-z, 0-9, `.`, `_`, `-`, `~`"
    )


def _agent_code(written: str) -> str:
    if _CHANNEL.fullmatch(written):
        return written
    raise ValueError(f"{quoted(written)} is no code: 1 to 129 of A-Z, a-z, 0-9, `.`, `_`, `-`, `~`")


def _name(written: str) -> str:
    if _NAME.fullmatch(written) is None:
        raise ValueError(f"{quoted(written)} is no name: 1 to 128 letters, digits, `.`, `_`, `-` and `@`")
    return written


def _some_text(written: str) -> str:
    if not written.strip():
        raise ValueError("is blank")
    return written


def _media_type(written: str) -> str:
    if _MEDIA_TYPE.fullmatch(written) is None:
        raise ValueError(f"{quoted(written)} is no media type; write it like text/plain")
    return written.lower()


def one_or_more(value: object) -> object:
    """Take a single text for a list of one."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple):
        raise wrong_type(f"{_NAMED}, or a list of them", text=True)
    return value


def no_twins(values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a list that names something twice."""
    for index, value in enumerate(values):
        if value in values[:index]:
            raise not_allowed(f"names {value} twice")
    return values


def _filled(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        raise not_allowed("is empty; leave the key out for the default")
    return values


def _integer(least: int, most: int) -> Schema:
    return Schema({"type": "integer", "minimum": least, "maximum": most})


_SOME_TEXT: Final = {"type": "string", "minLength": 1}
_DURATION: Final = Schema({"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"})
_SIZE: Final = Schema({"type": ["string", "integer"], "minimum": 1, "pattern": "^[0-9]+(KiB|MiB|GiB)?$"})
_PORTS: Final = Schema({"type": ["string", "integer"], "pattern": "^[0-9]+(-[0-9]+)?$"})
_HOSTS: Final = Schema(
    {"type": ["string", "array"], "items": _SOME_TEXT, "minLength": 1, "minItems": 1, "uniqueItems": True}
)
_MEDIA_TYPES: Final = Schema({"type": "array", "items": _SOME_TEXT, "minItems": 1, "uniqueItems": True})
_ORIGIN: Final = Schema({"type": "string", "pattern": "^https?://[^/?#@]+$"})
_ID_SCHEMA: Final = Schema({"type": "string", "pattern": "^[a-z0-9._~-]{1,129}$"})

Seconds: TypeAlias = Annotated[float, Plain(duration()), _DURATION]
Milliseconds: TypeAlias = Annotated[float, Plain(duration(unit="ms")), _DURATION]
Hours: TypeAlias = Annotated[float, Plain(duration(unit="h")), _DURATION]
Days: TypeAlias = Annotated[float, Plain(duration(unit="d")), _DURATION]
SomeSeconds: TypeAlias = Annotated[float, Plain(duration(0.01)), _DURATION]
SomeMilliseconds: TypeAlias = Annotated[float, Plain(duration(0.01, unit="ms")), _DURATION]
FileSize: TypeAlias = Annotated[int, Plain(size("64MiB")), _SIZE]
BodySize: TypeAlias = Annotated[int, Plain(size("1GiB")), _SIZE]
Count: TypeAlias = Annotated[int, Plain(whole(1, MOST)), _integer(1, MOST)]
Percent: TypeAlias = Annotated[int, Plain(whole(0, 100)), _integer(0, 100)]
Depth: TypeAlias = Annotated[int, Plain(whole(0, DEEPEST)), _integer(0, DEEPEST)]
Port: TypeAlias = Annotated[int, Plain(whole(1, LAST_PORT)), _integer(1, LAST_PORT)]
PortOrAny: TypeAlias = Annotated[int, Plain(whole(0, LAST_PORT)), _integer(0, LAST_PORT)]
Ports: TypeAlias = Annotated[PortRange, Plain(port_range), _PORTS]
SomeRate: TypeAlias = Annotated[
    Rate, Plain(rate), Schema({"type": "string", "pattern": "^[1-9][0-9]*/[smh]$"})
]
Flag: TypeAlias = Annotated[bool, Plain(flag), Schema({"type": "boolean"})]
Host: TypeAlias = Annotated[str, Plain(text(hosts.parse_host, _NAMED)), Schema(_SOME_TEXT)]
Hosts: TypeAlias = Annotated[tuple[Host, ...], Before(one_or_more), After(_filled), After(no_twins), _HOSTS]
AdvertisedHost: TypeAlias = Annotated[str, Plain(text(hosts.parse_advertised, _NAMED)), Schema(_SOME_TEXT)]
AllowedHost: TypeAlias = Annotated[
    str,
    Plain(text(hosts.parse_allowed, f"{_NAMED}, with or without a port")),
    Schema(_SOME_TEXT),
]
Origin: TypeAlias = Annotated[
    str, Plain(text(hosts.parse_origin, "an origin, such as https://example.org")), _ORIGIN
]
PublicUrl: TypeAlias = Annotated[
    str,
    Plain(text(hosts.parse_public_url, "a URL, such as https://example.org/agents/{id}")),
    Schema({"type": "string", "pattern": "^https?://[^?#]+$"}),
]
BaseUrl: TypeAlias = Annotated[
    str,
    Plain(text(hosts.parse_base_url, "a URL, such as https://example.org")),
    Schema({"type": "string", "pattern": "^https?://[^?#{}]+$"}),
]
Network: TypeAlias = Annotated[
    str,
    Plain(text(hosts.parse_network, "an address or a network, such as 10.0.0.0/8")),
    Schema(_SOME_TEXT),
]
Networks: TypeAlias = Annotated[tuple[Network, ...], After(no_twins)]
Path: TypeAlias = Annotated[str, Plain(path, context=True), Schema(_SOME_TEXT)]
Workspace: TypeAlias = Annotated[str, Plain(workspace, context=True), Schema(_SOME_TEXT)]
CapsuleId: TypeAlias = Annotated[str, Plain(text(_capsule_id, "a capsule's id")), _ID_SCHEMA]
MediaType: TypeAlias = Annotated[
    str, Plain(text(_media_type, "a media type, such as text/plain")), Schema(_SOME_TEXT)
]
MediaTypes: TypeAlias = Annotated[tuple[MediaType, ...], After(_filled), After(no_twins), _MEDIA_TYPES]
ChannelId: TypeAlias = Annotated[
    str,
    Plain(text(_channel_id, "the id of a channel")),
    Schema({"type": "string", "pattern": "^[A-Za-z0-9._~-]{1,129}$"}),
]
AgentCode: TypeAlias = Annotated[
    str,
    Plain(text(_agent_code, "the code of an agent")),
    Schema({"type": "string", "pattern": "^[A-Za-z0-9._~-]{1,129}$"}),
]
Name: TypeAlias = Annotated[
    str,
    Plain(text(_name, "a name")),
    Schema({"type": "string", "minLength": 1, "pattern": f"^{_NAME.pattern}$"}),
]
Prompts: TypeAlias = Annotated[
    tuple[Annotated[str, Plain(text(_some_text, "text")), Schema(_SOME_TEXT)], ...],
    After(no_twins),
    Schema({"type": "array", "items": _SOME_TEXT, "uniqueItems": True}),
]
