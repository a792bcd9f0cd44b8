"""The types of values that are about backends: what a command is made of, where a door elsewhere is, secrets.

A secret is never a literal: the file says where it is, and it is read when the configuration is. No message here
repeats what stands in a secret's place.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from sidecar.config import hosts
from sidecar.config.quantities import quoted
from sidecar.config.values import NOT_ALLOWED, Given, no_twins, not_allowed, path, text, wrong_type
from sidecar.errors import unreadable
from sidecar.model import Secret
from sidecar.shapes import After, Before, Plain, Schema, UnfitError

if TYPE_CHECKING:
    from sidecar.config.values import Bases

EXAMPLE: Final = "[python3, agent.py]"
HOW: Final = "{env: NAME} or {file: PATH}"
LONGEST_SECRET: Final = 64 * 1024
PARTS: Final = ("env", "file")
"""The keys of a secret."""

_VARIABLE: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SENDABLE: Final = re.compile("[!-~]+", re.ASCII)


def words(value: object) -> object:
    """Take a list as it is, and split what the command line gives as a shell would."""
    if isinstance(value, Given):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise not_allowed(f"cannot be split as a shell would: {str(error).lower()}") from None
    if not isinstance(value, list | tuple):
        raise wrong_type(f"a list of words: write a list, such as {EXAMPLE}")
    return value


def _program(argv: tuple[str, ...]) -> tuple[str, ...]:
    if not argv:
        raise not_allowed(f"is empty; write the program and its arguments, such as {EXAMPLE}")
    if not argv[0].strip():
        raise not_allowed("names no program: its first word is blank")
    return argv


def _variable(written: str) -> str:
    if _VARIABLE.fullmatch(written) is None:
        raise ValueError(f"{quoted(written)} is no name of a variable: letters, digits and _")
    return written


def _refusal(text: str) -> UnfitError:
    """Return the error of a secret; it marks the place as one that no other message may show."""
    return UnfitError(NOT_ALLOWED, text=text, secret=True)


def secret(value: object, bases: Bases) -> Secret | None:
    """Read where a secret is, and then the secret itself; null stands for none."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _refusal(f"a secret is never written here: write {HOW}, which say where it is")
    if len(value) != 1 or next(iter(value)) not in PARTS:
        raise _refusal(f"must be either {HOW}, with nothing else in it")
    ((part, named),) = value.items()
    if not isinstance(named, str) or not named.strip():
        raise _refusal(f"its {part} must be text: write {HOW}")
    return _of_variable(named, bases) if part == "env" else _of_file(path(named, bases), bases)


def _of_variable(name: str, bases: Bases) -> Secret:
    if _VARIABLE.fullmatch(name) is None:
        raise _refusal("its env is no name of a variable: letters, digits and _")
    if (found := bases.environ.get(name)) is None:
        raise _refusal(f"the environment variable {name} is not set")
    return _sendable(found, f"the environment variable {name}")


def _of_file(name: str, bases: Bases) -> Secret:
    """Read a file once per load: what was fine in the first pass over the configuration is so in the next."""
    if name not in bases.files:
        bases.files[name] = _read(name)
    found = bases.files[name]
    if isinstance(found, str):
        raise _refusal(f"{name} {found}")
    try:
        return _sendable(found.decode(), name)
    except UnicodeDecodeError:
        raise _refusal(f"{name} is not UTF-8 text") from None


def _read(name: str) -> bytes | str:
    """Return the bytes of a file, or that it cannot be read, and why. Waits for nobody, as it would where a pipe is named."""
    try:
        with open(name, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return "cannot be read: it is no file"
            found = file.read(LONGEST_SECRET + 1)
    except OSError as error:
        return unreadable(error)
    return (
        found if len(found) <= LONGEST_SECRET else f"cannot be read: it is longer than {LONGEST_SECRET} bytes"
    )


def _open(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)


def _sendable(found: str, where: str) -> Secret:
    """Return a secret without the white space around it; it must fit in a header (RFC 9110 section 5.5)."""
    if not (stripped := found.strip()):
        raise _refusal(f"{where} is empty")
    if _SENDABLE.fullmatch(stripped) is None:
        raise _refusal(f"{where} holds more than one word of visible ASCII, which no token does")
    return Secret(stripped)


_WORD_SCHEMA: Final = Schema({"type": "string"})
_NAME_SCHEMA: Final = Schema({"type": "string", "pattern": f"^{_VARIABLE.pattern}$"})
_SECRET_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        *(
            {
                "type": "object",
                "properties": {part: {"type": "string", "minLength": 1}},
                "required": [part],
                "additionalProperties": False,
            }
            for part in PARTS
        ),
        {"type": "null"},
    ]
}

Word: TypeAlias = Annotated[str, Plain(text(str, "text")), _WORD_SCHEMA]
Argv: TypeAlias = Annotated[
    tuple[Word, ...],
    Before(words),
    After(_program),
    Schema({"type": "array", "items": {"type": "string"}, "minItems": 1}),
]
Variable: TypeAlias = Annotated[
    str, Plain(text(_variable, "the name of a variable", quotable=False)), _NAME_SCHEMA
]
Variables: TypeAlias = Annotated[tuple[Variable, ...], After(no_twins)]
Url: TypeAlias = Annotated[
    str,
    Plain(text(hosts.parse_url, "a URL, such as http://localhost:52222")),
    Schema({"type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@]+[^#]*$"}),
]
MaybeSecret: TypeAlias = Annotated[Secret | None, Plain(secret, context=True), Schema(_SECRET_SCHEMA)]
