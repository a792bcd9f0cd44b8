"""Text of a worker as strangers may read it: without places on this host or in its network. Pure."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 1000
"""Characters of a text that are shown."""
PATH: Final = "[path]"
ADDRESS: Final = "[address]"

_ESCAPED: Final = r"%(?:25)*(?:2[fF]|5[cC])"
_SLASH: Final = rf"(?:[/\\\u2044\u2215\u2216\uff0f\uff3c]|{_ESCAPED})"
_SLASHES: Final = re.compile(_SLASH)
_QUOTED: Final = re.compile(rf"""(?P<quote>["'`])(?=[^"'`\n]*{_SLASH})[^"'`\n]*(?P=quote)""")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_EDGES: Final = r"""()\[\]{}<>"'`,;"""
_WORD: Final = re.compile(rf"[^\s{_EDGES}]+")
_PLAIN: Final = re.compile(
    r"(?:and/or|n/a|i/o|tcp/ip|[0-9]{1,4}/[0-9]{1,4}|[0-9]{1,2}(?::[0-9]{2}){1,2})[.:!?]*", re.IGNORECASE
)
_DRIVE: Final = re.compile("[A-Za-z]:")
_VERSION_4: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|@")
_VERSION_6: Final = re.compile(r"[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%\w+)?")
_NAMED: Final = re.compile(
    r"""
      localhost (?:\W.*)?
    | (?=.*[A-Za-z]) [\w.-]+ : [0-9]{2,5} [.:!?]*               # name:port
    | (?:[\w-]+\.){2,} [A-Za-z][\w-]+ [.:!?]*                  # a name with two dots
    | [\w-]+ \. (?:local|internal|lan|intranet|corp|home|localdomain|svc) [.:!?]*
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SOCKET: Final = re.compile(r"[(\[]\s*['\"][^'\"\n]*['\"]\s*,\s*[0-9]{1,5}\s*[)\]]")


def redacted(text: str) -> str:
    """Return a text without paths and addresses, one line of `LONGEST` characters at most.

    It errs on the side of hiding: whatever holds a slash counts as a path, but for a few words of everyday use.
    """
    line = " ".join(text[: 2 * LONGEST].split())
    line = _SOCKET.sub(ADDRESS, line)
    line = _URL.sub(ADDRESS, line)
    line = _QUOTED.sub(PATH, line)
    line = _WORD.sub(_hidden, line)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _hidden(found: re.Match[str]) -> str:
    word = found[0]
    if len(word) == 1 or _PLAIN.fullmatch(word):
        return word
    if _SLASHES.search(word) or word.startswith("~") or _DRIVE.fullmatch(word):
        return PATH
    if _VERSION_4.search(word) or _VERSION_6.fullmatch(word) or _NAMED.fullmatch(word):
        return ADDRESS
    return word
